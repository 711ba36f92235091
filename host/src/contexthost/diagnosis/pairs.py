"""Calls and results: which do not belong together in what Pi would send, and the context edits that make them whole.

Pi mends less than providers demand: it answers an unanswered call itself, but sends orphaned and repeated results as
they are. Judged here is the order in which messages are sent, as Pi's request builder sees it: a call's results stand
behind its message, before the next user message or answer; system messages may stand between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from contexthost.diagnosis.content import clean_blocks
from contexthost.messages import Message, convert_to_llm
from contexthost.projection import ProjectedEntry

__all__ = ["PairFault", "PairReport", "Replacement", "Sent", "examine_pairs", "sent_messages", "without_calls"]

Replacement: TypeAlias = Mapping[str, Any] | None
"""Of a context edit: None omits."""

_FAILED: Final = ("aborted", "error")


class Sent(NamedTuple):
    """A message as a request would hold it, and the entry that it comes from."""

    entry_id: str
    message: Message


@dataclass(frozen=True, slots=True)
class PairFault:
    """A call or result that providers would refuse.

    Attributes:
        kind: ``repeated-call`` is a call with an id that its message has already used, or with none.
        entry_id: the result, or the message with the call.
        call_id: the call's id, if there is one.
        tool: the tool's name; "" when unknown.
        failed_entry: for an orphan, the failed attempt with its call; for a late result, the failed attempt in between.
        targets: the entries whose edits in `PairReport.edits` mend it; of failed attempts before several results of
            one message, the fault of each result names the newest before the previous result, and those since.
    """

    kind: Literal["orphan-result", "duplicate-result", "late-result", "unanswered-call", "repeated-call"]
    entry_id: str
    call_id: str | None
    tool: str
    targets: tuple[str, ...]
    failed_entry: str | None = None


@dataclass(frozen=True, slots=True)
class PairReport:
    """The faults in the order of the messages, and the edits by target that mend all of them together.

    ``failed_with_calls`` are failed attempts that hold calls: never sent, and so whole, but easily mistaken.
    ``callers`` says which entry holds the call of each result that has one, by the result's entry.
    """

    faults: tuple[PairFault, ...]
    edits: Mapping[str, Replacement]
    failed_with_calls: tuple[str, ...]
    callers: Mapping[str, str]


@dataclass(slots=True)
class _Batch:
    """One assistant message and what became of its calls."""

    entry_id: str
    content: list[Any]
    calls: dict[str, int]  # id → index of its block
    repeated: list[int]
    answered: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    failed_since: list[str] = field(default_factory=list)  # failed attempts behind it, which Pi takes for an end

    def tool(self, call_id: str) -> str:
        return _text(self.content[self.calls[call_id]].get("name"))


def sent_messages(entries: Sequence[ProjectedEntry]) -> list[Sent]:
    """The messages of a snapshot's entries in the roles of a request, each with its entry's id.

    Content that Pi would fail on is already what `clean_blocks` makes of it.
    """
    return [Sent(entry.source.id, _clean(sent)) for entry in entries for sent in convert_to_llm(entry.messages)]


def _clean(message: Message) -> Message:
    blocks = clean_blocks(message.get("role"), message.get("content"))
    return message if blocks is None else {**message, "content": blocks}


def examine_pairs(messages: Sequence[Sent]) -> PairReport:
    """Finds what is wrong with calls and results, and how context edits make it whole.

    1. A result without a call, a second result, and a result that came after a later user message or answer are
       omitted; so is the failed attempt that an orphaned result belongs to, which Pi never sends.
    2. A failed attempt between a call and its result is omitted, and the result counts again.
    3. Calls that then have no result are taken out of their message. All else in it stays; a message of which nothing
       is left is omitted.
    """
    judge = _Judge()
    for sent in messages:
        judge.take(sent)
    return judge.report({sent.entry_id: at for at, sent in enumerate(messages)})


class _Judge:
    def __init__(self) -> None:
        self.batches: list[_Batch] = []
        self.open: _Batch | None = None
        self.owner: dict[str, _Batch] = {}
        self.failed_calls: dict[str, str] = {}
        self.failed_entries: dict[str, None] = {}
        self.faults: list[PairFault] = []
        self.edits: dict[str, Replacement] = {}
        self.callers: dict[str, str] = {}

    def take(self, sent: Sent) -> None:
        role = sent.message.get("role")
        if role == "toolResult":
            self._result(sent)
        elif role == "assistant" and sent.message.get("stopReason") in _FAILED:
            self._failed(sent)
            if self.open is not None:
                self.open.failed_since.append(sent.entry_id)
        elif role == "assistant":
            self.open = _batch(sent)
            self.batches.append(self.open)
            self.owner.update(dict.fromkeys(self.open.calls, self.open))
        elif role == "user":
            self.open = None

    def _failed(self, sent: Sent) -> None:
        for block in _call_blocks(sent.message.get("content")):
            call_id = block.get("id")
            if isinstance(call_id, str):
                self.failed_calls[call_id] = sent.entry_id
                self.failed_entries[sent.entry_id] = None
                batch = self.owner.get(call_id)
                if batch is not None and (batch is not self.open or call_id in batch.answered):
                    del self.owner[call_id]  # a result from here on is the failed attempt's

    def _result(self, sent: Sent) -> None:
        call_id = sent.message.get("toolCallId")
        if not isinstance(call_id, str):
            self._omit("orphan-result", sent, None)
            return
        batch = self.open if self.open is not None and call_id in self.open.calls else self.owner.get(call_id)
        if batch is None:
            self._omit("orphan-result", sent, call_id, self.failed_calls.get(call_id))
        elif call_id in batch.answered or call_id in batch.late:
            self._omit("duplicate-result", sent, call_id)
        elif batch is self.open:
            batch.answered.add(call_id)
            self.callers[sent.entry_id] = batch.entry_id
            if batch.failed_since:
                targets = tuple(batch.failed_since)
                self._add("late-result", sent, call_id, targets, failed=targets[0])
                self.edits.update(dict.fromkeys(targets, None))
                del batch.failed_since[:-1]  # of the next result, which stands behind them as well, one says enough
        else:
            batch.late.add(call_id)
            self._omit("late-result", sent, call_id, also=batch.entry_id)

    def _omit(
        self, kind: Any, sent: Sent, call_id: str | None, failed: str | None = None, also: str | None = None
    ) -> None:
        targets = [sent.entry_id, *([failed] if failed is not None else [])]
        self.edits.update(dict.fromkeys(targets, None))
        self._add(kind, sent, call_id, (*targets, *([also] if also is not None else [])), failed)

    def _add(
        self, kind: Any, sent: Sent, call_id: str | None, targets: tuple[str, ...], failed: str | None = None
    ) -> None:
        tool = _text(sent.message.get("toolName"))
        self.faults.append(PairFault(kind, sent.entry_id, call_id, tool, targets, failed))

    def report(self, order: Mapping[str, int]) -> PairReport:
        for batch in self.batches:
            waiting = [call_id for call_id in batch.calls if call_id not in batch.answered]
            for call_id in waiting:
                if call_id not in batch.late:
                    fault = PairFault(
                        "unanswered-call", batch.entry_id, call_id, batch.tool(call_id), (batch.entry_id,)
                    )
                    self.faults.append(fault)
            for index in batch.repeated:
                block = batch.content[index]
                named = block.get("id") if isinstance(block.get("id"), str) else None
                tool = _text(block.get("name"))
                self.faults.append(PairFault("repeated-call", batch.entry_id, named, tool, (batch.entry_id,)))
            removed = {batch.calls[call_id] for call_id in waiting} | set(batch.repeated)
            if removed:
                self.edits[batch.entry_id] = without_calls(batch.content, removed)
        faults = sorted(self.faults, key=lambda fault: order[fault.entry_id])
        edits = dict(sorted(self.edits.items(), key=lambda item: order[item[0]]))
        return PairReport(tuple(faults), edits, tuple(self.failed_entries), self.callers)


def without_calls(content: Sequence[Any], removed: set[int]) -> Replacement:
    """An assistant message's content without the blocks at some indices; None when nothing is left to say.

    Thinking stays with what it led to: providers refuse reasoning that nothing follows, and answers without the
    reasoning that they were signed with. The content is clean (see `clean_blocks`).
    """
    kept: list[Any] = []
    thinking: list[Any] = []
    followed = lost = False
    for index, block in enumerate(content):
        if block["type"] == "thinking":
            if followed or lost:
                thinking, followed, lost = [], False, False
            thinking.append(block)
        elif index in removed:
            lost = True
        else:
            if not followed:
                kept += thinking
                thinking, followed = [], True
            kept.append(block)
    if not lost:
        kept += thinking
    return {"content": kept} if any(map(_says_something, kept)) else None


def _says_something(block: Mapping[str, Any]) -> bool:
    return bool(block["text"].strip()) if block["type"] == "text" else block["type"] != "thinking"


def _batch(sent: Sent) -> _Batch:
    content = sent.message.get("content")
    blocks = content if isinstance(content, list) else []
    calls: dict[str, int] = {}
    repeated: list[int] = []
    for index, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") == "toolCall":
            call_id = block.get("id")
            if isinstance(call_id, str) and call_id not in calls:
                calls[call_id] = index
            else:
                repeated.append(index)
    return _Batch(sent.entry_id, list(blocks), calls, repeated)


def _call_blocks(content: Any) -> list[dict[str, Any]]:
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
