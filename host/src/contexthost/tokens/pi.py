"""Pi's own token figures: a quarter of the characters, and the usage that providers report.

These are for parity with Pi (where it would cut, what it calls ``tokensBefore``); contexthost's own counts are made by
a tokeniser. Where a value has a type that would crash Pi or turn its sum into NaN, that value counts 0 here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from contexthost.messages import Message, current_system_message, js_json, js_truthy, utf16_len

__all__ = [
    "BranchEntry",
    "ContextEstimate",
    "ProjectedMessages",
    "assistant_usage",
    "calculate_context_tokens",
    "estimate_projected_context_tokens",
    "pi_estimate",
]

#: Characters that Pi counts for an image, whatever its size: 1,200 tokens.
_IMAGE_CHARS: Final = 4800
#: No token count is this large; what is counts as no number.
_BEYOND_COUNTING: Final = 2**53
_USAGE_PARTS: Final = ("input", "output", "cacheRead", "cacheWrite")


class BranchEntry(Protocol):
    """What the estimate needs of a session entry."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...


class ProjectedMessages(Protocol):
    """What the estimate needs of a projected entry."""

    @property
    def source(self) -> BranchEntry: ...
    def read(self) -> Sequence[Message]: ...


@dataclass(frozen=True, slots=True)
class ContextEstimate:
    """Tokens in the context: what a provider reported (0 when everything is estimated), plus an estimate of the
    messages that came after it."""

    tokens: int
    usage_tokens: int
    trailing_tokens: int


def pi_estimate(message: Message) -> int:
    """Pi's ``estimateTokens``: a quarter of the message's UTF-16 units, rounded up; 0 for unknown roles."""
    return -(-_chars(message) // 4)


def calculate_context_tokens(usage: object) -> int:
    """The context size that a provider's usage stands for.

    ``totalTokens`` unless it is missing or zero, else the sum of input, output, cache reads and cache writes. 0 when
    that is not a number (a part is missing, a total is a string); a fraction is rounded up.
    """
    if not isinstance(usage, Mapping):
        return 0
    total = usage.get("totalTokens")
    if js_truthy(total):
        return _whole(total)
    if not all(part in usage for part in _USAGE_PARTS):
        return 0
    parts = [0 if usage[part] is None else usage[part] for part in _USAGE_PARTS]
    return _whole(sum(parts)) if all(_is_number(part) for part in parts) else 0


def assistant_usage(message: Message) -> Mapping[str, Any] | None:
    """The usage of an assistant message that ended neither aborted nor in error and counted any tokens; else None."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    if message.get("stopReason") in ("aborted", "error"):
        return None
    usage = message.get("usage")
    return usage if isinstance(usage, Mapping) and calculate_context_tokens(usage) > 0 else None


def estimate_projected_context_tokens(
    entries: Sequence[ProjectedMessages], branch: Sequence[BranchEntry]
) -> ContextEstimate:
    """The last valid usage plus the estimate of what follows it; all estimated where there is none to trust.

    ``entries`` are the projected entries, ``branch`` all entries from the root to the leaf. A usage from before a later
    context edit or compaction is not trusted; positions on the branch decide, never clocks. Without a trusted usage all
    messages are estimated, the system messages as the one that is now in force. Keeps nothing decoded.
    """
    trailing = 0
    for entry in reversed(entries):
        for message in reversed(entry.read()):
            usage = assistant_usage(message)
            if usage is None:
                trailing += pi_estimate(message)
            elif _is_trusted(entry.source.id, branch):
                reported = calculate_context_tokens(usage)
                return ContextEstimate(reported + trailing, reported, trailing)
            else:
                return _estimated(entries)
    return _estimated(entries)


def _is_trusted(source_id: str, branch: Sequence[BranchEntry]) -> bool:
    """Whether the entry with a usage comes, seen from the leaf, before any edit and compaction.

    Pi compares two indices; a usage that is not on the branch is not trusted even when nothing invalidates it.
    """
    for entry in reversed(branch):
        if entry.type in ("context_edit", "compaction"):
            return False
        if entry.id == source_id:
            return bool(source_id)
    return False


def _estimated(entries: Sequence[ProjectedMessages]) -> ContextEstimate:
    tokens = 0
    systems: list[Message] = []
    for entry in entries:
        for message in entry.read():
            if isinstance(message, dict) and message.get("role") == "system":
                systems.append(message)
            else:
                tokens += pi_estimate(message)
    system = current_system_message(systems)
    tokens += 0 if system is None else pi_estimate(system)
    return ContextEstimate(tokens, 0, tokens)


def _chars(message: Message) -> int:
    if not isinstance(message, dict):
        return 0
    match message.get("role"):
        case "user" | "custom" | "toolResult":
            return _text_and_image_chars(message.get("content"))
        case "assistant":
            content = message.get("content")
            return sum(map(_assistant_block_chars, content)) if isinstance(content, list) else 0
        case "system":
            return _system_chars(message)
        case "bashExecution":
            return _length(message.get("command")) + _length(message.get("output"))
        case "branchSummary" | "compactionSummary":
            return _length(message.get("summary"))
    return 0


def _text_and_image_chars(content: object) -> int:
    if isinstance(content, str):
        return utf16_len(content)
    chars = 0
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            if block.get("type") == "text":
                chars += _length(block.get("text"))
            elif block.get("type") == "image":
                chars += _IMAGE_CHARS
    return chars


def _assistant_block_chars(block: object) -> int:
    if not isinstance(block, dict):
        return 0
    match block.get("type"):
        case "text":
            return _length(block.get("text"))
        case "thinking":
            return _length(block.get("thinking"))
        case "toolCall":
            arguments = utf16_len(js_json(block["arguments"])) if "arguments" in block else 0
            return _length(block.get("name")) + arguments
    return 0


def _system_chars(message: Message) -> int:
    chars = _text_and_image_chars(message.get("content"))
    sections = message.get("sections")
    if isinstance(sections, dict):
        chars += sum(map(_length, sections.values()))
    tools = message.get("toolsAdded")
    if js_truthy(tools):
        chars += utf16_len(js_json(tools))
    return chars


def _length(value: object) -> int:
    return utf16_len(value) if isinstance(value, str) else 0


def _is_number(value: object) -> bool:
    # Bounded, since JSON can hold 1e400 (infinity) and integers that no float can.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _BEYOND_COUNTING


def _whole(value: Any) -> int:
    return math.ceil(value) if _is_number(value) else 0
