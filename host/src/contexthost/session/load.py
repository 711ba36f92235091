"""Reading a session file: lines to entries, versions 1 to 3, and everything odd named instead of fatal."""

from __future__ import annotations

import hashlib
import math
from array import array
from dataclasses import dataclass, field, replace
from typing import Any

from contexthost.errors import SessionFormatError
from contexthost.session.entries import CURRENT_VERSION, Entry, Envelope, MalformedLine, decode_envelope, decode_json

__all__ = ["EntryReader", "Header", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something odd in a session file that reading it survived.

    Attributes:
        kind: a stable name, such as ``malformed-line`` or ``missing-parent``.
        line: line number in the file, from 1; 0 when no line can be named.
        entry_id: the entry concerned, if it has an id.
        text: what it means for the reader.
    """

    kind: str
    line: int
    entry_id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a session file.

    ``version`` is the file's own (1 when it names none); ``data`` is the whole decoded object.
    """

    id: str
    version: int
    timestamp: str
    cwd: str
    parent_session: str | None
    data: dict[str, Any] = field(repr=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _version(value: Any) -> float:
    """The header's version as JavaScript compares it; missing or null counts as 1."""
    if value is None:
        return 1
    while isinstance(value, list) and len(value) <= 1:  # compared by the text of what is in it
        value = value[0] if value and value[0] is not None else ""
    if isinstance(value, str) and not value.strip():
        return 0
    if not isinstance(value, (bool, int, float, str)):
        return CURRENT_VERSION
    try:
        version = float(value)
    except (ValueError, OverflowError):
        version = math.nan
    # Not a number: every comparison is false, so nothing is migrated.
    return CURRENT_VERSION if math.isnan(version) else version


def _parse_header(raw: bytes, name: str, line: int) -> Header:
    data = decode_json(raw)
    if not isinstance(data, dict) or data.get("type") != "session" or not isinstance(data.get("id"), str):
        raise SessionFormatError(
            f"{name}:{line}: not a Pi session: its first object is not a session header "
            '({"type": "session", "id": …}); the file was left untouched'
        )
    version = _version(data.get("version"))
    parent = data.get("parentSession")
    return Header(
        id=data["id"],
        version=1 if version < 2 else 2 if version < 3 else int(min(version, 1e9)),
        timestamp=_text(data.get("timestamp")),
        cwd=_text(data.get("cwd")),
        parent_session=parent if isinstance(parent, str) else None,
        data=data,
    )


class EntryReader:
    """Turns the lines of one session file into entries, one after the other; keeps what migration must remember."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.header: Header | None = None
        self.header_line = 0
        self.entries: list[Entry] = []
        self.lines = array("q")  # by entry; as a list it would take five times as much
        self.problems: list[Problem] = []
        self.line_count = 0
        self._objects: list[Entry | None] = []  # what version 1's indices point into; None is a header
        self._made_ids: set[str] = set()

    def feed(self, raw: bytes) -> Entry | None:
        """Reads one line (without its line feed); the new entry, or None when the line gave none.

        Raises:
            SessionFormatError: the first object is not a session header.
        """
        self.line_count += 1
        if not raw or raw.isspace():
            return None
        try:
            envelope = decode_envelope(raw)
        except MalformedLine as error:
            self._report("malformed-line", None, f"not JSON, skipped ({error}); Pi skips it too")
            return None
        if envelope is None:
            self._report("not-an-object", None, "not an object, skipped; Pi 1.6.0 loses its place over it")
            return None
        if self.header is None:
            self.header = _parse_header(raw, self.name, self.line_count)
            self.header_line = self.line_count
            self._objects.append(None)
            return None
        if envelope.type == "session":
            self._report("second-header", None, "a second session header, skipped")
            self._objects.append(None)
            return None
        entry = self._entry(raw, envelope)
        if entry is not None:
            self.entries.append(entry)
            self.lines.append(self.line_count)
        return entry

    def _entry(self, raw: bytes, envelope: Envelope) -> Entry | None:
        assert self.header is not None
        kind = envelope.type if isinstance(envelope.type, str) else ""
        patch: dict[str, Any] | None = None
        parent: Any = envelope.parentId
        id: Any = envelope.id
        if self.header.version < 2:
            id = self._make_id(raw)
            parent = self.entries[-1].id if self.entries else None
            patch = {"id": id, "parentId": parent}
        elif self.header.version < CURRENT_VERSION:
            patch = {}
        if not isinstance(id, str):
            self._report("missing-id", None, "an entry without an id, skipped; Pi 1.6.0 loses its place over it")
            return None
        # Pi follows a parent only when it is truthy; a truthy value that is not text names no entry.
        parent_id = parent if isinstance(parent, str) and parent else None
        if parent_id is not None and self.entries and parent_id == self.entries[-1].id:
            parent_id = self.entries[-1].id  # one text for both, as most entries follow the one before them
        if parent_id is None and isinstance(parent, (int, float, list, dict)) and parent:
            self._report("missing-parent", id, "its parentId is not text: the branch begins here")
        entry = Entry(
            position=len(self.entries),
            type=kind,
            id=id,
            parent_id=parent_id,
            timestamp=_text(envelope.timestamp),
            raw=raw,
            patch=patch,
        )
        if self.header.version < 2:
            self._objects.append(entry)
            if kind == "compaction" and patch is not None:
                self._migrate_kept_index(entry, patch)
        return entry

    def _make_id(self, raw: bytes) -> str:
        """Eight hex digits from position and content: the same at every opening of the same file."""
        nonce = 0
        while True:
            seed = f"{len(self.entries)}:{nonce}:".encode() + raw
            made = hashlib.sha256(seed).hexdigest()[:8]
            if made not in self._made_ids:
                self._made_ids.add(made)
                return made
            nonce += 1

    def _migrate_kept_index(self, entry: Entry, patch: dict[str, Any]) -> None:
        """Version 1 named the first kept entry by its index among all objects, the header being 0."""
        data = decode_json(entry.raw)
        index = data.get("firstKeptEntryIndex")
        if isinstance(index, bool) or not isinstance(index, (int, float)):
            return
        patch["firstKeptEntryIndex"] = None
        if 0 <= index < len(self._objects) and index == int(index):
            target = self._objects[int(index)]
            if target is not None:
                patch["firstKeptEntryId"] = target.id

    def _report(self, kind: str, entry_id: str | None, text: str) -> None:
        self.problems.append(Problem(kind, self.line_count, entry_id, text))

    def migrate_header(self) -> None:
        """Takes a session that no file holds as version 3 from here on: the next line brings its own id."""
        assert self.header is not None
        self.header = replace(
            self.header, version=CURRENT_VERSION, data={**self.header.data, "version": CURRENT_VERSION}
        )

    def accepts(self, raw: bytes) -> bool:
        """Whether a last line without a line feed is whole (Pi then counts it) rather than a torn write."""
        try:
            return decode_envelope(raw) is not None
        except MalformedLine:
            return False
