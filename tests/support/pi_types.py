"""Which entries of a session hold values of types that Pi never writes there.

Pi does not look at types when it reads. A part with the wrong one it takes as JavaScript happens to: an array where a
text should be has a length, an object joined to a text is "[object Object]", a message that is no object is one without
a role. Here such a part counts as absent (see `contexthost.messages`). That is wanted, so what two programs make of
such an entry is not compared, only where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["is_as_pi_writes_it"]

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 2**53
    )


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _nothing_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _object(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    def check(value: Any) -> bool:
        if not isinstance(value, dict) or not all(key in value and one(value[key]) for key, one in required.items()):
            return False
        return all(one(value[key]) for key, one in (optional or {}).items() if key in value)

    return check


_anything: Final[Check] = lambda value: True  # noqa: E731
_arguments: Final = _object({})
_BLOCKS: Final = {
    "text": _object({"text": _text}),
    "thinking": _object({"thinking": _text}),
    "image": _object({"data": _text, "mimeType": _text}),
    "toolCall": _object({"id": _text, "name": _text, "arguments": _arguments}),
}


def _block(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and _BLOCKS.get(kind, _anything)(value)


def _content(value: Any) -> bool:
    return isinstance(value, str) or _list_of(_block)(value)


_usage: Final = _object({}, dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), _number))
_nested: Final = _object({"calls": _list_of(_object({"name": _text, "arguments": _arguments}))})
_tools: Final = _list_of(_object({"name": _text}))
_MESSAGES: Final = {
    "user": _object({"content": _content}),
    "assistant": _object(
        {"content": _list_of(_block)},
        {"usage": _usage, "stopReason": _text, "provider": _text, "model": _text, "timestamp": _number},
    ),
    "toolResult": _object(
        {"content": _list_of(_block), "toolCallId": _text, "toolName": _text},
        {"isError": _flag, "nestedCalls": _nothing_or(_nested)},
    ),
    "system": _object(
        {"content": _content},
        {
            "sections": lambda value: isinstance(value, dict) and all(map(_nothing_or(_text), value.values())),
            "toolsAdded": _tools,
            "toolsRemoved": _tools,
        },
    ),
    "bashExecution": _object(
        {"command": _text, "output": _text},
        {
            "exitCode": _nothing_or(_number), "cancelled": _flag, "truncated": _flag, "fullOutputPath": _text,
            "excludeFromContext": _flag,
        },
    ),
    "custom": _object({"content": _content}),
    "branchSummary": _object({"summary": _text}),
    "compactionSummary": _object({"summary": _text}),
}  # fmt: skip


def _message(value: Any) -> bool:
    role = value.get("role") if isinstance(value, dict) else None
    return isinstance(role, str) and _MESSAGES.get(role, _anything)(value)


_files: Final = _nothing_or(_object({}, {"readFiles": _list_of(_text), "modifiedFiles": _list_of(_text)}))
_ENTRIES: Final = {
    "message": _object({"message": _message}),
    "compaction": _object(
        {"summary": _text, "tokensBefore": _number},
        {"firstKeptEntryId": _text, "systemMessage": _message, "details": _files, "fromHook": _flag, "usage": _usage},
    ),
    "branch_summary": _object({"summary": _text}, {"details": _files, "fromHook": _flag}),
    "context_edit": _object({"targetId": _text, "replacement": _nothing_or(_object({"content": _content}))}),
    "custom_message": _object({"content": _content}),
    "model_change": _object({"provider": _text, "modelId": _text}),
    "thinking_level_change": _object({"thinkingLevel": _text}),
}


def is_as_pi_writes_it(entry: Mapping[str, Any]) -> bool:
    """Whether all that Pi reads of an entry has a type that Pi writes; entries that it reads nothing of always have."""
    kind = entry.get("type")
    return not isinstance(kind, str) or (_ENTRIES.get(kind, _anything)(entry) and _text(entry.get("timestamp")))
