"""A session of half a million entries, as somebody has who never starts a new one: a chain with some branches that were
left, a compaction every few thousand entries, and tool results of some kilobytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from support.large import large_entries

__all__ = ["RARE", "Huge", "huge_entries", "write_huge"]

RARE: Final = "zebrafinch"
"""A word that one entry has, a tool result that was compacted away long ago."""
_COMPACTED: Final = 4_000  # entries from one compaction to the next
_FIRST: Final = 3_000  # the entries before the first one's end
_KEPT: Final = 200
_BRANCHED: Final = 10_000  # entries from one side branch to the next
_SIDE: Final = 8  # entries of such a branch
_HEADER: Final = {
    "type": "session", "version": 3, "id": "huge", "timestamp": "2026-11-30T10:00:00.000Z", "cwd": "/home/dev/project",
}  # fmt: skip


@dataclass(frozen=True)
class Huge:
    """What was written: ``branch`` is how many entries the branch in use has, ``shown`` how many of those the model
    sees, the compaction included."""

    path: Path
    size: int
    entries: int
    branch: int
    shown: int
    leaf: str
    rare: str


def huge_entries(count: int, *, result_chars: int) -> Iterator[dict[str, Any]]:
    """``count`` entries, each a message but for the compactions."""
    parent: str | None = None
    for number, made in enumerate(large_entries(count, result_chars=result_chars)):
        made["parentId"] = parent
        if _compacts(number):
            kept = f"{number - _KEPT + 1:08x}"
            fields = {
                "summary": f"What was done up to module {number}.",
                "firstKeptEntryId": kept,
                "tokensBefore": 90_000,
            }
            del made["message"]
            made |= {"type": "compaction", **fields}
        elif number == _rare(count):
            made["message"]["content"].append({"type": "text", "text": f"a {RARE} sang"})
        yield made
        # From the end of a side branch it goes on where that began.
        parent = made["id"] if number % _BRANCHED != 2 * _SIDE - 1 else f"{number - _SIDE:08x}"


def _compacts(number: int) -> bool:
    return number % _COMPACTED == _FIRST - 1


def _rare(count: int) -> int:
    return count // 10 // 4 * 4 + 2  # a tool result


def write_huge(path: Path, count: int, *, result_chars: int) -> Huge:
    """Writes such a session, entry by entry: it takes the disk's room only."""
    size = 0
    last = ""
    encode = msgspec.json.Encoder().encode
    with path.open("wb", buffering=1 << 20) as file:
        size += file.write(encode(_HEADER) + b"\n")
        for made in huge_entries(count, result_chars=result_chars):
            size += file.write(encode(made) + b"\n")
            last = made["id"]
    starts = range(0, count, _BRANCHED)
    assert count % _BRANCHED not in range(_SIDE, 2 * _SIDE + 1), "it would end in a side branch"
    assert count > _FIRST
    newest = (
        count - _FIRST
    ) // _COMPACTED * _COMPACTED + _FIRST  # the entries up to the last compaction, itself included
    sides = sum(start + _SIDE < count for start in starts)
    hidden = sum(newest - _KEPT <= start + _SIDE < count for start in starts)
    return Huge(
        path=path,
        size=size,
        entries=count,
        branch=count - sides * _SIDE,
        shown=count - newest + _KEPT - hidden * _SIDE,
        leaf=last,
        rare=f"{_rare(count):08x}",
    )
