"""The lines of a session file as they are, also of one that cannot be opened, and what a broken line still holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from contexthost.messages import js_truthy
from contexthost.session import Entry
from contexthost.session.entries import MalformedLine, decode_json

__all__ = ["BOM", "Line", "Survey", "read_lines", "salvage", "survey"]

BOM: Final = b"\xef\xbb\xbf"
_MAX_TRIES: Final = 1000
"""Places in one broken line at which an entry is looked for: each try may read the rest of the line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank: its number from 1, its bytes, its value if it is JSON (``malformed`` otherwise)."""

    number: int
    raw: bytes
    value: Any
    malformed: bool = False

    @property
    def skipped(self) -> bool:
        """Whether Pi passes over the line: it is not JSON, or null, false, 0 or an empty text."""
        return self.malformed or not js_truthy(self.value)


def read_lines(data: Iterable[bytes]) -> Iterator[Line]:
    """The lines of a file that are not blank; any iterable of lines will do, line feeds included or not."""
    for number, line in enumerate(data, 1):
        raw = line.rstrip(b"\r\n")
        if not raw.strip():
            continue
        try:
            yield Line(number, raw, decode_json(raw))
        except MalformedLine:
            yield Line(number, raw, None, malformed=True)


@dataclass(frozen=True, slots=True)
class Survey:
    """The lines of a session's file beside what was read of it.

    Attributes:
        line_of: the line of each entry, by the entry's position.
        odd: the lines that are no entry, and those of entries with an empty id.
        last: the last line that Pi does not pass over; 0 without one.
    """

    line_of: Mapping[int, int] = field(default_factory=dict)
    odd: Sequence[Line] = ()
    last: int = 0


def survey(data: Iterable[bytes], entries: Sequence[Entry]) -> Survey:
    """Goes over the lines of the file that the entries came from; decodes only those that are no entry."""
    line_of: dict[int, int] = {}
    odd: list[Line] = []
    at = last = 0
    for number, line in enumerate(data, 1):
        raw = line.rstrip(b"\r\n")
        if at < len(entries) and entries[at].raw.rstrip(b"\r") == raw:
            line_of[at] = last = number
            at += 1
            if entries[at - 1].id:
                continue
        for one in read_lines([raw]):
            odd.append(replace(one, number=number))
            last = last if one.skipped else number
    return Survey(line_of, odd, last)


def salvage(raw: bytes) -> list[dict[str, Any]]:
    """Whole entries inside a line that is not JSON, such as one that was written behind half a line.

    Only objects with a type, a textual id and a ``parentId`` count: content blocks have no parent, so that a block of
    a torn message is not taken for an entry.
    """
    text = raw.decode("utf-8", "replace").lstrip("\ufeff")
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    at = text.find('{"')
    for _ in range(_MAX_TRIES):
        if at < 0:
            break
        end = at + 1
        try:
            value, end = decoder.raw_decode(text, at)
            if _is_entry(value):
                found.append(value)
            else:
                end = at + 1
        except (ValueError, RecursionError):
            pass  # nothing whole begins here: look further on
        at = text.find('{"', end)
    return found


def _is_entry(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or not isinstance(value.get("id"), str):
        return False
    return "parentId" in value or value["type"] == "session"
