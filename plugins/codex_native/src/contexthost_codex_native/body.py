"""The body of a compaction request: the ordinary request's shape, the conversation, and the trigger at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from contexthost.models.conversion import system_prompt

if TYPE_CHECKING:
    from contexthost.context import ModelInfo
    from contexthost.messages import Message

__all__ = ["TRIGGER", "compaction_body", "shape_of"]

TRIGGER: Final[Mapping[str, Any]] = {"type": "compaction_trigger"}
"""Asks for the compaction. Always last, and without an ``id``: the API rejects one."""
_REASONING: Final = "reasoning.encrypted_content"
_CACHE_KEY_MAX: Final = 64
"""Characters; OpenAI's limit."""


def shape_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What a compaction request takes over from an ordinary one: everything but the conversation."""
    return {key: value for key, value in payload.items() if key not in ("messages", "input", "previous_response_id")}


def compaction_body(
    model: ModelInfo,
    items: Sequence[Mapping[str, Any]],
    *,
    system: Message | None,
    session_id: str,
    shape: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body. Without a ``shape`` (no ordinary request was made yet) the tools are those that ``system``, the system
    message in force, declares."""
    body = dict(shape) if shape is not None else _first_shape(system)
    text = body.get("text")
    text = dict(text) if isinstance(text, Mapping) else {}
    text.setdefault("verbosity", "low")
    include = body.get("include")
    include = [name for name in include if isinstance(name, str)] if isinstance(include, list) else []
    return {
        **body,
        "model": model.id,
        "store": False,
        "stream": True,
        "instructions": system_prompt([system]) if system is not None else "",
        "input": [*(dict(item) for item in items), dict(TRIGGER)],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "include": list(dict.fromkeys([*include, _REASONING])),
        "prompt_cache_key": session_id[:_CACHE_KEY_MAX],
        "text": text,
    }


def _first_shape(system: Message | None) -> dict[str, Any]:
    declared = system.get("toolsAdded") if system is not None else None
    tools = [
        {
            "type": "function",
            "name": tool["name"],
            "description": str(tool.get("description") or ""),
            "parameters": tool.get("parameters") or {"type": "object", "properties": {}},
        }
        for tool in (declared if isinstance(declared, list) else ())
        if isinstance(tool, dict) and isinstance(tool.get("name"), str)
    ]
    return {"tools": tools} if tools else {}
