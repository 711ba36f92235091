"""What every request has in common: messages made ready for one model, the prompt, the room for the answer."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from contexthost.context import ModelInfo
from contexthost.messages import Message, current_system_message, own_text, text_of
from contexthost.projection.provider import mend
from contexthost.tokens.pi import pi_estimate

__all__ = [
    "clean",
    "conversation",
    "data_url",
    "is_same_model",
    "output_limit",
    "parsed_json",
    "result_text",
    "short_id",
    "system_prompt",
    "thinking_effort",
]

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_PAIRS: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
# What stands for parts that a request cannot hold: Pi's texts, so that switching between the two costs no cache miss.
_USER_IMAGE_NOTE: Final = "(image omitted: model does not support images)"
_TOOL_IMAGE_NOTE: Final = "(tool image omitted: model does not support images)"
_NO_IMAGE_NOTE: Final = "(image omitted: it is none)"
_IMAGE_TYPE: Final = re.compile(r"image/[A-Za-z0-9.+-]+")
_IMAGES_ONLY: Final = "(see attached image)"
_NO_OUTPUT: Final = "(no tool output)"
_NO_NAME: Final = "unnamed_tool"
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_MAX: Final = 64
"""Characters of a tool's name, OpenAI's limit."""
_LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")
# Pi's margins for the answer's limit: estimates of the input may be short of the truth.
_CHARS_PER_TOKEN: Final = 3.5
_FIXED_MARGIN: Final = 4096
_MARGIN_RATIO: Final = 0.15
_ROOM_WITH_RATIO: Final = 32768


def system_prompt(messages: Iterable[Message]) -> str:
    """The prompt that is in force: the texts of the system messages and the sections, a blank line between them."""
    current = current_system_message(messages)
    if current is None:
        return ""
    sections = current.get("sections", {})
    parts = [text_of(current["content"]), *(part for part in sections.values() if isinstance(part, str))]
    return clean("\n\n".join(part for part in parts if part))


def conversation(messages: Sequence[Message], info: ModelInfo, normal_id: Callable[[str], str]) -> list[Message]:
    """The messages other than system messages, as they may be sent to this model.

    Pairs of calls and results are complete and in order, failed attempts and the thinking of other models left out,
    images replaced by a note if the model takes none. ``normal_id`` gives the id for a call of another model's answer.
    """
    sendable, _ = mend(message for message in messages if message.get("role") != "system")
    used: set[str] = set()
    ids: dict[str, str] = {}  # of the calls of the latest answer: as recorded, as sent
    ready: list[Message] = []
    for message in sendable:
        if message["role"] == "assistant":
            ids = {}
            same = is_same_model(message, info)
            blocks = [block for block in map(_checked, _blocks(message)) if block is not None]
            if not same:
                blocks = [_foreign(block) for block in blocks if block["type"] != "thinking"]
            for place, block in enumerate(blocks):
                if block["type"] == "toolCall":
                    ids[block["id"]] = _unique(block["id"] if same else normal_id(block["id"]), used)
                    blocks[place] = {**block, "id": ids[block["id"]]}
            ready.append({**message, "content": blocks})
        elif message["role"] == "toolResult":
            call_id = message["toolCallId"]
            content = _with_images(_blocks(message), info, _TOOL_IMAGE_NOTE)
            ready.append({**message, "content": content, "toolCallId": ids.get(call_id, call_id)})
        else:
            ready.append({**message, "content": _with_images(_blocks(message), info, _USER_IMAGE_NOTE)})
    return ready


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _unique(call_id: str, used: set[str]) -> str:
    """The id, numbered if an earlier call of the request has it: some servers give the same ones in every answer."""
    call, _, _ = call_id.partition("|")
    unique, number = call or "call", 1
    while unique in used:
        number += 1
        unique = f"{call[:30] or 'call'}_{number}"
    used.add(unique)
    return call_id if unique == call else unique


def _checked(block: dict[str, Any]) -> dict[str, Any] | None:
    """A block of an assistant message with the types it should have; None for one that cannot be sent."""
    match block:
        case {"type": "text", "text": str()} | {"type": "thinking", "thinking": str()}:
            return block
        case {"type": "toolCall", "id": str()}:
            name, arguments = _tool_name(block.get("name")), block.get("arguments")
            if name == block.get("name") and isinstance(arguments, dict):
                return block
            return {**block, "name": name, "arguments": arguments if isinstance(arguments, dict) else {}}
    return None


def _tool_name(name: object) -> str:
    """A name that providers take. Other programs, and models that make a tool up, have names with other characters."""
    return _NOT_IN_NAMES.sub("_", own_text(name))[:_NAME_MAX] or _NO_NAME


def _foreign(block: dict[str, Any]) -> dict[str, Any]:
    """A block of another model's answer: signatures are good for their own model only."""
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    return {key: value for key, value in block.items() if key != "thoughtSignature"}


def _with_images(blocks: list[dict[str, Any]], info: ModelInfo, note: str) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                kept.append({"type": "text", "text": clean(text)})
            case {"type": "image", "data": str(), "mimeType": str(kind)} if info.images and _IMAGE_TYPE.fullmatch(kind):
                kept.append(block)
            case {"type": "image"}:
                instead = _NO_IMAGE_NOTE if info.images else note
                if not kept or kept[-1].get("text") != instead:
                    kept.append({"type": "text", "text": instead})
    return kept


def is_same_model(message: Message, info: ModelInfo) -> bool:
    """Whether this very model gave the answer."""
    return (message.get("provider"), message.get("api"), message.get("model")) == (info.provider, info.api, info.id)


def result_text(blocks: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    """The text of a tool result, never blank, and whether that is the tool's own."""
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if text.strip():
        return text, True
    return (_IMAGES_ONLY if any(block["type"] == "image" for block in blocks) else _NO_OUTPUT), False


def data_url(image: Mapping[str, Any]) -> str:
    """An image block as a URL that holds it."""
    return f"data:{image['mimeType']};base64,{image['data']}"


def clean(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates left out: providers refuse them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        paired = _PAIRS.sub(lambda found: found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)
        return _SURROGATES.sub("", paired)
    return text


def short_id(text: str, prefix: str, length: int) -> str:
    """``text`` if it is no longer than that, else ``prefix`` cut short and a hash: the same for the same text."""
    if len(text) <= length:
        return text
    return f"{prefix[: length - 9]}_{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def parsed_json(text: object) -> Any:
    """The value of a JSON text; None for anything else."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def thinking_effort(level: str | None, info: ModelInfo) -> str | None:
    """What to ask the provider for at one of Pi's thinking levels; None: say nothing.

    A level that the model lacks becomes the next lower one that it has. ``xhigh`` and ``max`` are there only if
    ``info.thinking_levels`` names them; ``off`` is asked for only if it is named there.
    """
    if not info.reasoning or level is None:
        return None
    if level not in _LEVELS:
        return info.thinking_levels.get(level)
    for candidate in reversed(_LEVELS[: _LEVELS.index(level) + 1]):
        default = None if candidate in ("xhigh", "max") else candidate
        effort = info.thinking_levels.get(candidate, default)
        if effort is not None:
            return effort
    return None


def output_limit(wanted: int | None, info: ModelInfo, messages: Iterable[Message]) -> int | None:
    """The longest answer to ask for, in tokens: what is wanted, else the model's limit, as far as the window has room.

    The room is what the estimated input and a margin leave, at least 1; None if neither limit is known.
    """
    limit = info.max_tokens if wanted is None else wanted
    if limit is None or not info.context_window:
        return limit
    estimate = math.ceil(sum(map(pi_estimate, messages)) * 4 / _CHARS_PER_TOKEN)
    room = info.context_window - estimate - max(_FIXED_MARGIN, math.ceil(estimate * _MARGIN_RATIO))
    if room < _ROOM_WITH_RATIO:
        room = min(_ROOM_WITH_RATIO, info.context_window - estimate - _FIXED_MARGIN)
    return max(1, min(limit, room))
