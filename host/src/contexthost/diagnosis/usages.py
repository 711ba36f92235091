"""Usage that Pi cannot add up: its terminal shows the sum of all that a session records, of every branch, and fails on
it before anything can be done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contexthost.diagnosis.finding import Finding
from contexthost.messages import js_truthy
from contexthost.session import Entry
from contexthost.shapes import usage_breaks_pi, whole_usage

__all__ = ["broken_usages", "with_whole_usage"]


def broken_usages(entries: Sequence[Entry], line_of: Mapping[int, int]) -> Iterator[Finding]:
    """The findings about usage, in the order of the entries."""
    for entry in entries:
        if entry.type == "message":
            usage = entry.read_usage() if entry.role in ("assistant", "toolResult") else None
        else:
            usage = entry.read().get("usage") if entry.type in ("usage", "compaction", "branch_summary") else None
        if _is_broken(entry.type, entry.role, usage):
            yield Finding(
                kind="bad-usage", mend="rescue", entry_id=entry.id, line=line_of.get(entry.position, 0),
                problem="its usage is not what Pi adds up: an object of numbers, with a cost",
                model_sees="The same as without the damage; but Pi ends with an error whenever it shows this session "
                "on a terminal.",
                repair="Appending cannot mend this. --rescue NEWFILE keeps the numbers that are there and puts 0 for "
                "the others.",
            )  # fmt: skip


def with_whole_usage(data: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with usage that Pi can add up."""
    message = data.get("message")
    if data.get("type") != "message" or not isinstance(message, dict):
        broken = _is_broken(data.get("type"), None, data.get("usage"))
        return {**data, "usage": whole_usage(data.get("usage"))} if broken else dict(data)
    if not _is_broken("message", message.get("role"), message.get("usage")):
        return dict(data)
    return {**data, "message": {**message, "usage": whole_usage(message.get("usage"))}}


def _is_broken(kind: Any, role: Any, usage: Any) -> bool:
    """Pi takes the usage of answers and of its own entries for granted, and looks at any other only if it is there."""
    needed = kind == "usage" or (kind == "message" and role == "assistant")
    read = needed or kind in ("compaction", "branch_summary") or (kind == "message" and role == "toolResult")
    return read and (needed or js_truthy(usage)) and usage_breaks_pi(usage)
