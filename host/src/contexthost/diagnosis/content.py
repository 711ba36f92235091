"""Content that Pi cannot send: it expects lists of blocks and looks into each of them without a check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from contexthost.diagnosis.pairs import Replacement
from contexthost.projection import ProjectedEntry

__all__ = ["content_edits"]

_TEXT_TOO: Final = frozenset({"user", "custom"})  # roles whose content may be text as well
_EDITABLE: Final = _TEXT_TOO | {"assistant", "toolResult"}


def content_edits(entries: Iterable[ProjectedEntry]) -> dict[str, Replacement]:
    """For each entry whose content is neither text nor blocks: an edit with what can be shown of it, as blocks.

    Messages of other roles cannot be edited in Pi and are passed over.
    """
    edits: dict[str, Replacement] = {}
    for entry in entries:
        if entry.source.type not in ("message", "custom_message"):
            continue
        for message in entry.messages:
            role, content = message.get("role"), message.get("content")
            if role not in _EDITABLE or (entry.source.type == "message" and role == "custom"):
                continue
            if isinstance(content, str) and role in _TEXT_TOO:
                continue
            if isinstance(content, list) and all(map(_is_block, content)):
                continue
            edits[entry.source.id] = {"content": _blocks(content)}
    return edits


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if _is_block(block)] if isinstance(content, list) else []


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return False
    return block["type"] != "text" or isinstance(block.get("text"), str)
