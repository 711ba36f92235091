"""Which tool results to mask: a pure function of a snapshot and the settings.

1. Nothing happens until effective usage reaches the trigger, and a batch then goes down to the target: every edit in
   the middle of the context makes the provider's prompt cache useless from there on, so edits come rarely and together.
2. Oldest first, until usage would be at the target or below.
3. A batch that would free less than ``minClearTokens`` is not made.
4. Planning again after a batch finds nothing. Once something is masked no earlier provider figure is trusted, so usage
   becomes our own count of the context. A batch therefore brings both figures down to the target, the usage it starts
   from and our count: either the count is then below the trigger, or no eligible result is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from contexthost.messages import Message, text_of
from contexthost.projection import ContextEditDraft, ProjectedEntry, Snapshot
from contexthost.projection.breakdown import main_argument
from contexthost.session import Entry
from contexthost.tokens import EffectiveUsage
from contexthost_masking.placeholder import overflow_id, placeholder
from contexthost_masking.settings import MaskSettings

__all__ = ["Candidate", "MaskPlan", "Reason", "Thresholds", "plan_mask", "thresholds"]

Reason = Literal["below-trigger", "nothing-eligible", "too-little"]
"""Why nothing is to be done."""

_SKILL_FILE: Final = "SKILL.md"
"""A skill's instructions, which the model goes on needing after it has read them."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is in force for one context window, in tokens.

    ``target`` is below ``trigger``; ``warning`` says so when the settings had it otherwise.
    """

    trigger: int
    target: int
    min_clear: int
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A result that may be masked.

    ``tokens`` is its size, ``placeholder_tokens`` what stays of that; ``argument`` is the call's main one, in full.
    """

    entry_id: str
    tool: str
    argument: str
    tokens: int
    placeholder: str
    placeholder_tokens: int

    @property
    def saved(self) -> int:
        """Tokens that masking it frees."""
        return self.tokens - self.placeholder_tokens


@dataclass(frozen=True, slots=True)
class MaskPlan:
    """What to do about a context.

    Attributes:
        drafts: the batch, one context edit per result, oldest first; empty when nothing is to be done.
        candidates: the results in the batch; those of a batch that was not worth making are still listed.
        usage: effective usage before.
        tokens_after: the usage expected after the batch, in tokens; as before when nothing is to be done.
        reclaimed_tokens: what the batch frees, net of placeholders.
        rewritten_tokens: what stands behind the first masked result, that placeholder included: the part of the
            prompt that the provider's cache will not have and that is written to it again, once.
        reason: why nothing is to be done; None with a batch.
    """

    thresholds: Thresholds
    usage: EffectiveUsage
    tokens_after: int
    drafts: tuple[ContextEditDraft, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    reclaimed_tokens: int = 0
    rewritten_tokens: int = 0
    reason: Reason | None = None

    @property
    def explanation(self) -> str:
        """One sentence for people: what is to be done, or why nothing is."""
        found = f"{len(self.candidates):,} {'result' if len(self.candidates) == 1 else 'results'}"
        if self.reason == "below-trigger":
            return f"usage is {self.usage.tokens:,} tokens, masking starts at {self.thresholds.trigger:,}"
        if self.reason == "nothing-eligible":
            return "no tool result may be masked: all are recent, small, protected or masked already"
        if self.reason == "too-little":
            freed = sum(candidate.saved for candidate in self.candidates)
            return f"masking {found} would free {freed:,} tokens, a batch must free {self.thresholds.min_clear:,}"
        return (
            f"masking {found} frees {self.reclaimed_tokens:,} tokens; "
            f"{self.rewritten_tokens:,} tokens of prompt cache are rewritten once"
        )


def thresholds(settings: MaskSettings, window: int) -> Thresholds:
    """The thresholds in force for a context window of so many tokens."""
    trigger = max(1, min(settings.triggerTokens, math.floor(settings.triggerRatio * window)))
    target = min(settings.targetTokens, math.floor(settings.targetRatio * window))
    warning = None
    if target >= trigger:
        warning = (
            f"masking.json: the target in force ({target:,} tokens) is not below the trigger ({trigger:,}); "
            f"{trigger - 1:,} is used: lower mask.targetTokens or mask.targetRatio"
        )
        target = trigger - 1
    return Thresholds(trigger, target, settings.minClearTokens, warning)


def plan_mask(snapshot: Snapshot, settings: MaskSettings) -> MaskPlan:
    """The batch of masks that a context needs now; see the rules in the module's docstring.

    Looks at each entry of the context once, and at none below the trigger.
    """
    limits = thresholds(settings, snapshot.window)
    usage = snapshot.usage
    if usage.tokens < limits.trigger:
        return MaskPlan(limits, usage, usage.tokens, reason="below-trigger")
    counted = snapshot.tokens
    excess = max(usage.tokens, counted) - limits.target
    chosen: list[Candidate] = []
    saved = before_first = 0
    for position, candidate in _eligible(snapshot, settings):
        if not chosen:
            before_first = sum(snapshot.entries[at].tokens for at in range(position))
        chosen.append(candidate)
        saved += candidate.saved
        if saved >= excess:
            break
    candidates = tuple(chosen)
    if not candidates or saved < limits.min_clear:
        reason: Reason = "too-little" if candidates else "nothing-eligible"
        return MaskPlan(limits, usage, usage.tokens, candidates=candidates, reason=reason)
    return MaskPlan(
        limits,
        usage,
        tokens_after=counted - saved,
        drafts=tuple(
            ContextEditDraft(target_id=one.entry_id, replacement={"content": one.placeholder}) for one in candidates
        ),
        candidates=candidates,
        reclaimed_tokens=saved,
        rewritten_tokens=counted - before_first - saved,
    )


def _eligible(snapshot: Snapshot, settings: MaskSettings) -> Iterator[tuple[int, Candidate]]:
    """Place and mask of every result that may be masked, oldest first."""
    excluded = frozenset(settings.excludeTools)
    calls: dict[str, Mapping[str, Any]] = {}  # the latest call under each id: ids may come twice in merged sessions
    for position in range(_recent_start(snapshot, settings.keepRecentTurns)):
        item = snapshot.entries[position]
        role = item.source.role
        if role == "assistant":
            calls.update(_calls(item))
        elif role == "toolResult":
            candidate = _candidate(item, calls, settings, excluded)
            if candidate is not None:
                yield position, candidate


def _recent_start(snapshot: Snapshot, turns: int) -> int:
    """Where the protected turns begin: at the last assistant message but ``turns - 1``, omitted ones not counted."""
    end = len(snapshot.entries)
    for position in range(end - 1, -1, -1):
        if turns <= 0:
            return end
        item = snapshot.entries[position]
        if item.source.role == "assistant" and not item.omitted:
            turns -= 1
            end = position
    return 0 if turns > 0 else end


def _calls(item: ProjectedEntry) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tool calls that the model still sees: what an edit took away must not come back in a placeholder."""
    for message in item.messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "toolCall" and isinstance(block.get("id"), str):
                yield block["id"], block


def _candidate(
    item: ProjectedEntry, calls: Mapping[str, Mapping[str, Any]], settings: MaskSettings, excluded: frozenset[str]
) -> Candidate | None:
    """The mask of a result; None when it may not be masked or a mask would not be smaller."""
    message = item.source.message
    if item.edit is not None or message is None or not item.messages:
        return None
    tokens = item.tokens
    if tokens < settings.minEntryTokens:
        return None
    if (message.get("isError") and not settings.maskErrors) or not _is_text(message):
        return None
    call_id = message.get("toolCallId")
    call = calls.get(call_id) if isinstance(call_id, str) else None
    tool = message.get("toolName")
    name = tool if isinstance(tool, str) and tool else _name(call)
    argument = main_argument(call.get("arguments")) if call is not None else ""
    if name in excluded or (name == "read" and (call is None or _is_skill(argument))):
        return None  # a read whose call is not in the context might be of a skill
    text = placeholder(
        tool=name,
        argument=argument,
        tokens=tokens,
        lines=_lines(text_of(message.get("content"), "\n")),
        entry_id=item.source.id,
        overflow_id=overflow_id(message),
    )
    left = _edited_tokens(item, text)
    return Candidate(item.source.id, name, argument, tokens, text, left) if left < tokens else None


def _is_text(message: Message) -> bool:
    """Whether a result has nothing but text: an image cannot be given back as a page of text."""
    content = message.get("content")
    if not isinstance(content, list):
        return isinstance(content, str)
    return all(isinstance(block, dict) and block.get("type") == "text" for block in content)


def _name(call: Mapping[str, Any] | None) -> str:
    name = call.get("name") if call is not None else None
    return name if isinstance(name, str) and name else "tool"


def _is_skill(path: str) -> bool:
    last = path.strip().replace("\\", "/").rsplit("/", 1)[-1]
    return last.removeprefix("@") == _SKILL_FILE  # Pi's read takes a path with an @ before it, as users mention files


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _edited_tokens(item: ProjectedEntry, text: str) -> int:
    """What the projection itself will count for the entry behind its placeholder."""
    edit = {"type": "context_edit", "id": "", "targetId": item.source.id, "replacement": {"content": text}}
    return item.edited(Entry.drafted(edit, parent=None, position=0)).tokens
