"""A conversation as text, for a model that is to summarise it and not to continue it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from contexthost.messages import Message, js_items, js_json, slice_head, text_of, utf16_len

__all__ = ["TOOL_RESULT_MAX_CHARS", "serialize_conversation", "truncate"]

#: UTF-16 units of a tool result that a summary request carries, as in Pi.
TOOL_RESULT_MAX_CHARS: Final = 2000


def serialize_conversation(messages: Iterable[Message]) -> str:
    """The texts, tool calls and tool results of provider messages (see ``convert_to_llm``), a blank line between them.

    Thinking, images and system messages are left out; long tool results are truncated.
    """
    return "\n\n".join(part for message in messages for part in _parts(message))


def truncate(text: str, max_chars: int = TOOL_RESULT_MAX_CHARS) -> str:
    """``text``, or its first ``max_chars`` UTF-16 units and a note of how many more there are.

    A surrogate pair is not split: then the head is one unit shorter, but the note counts from ``max_chars``.
    """
    more = utf16_len(text) - max_chars
    return text if more <= 0 else f"{slice_head(text, max_chars)}\n\n[... {more} more characters truncated]"


def _parts(message: Message) -> Iterator[str]:
    match message:
        case {"role": "user"}:
            text = text_of(message.get("content"))
            if text:
                yield f"[User]: {text}"
        case {"role": "assistant", "content": list(content)}:
            # A text block makes a part even if its text is empty.
            if any(_is_block(block, "text") for block in content):
                yield f"[Assistant]: {text_of(content, chr(10))}"
            calls = [_call(block) for block in content if _is_block(block, "toolCall")]
            if calls:
                yield f"[Assistant tool calls]: {'; '.join(calls)}"
        case {"role": "toolResult"}:
            text = text_of(message.get("content"))
            if text:
                yield f"[Tool result]: {truncate(text)}"


def _is_block(block: object, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _call(block: dict[str, Any]) -> str:
    name, arguments = block.get("name"), block.get("arguments")
    if isinstance(arguments, list):
        arguments = {str(index): value for index, value in enumerate(arguments)}
    items = js_items(arguments) if isinstance(arguments, dict) else ()
    return f"{name if isinstance(name, str) else ''}({', '.join(f'{key}={js_json(value)}' for key, value in items)})"
