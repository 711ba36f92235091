"""The native checkpoint: what a compaction entry's ``details`` hold, read strictly, and how the history is made.

The form, version 1::

    {"kind": "contexthost-codex-native", "version": 1, "modelKey": "provider:api:model",
     "replacementHistory": [user messages…, the provider's compaction item],
     "portable": {"goal": …, "readFiles": […], "modifiedFiles": […]}}

``portable`` is what the next portable summary carries on; a checkpoint without it is as good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contexthost.messages import own_text

__all__ = [
    "COMPACTION_TYPES",
    "HISTORY_TOKENS",
    "KIND",
    "Checkpoint",
    "MalformedCheckpoint",
    "claims_to_be_native",
    "opaque_characters",
    "parse_checkpoint",
    "replacement_history",
]

KIND: Final = "contexthost-codex-native"
VERSION: Final = 1
HISTORY_TOKENS: Final = 64_000
"""Tokens of recent user messages that stay readable beside the opaque item, at four characters a token (Codex)."""
COMPACTION_TYPES: Final = frozenset({"compaction", "compaction_summary"})
"""Types of the opaque item; the second is an older name that some gateways still send. Stored as received."""
_CHARS_PER_TOKEN: Final = 4
_CUT_MIN: Final = 200
"""Characters; less than this of a message that does not fit is not worth keeping."""
_IMAGE_NOTE: Final = "(image left out of the compacted history)"

Item = dict[str, Any]


class MalformedCheckpoint(ValueError):
    """Details that look like a native checkpoint and are none that may be sent."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A native checkpoint: what stands for everything before it, for one model."""

    model_key: str
    history: tuple[Item, ...]
    """User messages in their order, then the opaque item."""
    portable: Mapping[str, Any] = field(default_factory=dict)

    @property
    def user_items(self) -> tuple[Item, ...]:
        """The user messages that stayed readable."""
        return self.history[:-1]

    def details(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "kind": KIND,
            "version": VERSION,
            "modelKey": self.model_key,
            "replacementHistory": list(self.history),
            "portable": dict(self.portable),
        }


def claims_to_be_native(details: object) -> bool:
    """Whether a compaction's details are meant as a native checkpoint: ours, or another program's."""
    return isinstance(details, dict) and (details.get("kind") == KIND or "replacementHistory" in details)


def parse_checkpoint(details: object) -> Checkpoint:
    """The checkpoint in a compaction entry's details.

    Raises:
        MalformedCheckpoint: it is another kind or version, or anything in it is not as it must be.
    """
    if not isinstance(details, dict) or details.get("kind") != KIND:
        raise MalformedCheckpoint("it is of another program's making")
    version = details.get("version")
    if version != VERSION or isinstance(version, bool) or not isinstance(version, int):
        raise MalformedCheckpoint(f"its version is not {VERSION}")
    key = details.get("modelKey")
    if not isinstance(key, str) or key.count(":") < 2 or not all(key.split(":", 2)):
        raise MalformedCheckpoint("it does not say which model it is for")
    history = details.get("replacementHistory")
    if not isinstance(history, list) or not history:
        raise MalformedCheckpoint("it has no history")
    opaque = [item for item in history if isinstance(item, dict) and own_text(item.get("type")) in COMPACTION_TYPES]
    if len(opaque) != 1 or history[-1] is not opaque[0]:
        raise MalformedCheckpoint("it has no compaction item, more than one, or one that is not last")
    content = opaque[0].get("encrypted_content")
    if not isinstance(content, str) or not content:
        raise MalformedCheckpoint("its compaction item is empty")
    if not all(_is_user_item(item) for item in history[:-1]):
        raise MalformedCheckpoint("its history holds something else than user messages")
    portable = details.get("portable")
    return Checkpoint(key, tuple(history), portable if isinstance(portable, dict) else {})


def _is_user_item(item: object) -> bool:
    if not isinstance(item, dict) or item.get("role") != "user" or item.get("type", "message") != "message":
        return False
    content = item.get("content")
    return isinstance(content, list) and bool(content) and all(_is_part(part) for part in content)


def _is_part(part: object) -> bool:
    match part:
        case {"type": "input_text", "text": str(text)} if text:
            return True
        case {"type": "input_image", "image_url": str(url)} if url:
            return True
    return False


def replacement_history(newest_first: Iterable[Item], opaque: Item, budget: int = HISTORY_TOKENS) -> tuple[Item, ...]:
    """The recent user messages within ``budget`` tokens, in their original order, then the opaque item.

    ``newest_first`` is read only as far as the budget reaches. The message that does not fit is cut in the middle and
    is the last one taken. An image counts with the characters that it is sent as; one that does not fit becomes a
    note.
    """
    room = budget * _CHARS_PER_TOKEN
    kept: list[Item] = []
    for item in newest_first:
        fitted, room = _fit(item, room)
        if fitted is not None:
            kept.append(fitted)
        if room <= 0:
            break
    return (*reversed(kept), opaque)


def _fit(item: Item, room: int) -> tuple[Item | None, int]:
    """The message as it fits, and the room that is left: none once something had to be cut."""
    texts = sum(len(part["text"]) for part in item["content"] if part["type"] == "input_text")
    if texts > room:
        return _cut(item, texts, room), 0
    room -= _rounded(texts)
    parts: list[Item] = []
    for part in item["content"]:
        size = _rounded(len(part["image_url"])) if part["type"] == "input_image" else 0
        if size > room:
            parts.append({"type": "input_text", "text": _IMAGE_NOTE})
        else:
            parts.append(part)
            room -= size
    return {**item, "content": parts}, max(room, 0)


def _rounded(characters: int) -> int:
    return math.ceil(characters / _CHARS_PER_TOKEN) * _CHARS_PER_TOKEN


def _cut(item: Item, texts: int, room: int) -> Item | None:
    """The head of a message's text and its tail, with a note between them."""
    text = "\n".join(part["text"] for part in item["content"] if part["type"] == "input_text")
    note = f"\n[… {texts:,} characters in all, the middle is left out …]\n"
    space = room - len(note)
    if space < _CUT_MIN:
        return None
    head = space - space // 2
    return {**item, "content": [{"type": "input_text", "text": text[:head] + note + text[len(text) - space // 2 :]}]}


def opaque_characters(checkpoint: Checkpoint) -> int:
    """The length of the opaque item's content."""
    return len(checkpoint.history[-1]["encrypted_content"])
