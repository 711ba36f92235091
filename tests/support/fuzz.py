"""Fuzzed session files: pieces of real and made sessions, damaged in one to four of many ways.

`fuzzed(seed, number)` is always the same file for the same arguments, as long as the recorded sessions beside the
checkout are either there or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from support.builder import Literal
from support.fuzz_bases import base_lines
from support.fuzz_entries import STRANGE_ENTRIES
from support.fuzz_values import decoded, encoded, nasty, replace_somewhere

__all__ = ["MUTATIONS", "Fuzzed", "fuzzed"]


@dataclass(frozen=True)
class Fuzzed:
    """One file: what it was made from, and what was done to it, in order."""

    data: bytes
    base: str
    mutations: tuple[str, ...]


class File:
    """A file while it is being damaged: its lines without line feeds, header first, and how they are joined."""

    def __init__(self, lines: list[bytes], draw: random.Random) -> None:
        self.lines = lines
        self.draw = draw
        self.line_end = b"\n"
        self.ends = True  # whether a line feed stands at the end
        self.after: list[Callable[[bytes], bytes]] = []  # what is done to the bytes in the end

    @cached_property
    def other(self) -> list[bytes]:
        """The lines of another session, for splices."""
        return base_lines(self.draw)[1]

    def at(self) -> int:
        """The place of some line but the header, if there is another."""
        return self.draw.randrange(1, len(self.lines)) if len(self.lines) > 1 else 0

    def known(self) -> list[str]:
        """Ids that some lines have."""
        sample = [decoded(self.lines[self.at()]) for _ in range(6)] if self.lines else []
        return [one["id"] for one in sample if one is not None and isinstance(one.get("id"), str)]

    def change(self, change: Callable[[dict[str, Any]], None], at: int | None = None) -> None:
        """Decodes a line, lets it be changed and puts it back; a line that is no object stays as it is."""
        if not self.lines:
            return
        place = self.at() if at is None else at
        value = decoded(self.lines[place])
        if value is not None:
            change(value)
            self.lines[place] = encoded(value, self.draw)

    def bytes(self) -> bytes:
        data = self.line_end.join(self.lines) + (self.line_end if self.ends and self.lines else b"")
        for change in self.after:
            data = change(data)
        return data


# -- bytes ------------------------------------------------------------------------------------------------------------


def _flip_bits(file: File) -> None:
    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(file.draw.choice([1, 1, 2, 8, 40]) if changed else 0):
            changed[file.draw.randrange(len(changed))] ^= 1 << file.draw.randrange(8)
        return bytes(changed)

    file.after.append(flip)


def _cut_end(file: File) -> None:
    file.after.append(lambda data: data[: file.draw.randrange(len(data) + 1)])


def _cut_middle(file: File) -> None:
    def cut(data: bytes) -> bytes:
        start = file.draw.randrange(len(data) + 1)
        return data[:start] + data[start + file.draw.choice([1, 10, 300, 5_000]) :]

    file.after.append(cut)


def _insert(file: File, junk: bytes) -> None:
    def put(data: bytes) -> bytes:
        at = file.draw.randrange(len(data) + 1)
        return data[:at] + junk + data[at:]

    file.after.append(put)


def _nuls(file: File) -> None:
    _insert(file, b"\0" * file.draw.choice([1, 3, 512, 4_096]))


def _bad_utf8(file: File) -> None:
    _insert(file, file.draw.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe2\x80"]))


def _random_bytes(file: File) -> None:
    _insert(file, file.draw.randbytes(file.draw.choice([1, 4, 64, 1_000])))


def _overwrite(file: File) -> None:
    """A block of the disk that was never written, or of another file."""

    def write(data: bytes) -> bytes:
        at = file.draw.randrange(len(data) + 1)
        block = file.draw.choice([b"\0" * 512, b"\n".join(file.other)[:512]])
        return data[:at] + block + data[at + len(block) :]

    file.after.append(write)


def _byte_order_mark(file: File) -> None:
    file.after.append(lambda data: b"\xef\xbb\xbf" + data)


def _utf16(file: File) -> None:
    file.after.append(lambda data: data.decode(errors="replace").encode("utf-16"))


# -- lines ------------------------------------------------------------------------------------------------------------


def _crlf(file: File) -> None:
    if file.draw.random() < 0.5:
        file.line_end = b"\r\n"
    elif file.lines:
        at = file.draw.randrange(len(file.lines))
        file.lines[at:] = [line + b"\r" for line in file.lines[at:]]


def _carriage_returns_only(file: File) -> None:
    file.line_end = b"\r"


def _no_end(file: File) -> None:
    file.ends = False


def _drop(file: File) -> None:
    for _ in range(file.draw.choice([1, 1, 3, 10])):
        if len(file.lines) > 1:
            del file.lines[file.at()]


def _double(file: File) -> None:
    if file.lines:
        at, other = file.at(), file.at()
        file.lines[other:other] = file.lines[at : at + file.draw.choice([1, 1, 5])]


def _reorder(file: File) -> None:
    for _ in range(file.draw.choice([1, 3, 20])):
        if len(file.lines) > 2:
            file.lines.insert(file.at(), file.lines.pop(file.at()))


def _splice(file: File) -> None:
    """Two sessions in one: one after the other, with or without the second's header, or by turns."""
    how = file.draw.randrange(3)
    if how == 2:
        pairs = zip(file.lines[1:], file.other, strict=False)
        file.lines[1:] = [line for pair in pairs for line in pair]
    else:
        at = file.at() if file.lines else 0
        file.lines[at + 1 :] = file.other[how:]


def _glue(file: File) -> None:
    """A torn write with the next one glued to it."""
    at = file.at()
    if at:
        kept = file.lines[at][: file.draw.randrange(len(file.lines[at]) + 1)]
        file.lines[at : at + 2] = [kept + b"".join(file.lines[at + 1 : at + 2])]


def _break_line(file: File) -> None:
    if file.lines:
        at = file.draw.randrange(len(file.lines))
        cut = file.draw.randrange(len(file.lines[at]) + 1)
        file.lines[at : at + 1] = [file.lines[at][:cut], file.lines[at][cut:]]


def _junk_line(file: File) -> None:
    junk = [b"", b" ", b"\t\r", b"null", b"1", b'"text"', b"[]", b"[1,2]", b"{}", b"{", b"}", b"true", b"-", b"\0",
            b"{}{}", b'{"type":"session"}', b'{"type":"message"}', b'{"id":"x"}', b"\xff", b"<html>",
            b"# note"]  # fmt: skip
    for _ in range(file.draw.choice([1, 1, 4])):
        file.lines.insert(file.draw.randrange(len(file.lines) + 1), file.draw.choice(junk))


# -- values -----------------------------------------------------------------------------------------------------------


def _nasty_value(file: File) -> None:
    known = file.known()
    for _ in range(file.draw.choice([1, 1, 2, 6])):
        file.change(lambda value: replace_somewhere(value, nasty(file.draw, known), file.draw))


def _nasty_key(file: File) -> None:
    """A value under a key that entries of some type have, or none."""
    keys = ["id", "parentId", "type", "timestamp", "message", "role", "content", "usage", "details", "replacement",
            "targetId", "summary", "firstKeptEntryId", "systemMessage", "sections", "toolsAdded", "toolsRemoved",
            "nestedCalls", "toolCallId", "arguments", "stopReason", "isError", "version", "__proto__", "",
            "\ud800"]  # fmt: skip

    def add(value: dict[str, Any]) -> None:
        message = value.get("message")
        target = message if isinstance(message, dict) and file.draw.random() < 0.6 else value
        target[file.draw.choice(keys)] = nasty(file.draw, file.known())

    file.change(add)


def _lost_key(file: File) -> None:
    def lose(value: dict[str, Any]) -> None:
        message = value.get("message")
        target = message if isinstance(message, dict) and message and file.draw.random() < 0.6 else value
        if target:
            del target[file.draw.choice(list(target))]

    file.change(lose)


def _double_key(file: File) -> None:
    """A key twice in one object, as JSON allows: readers take the last one."""
    at = file.at()
    value = decoded(file.lines[at]) if file.lines else None
    if value:
        key = file.draw.choice(list(value))
        again = encoded({key: nasty(file.draw, file.known())}, file.draw)
        line = file.lines[at].strip()
        file.lines[at] = again[:-1] + b"," + line[1:] if file.draw.random() < 0.5 else line[:-1] + b"," + again[1:]


def _other_type(file: File) -> None:
    types = ["message", "compaction", "branch_summary", "context_edit", "custom", "custom_message", "label", "usage",
             "session_info", "model_change", "thinking_level_change", "session", "brand_new", "Message", "",
             "a.b/c"]  # fmt: skip
    file.change(lambda value: value.update(type=file.draw.choice(types)))


def _other_role(file: File) -> None:
    roles = ["user", "assistant", "toolResult", "system", "bashExecution", "custom", "hookMessage", "branchSummary",
             "compactionSummary", "narrator", "tool", "developer"]  # fmt: skip

    def change(value: dict[str, Any]) -> None:
        if isinstance(value.get("message"), dict):
            value["message"]["role"] = file.draw.choice(roles)

    for _ in range(file.draw.choice([1, 3])):
        file.change(change)


# -- the tree, the header, pairs --------------------------------------------------------------------------------------


def _parents(file: File) -> None:
    """Another parent: itself, one that comes later or is missing, a descendant, nobody."""
    for _ in range(file.draw.choice([1, 1, 2, 5])):
        ids = [*file.known(), "missing", "", None]

        def change(value: dict[str, Any], ids: list[Any] = ids) -> None:
            value["parentId"] = value.get("id") if file.draw.random() < 0.2 else file.draw.choice(ids)

        file.change(change)


def _same_id(file: File) -> None:
    ids = file.known()
    if ids:
        file.change(lambda value: value.update(id=file.draw.choice(ids)))


def _header(file: File) -> None:
    """Another version, another header, none, two, or one in the middle."""
    if not file.lines:
        return
    draw, lines = file.draw, file.lines
    versions: list[Any] = [1, 2, 2, 3, 4, 0, -1, 1.5, 2.5, "1", "2", "x", None, True, [], {}, Literal(b"1e999"), 99]
    how = draw.randrange(6)
    if how <= 1:
        file.change(lambda value: value.update(version=draw.choice(versions)), at=0)
    elif how == 2:
        del lines[0]
    elif how == 3:
        lines.insert(draw.randrange(len(lines) + 1), lines[0])
    elif how == 4:
        lines.insert(draw.randrange(len(lines)), lines.pop(0))
    else:
        file.change(lambda value: replace_somewhere(value, nasty(draw, []), draw), at=0)


def _strange_entry(file: File) -> None:
    """An entry of a known type with contents that point anywhere."""
    for _ in range(file.draw.choice([1, 1, 3])):
        known = file.known()
        entry = file.draw.choice(STRANGE_ENTRIES)(file.draw, known)
        at = file.draw.randrange(len(file.lines) + 1) if file.draw.random() < 0.5 else len(file.lines)
        before = decoded(file.lines[at - 1]) if at else None
        tree = {"id": f"f{file.draw.randrange(16**7):07x}", "parentId": None if before is None else before.get("id")}
        file.lines.insert(at, encoded({**tree, "timestamp": "2026-11-30T10:00:00.000Z", **entry}, file.draw))


def _pairs(file: File) -> None:
    """Results lost, moved before their call, or answering somebody else."""
    results = [at for at, line in enumerate(file.lines) if b'"toolResult"' in line]
    if not results:
        return
    at = file.draw.choice(results)
    how = file.draw.randrange(3)
    if how == 0:
        del file.lines[at]
    elif how == 1 and at > 1:
        file.lines[at - 1], file.lines[at] = file.lines[at], file.lines[at - 1]
    else:
        other = file.draw.choice(["call-1", "", None, 7, "nobody"])

        def answer(value: dict[str, Any]) -> None:
            if isinstance(value.get("message"), dict):
                value["message"]["toolCallId"] = other

        file.change(answer, at=at)


def _almost_nothing(file: File) -> None:
    header = file.lines[:1]
    file.lines = file.draw.choice(
        [[], [b""], [b"", b"", b""], [b" "], header, [*header, b"{"], [b"{}"], [b"[]"], [b"\0" * 9]]
    )
    file.ends = file.draw.random() < 0.5


MUTATIONS: Final[dict[str, tuple[int, Callable[[File], None]]]] = {
    "flip bits": (3, _flip_bits),
    "cut the end": (3, _cut_end),
    "cut the middle": (3, _cut_middle),
    "NULs": (2, _nuls),
    "invalid UTF-8": (2, _bad_utf8),
    "random bytes": (1, _random_bytes),
    "overwrite a block": (2, _overwrite),
    "byte order mark": (1, _byte_order_mark),
    "UTF-16": (1, _utf16),
    "CRLF": (2, _crlf),
    "CR only": (1, _carriage_returns_only),
    "no last line feed": (2, _no_end),
    "drop lines": (3, _drop),
    "double lines": (3, _double),
    "reorder lines": (3, _reorder),
    "splice two sessions": (3, _splice),
    "glue lines": (3, _glue),
    "break a line": (2, _break_line),
    "junk lines": (3, _junk_line),
    "nasty value": (14, _nasty_value),
    "nasty key": (7, _nasty_key),
    "lost key": (5, _lost_key),
    "key twice": (3, _double_key),
    "other entry type": (4, _other_type),
    "other role": (5, _other_role),
    "parents": (5, _parents),
    "same id": (3, _same_id),
    "header": (5, _header),
    "strange entry": (10, _strange_entry),
    "calls and results": (6, _pairs),
    "almost nothing": (1, _almost_nothing),
}
"""Name → how often among the others, and what it does."""


def fuzzed(seed: int, number: int) -> Fuzzed:
    """The file with that number; one in twenty is only a piece, without damage."""
    draw = random.Random(f"fuzz {seed} {number}")
    base, lines = base_lines(draw)
    file = File(lines, draw)
    names, weights = list(MUTATIONS), [weight for weight, _ in MUTATIONS.values()]
    chosen = draw.choices(names, weights, k=draw.choices([0, 1, 2, 4], [1, 9, 6, 4])[0])
    for name in chosen:
        MUTATIONS[name][1](file)
    return Fuzzed(file.bytes(), base, tuple(chosen))
