"""Which tool results of a context may be masked, and what each would become.

What is found in a chunk of the context is remembered with the chunk, which later snapshots share: planning again costs
what has changed since, and a look at each result that may go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from contexthost.messages import Message, text_of
from contexthost.projection import ProjectedEntry, Snapshot
from contexthost.projection.breakdown import main_argument
from contexthost.session import Entry
from contexthost_masking.placeholder import overflow_id, placeholder
from contexthost_masking.settings import MaskSettings
from contexthost_masking.superseded import Key, keys_of, overtaken_keys

__all__ = ["Candidate", "Eligible", "Scan", "count_tokens", "eligible", "tokens_before"]

_SKILL_FILE: Final = "SKILL.md"
"""A skill's instructions, which the model goes on needing after it has read them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A result that may be masked.

    ``tokens`` is its size, ``placeholder_tokens`` what stays of that; ``argument`` is the call's main one, in full;
    ``overtaken_by`` the entry id of the later result that says the same or better, if there is one.
    """

    entry_id: str
    tool: str
    argument: str
    tokens: int
    placeholder: str
    placeholder_tokens: int
    overtaken_by: str | None = None

    @property
    def saved(self) -> int:
        """Tokens that masking it frees."""
        return self.tokens - self.placeholder_tokens


class Later(NamedTuple):
    """A result that overtakes earlier ones."""

    source: Entry
    tool: str


class Result:
    """A result that may be masked; ``at`` is its place in its chunk."""

    __slots__ = ("_made", "argument", "at", "item", "keys", "tool")

    def __init__(self, at: int, item: ProjectedEntry, tool: str, argument: str, keys: tuple[Key, ...]) -> None:
        self.at = at
        self.item = item
        self.tool = tool
        self.argument = argument
        self.keys = keys
        self._made: tuple[str | None, Candidate | None] | None = None

    def mask(self, later: Later | None) -> Candidate | None:
        """Its mask; None when that would not be smaller. The last one made is remembered."""
        by = later.source.id if later is not None else None
        if self._made is None or self._made[0] != by:
            self._made = by, self._mask(later)
        return self._made[1]

    def _mask(self, later: Later | None) -> Candidate | None:
        message = self.item.source.message or {}
        entry_id, tokens = self.item.source.id, self.item.tokens
        text = placeholder(
            tool=self.tool,
            argument=self.argument,
            tokens=tokens,
            lines=_lines(text_of(message.get("content"), "\n")),
            entry_id=entry_id,
            overflow_id=overflow_id(message),
            later=(later.tool, later.source.id) if later is not None else None,
        )
        left = _edited_tokens(self.item, text)
        by = later.source.id if later is not None else None
        return Candidate(entry_id, self.tool, self.argument, tokens, text, left, by) if left < tokens else None


_Call = Mapping[str, Any]


class Facts(NamedTuple):
    """What a chunk has: results that may be masked, results whose call is in none of its entries, the latest call
    under each id, and the last result that overtakes each key."""

    results: tuple[Result, ...]
    homeless: tuple[tuple[int, ProjectedEntry], ...]
    calls: Mapping[str, _Call]
    overtaking: Mapping[Key, Later]


@dataclass(frozen=True)
class Scan:
    """Looks through a chunk; equal scans (of equal settings) find their results remembered."""

    min_tokens: int
    errors: bool
    excluded: frozenset[str]

    @classmethod
    def of(cls, settings: MaskSettings) -> Scan:
        """What the settings let go."""
        return cls(settings.minEntryTokens, settings.maskErrors, frozenset(settings.excludeTools))

    def __call__(self, items: tuple[ProjectedEntry, ...]) -> Facts:
        calls: dict[str, _Call] = {}  # the latest under each id: ids may come twice in merged sessions
        results: list[Result] = []
        homeless: list[tuple[int, ProjectedEntry]] = []
        overtaking: dict[Key, Later] = {}
        for at, item in enumerate(items):
            role = item.source.role
            if role == "assistant":
                calls.update(_calls(item))
            elif role == "toolResult" and item.messages:
                call_id = (item.source.message or {}).get("toolCallId")
                call = calls.get(call_id) if isinstance(call_id, str) else None
                if call is None:
                    homeless.append((at, item))
                else:
                    self.take(at, item, call, results, overtaking)
        return Facts(tuple(results), tuple(homeless), calls, overtaking)

    def take(
        self,
        at: int,
        item: ProjectedEntry,
        call: _Call | None,
        results: list[Result],
        overtaking: dict[Key, Later],
    ) -> None:
        """Adds a result where it belongs: to those that may be masked, to those that overtake others."""
        message = item.source.message
        if message is None:
            return
        tool = message.get("toolName")
        name = tool if isinstance(tool, str) and tool else _name(call)
        arguments = call.get("arguments") if call is not None else None
        failed = bool(message.get("isError"))
        if call is not None and (item.edit is None or item.masked):
            for key in overtaken_keys(name, arguments, failed=failed):
                overtaking[key] = Later(item.source, name)
        if item.edit is not None or item.tokens < self.min_tokens:
            return
        if (failed and not self.errors) or not _is_text(message) or name in self.excluded:
            return
        argument = main_argument(arguments)
        if name == "read" and (call is None or _is_skill(argument)):
            return  # a read whose call is not in the context might be of a skill
        results.append(Result(at, item, name, argument, keys_of(name, arguments) if call is not None else ()))


class Eligible(NamedTuple):
    """A result that may be masked, its place in the context, and the later one that has overtaken it."""

    position: int
    result: Result
    later: Later | None


def eligible(snapshot: Snapshot, settings: MaskSettings) -> list[Eligible]:
    """Every result that may be masked, oldest first."""
    scan = Scan.of(settings)
    found: list[tuple[int, Result]] = []
    overtaking: dict[Key, Later] = {}
    passed: list[Facts] = []
    start = 0
    for chunk in snapshot.entries.chunks:
        facts = chunk.once(scan)
        results = facts.results
        late: dict[Key, Later] = {}
        if facts.homeless:
            extra: list[Result] = []
            for at, item in facts.homeless:
                scan.take(at, item, _call_before(passed, item), extra, late)
            results = tuple(sorted((*results, *extra), key=lambda result: result.at)) if extra else results
        overtaking.update(facts.overtaking)
        for key, later in late.items():
            known = overtaking.get(key)
            if known is None or known.source.depth < later.source.depth:
                overtaking[key] = later
        found.extend((start + result.at, result) for result in results)
        passed.append(facts)
        start += len(chunk.items)
    end = _recent_start(snapshot, settings.keepRecentTurns)
    look = overtaking if settings.order == "superseded" else {}
    return [
        Eligible(position, result, _later(result, look) if look else None)
        for position, result in found
        if position < end
    ]


def tokens_before(snapshot: Snapshot, position: int) -> int:
    """The tokens of the context's entries before a place."""
    total = start = 0
    for chunk in snapshot.entries.chunks:
        if start + len(chunk.items) > position:
            return total + sum(item.tokens for item in chunk.items[: position - start])
        total += chunk.once(count_tokens)
        start += len(chunk.items)
    return total


def _later(result: Result, overtaking: Mapping[Key, Later]) -> Later | None:
    """The last result that has overtaken this one: what is nearest to how things are now."""
    best: Later | None = None
    depth = result.item.source.depth  # along one branch it only grows
    for key in result.keys:
        later = overtaking.get(key)
        if later is not None and later.source.depth > depth:
            best, depth = later, later.source.depth
    return best


def _call_before(passed: list[Facts], item: ProjectedEntry) -> _Call | None:
    call_id = (item.source.message or {}).get("toolCallId")
    if not isinstance(call_id, str):
        return None
    return next((facts.calls[call_id] for facts in reversed(passed) if call_id in facts.calls), None)


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


def _calls(item: ProjectedEntry) -> Iterator[tuple[str, _Call]]:
    """The tool calls that the model still sees: what an edit took away must not come back in a placeholder."""
    for message in item.messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "toolCall" and isinstance(block.get("id"), str):
                yield block["id"], block


def count_tokens(items: tuple[ProjectedEntry, ...]) -> int:
    """The tokens of a chunk of the context."""
    return sum(item.tokens for item in items)


def _is_text(message: Message) -> bool:
    """Whether a result has nothing but text: an image cannot be given back as a page of text."""
    content = message.get("content")
    if not isinstance(content, list):
        return isinstance(content, str)
    return all(isinstance(block, dict) and block.get("type") == "text" for block in content)


def _name(call: _Call | None) -> str:
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
