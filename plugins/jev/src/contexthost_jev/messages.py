"""The shapes that the core works on: messages with text, tool uses and tool results, apart from any agent's format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from contexthost_jev.estimate import to_json

__all__ = ["JevMessage", "Role", "ToolResult", "ToolUse", "history_chars", "message_chars"]

Role = Literal["user", "assistant"]


@dataclass(frozen=True)
class ToolUse:
    """One call: ``id`` pairs it with its result, ``input`` is any JSON."""

    id: str
    tool: str
    input: Any

    @cached_property
    def input_json(self) -> str:
        """The input as compact JSON."""
        return to_json(self.input)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave. ``truncated``: an earlier compaction has cut it, so it is never asked about or cut again."""

    id: str
    text: str
    is_error: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class JevMessage:
    """One message. ``label`` says what a user message is that nobody typed (``bash``, ``note``, …); empty for a
    prompt and for every assistant message."""

    role: Role
    text: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    label: str = ""

    @property
    def empty(self) -> bool:
        """Whether nothing is in it."""
        return not (self.text or self.tool_uses or self.tool_results)

    @property
    def is_prompt(self) -> bool:
        """Whether a person typed it."""
        return self.role == "user" and bool(self.text) and not self.label


def message_chars(message: JevMessage) -> int:
    """Characters (code points) of a message: its text, its inputs as compact JSON, the texts of its results."""
    inputs = sum(len(use.input_json) for use in message.tool_uses)
    return len(message.text) + inputs + sum(len(result.text) for result in message.tool_results)


def history_chars(messages: Iterable[JevMessage]) -> int:
    """The sum of `message_chars`."""
    return sum(message_chars(message) for message in messages)
