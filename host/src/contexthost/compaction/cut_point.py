"""Where a compaction cuts: the entries before the cut are summarised, those from it on are kept.

The rules are Pi's, with one difference. Pi moves the cut back over metadata that stands directly before it and then
asks whether the entry at the cut starts a turn; metadata never does, so a cut before a user message becomes a split
turn. Here the question is asked of the visible entry that the cut was found at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contexthost.compaction.protocols import ContextMessages, EntryLike, ProjectedEntryLike
from contexthost.messages import Message
from contexthost.tokens.pi import pi_estimate

__all__ = ["CutPoint", "find_cut_point", "find_projected_cut_point"]

_TURN_START_ROLES: Final = frozenset({"user", "bashExecution", "custom", "branchSummary", "compactionSummary"})
# Never a tool result, which would lose its call, and never a system message.
_CUT_POINT_ROLES: Final = _TURN_START_ROLES | {"assistant"}


@dataclass(frozen=True, slots=True)
class CutPoint:
    """``first_kept`` is the index of the first entry that is kept.

    ``turn_start`` is the index of the entry that began the turn which the cut splits, None if the cut splits no turn.
    """

    first_kept: int
    turn_start: int | None = None

    @property
    def is_split_turn(self) -> bool:
        return self.turn_start is not None


def find_cut_point(
    entries: Sequence[EntryLike],
    start: int,
    end: int,
    keep_tokens: int,
    *,
    context_messages: ContextMessages,
) -> CutPoint:
    """The cut that keeps about ``keep_tokens`` of the entries from ``start`` up to, not including, ``end``.

    Sizes are Pi's estimates of the entries' own messages, context edits left out of account. Counted from the end, the
    entry that reaches the budget is kept, so at least ``keep_tokens`` are; but if that entry is a tool result, the cut
    is at the next possible place after it (for the last results: at their call), which may keep less. If the budget is
    never reached, the cut is at the first possible place, and at ``start`` if there is none.
    """
    window = _Window(start, end, lambda i: entries[i].type == "compaction", lambda i: context_messages(entries[i]))
    found = window.budget_cut(keep_tokens)
    return CutPoint(start) if found is None else window.cut_at(found.index)


def find_projected_cut_point(
    entries: Sequence[ProjectedEntryLike],
    start: int,
    end: int,
    keep_tokens: int,
    *,
    context_messages: ContextMessages,
) -> CutPoint:
    """As :func:`find_cut_point`, over the messages that context edits leave.

    One rule more: input whose only answer was an abandoned attempt, omitted since, may be summarised. If nothing
    visible follows the cut but an omitted assistant message does, the cut moves past the input.
    """
    window = _Window(start, end, lambda i: entries[i].source.type == "compaction", lambda i: entries[i].read())
    found = window.budget_cut(keep_tokens)
    if found is None:
        return CutPoint(start)
    answered = found.reached_budget and _is_abandoned_attempt(entries[found.index + 1 : end], context_messages)
    return window.cut_at(found.index + 1 if answered else found.index)


@dataclass(frozen=True, slots=True)
class _BudgetCut:
    index: int
    reached_budget: bool


@dataclass(frozen=True, slots=True)
class _Window:
    """The entries from ``start`` up to ``end``, by index."""

    start: int
    end: int
    is_compaction: Callable[[int], bool]
    messages: Callable[[int], Sequence[Message]]

    def budget_cut(self, keep_tokens: int) -> _BudgetCut | None:
        """The first possible cut at or after the entry that reaches the budget; None if no cut is possible anywhere.

        One walk from the end, so that a long session is only looked at as far back as the budget reaches.
        """
        nearest: int | None = None
        tokens = 0
        reached = False
        for index in range(self.end - 1, self.start - 1, -1):
            messages = self.messages(index)
            if _has_role(messages, _CUT_POINT_ROLES) and not self.is_compaction(index):
                nearest = index
            if not reached:
                size = sum(map(pi_estimate, messages))
                tokens += size
                reached = size > 0 and tokens >= keep_tokens
            # Trailing tool results may reach the budget alone: then their call, further back, is kept with them.
            if reached and nearest is not None:
                return _BudgetCut(nearest, True)
        return None if nearest is None else _BudgetCut(nearest, False)

    def cut_at(self, visible: int) -> CutPoint:
        """The cut before the entry at ``visible``, moved back over what contributes no messages directly before it."""
        first_kept = visible
        while first_kept > self.start and not self.is_compaction(first_kept - 1) and not self.messages(first_kept - 1):
            first_kept -= 1
        if self._starts_turn(visible):
            return CutPoint(first_kept)
        before = range(first_kept, self.start - 1, -1)
        return CutPoint(first_kept, next((index for index in before if self._starts_turn(index)), None))

    def _starts_turn(self, index: int) -> bool:
        return not self.is_compaction(index) and _has_role(self.messages(index), _TURN_START_ROLES)


def _has_role(messages: Sequence[Message], roles: frozenset[str]) -> bool:
    return any(_role(message) in roles for message in messages)


def _role(message: Message) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def _is_abandoned_attempt(suffix: Sequence[ProjectedEntryLike], context_messages: ContextMessages) -> bool:
    """Whether what follows the cut is an omitted assistant attempt and nothing that the model sees or will see."""
    omitted: set[str] = set()
    attempted = False
    for entry in suffix:
        source = entry.source
        if source.type == "compaction":
            return False
        own = context_messages(source)
        if not own:
            continue
        if entry.read():
            return False
        omitted.add(source.id)
        attempted = attempted or (source.type == "message" and _role(own[0]) == "assistant")
    # A replacement of something before the suffix is new input that the model has not seen yet.
    return attempted and not any(_replaces_other_than(omitted, entry.source) for entry in suffix)


def _replaces_other_than(omitted: set[str], source: EntryLike) -> bool:
    if source.type != "context_edit" or source.data.get("replacement", "absent") is None:
        return False
    target = source.data.get("targetId")
    return not isinstance(target, str) or target not in omitted
