"""The one line that stands in the context where a masked tool result was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from contexthost.projection import MASK_PREFIX
from contexthost.text import one_line, shorten

__all__ = ["overflow_id", "placeholder", "shown_argument"]

ARGUMENT_LENGTH: Final = 80
"""Code points of the main argument that are shown. Placeholders cost tokens too: about 60 each with this."""

_HEAD_LENGTH: Final = 30
_NAME_LENGTH: Final = 64
_OVERFLOW_ID_LENGTH: Final = 128
_RAW_LENGTH: Final = 4_000  # a command may be megabytes long: only so much is looked at


def placeholder(
    *,
    tool: str,
    argument: str,
    tokens: int,
    lines: int,
    entry_id: str,
    overflow_id: str | None = None,
    later: tuple[str, str] | None = None,
) -> str:
    """The placeholder of one result: one line, the same for the same result on every machine.

    It begins with ``MASK_PREFIX``, names the call and the size of what is behind it, and says how to get that back.
    What comes from the session is quoted and stripped of line ends and control characters, so that it cannot pass
    for the host's own words; the entry id is exact (JSON).

    Args:
        tool: the tool's name.
        argument: the call's main argument, shortened in the middle to 80 code points; "" when the call has none or
            is not known.
        tokens, lines: the size of the result.
        entry_id: what ``context_tree_query`` is asked for.
        overflow_id: what ``overflow_query`` is asked for when the result had been cut before it was stored.
        later: tool and entry id of the later result that has overtaken this one, if one has.
    """
    name = _name(tool)
    shown = shown_argument(argument)
    call = f"{name} {_quoted(shown)}" if shown else name
    size = f"{tokens:,} tokens, {lines:,} {'line' if lines == 1 else 'lines'}"
    overtaken = f", overtaken by {_name(later[0])} in entry {json.dumps(later[1])}" if later is not None else ""
    get = f"get it: context_tree_query entry {json.dumps(entry_id)}"
    text = f"{MASK_PREFIX}{call} result masked ({size}){overtaken}; {get}"
    overflow = shorten(one_line((overflow_id or "")[:_RAW_LENGTH]), _OVERFLOW_ID_LENGTH)
    return f"{text}; uncut: overflow_query {_quoted(overflow)}" if overflow else text


def overflow_id(message: Mapping[str, Any]) -> str | None:
    """The id under which the uncut output of a result was stored: ``details.overflow.id``; nothing else is read."""
    details = message.get("details")
    overflow = details.get("overflow") if isinstance(details, Mapping) else None
    found = overflow.get("id") if isinstance(overflow, Mapping) else None
    return found if isinstance(found, str) and found else None


def shown_argument(argument: str) -> str:
    """A call's argument on one line of at most 80 code points: the beginning and the end, which says most of a path."""
    text = one_line(argument[:_RAW_LENGTH])
    if len(text) <= ARGUMENT_LENGTH:
        return text
    tail = len(text) - (ARGUMENT_LENGTH - _HEAD_LENGTH - 1)
    return f"{text[:_HEAD_LENGTH]}…{text[tail:]}"


def _name(tool: str) -> str:
    return shorten(one_line(tool[:_RAW_LENGTH]), _NAME_LENGTH) or "tool"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
