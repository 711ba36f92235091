"""Text from sessions made fit for people: shortened, and without anything that a terminal would obey."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["one_line", "printable", "said_by", "shorten"]

_ESCAPES: Final = re.compile(
    r"""
    \x1b\[[0-?]*[ -/]*[@-~]                          # CSI: colours, cursor movements
    | \x1b[\]PX^_] .*? (?: \x07 | \x1b\\ | \Z )      # OSC and other strings: titles, links, clipboard
    | \x1b[ -/]*[0-~]                                # short escapes
    | \x9b[0-?]*[ -/]*[@-~]                          # CSI in one byte
    | [\x9d\x90\x98\x9e\x9f] .*? (?: \x07 | \x9c | \Z )
    """,
    re.VERBOSE | re.DOTALL,
)
"""Control sequences after ECMA-48, the 7-bit and 8-bit forms."""

# C0 and C1 controls but for tab and line feed; the marks that reorder text; the invisible ones; lone surrogates.
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text without control sequences, control characters (tab and line feed stay) and bidirectional marks."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """`printable` with every run of white space as one space."""
    return " ".join(printable(text).split())


def shorten(text: str, length: int) -> str:
    """At most ``length`` characters (code points, at least 1), the last of them ``…`` if something was cut."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def said_by(plugin: str, message: str) -> str:
    """A plugin's message with its name in front, unless the message says already whose it is: ``jev: ready``,
    ``context-relay: …`` of relay, ``plugin jev, hook input: …``, ``/jev-setup: …``."""
    names_itself = re.match(rf"(?:plugin |/)?(?:\w+-)*{re.escape(plugin)}(?:-\w+)*[:,]", message)
    return message if not plugin or names_itself else f"{plugin}: {message}"
