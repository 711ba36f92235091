"""What a relay works on, taken from the session: where it cuts, and what the note is made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from contexthost.compaction import Preparation
from contexthost.history import History
from contexthost.messages import own_text, text_of
from contexthost.projection import ProjectedEntry, Snapshot
from contexthost.session import Entry
from contexthost_relay.note import FileChange, Said

__all__ = ["Cut", "changed_files", "earlier_instructions", "find_cut", "instructions", "last_answer", "note_number"]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the kept range begins: an entry id, and its place among the snapshot's entries."""

    entry_id: str
    position: int


def find_cut(snapshot: Snapshot, preparation: Preparation, tail_max_chars: int) -> Cut:
    """Keeps everything from the last user message on. With more than ``tail_max_chars`` characters of text there,
    and the usual cut keeping less, the usual cut; and so without any user message."""
    usual = snapshot.position(preparation.first_kept_entry_id)
    assert usual is not None  # the preparation was made from this snapshot
    fallback = Cut(preparation.first_kept_entry_id, usual)
    entries = snapshot.entries
    last = next((at for at in range(len(entries) - 1, -1, -1) if _is_user(entries[at])), None)
    if last is None:
        return fallback
    if usual > last and text_length(entries[at] for at in range(last, len(entries))) > tail_max_chars:
        return fallback
    return Cut(entries[last].source.id, last)


def _is_user(item: ProjectedEntry) -> bool:
    return item.source.role == "user" and bool(item.read())


def text_length(items: Iterator[ProjectedEntry]) -> int:
    """Characters (code points) of the texts that the model sees in these entries; no calls, thinking or images."""
    total = 0
    for item in items:
        for message in item.read():
            total += len(text_of(message.get("content")))
            if message.get("role") == "bashExecution":
                total += len(own_text(message.get("command"))) + len(own_text(message.get("output")))
    return total


def _since(snapshot: Snapshot, cut: Cut) -> Iterator[ProjectedEntry]:
    """What is in the context now and will not be after the cut, the compaction in force left aside."""
    for at in range(cut.position):
        item = snapshot.entries[at]
        if item.source.type != "compaction":
            yield item


def instructions(snapshot: Snapshot, history: History, cut: Cut) -> list[Said]:
    """The user's messages since the last compaction that are not kept, oldest first, as edits leave them."""
    return [said for item in _since(snapshot, cut) if _is_user(item) and (said := _said(item.source, history))]


def earlier_instructions(snapshot: Snapshot, branch: Sequence[Entry], history: History) -> Iterator[Said]:
    """The user's messages that a compaction has taken away already, newest first."""
    if snapshot.checkpoint is None:
        return
    for entry in reversed(branch):
        if entry.role == "user" and snapshot.position(entry.id) is None:
            said = _said(entry, history)
            if said is not None:
                yield said


def last_answer(snapshot: Snapshot, history: History, cut: Cut) -> Said | None:
    """The last final answer before the cut: a whole assistant message with text that calls no tool."""
    for at in range(cut.position - 1, -1, -1):
        item = snapshot.entries[at]
        messages = item.read() if item.source.role == "assistant" else ()
        if not messages:
            continue
        message = messages[0]
        content = message.get("content")
        calls = isinstance(content, list) and any(isinstance(b, dict) and b.get("type") == "toolCall" for b in content)
        if calls or message.get("stopReason") in ("error", "aborted", "toolUse") or not text_of(content).strip():
            continue
        return _said(item.source, history)
    return None


def _said(entry: Entry, history: History) -> Said | None:
    item = history.effective(entry)
    if item is None or item.withheld or not item.text.strip():
        return None
    return Said(entry.id, entry.timestamp, item.text)


def changed_files(branch: Sequence[Entry], history: History, cwd: str) -> list[FileChange]:
    """The files that calls of ``edit`` and ``write`` changed since the session began, the last changed last; failed
    calls and those of omitted messages do not count. Paths below ``cwd`` are relative to it."""
    failed = {
        own_text((entry.read_message() or {}).get("toolCallId"))
        for entry in branch
        if b'"isError":true' in entry.raw and entry.role == "toolResult"
    }
    counts: dict[str, list[int]] = {}
    for entry in branch:
        if b'"edit"' not in entry.raw and b'"write"' not in entry.raw:
            continue
        if entry.role == "toolResult" and b'"nestedCalls"' not in entry.raw:
            continue  # most results: nothing in them is a call
        message = entry.read_message()
        if message is None or message.get("role") not in ("assistant", "toolResult"):
            continue
        changes = [call for call in _calls(message) if own_text(call.get("id")) not in failed - {""}]
        if not changes:
            continue
        item = history.effective(entry)
        if item is None or item.change in ("omitted", "replaced"):
            continue
        for call in changes:
            arguments = call.get("arguments")
            path = arguments.get("path") if isinstance(arguments, dict) else None
            if isinstance(path, str) and path:
                name = _relative(path, cwd)
                edits, writes = counts.pop(name, [0, 0])
                counts[name] = [edits + (call["name"] == "edit"), writes + (call["name"] == "write")]
    return [FileChange(path, edits, writes) for path, (edits, writes) in counts.items()]


def _calls(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Calls of the two tools, those that other tools made (``nestedCalls``) included."""
    found: list[Any] = []
    if message.get("role") == "assistant":
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        found = [block for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall"]
    else:
        nested = message.get("nestedCalls")
        calls = nested.get("calls") if isinstance(nested, dict) else None
        found = calls if isinstance(calls, list) else []
    for call in found:
        if isinstance(call, dict) and call.get("name") in ("edit", "write"):
            yield call


def _relative(path: str, cwd: str) -> str:
    if cwd and cwd != "/" and PurePosixPath(path).is_relative_to(cwd):
        return str(PurePosixPath(path).relative_to(cwd))
    return path


def is_relay(entry: Entry) -> bool:
    """Whether a compaction was made by a relay."""
    details = entry.data.get("details") if entry.type == "compaction" else None
    return isinstance(details, dict) and details.get("relay") is True


def note_number(entry: Entry) -> int:
    """The number of a relay's note, from the name of its file; 0 when it has none."""
    details = entry.data.get("details")
    path = details.get("notePath") if isinstance(details, dict) else None
    stem = PurePosixPath(path).stem if isinstance(path, str) else ""
    return int(stem) if stem.isascii() and stem.isdigit() and len(stem) < 10 else 0
