"""Content that Pi fails on: it expects lists of blocks with all their parts, and looks into each without a check. Of an
image without its data it makes a request that providers refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from contexthost.projection import ProjectedEntry
from contexthost.shapes import block_problem

__all__ = ["MAX_DEPTH", "broken_edits", "clean_blocks", "content_edits", "nested_too_deeply"]

_TEXT_TOO: Final = frozenset({"user", "custom"})  # roles whose content may be text as well
_EDITABLE: Final = _TEXT_TOO | {"assistant", "toolResult"}
MAX_DEPTH: Final = 4_000
"""How deep a call's arguments may be nested: Node 24 parses any depth, but prints 4,446 at most, on an empty stack."""


def clean_blocks(role: Any, content: Any) -> list[Any] | None:
    """What can be shown of a message's content, as blocks; None when Pi can take the content as it is.

    Text becomes a text block, a call without arguments, or with some that are nested too deeply for Pi, gets none, one
    without a name is called "unknown"; whatever is not a whole block is left out.
    """
    if not isinstance(role, str) or role not in _EDITABLE or (isinstance(content, str) and role in _TEXT_TOO):
        return None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    blocks = [clean for clean in map(_clean, content) if clean is not None]
    return None if blocks == content else blocks


def _clean(block: Any) -> dict[str, Any] | None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        return None
    if kind == "toolCall":
        missing: dict[str, Any] = {} if isinstance(block.get("name"), str) else {"name": "unknown"}
        if not isinstance(block.get("arguments"), dict) or nested_too_deeply(block["arguments"]):
            missing["arguments"] = {}
        return {**block, **missing}
    return dict(block) if block_problem(block) is None else None


def nested_too_deeply(value: Any) -> bool:
    """Whether a value is nested more than `MAX_DEPTH` deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for holder in level
            for child in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def content_edits(entries: Iterable[ProjectedEntry]) -> dict[str, list[Any]]:
    """For each entry whose content Pi fails on, the blocks to put in its place.

    Messages that cannot be edited in Pi are passed over.
    """
    edits: dict[str, list[Any]] = {}
    for entry in entries:
        if entry.source.type != "custom_message" and entry.source.role not in ("user", "assistant", "toolResult"):
            continue
        for message in entry.messages:
            blocks = clean_blocks(message.get("role"), message.get("content"))
            if blocks is not None:
                edits[entry.source.id] = blocks
    return edits


def broken_edits(entries: Iterable[ProjectedEntry]) -> dict[str, str]:
    """The context edits in force that are neither an omission nor a replacement, as edit → its target."""
    return {
        entry.edit.id: entry.source.id
        for entry in entries
        if entry.edit is not None and entry.omitted and entry.edit.data.get("replacement", "absent") is not None
    }
