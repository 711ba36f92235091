"""Small entries and projections for the tests of the compaction planners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contexthost.compaction import EntryLike
from contexthost.messages import Message


@dataclass(frozen=True)
class FakeEntry:
    id: str
    type: str
    data: dict[str, Any]


@dataclass(frozen=True)
class FakeProjected:
    source: FakeEntry
    messages: tuple[Message, ...]

    def read(self) -> tuple[Message, ...]:
        return self.messages


@dataclass(frozen=True)
class FakeProjection:
    entries: tuple[FakeProjected, ...]


def entry(entry_id: str, kind: str, **data: Any) -> FakeEntry:
    return FakeEntry(entry_id, kind, {"type": kind, "id": entry_id, **data})


def message(entry_id: str, role: str, content: object, **fields: Any) -> FakeEntry:
    return entry(entry_id, "message", message={"role": role, "content": content, **fields})


def user(entry_id: str, tokens: int = 100) -> FakeEntry:
    return message(entry_id, "user", "u" * (4 * tokens))


def system(entry_id: str, tokens: int = 100) -> FakeEntry:
    return message(entry_id, "system", "s" * (4 * tokens), timestamp=1)


def assistant(entry_id: str, tokens: int = 100, **fields: Any) -> FakeEntry:
    return message(entry_id, "assistant", [{"type": "text", "text": "a" * (4 * tokens)}], **fields)


def call(entry_id: str, name: str = "read", path: str = "ab.py") -> FakeEntry:
    """A tool call; with a name of four letters and a path of five it is worth 5 tokens: read{"path":"ab.py"}."""
    return message(entry_id, "assistant", [{"type": "toolCall", "id": "c", "name": name, "arguments": {"path": path}}])


def result(entry_id: str, tokens: int = 100, **fields: Any) -> FakeEntry:
    return message(entry_id, "toolResult", [{"type": "text", "text": "r" * (4 * tokens)}], toolCallId="c", **fields)


def label(entry_id: str) -> FakeEntry:
    return entry(entry_id, "label", targetId="x", label="here")


def edit(entry_id: str, target: str, replacement: object = None) -> FakeEntry:
    return entry(entry_id, "context_edit", targetId=target, replacement=replacement)


def compaction(entry_id: str, summary: str = "done so far", **data: Any) -> FakeEntry:
    return entry(entry_id, "compaction", summary=summary, tokensBefore=5000, **data)


def context_messages(source: EntryLike) -> tuple[Message, ...]:
    match source.type:
        case "message":
            return (source.data["message"],)
        case "compaction":
            return ({"role": "compactionSummary", "summary": source.data["summary"]},)
        case "branch_summary":
            return ({"role": "branchSummary", "summary": source.data["summary"]},)
    return ()


def project(
    entries: Sequence[FakeEntry],
    *,
    omitted: Collection[str] = (),
    replaced: Mapping[str, object] | None = None,
) -> FakeProjection:
    """The entries with their own messages, but none for ``omitted`` ids and new content for ``replaced`` ones."""
    projected = []
    for source in entries:
        messages = () if source.id in omitted else context_messages(source)
        if replaced and source.id in replaced:
            messages = tuple({**own, "content": replaced[source.id]} for own in messages)
        projected.append(FakeProjected(source, messages))
    return FakeProjection(tuple(projected))
