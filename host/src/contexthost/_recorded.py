"""What an entry says, as text; and whether a text, or the bytes it is stored in, holds the words of a query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from contexthost.messages import js_json
from contexthost.session import Entry
from contexthost.session.entries import decode_json

__all__ = ["READABLE_TYPES", "UNCHANGED", "Query", "Recorded", "fold", "read_entry", "text_of_blocks"]

READABLE_TYPES: Final = frozenset({"message", "custom_message", "branch_summary", "compaction"})
"""The entry types that say anything."""

UNCHANGED: Final[Any] = object()
"""No other content in place of the entry's own."""

_KINDS: Final = {"user": "user", "assistant": "assistant", "toolResult": "tool result", "bashExecution": "command"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an entry says.

    Attributes:
        kind: ``user``, ``assistant``, ``tool result``, ``command`` (run by the user), ``custom message``,
            ``branch summary`` or ``compaction summary``.
        text: all of it: texts as they are, ``[image]`` for an image, tool calls as ``[call NAME]`` and one argument a
            line. Thinking is left out.
        tool: the name of the tool whose result it is.
        call_id: the id of the call that it answers.
        calls: the names of the tools that it calls.
        is_error: whether it is the result of a failed call.
        hidden: a command that the user kept from the model.
    """

    kind: str
    text: str
    tool: str | None = None
    call_id: str | None = None
    calls: tuple[str, ...] = ()
    is_error: bool = False
    hidden: bool = False


def read_entry(entry: Entry, *, content: Any = UNCHANGED, skip_tools: frozenset[str] = frozenset()) -> Recorded | None:
    """What an entry says; None for entries that say nothing (settings, edits, system messages, plugins' records).

    The entry is decoded for this and not kept decoded: a search must not fill the memory.

    Args:
        content: what an edit puts in place of the content.
        skip_tools: tools whose calls are left out and whose results say nothing.
    """
    if entry.type not in READABLE_TYPES:
        return None
    data = decode_json(entry.raw)
    if not isinstance(data, dict):
        return None
    if entry.type == "custom_message":
        return Recorded("custom message", text_of_blocks(data.get("content") if content is UNCHANGED else content))
    if entry.type in ("branch_summary", "compaction"):
        kind = "branch summary" if entry.type == "branch_summary" else "compaction summary"
        summary = data.get("summary")
        return Recorded(kind, summary) if isinstance(summary, str) and summary else None
    message = data.get("message")
    return _read_message(message, content, skip_tools) if isinstance(message, dict) else None


def _read_message(message: dict[str, Any], content: Any, skip_tools: frozenset[str]) -> Recorded | None:
    role = message.get("role")
    if role == "bashExecution":
        text = f"$ {_text(message.get('command'))}\n{_text(message.get('output'))}"
        return Recorded("command", text, hidden=bool(message.get("excludeFromContext")))
    if role in ("custom", "hookMessage"):
        return Recorded("custom message", text_of_blocks(message.get("content") if content is UNCHANGED else content))
    kind = _KINDS.get(role) if isinstance(role, str) else None
    if kind is None:
        return None
    blocks = message.get("content") if content is UNCHANGED else content
    if role == "toolResult":
        tool = message.get("toolName")
        if _text(tool) in skip_tools:
            return None
        call_id = message.get("toolCallId")
        return Recorded(
            kind,
            text_of_blocks(blocks),
            tool=tool if isinstance(tool, str) else None,
            call_id=call_id if isinstance(call_id, str) else None,
            is_error=message.get("isError") is True,
        )
    names = tuple(_text(block.get("name")) for block in _calls(blocks))
    return Recorded(kind, text_of_blocks(blocks, skip_tools=skip_tools), calls=names)


def text_of_blocks(content: Any, *, skip_tools: frozenset[str] = frozenset()) -> str:
    """The text of a message's content: a string as it is, else its blocks with a line feed between them."""
    if isinstance(content, str):
        return content
    return "\n".join(_block_texts(content, skip_tools)) if isinstance(content, list) else ""


def _block_texts(blocks: list[Any], skip_tools: frozenset[str]) -> Iterator[str]:
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            yield _text(block.get("text"))
        elif kind == "image":
            yield "[image]"
        elif kind == "toolCall" and _text(block.get("name")) not in skip_tools:
            arguments = block.get("arguments")
            items = arguments.items() if isinstance(arguments, dict) else ()
            lines = (f"{key}: {value if isinstance(value, str) else js_json(value)}" for key, value in items)
            yield "\n".join([f"[call {_text(block.get('name'))}]", *lines])


def _calls(blocks: Any) -> Iterator[dict[str, Any]]:
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") == "toolCall":
            yield block


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# Searching -----------------------------------------------------------------------------------------------------------

# What stands in a line of JSON as it does in the text, whoever wrote it: printable ASCII but for quotes, backslashes,
# slashes, and what some writers escape for HTML.
_PLAIN: Final = re.compile(r"""[^\x00-\x20"\\/<>&'\x7f-\U0010ffff]+""")
_BEYOND_ASCII: Final = re.compile("[\x80-\U0010ffff]+")

# What stands in the lines of messages besides what they say, in lower case: words that occur there would otherwise be
# "found" in every line, and every line decoded.
_KEYS: Final = (
    "type id parentid timestamp message role content text textsignature thinking thinkingsignature name arguments "
    "toolcallid toolname usage input output cacheread cachewrite cachewrite1h totaltokens total cost reasoning api "
    "provider model responseid responsemodel stopreason errormessage iserror details data mimetype customtype display"
)
_PAIRS: Final = (
    "type:message type:text type:image type:toolcall type:thinking type:custom_message role:user role:assistant "
    "role:toolresult stopreason:stop stopreason:tooluse"
)
_STRUCTURE: Final = (
    *(f'"{key}":"{value}"'.encode() for key, value in (pair.split(":") for pair in _PAIRS.split())),
    *(f'"{key}":'.encode() for key in _KEYS.split()),
)


def fold(text: str) -> str:
    """The text in lower case, character by character, so that places in it are places in the text."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


class Query:
    """Words that must all be in a text, case aside.

    Args:
        text: the words, with white space between them; no words match nothing.
    """

    def __init__(self, text: str) -> None:
        self.words = tuple(dict.fromkeys(fold(text).split()))
        cores = [_core(word) for word in self.words]
        # The longest first: most likely the rarest, and quickest to search for.
        forms = sorted((core for core in cores if core), key=lambda core: -len(core[0]))
        self._cores = [(core, [part for part in _STRUCTURE if core[0] in part]) for core in forms]
        formless = [word for word, core in zip(self.words, cores, strict=True) if not core]
        self._beyond_ascii = any(not word.isascii() for word in formless)

    def may_be_in(self, raw: bytes) -> bool:
        """Whether lines of JSON may hold all the words, in whichever line each: quick, and wrong only by saying yes
        too often. Not seen are letters and digits written as escapes, which no writer of sessions does, and arguments
        of tool calls that look exactly like the frame of a message, such as a key ``"timestamp"``.
        """
        lowered = raw.lower()
        for core, parts in self._cores:
            if core[0] not in lowered and not any(form in lowered for form in core[1:]):
                return False
            if parts:
                rest = lowered
                for part in parts:
                    rest = rest.replace(part, b"")
                if core[0] not in rest:
                    return False
        # Words in other scripts with capitals have no one form to look for, but need bytes or escapes beyond ASCII.
        return not self._beyond_ascii or not raw.isascii() or b"\\u" in raw

    def find(self, text: str) -> tuple[int, int] | None:
        """Where the longest word begins and ends, if all words are in the text."""
        if not self.words:
            return None
        folded = fold(text)
        if not all(word in folded for word in self.words):
            return None
        longest = max(self.words, key=len)
        start = folded.index(longest)
        return start, start + len(longest)


def _core(word: str) -> tuple[bytes, ...]:
    """The part of a word to look for in lower-cased JSON, in its possible forms; none when there is no such part."""
    plain = max(_PLAIN.findall(word), key=len, default="")
    if len(plain) >= 2:
        return (plain.encode(),)
    caseless = (run for run in _BEYOND_ASCII.findall(word) if run == run.upper() == run.lower())
    other = max(caseless, key=len, default="")
    if other:
        escaped = "".join(f"\\u{unit:04x}" for unit in _utf16(other))
        return other.encode("utf-8", "surrogatepass"), escaped.encode()
    return (plain.encode(),) if plain else ()


def _utf16(text: str) -> Iterator[int]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return (int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2))
