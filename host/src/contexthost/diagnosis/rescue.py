"""A new session file with everything that can be saved of a broken one.

How entries are chained again, in the order of the file:

1. Saved is each line that is an object, and each whole entry found inside a line that is not JSON. Left out are
   further headers and entries of type ``message`` without a message object.
2. An entry keeps its id if no saved entry before it has it. Otherwise, and where it has none, it gets a new one.
3. A reference (``parentId``, ``firstKeptEntryId``, ``targetId``, ``fromId``) means the nearest entry before it with
   that id; failing that, the first one after it. Of an entry that was left out, a parent means its parent, a first
   kept entry the next entry that was saved; other references stay as they are.
4. A parent that is missing, is not text, or would close a circle is replaced by the saved entry before it in the file.
   A parent that is null stays null: that is how Pi begins a second root.
5. A message with content that Pi fails on gets what `contexthost.diagnosis.content.clean_blocks` makes of it; a
   command of the user without its text or output gets an empty one. Usage that Pi cannot add up gets 0 for what is no
   number.
6. In a version 1 file, which has no parents, each entry follows the one before it.

The result is then repaired as ``--repair`` would (see `contexthost.diagnosis.findings`).
"""

from __future__ import annotations

import stat
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contexthost.bulk import many_objects
from contexthost.diagnosis.chain import Chain, Saved
from contexthost.diagnosis.content import clean_blocks
from contexthost.diagnosis.findings import Diagnosis, examine
from contexthost.diagnosis.lines import BOM, Line, read_lines, salvage
from contexthost.diagnosis.usages import with_whole_usage
from contexthost.errors import SessionFormatError, SessionNotFound, SessionWriteError
from contexthost.messages import js_json
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost.session.durable import write_new_file
from contexthost.session.entries import decode_json
from contexthost.session.load import EntryReader
from contexthost.session.session import now_iso

__all__ = ["Rescue", "plan_rescue", "preview_rescue", "write_rescue"]

_REFERENCES: Final = ("firstKeptEntryId", "targetId", "fromId")


@dataclass(frozen=True, slots=True)
class Rescue:
    """What a rescue writes, and what became of the old file's lines.

    Attributes:
        header: the new file's first line.
        entries: the saved entries, whole, in order.
        saved: how many there are.
        from_broken_lines: how many of them were found inside lines that are not JSON.
        renamed: how many got a new id.
        rehung: how many got another parent.
        lost_lines: the lines of which nothing could be saved, from 1.
    """

    header: Mapping[str, Any]
    entries: Sequence[Mapping[str, Any]]
    from_broken_lines: int
    renamed: int
    rehung: int
    lost_lines: tuple[int, ...]

    @property
    def saved(self) -> int:
        return len(self.entries)


@many_objects()
def plan_rescue(path: Path) -> Rescue:
    """Reads a session file that may be broken in any way, and plans the new one; writes nothing.

    Raises:
        SessionNotFound: there is no such file, or it is a device or a pipe.
        SessionFormatError: it cannot be read, or nothing in it can be saved.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise SessionNotFound(f"{path} is a device or a pipe, not a session file")  # it may never end
        with path.open("rb") as file:
            lines = list(read_lines(file))
            empty = file.tell() == 0
    except FileNotFoundError:
        raise SessionNotFound(f"{path}: no such file") from None
    except OSError as error:
        raise SessionFormatError(f"{path} cannot be read: {error.strerror or error}") from None
    if empty:
        raise SessionFormatError(f"{path}: not a Pi session: the file is empty; it was left untouched")
    header, found, from_broken, lost = _collect(lines)
    version = _version(header)
    kept = [one for one in found if not one.left_out]
    if not any(one.data.get("type") == "message" for one in kept):
        raise SessionFormatError(f"{path}: no message could be found in it, so there is nothing to save")
    _name(kept, keep_ids=version >= 2)
    chain = Chain(found, linear=version < 2)
    # As JavaScript prints it and so as Pi would have written it: every value that a line can hold can be written again.
    entries = [decode_json(js_json(_entry(one, chain, version)).encode()) for one in kept]
    cwd = header.get("cwd")
    return Rescue(
        header={
            "type": "session",
            "version": 3,
            "id": str(uuid.uuid4()),
            "timestamp": now_iso(),
            "cwd": cwd if isinstance(cwd, str) and cwd else str(Path.cwd()),
            "parentSession": str(path.absolute()),
        },
        entries=entries,
        from_broken_lines=from_broken,
        renamed=sum(one.renamed for one in kept) if version >= 2 else 0,
        rehung=chain.rehung,
        lost_lines=tuple(lost),
    )


def _collect(lines: Sequence[Line]) -> tuple[dict[str, Any], list[Saved], int, list[int]]:
    """The first header, the entries in order, how many of them come from broken lines, and the lines that gave none."""
    header: dict[str, Any] | None = None
    found: list[Saved] = []
    lost: list[int] = []
    from_broken = 0
    for line in lines:
        objects: list[Any] = [line.value]
        if line.malformed:
            objects = _objects_of_malformed(line.raw.removeprefix(BOM))
        saved = [one for one in objects if isinstance(one, dict)]
        if not saved:
            lost.append(line.number)
        for data in saved:
            if data.get("type") == "session":
                header = data if header is None else header
                continue
            left_out = data.get("type") == "message" and not isinstance(data.get("message"), dict)
            old = data.get("id")
            found.append(Saved(data, old if isinstance(old, str) and old else None, left_out, len(found)))
            from_broken += line.malformed and not left_out
            if left_out:
                lost.append(line.number)
    if header is None:
        # Without a header nobody knows the version; entries that name parents are of version 2 or later.
        header = {"version": 3 if any("parentId" in one.data for one in found) else 1}
    return header, found, from_broken, lost


def _objects_of_malformed(raw: bytes) -> list[Any]:
    whole = [line.value for line in read_lines([raw]) if isinstance(line.value, dict)]  # only the mark was wrong
    return whole or salvage(raw)


def _version(header: Mapping[str, Any]) -> int:
    reader = EntryReader("")
    reader.feed(js_json({**header, "type": "session", "id": "any"}).encode())
    assert reader.header is not None
    return reader.header.version


def _name(kept: Sequence[Saved], *, keep_ids: bool) -> None:
    taken = {one.old_id for one in kept if one.old_id is not None}
    used: set[str] = set()
    for one in kept:
        if keep_ids and one.old_id is not None and one.old_id not in used:
            one.new_id = one.old_id
        else:
            made = uuid.uuid4().hex[:8]
            while made in taken or made in used:
                made = uuid.uuid4().hex[:8]
            one.new_id, one.renamed = made, True
        used.add(one.new_id)


def _entry(one: Saved, chain: Chain, version: int) -> dict[str, Any]:
    parent = chain.saved_parent(one)
    data = {key: value for key, value in one.data.items() if key not in ("type", "id", "parentId", "timestamp")}
    stamp = one.data.get("timestamp")
    made: dict[str, Any] = {
        "type": one.data.get("type"),
        "id": one.new_id,
        "parentId": parent.new_id if parent is not None else None,
        "timestamp": stamp if isinstance(stamp, str) else now_iso(),
    }
    for key in _REFERENCES:
        if version >= 2 and isinstance(data.get(key), str):
            place = one.place if data[key] == one.old_id else chain.meant(data[key], one.place)
            meant = chain.found[place] if place is not None else None
            if meant is not None and meant.left_out and key == "firstKeptEntryId":
                meant = chain.saved_from(meant.place)
            if meant is not None and not meant.left_out:
                data[key] = meant.new_id
    if version < 2 and made["type"] == "compaction":
        _migrate_index(data, chain)
    if isinstance(data.get("message"), dict):
        data["message"] = _whole_message(data["message"], version)
    return with_whole_usage({**made, **data})


def _whole_message(message: dict[str, Any], version: int) -> dict[str, Any]:
    if message.get("role") == "hookMessage" and version < 3:
        return {**message, "role": "custom"}
    if message.get("role") == "bashExecution":
        return {**message, **{key: "" for key in ("command", "output") if not isinstance(message.get(key), str)}}
    blocks = clean_blocks(message.get("role"), message.get("content"))
    return message if blocks is None else {**message, "content": blocks}


def _migrate_index(data: dict[str, Any], chain: Chain) -> None:
    """Version 1 counts the header as 0 and the entries from 1."""
    index = data.pop("firstKeptEntryIndex", None)
    if isinstance(index, (int, float)) and not isinstance(index, bool) and 1 <= index <= len(chain.found):
        meant = chain.saved_from(int(index) - 1)
        if meant is not None:
            data["firstKeptEntryId"] = meant.new_id


def preview_rescue(
    rescue: Rescue, project: Callable[[Session], ProjectionAuthority] = ProjectionAuthority
) -> tuple[ProjectionAuthority, Diagnosis]:
    """As `write_rescue`, in memory only."""
    authority = _repaired(rescue, project)
    return authority, examine(authority)


def _repaired(rescue: Rescue, project: Callable[[Session], ProjectionAuthority]) -> ProjectionAuthority:
    authority = project(Session.in_memory(header=rescue.header, entries=rescue.entries))
    authority.commit(examine(authority).drafts)
    return authority


def write_rescue(
    rescue: Rescue, target: Path, project: Callable[[Session], ProjectionAuthority] = ProjectionAuthority
) -> tuple[ProjectionAuthority, Diagnosis]:
    """Writes the new file, repaired and with mode 0600; its projection, and what is still wrong with it.

    The file is there whole or not at all, whatever interrupts this.

    Raises:
        SessionWriteError: there is something at ``target`` already, or it cannot be written; nothing is left behind.
    """
    repairs = _repaired(rescue, project).session.entries[rescue.saved :]
    lines = [js_json(line).encode() for line in (rescue.header, *rescue.entries)] + [entry.raw for entry in repairs]
    try:
        write_new_file(target, b"".join(line + b"\n" for line in lines))
    except FileExistsError:
        raise SessionWriteError(f"{target} exists already, and is left as it is: give another name") from None
    except OSError as error:
        why = error.strerror or error
        raise SessionWriteError(f"{target} cannot be written: {why}; nothing is left of it") from None
    authority = project(Session.open(target, owner="contexthost doctor"))
    return authority, examine(authority)
