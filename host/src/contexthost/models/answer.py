"""The assistant message of one answer, built while it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from contexthost.context import ModelInfo
from contexthost.messages import Message
from contexthost.models.arguments import parse_arguments, partial_arguments
from contexthost.models.usage import empty_usage

__all__ = ["ABORTED", "AnswerReader", "Draft", "ToolCallText", "new_answer"]


ABORTED: Final = "Request was aborted"
"""What an aborted answer gives as its error; Pi's text."""


def new_answer(info: ModelInfo) -> Message:
    """An assistant message without content, as Pi records one, dated now."""
    return {
        "role": "assistant",
        "content": [],
        "api": info.api,
        "provider": info.provider,
        "model": info.id,
        "usage": empty_usage(),
        "stopReason": "stop",
        "timestamp": time.time_ns() // 1_000_000,
    }


class ToolCallText:
    """A call whose arguments are still arriving as text."""

    def __init__(self, block: dict[str, Any]) -> None:
        self.block = block
        self._pieces: list[str] = []

    def append(self, piece: str) -> None:
        self._pieces.append(piece)

    def replace(self, text: str) -> None:
        """The whole text, where a provider repeats it at the end."""
        self._pieces = [text]

    def finish(self) -> None:
        """Take the arguments as complete: unusable ones become none, with an ``argumentsError`` to answer them by."""
        self.block["arguments"], problem = parse_arguments("".join(self._pieces))
        if problem is not None:
            self.block["argumentsError"] = problem

    def cut(self) -> None:
        """Take what can be read of arguments that will not be completed."""
        self.block["arguments"] = partial_arguments("".join(self._pieces))


class Draft:
    """One attempt at an answer: the message so far, and whether anybody has seen some of it."""

    def __init__(self, info: ModelInfo, on_text: Callable[[str], None] | None) -> None:
        self.info = info
        self.message = new_answer(info)
        self.delivered = False
        self._on_text = on_text
        self._open: list[ToolCallText] = []

    def add(self, block: dict[str, Any]) -> dict[str, Any]:
        """Begin a content block."""
        self.message["content"].append(block)
        return block

    def add_call(self, call_id: str, name: str, **more: Any) -> ToolCallText:
        """Begin a tool call."""
        block = self.add({"type": "toolCall", "id": call_id, "name": name, "arguments": {}, **more})
        self._open.append(ToolCallText(block))
        return self._open[-1]

    def close_call(self, call: ToolCallText) -> None:
        """The call is complete."""
        call.finish()
        self._open.remove(call)

    @property
    def open_calls(self) -> list[ToolCallText]:
        """The calls that are not complete yet."""
        return list(self._open)

    def tell(self, text: str) -> None:
        """Hand on a piece of text that has arrived."""
        if text and self._on_text is not None:
            self.delivered = True
            self._on_text(text)

    def has_calls(self) -> bool:
        """Whether the answer calls a tool."""
        return any(block["type"] == "toolCall" for block in self.message["content"])

    def fail(self, stop_reason: str, text: str) -> None:
        """Make the message one of an answer that ended early."""
        for call in self._open:
            call.cut()
        self._open.clear()
        self.message["stopReason"] = stop_reason
        self.message["errorMessage"] = text


class AnswerReader(Protocol):
    """Puts a provider's events together; one per attempt."""

    def feed(self, event: dict[str, Any]) -> None:
        """Take one event in. Raises ProviderError for one that reports a failure."""

    def finish(self) -> None:
        """The stream has ended. Raises ProviderError if it ended too early or with a failure."""

    def close(self, *, aborted: bool) -> None:
        """The answer ends early: put what has arrived into the message as far as it goes."""
