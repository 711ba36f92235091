"""Large sessions, made fast: realistic turns of a user message, an assistant's call, its result and an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TIME = "2026-11-30T10:00:00.000Z"
_USAGE = {"input": 10, "output": 20, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 30, "cost": {"total": 0}}


def entry(number: int, message: dict[str, Any]) -> dict[str, Any]:
    """The entry with that number, behind the one before it."""
    parent = f"{number - 1:08x}" if number else None
    return {"type": "message", "id": f"{number:08x}", "parentId": parent, "timestamp": _TIME, "message": message}


def large_entries(count: int, *, result_chars: int = 200) -> Iterator[dict[str, Any]]:
    """``count`` entries on one branch; tool results have about ``result_chars`` characters."""
    words = "def handle(request): return self.store.load(request.key)  # line "
    result = (words * (result_chars // len(words) + 1))[:result_chars]
    for number in range(count):
        part = number % 4
        call = f"call_{number - number % 4:08x}"
        if part == 0:
            message: dict[str, Any] = {"role": "user", "content": f"Please look at module {number}."}
        elif part == 1:
            arguments = {"path": f"src/module_{number}.py"}
            content = [{"type": "toolCall", "id": call, "name": "read", "arguments": arguments}]
            message = {"role": "assistant", "content": content, "usage": _USAGE, "stopReason": "toolUse"}
        elif part == 2:
            text = f"{number}\n{result}"
            message = {"role": "toolResult", "toolCallId": call, "toolName": "read", "isError": False}
            message["content"] = [{"type": "text", "text": text}]
        else:
            content = [{"type": "text", "text": f"Module {number} is in order."}]
            message = {"role": "assistant", "content": content, "usage": _USAGE, "stopReason": "stop"}
        if message["role"] == "assistant":
            message |= {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5"}
        yield entry(number, {**message, "timestamp": 1_796_040_000_000 + number})


def write_large(path: Path, count: int, *, result_chars: int = 200) -> Path:
    """Writes such a session, version 3."""
    header = {"type": "session", "version": 3, "id": "large", "timestamp": _TIME, "cwd": "/home/dev/project"}
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(header, separators=(",", ":")) + "\n")
        for made in large_entries(count, result_chars=result_chars):
            file.write(json.dumps(made, separators=(",", ":")) + "\n")
    return path
