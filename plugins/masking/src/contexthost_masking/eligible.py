"""Which tool results of a context may be masked, and what each would become.

What is found in a chunk of the context is remembered with the chunk, which later snapshots share, and with it the masks
of its results as long as nothing outside the chunk has overtaken them: planning again costs what has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from contexthost.messages import Message, text_of
from contexthost.projection import ContextEditDraft, ProjectedEntry, Snapshot
from contexthost.projection.breakdown import main_argument
from contexthost.session import Entry
from contexthost_masking.placeholder import overflow_id, placeholder
from contexthost_masking.settings import MaskSettings
from contexthost_masking.superseded import Key, keys_of, overtaken_keys

__all__ = ["Candidate", "Choice", "Choices", "Scan", "count_tokens", "eligible", "tokens_before"]

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


class Choice(NamedTuple):
    """A mask that may be made: the result's place in its chunk, what to say of it, what to append."""

    at: int
    candidate: Candidate
    draft: ContextEditDraft


class Choices(NamedTuple):
    """The masks that may be made in one chunk, in the context's order: of results that were overtaken, and of the
    others; with the tokens that each would free together."""

    overtaken: Sequence[Choice]
    overtaken_saved: int
    others: Sequence[Choice]
    others_saved: int


class Result:
    """A result that may be masked; ``at`` is its place in its chunk."""

    __slots__ = ("_made", "argument", "at", "item", "keys", "tool")

    def __init__(self, at: int, item: ProjectedEntry, tool: str, argument: str, keys: tuple[Key, ...]) -> None:
        self.at = at
        self.item = item
        self.tool = tool
        self.argument = argument
        self.keys = keys
        self._made: tuple[str | None, Choice | None] | None = None

    def mask(self, later: Later | None) -> Choice | None:
        """Its mask; None when that would not be smaller. The last one made is remembered."""
        by = later.source.id if later is not None else None
        if self._made is None or self._made[0] != by:
            self._made = by, self._mask(later, by)
        return self._made[1]

    def _mask(self, later: Later | None, by: str | None) -> Choice | None:
        message = self.item.source.read_message() or {}
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
        if left >= tokens:
            return None
        candidate = Candidate(entry_id, self.tool, self.argument, tokens, text, left, by)
        return Choice(self.at, candidate, ContextEditDraft(target_id=entry_id, replacement={"content": text}))


_Call = Mapping[str, Any]


class Facts:
    """What a chunk has: results that may be masked, results whose call is in none of its entries, the latest call
    under each id, and the last result that overtakes each key."""

    __slots__ = ("_alone", "calls", "homeless", "keys", "overtaking", "results")

    def __init__(
        self,
        results: Sequence[Result],
        homeless: Sequence[tuple[int, ProjectedEntry]],
        calls: Mapping[str, _Call],
        overtaking: Mapping[Key, Later],
    ) -> None:
        self.results = results
        self.homeless = homeless
        self.calls = calls
        self.overtaking = overtaking
        self.keys = frozenset(key for result in results for key in result.keys)
        self._alone: dict[bool, Choices] = {}

    def alone(self, look: bool) -> Choices:
        """The masks as long as nothing outside the chunk matters; ``look`` at what has been overtaken at all."""
        if look not in self._alone:
            self._alone[look] = _choices(self.results, self.overtaking.get if look else None)
        return self._alone[look]


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
            elif role == "toolResult" and not item.omitted:
                call_id = (item.source.read_message() or {}).get("toolCallId")
                call = calls.get(call_id) if isinstance(call_id, str) else None
                if call is None:
                    homeless.append((at, item))
                else:
                    self.take(at, item, call, results, overtaking)
        return Facts(results, homeless, calls, overtaking)

    def take(
        self,
        at: int,
        item: ProjectedEntry,
        call: _Call | None,
        results: list[Result],
        overtaking: dict[Key, Later],
    ) -> None:
        """Adds a result where it belongs: to those that may be masked, to those that overtake others."""
        message = item.source.read_message()
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


def eligible(snapshot: Snapshot, settings: MaskSettings) -> list[tuple[int, Choices]]:
    """The masks that may be made, chunk by chunk, each with the place in the context where the chunk begins."""
    scan = Scan.of(settings)
    chunks = snapshot.entries.chunks
    facts = [chunk.once(scan) for chunk in chunks]
    extra, late = _housed(scan, facts)
    later = _Overtaking(facts, extra, late) if settings.order == "superseded" else None
    end = _recent_start(snapshot, settings.keepRecentTurns)
    everything: list[tuple[int, Choices]] = []
    start = 0
    for number, (chunk, known) in enumerate(zip(chunks, facts, strict=True)):
        if start >= end:
            break
        results = known.results
        if start + len(chunk.items) <= end and number not in extra and (later is None or later.is_alone(number)):
            everything.append((start, known.alone(later is not None)))
        else:
            results = [one for one in (*results, *extra.get(number, ())) if start + one.at < end]
            results.sort(key=lambda result: result.at)
            everything.append((start, _choices(results, later.get if later is not None else None)))
        start += len(chunk.items)
    return everything


class _Overtaking:
    """The last result that overtakes each key, over all chunks from the first that has anything to overtake."""

    def __init__(
        self, facts: Sequence[Facts], extra: Mapping[int, Sequence[Result]], late: Mapping[Key, Later]
    ) -> None:
        self._facts = facts
        self._owner: dict[Key, int] = {}  # the chunk that has it, -1 where only `late` has
        first = next((at for at, known in enumerate(facts) if known.results or at in extra), len(facts))
        for number in range(first, len(facts)):
            self._owner.update(dict.fromkeys(facts[number].overtaking, number))
        self._late = late
        for key, one in late.items():
            known = self.get(key)
            if known is None or known.source.depth < one.source.depth:
                self._owner[key] = -1

    def get(self, key: Key) -> Later | None:
        """The last result that overtakes a key."""
        owner = self._owner.get(key)
        if owner is None:
            return None
        return self._late[key] if owner < 0 else self._facts[owner].overtaking[key]

    def is_alone(self, number: int) -> bool:
        """Whether nothing outside a chunk overtakes any of its results."""
        return {None, number}.issuperset(map(self._owner.get, self._facts[number].keys))


def _housed(scan: Scan, facts: Sequence[Facts]) -> tuple[dict[int, list[Result]], dict[Key, Later]]:
    """The results whose call is in an earlier chunk than they are, or nowhere: those that may be masked, by chunk, and
    what they overtake."""
    found: dict[int, list[Result]] = {}
    late: dict[Key, Later] = {}
    for number, known in enumerate(facts):
        for at, item in known.homeless:
            call_id = (item.source.read_message() or {}).get("toolCallId")
            call: _Call | None = None
            if isinstance(call_id, str):
                before = (facts[at].calls for at in range(number - 1, -1, -1))
                call = next((calls[call_id] for calls in before if call_id in calls), None)
            results: list[Result] = []
            scan.take(at, item, call, results, late)
            if results:
                found.setdefault(number, []).extend(results)
    return found, late


def _choices(results: Sequence[Result], overtaking: Callable[[Key], Later | None] | None) -> Choices:
    sides: tuple[list[Choice], list[Choice]] = ([], [])
    saved = [0, 0]
    for result in results:
        later = _later(result, overtaking) if overtaking is not None else None
        choice = result.mask(later)
        if choice is not None:
            side = later is None
            sides[side].append(choice)
            saved[side] += choice.candidate.saved
    return Choices(sides[False], saved[False], sides[True], saved[True])


def tokens_before(snapshot: Snapshot, position: int) -> int:
    """The tokens of the context's entries before a place."""
    total = start = 0
    for chunk in snapshot.entries.chunks:
        if start + len(chunk.items) > position:
            return total + sum(item.tokens for item in chunk.items[: position - start])
        total += chunk.once(count_tokens)
        start += len(chunk.items)
    return total


def _later(result: Result, overtaking: Callable[[Key], Later | None]) -> Later | None:
    """The last result that has overtaken this one: what is nearest to how things are now."""
    best: Later | None = None
    depth = result.item.source.depth  # along one branch it only grows
    for key in result.keys:
        later = overtaking(key)
        if later is not None and later.source.depth > depth:
            best, depth = later, later.source.depth
    return best


def _recent_start(snapshot: Snapshot, turns: int) -> int:
    """Where the protected turns begin: at the last assistant message but ``turns - 1``, omitted ones not counted."""
    start = len(snapshot.entries)
    if turns <= 0:
        return start
    for chunk in reversed(snapshot.entries.chunks):
        start -= len(chunk.items)
        places = chunk.once(_turns)
        if len(places) >= turns:
            return start + places[-turns]
        turns -= len(places)
    return 0


def _turns(items: tuple[ProjectedEntry, ...]) -> tuple[int, ...]:
    return tuple(at for at, item in enumerate(items) if item.source.role == "assistant" and not item.omitted)


def _calls(item: ProjectedEntry) -> Iterator[tuple[str, _Call]]:
    """The tool calls that the model still sees: what an edit took away must not come back in a placeholder."""
    for message in item.read():
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
