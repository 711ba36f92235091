"""Making the projected messages safe to send: every call answered once, every result owned, nothing lost silently.

What is to be sent is put together from parts that are mended each on its own and remembered: the next request of a long
session costs the part that changed.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, overload

from contexthost.messages import Message, convert_to_llm

__all__ = ["Mend", "Part", "Pieces", "ProviderView", "mend", "part_of"]

NO_RESULT: Final = "No result provided"
"""What stands for a missing tool result: Pi's own text, so that switching between the two costs no cache miss."""


@dataclass(frozen=True, slots=True)
class Mend:
    """One change that `mend` made to what would be sent.

    Attributes:
        kind: ``orphan-result`` and ``duplicate-result`` were left out, ``unanswered-call`` got a synthetic error
            result, ``late-result`` was moved up to its call, ``failed-attempt`` (an aborted or failed answer) was
            left out as Pi leaves it out, ``repeated-call`` (an id twice in one message, or none) was left out,
            ``late-system`` was moved behind the results it stood between.
        tool_call_id: the call concerned; None for the last two kinds.
        index: the message's place in the projected, converted messages.
    """

    kind: Literal[
        "orphan-result",
        "duplicate-result",
        "unanswered-call",
        "late-result",
        "repeated-call",
        "failed-attempt",
        "late-system",
    ]
    tool_call_id: str | None
    index: int


def mend(messages: Iterable[Message]) -> tuple[list[Message], list[Mend]]:
    """Converts messages to those of a provider request and mends what providers refuse.

    After it, each assistant message is followed at once by exactly one result for each of its calls, in call order,
    and no other result exists. Messages that need no change are passed on as the same objects.
    """
    view = ProviderView((part_of(messages),))
    return list(view.messages), list(view.mends)


# One stretch of messages -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OpenCall:
    """The newest call of an id in its part, if nothing there answers it: something behind may."""

    place: int  # in `Part.out`, of what stands for its result
    index: int  # of its message


@dataclass(frozen=True, slots=True)
class _Foreign:
    """A result whose call stands before its part, if anywhere."""

    call_id: str
    index: int
    message: Message
    after_others: bool  # whether a message that may not stand between call and result stands before it in its part


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of messages, converted and mended as far as it alone can tell. Indices count converted messages.

    Attributes:
        count: converted messages.
        out: what is to be sent, with a synthetic result for each open call.
        mends: what was changed, but for open calls, foreign results and trailing system messages.
        calls: the ids called here.
        open: the calls that something behind may still answer.
        foreign: results of calls before it.
        last_other: the last message that may not stand between a call and its result; -1 without one.
        first_role: of the first message that is no system message; None without one.
        trailing: the system messages behind the last other message.
    """

    count: int
    out: tuple[Message, ...]
    mends: tuple[Mend, ...]
    calls: frozenset[str]
    open: Mapping[str, _OpenCall]
    foreign: tuple[_Foreign, ...]
    last_other: int
    first_role: Any
    trailing: tuple[int, ...]
    _answered: list[tuple[Mapping[int, Message], tuple[Message, ...]]] = field(default_factory=list, repr=False)

    def with_results(self, results: Mapping[int, Message]) -> tuple[Message, ...]:
        """``out`` with results of open calls, by their places. The last such is remembered, for it does not change."""
        if not results:
            return self.out
        for known, made in self._answered:
            if known.keys() == results.keys() and all(known[place] is results[place] for place in known):
                return made
        out = list(self.out)
        for place, message in results.items():
            out[place] = message
        self._answered[:] = [(results, tuple(out))]
        return self._answered[0][1]


def part_of(messages: Iterable[Message]) -> Part:
    """Converts a stretch of messages and mends it as far as it alone can tell."""
    source = convert_to_llm(messages)
    mends: list[Mend] = []
    found = _results(source, mends)
    inside, trailing = _inside_batches(source)
    out: list[Message] = []
    open_calls: dict[str, _OpenCall] = {}
    for index, message in enumerate(source):
        role = message.get("role")
        if role == "toolResult":
            continue  # placed right behind its call, or reported by _results
        if _failed(message):
            mends.append(Mend("failed-attempt", None, index))
            continue
        if index in inside:
            mends.append(Mend("late-system", None, index))
        if role != "assistant":
            out.append(message)
            continue
        out.append(_without_repeated_calls(message, index, mends))
        for call_id, name in _calls(message):
            answer = found.answers.get((index, call_id))
            if answer is not None:
                out.append(source[answer])
                continue
            if found.owner[call_id] == index:
                open_calls[call_id] = _OpenCall(len(out), index)
            else:
                mends.append(Mend("unanswered-call", call_id, index))
            out.append(_no_result(call_id, name, message.get("timestamp")))
    roles = (message.get("role") for message in source)
    return Part(
        count=len(source),
        out=tuple(out),
        mends=tuple(mends),
        calls=frozenset(found.owner),
        open=open_calls,
        foreign=tuple(found.foreign),
        last_other=found.last_other,
        first_role=next((role for role in roles if role != "system"), None),
        trailing=trailing,
    )


@dataclass(slots=True)
class _Results:
    owner: dict[str, int] = field(default_factory=dict)  # the newest message that calls each id
    answers: dict[tuple[int, str], int] = field(default_factory=dict)  # of a call, as (its message, id): the result
    foreign: list[_Foreign] = field(default_factory=list)
    last_other: int = -1


def _results(source: list[Message], mends: list[Mend]) -> _Results:
    """Where the results of the calls stand; reports those that answer nothing."""
    made = _Results()
    for index, message in enumerate(source):
        role = message.get("role")
        if role == "toolResult":
            call_id = message.get("toolCallId")
            if not isinstance(call_id, str):
                mends.append(Mend("orphan-result", None, index))
            elif call_id not in made.owner:
                made.foreign.append(_Foreign(call_id, index, message, made.last_other >= 0))
            elif (made.owner[call_id], call_id) in made.answers:
                mends.append(Mend("duplicate-result", call_id, index))
            else:
                made.answers[made.owner[call_id], call_id] = index
                if made.last_other > made.owner[call_id]:
                    mends.append(Mend("late-result", call_id, index))
        elif role in ("user", "assistant") and not _failed(message):
            made.last_other = index
            if role == "assistant":
                for call_id, _ in _calls(message):
                    made.owner[call_id] = index
    return made


# All of them together ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Placed:
    """Parts, and where their results belong whose calls are in another part."""

    parts: tuple[Part, ...] = ()
    orphans: list[tuple[int, _Foreign]] = field(default_factory=list)
    duplicates: list[tuple[int, _Foreign]] = field(default_factory=list)
    late: list[tuple[int, _Foreign]] = field(default_factory=list)
    results: dict[int, Mapping[int, Message]] = field(default_factory=dict)  # by the call's part and place in its `out`
    answered: set[tuple[int, str]] = field(default_factory=set)  # calls, as (their part, id)
    pieces: list[Sequence[Message]] = field(default_factory=list)  # each part with its results

    def and_more(self, parts: Sequence[Part]) -> _Placed:
        """These parts with more behind them; costs a look at those, and a copy of this."""
        made = _Placed(
            (*self.parts, *parts),
            list(self.orphans),
            list(self.duplicates),
            list(self.late),
            dict(self.results),
            set(self.answered),
            [*self.pieces, *[part.out for part in parts]],
        )
        changed: set[int] = set()
        for number in range(len(self.parts), len(made.parts)):
            for result in made.parts[number].foreign:
                owner = made._place(number, result)
                if owner is not None:
                    changed.add(owner)
        for owner in changed:
            made.pieces[owner] = made.parts[owner].with_results(made.results[owner])
        return made

    def _place(self, number: int, result: _Foreign) -> int | None:
        """The part whose call a result answers; None when it answers none."""
        owner = self._owner(number, result.call_id)
        if owner is None:
            self.orphans.append((number, result))
            return None
        call = self.parts[owner].open.get(result.call_id)
        if call is None or (owner, result.call_id) in self.answered:
            self.duplicates.append((number, result))
            return None
        self.answered.add((owner, result.call_id))
        self.results[owner] = {**self.results.get(owner, {}), call.place: result.message}
        between = (other.last_other >= 0 for other in self.parts[owner + 1 : number])
        if result.after_others or self.parts[owner].last_other > call.index or any(between):
            self.late.append((number, result))
        return owner

    def _owner(self, number: int, call_id: str) -> int | None:
        """The newest part before that one that calls the id: the one right before, in a healthy session."""
        return next((at for at in range(number - 1, -1, -1) if call_id in self.parts[at].calls), None)


class ProviderView:
    """The messages of a request, put together from parts; costs a look at each part, not at each message.

    ``before`` is the view of the parts that stand before these; it is not looked through again.
    """

    def __init__(self, parts: Sequence[Part], before: ProviderView | None = None) -> None:
        self._placed: _Placed = (before._placed if before is not None else _Placed()).and_more(parts)
        self.messages = Pieces(self._placed.pieces)

    @functools.cached_property
    def mends(self) -> tuple[Mend, ...]:
        """What was changed, in the order of the messages concerned."""
        placed = self._placed
        starts = [0, *itertools.accumulate(part.count for part in placed.parts)]
        made = [Mend("orphan-result", one.call_id, starts[at] + one.index) for at, one in placed.orphans]
        made += [Mend("duplicate-result", one.call_id, starts[at] + one.index) for at, one in placed.duplicates]
        made += [Mend("late-result", one.call_id, starts[at] + one.index) for at, one in placed.late]
        follower: Any = None  # the role of the next message that is not a system message
        for at in range(len(placed.parts) - 1, -1, -1):
            part = placed.parts[at]
            made += [Mend(one.kind, one.tool_call_id, starts[at] + one.index) for one in part.mends]
            made += [
                Mend("unanswered-call", call_id, starts[at] + call.index)
                for call_id, call in part.open.items()
                if (at, call_id) not in placed.answered
            ]
            if follower == "toolResult":
                made += [Mend("late-system", None, starts[at] + index) for index in part.trailing]
            if part.first_role is not None:
                follower = part.first_role
        return tuple(sorted(made, key=lambda one: one.index))


class Pieces(Sequence[Message]):
    """Messages that lie in several pieces, as one sequence."""

    __slots__ = ("_ends", "_pieces")

    def __init__(self, pieces: Sequence[Sequence[Message]]) -> None:
        self._pieces = pieces
        self._ends = list(itertools.accumulate(map(len, pieces)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        number = bisect.bisect_right(self._ends, at)
        return self._pieces[number][at - (self._ends[number - 1] if number else 0)]

    def __iter__(self) -> Iterator[Message]:
        return itertools.chain.from_iterable(self._pieces)

    def __repr__(self) -> str:
        return f"Pieces({len(self)} messages)"


# Helpers -----------------------------------------------------------------------------------------------------------


def _failed(message: Message) -> bool:
    return message.get("role") == "assistant" and message.get("stopReason") in ("aborted", "error")


def _without_repeated_calls(message: Message, index: int, mends: list[Mend]) -> Message:
    """The message without calls that repeat an id of the same message or have none: no result could answer them."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    seen: set[str] = set()
    kept: list[Any] = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "toolCall":
            call_id = block.get("id")
            if not isinstance(call_id, str) or call_id in seen:
                mends.append(Mend("repeated-call", call_id if isinstance(call_id, str) else None, index))
                continue
            seen.add(call_id)
        kept.append(block)
    return message if len(kept) == len(content) else {**message, "content": kept}


def _inside_batches(source: list[Message]) -> tuple[set[int], tuple[int, ...]]:
    """The system messages that tool results follow, so that they stand between a call and its result; and those at
    the end, of which what comes behind must tell."""
    inside: set[int] = set()
    trailing: list[int] = []
    follower: Any = None  # the role of the next message that is not a system message
    ended = True
    for index in range(len(source) - 1, -1, -1):
        role = source[index].get("role")
        if role != "system":
            follower, ended = role, False
        elif ended:
            trailing.append(index)
        elif follower == "toolResult":
            inside.add(index)
    return inside, tuple(trailing)


def _calls(message: Message) -> Iterator[tuple[str, Any]]:
    """The calls of an assistant message, each id once."""
    seen: set[str] = set()
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "toolCall":
            call_id = block.get("id")
            if isinstance(call_id, str) and call_id not in seen:
                seen.add(call_id)
                yield call_id, block.get("name")


def _no_result(call_id: str, name: Any, timestamp: Any) -> Message:
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": name if isinstance(name, str) else "",
        "content": [{"type": "text", "text": NO_RESULT}],
        "isError": True,
        "timestamp": timestamp,
    }
