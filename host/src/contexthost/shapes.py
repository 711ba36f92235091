"""What Pi needs of the values that plugins make, and looks at nowhere itself: a wrong one is found only when Pi builds
a request or draws its screen, and then at every one from there on.

Each function says in a few words what is wrong with a value, or gives None. None of them quotes the value: it may be
anything, and headers are secrets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = [
    "block_problem",
    "content_problem",
    "headers_problem",
    "input_problem",
    "usage_breaks_pi",
    "usage_problem",
    "whole_usage",
]

_PARTS: Final[Mapping[str, Mapping[str, type]]] = {
    "text": {"text": str},
    "thinking": {"thinking": str},
    "image": {"data": str, "mimeType": str},
    "toolCall": {"name": str, "arguments": dict},
}
"""Type of block → the parts that Pi takes for granted, and what they must be."""

_COUNTS: Final = ("input", "output", "cacheRead", "cacheWrite")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_OF_CONNECTIONS: Final = frozenset({"content-length", "expect", "keep-alive", "transfer-encoding", "upgrade"})
"""With one of these Pi's HTTP client sends nothing."""
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def content_problem(content: Any, *, sent: bool = False) -> str | None:
    """What is wrong with a message's content, text or blocks.

    ``sent``: it is what a user or a tool says, of which Pi takes each block that is no text for an image.
    """
    if isinstance(content, str):
        return None
    if not isinstance(content, (list, tuple)):
        return "its content is neither text nor a list of blocks"
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if not isinstance(kind, str):
            return "a content block is not an object with a type"
        if sent and kind not in ("text", "image"):
            return "a content block is neither text nor an image"
        problem = block_problem(block)
        if problem is not None:
            return problem
    return None


def block_problem(block: Mapping[str, Any]) -> str | None:
    """What is missing in a content block with a type."""
    parts = _PARTS.get(block["type"], {})
    missing = next((part for part, wanted in parts.items() if not isinstance(block.get(part), wanted)), None)
    return None if missing is None else f"a block of the type {block['type']} without {missing}"


def input_problem(text: Any, images: Any) -> str | None:
    """What is wrong with an input; Pi would not send it at all."""
    if not isinstance(text, str):
        return "its text is none"
    if not isinstance(images, (list, tuple)):
        return "its images are no list"
    if any(not isinstance(image, Mapping) or image.get("type") != "image" for image in images):
        return 'an image is not an object of the type "image"'
    return content_problem(images)


def headers_problem(headers: Mapping[Any, Any]) -> str | None:
    """What is wrong with headers that are to be set, or taken away where the value is None.

    Neither a name nor a value that HTTP does not allow is quoted: a plugin that mistakes one for the other must not
    give its key away.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            return "the name of a header is not one that HTTP allows"
        if value is not None and name.lower() in _OF_CONNECTIONS:
            return f"the header {name} is for who sends the request to set"
        if value is not None and not (isinstance(value, str) and _VALUE.fullmatch(value)):
            return f"the value of the header {name} is not one that HTTP allows"
    return None


def usage_problem(usage: Any) -> str | None:
    """What is wrong with a usage that is to be recorded: Pi adds it up with all others, and puts the sum on the
    screen."""
    if not isinstance(usage, Mapping):
        return "it is not an object"
    for name in (*_COUNTS, "totalTokens"):
        if not _is_finite(usage.get(name)):
            return f"its {name} is no number"
    cost = usage.get("cost")
    if not isinstance(cost, Mapping):
        return "its cost is not an object"
    wrong = next((name for name in (*_COUNTS, "total") if not _is_finite(cost.get(name))), None)
    return None if wrong is None else f"its cost.{wrong} is no number"


def usage_breaks_pi(usage: Any) -> bool:
    """Whether Pi ends with an error when it draws the sum of what a session records: it needs a ``cost``, and a text
    among the numbers makes the sum a text. What is missing besides only makes the sum unknown."""
    if not isinstance(usage, Mapping) or usage.get("cost") is None:
        return True
    cost = usage["cost"]
    return isinstance(cost, Mapping) and isinstance(cost.get("total"), (str, list, dict))


def whole_usage(usage: Any) -> dict[str, Any]:
    """The usage with 0 where a number is missing or something else stands, and all else as it is."""
    known = dict(usage) if isinstance(usage, Mapping) else {}
    cost = dict(known["cost"]) if isinstance(known.get("cost"), Mapping) else {}
    for holder, names in ((known, (*_COUNTS, "totalTokens")), (cost, (*_COUNTS, "total"))):
        holder.update({name: 0 for name in names if not _is_finite(holder.get(name))})
    return {**known, "cost": cost}


def _is_finite(value: Any) -> bool:
    """Whether it is a finite number to JavaScript, in which a longer integer is infinite."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
