"""The arguments of a tool call, from the JSON text that a model wrote: whole, slightly wrong, or cut off."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

__all__ = ["parse_arguments", "partial_arguments"]

# An escape that JSON knows, or a backslash that begins none.
_BACKSLASH: Final = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_RECEIVED_MAX: Final = 4000
"""Characters of unusable arguments that the error quotes."""


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments, and what is wrong with them if they are unusable (then there are none).

    Empty text means no arguments. Control characters inside strings and backslashes that escape nothing are taken
    as themselves: models write both.
    """
    if not text.strip():
        return {}, None
    try:
        value = _load(text)
    except (ValueError, RecursionError) as error:
        return {}, _complaint(str(error) or type(error).__name__, text)
    if not isinstance(value, dict):
        return {}, _complaint("Tool arguments must be a JSON object", text)
    return value, None


def partial_arguments(text: str) -> dict[str, Any]:
    """What can be read of arguments that were cut off: an open string up to its end, open objects and lists closed."""
    for cut, closers in _closings(text):
        try:
            value = _load(text[:cut] + closers)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}


def _load(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except ValueError:
        repaired = _BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", text)
        if repaired == text:
            raise
        return json.loads(repaired, strict=False, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _complaint(problem: str, text: str) -> str:
    more = f"... [{len(text) - _RECEIVED_MAX} more characters]" if len(text) > _RECEIVED_MAX else ""
    return f"{problem}\n\nReceived arguments:\n{text[:_RECEIVED_MAX]}{more}"


def _closings(text: str) -> list[tuple[int, str]]:
    """Where the text might be cut and how it would be closed then: as it ends, else before its last members."""
    open_: list[str] = []
    places: list[tuple[int, str]] = []
    in_string = escaped = False
    for index, character in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            open_.append("}" if character == "{" else "]")
            places.append((index + 1, "".join(reversed(open_))))
        elif character in "}]" and open_:
            open_.pop()
        elif character == ",":
            places.append((index, "".join(reversed(open_))))
    closers = "".join(reversed(open_))
    end = len(text)
    ends = [(end, '"' + closers), (end - 1, '"' + closers)] if in_string else [(end, closers)]
    # An open string may be a key: then only what stands before it counts.
    return ends + places[-2:][::-1]
