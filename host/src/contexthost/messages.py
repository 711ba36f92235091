"""Messages as Pi stores them, and the JavaScript rules that Pi's figures and digests rest on.

A message is the decoded JSON object of a session file, treated as read-only. Session files are not validated when they
are read, so every function here takes what JSON can hold: a part that has the wrong type counts as absent. Lengths are
in UTF-16 code units, as everywhere in Pi.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

__all__ = [
    "Message",
    "bash_execution_text",
    "canonical_digest",
    "convert_to_llm",
    "current_system_message",
    "digest_message",
    "js_items",
    "js_json",
    "js_truthy",
    "own_text",
    "slice_head",
    "text_of",
    "timestamp_ms",
    "utf16_key",
    "utf16_len",
]

Message: TypeAlias = dict[str, Any]

#: Beyond this a JavaScript number cannot tell neighbouring integers apart.
_MAX_SAFE_INTEGER: Final = 2**53 - 1
#: The largest key that JavaScript treats as an array index, and so lists before all other keys.
_MAX_ARRAY_INDEX: Final = 2**32 - 2
_PAIR_OR_LONE_SURROGATE: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ISO_DATE: Final = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?"
    r"(T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:(Z)|([+-])(\d\d):(\d\d))?)?",
    re.ASCII,
)

# The texts below are what Pi 1.6.0 sends to the model; parity needs them to the letter.
_COMPACTION_PREFIX: Final = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n"
)
_COMPACTION_SUFFIX: Final = "\n</summary>"
_BRANCH_PREFIX: Final = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"
_BRANCH_SUFFIX: Final = "</summary>"  # no line feed before it, unlike the compaction's


# --- strings -------------------------------------------------------------------------------------------------------


def utf16_len(text: str) -> int:
    """The length that JavaScript reports: UTF-16 code units, two for a character beyond U+FFFF."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_key(text: str) -> bytes:
    """A sort key that orders strings as JavaScript's ``sort()`` does: by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def slice_head(text: str, units: int) -> str:
    """At most the first ``units`` UTF-16 code units of ``text``; a surrogate pair is never split, but left out."""
    if units <= 0:
        return ""
    # Twice as many code points hold at least `units` units: the rest of a very long text need not be encoded.
    raw = text[: units + 1].encode("utf-16-le", "surrogatepass")
    if len(raw) <= 2 * units:
        return text
    last, following = (int.from_bytes(raw[at : at + 2], "little") for at in (2 * units - 2, 2 * units))
    splits_pair = 0xD800 <= last <= 0xDBFF and 0xDC00 <= following <= 0xDFFF
    return raw[: 2 * (units - 1 if splits_pair else units)].decode("utf-16-le", "surrogatepass")


def own_text(value: object, default: str = "") -> str:
    """A part that should be text: the text, or ``default`` where it is something else. Never its ``str``, which fails
    on what is nested a thousand deep."""
    return value if isinstance(value, str) else default


def js_truthy(value: object) -> bool:
    """Whether JavaScript takes a decoded JSON value for true: empty arrays and objects are, "" and 0 are not."""
    return not (value is None or value is False or value == "" or value == 0)


# --- JSON as JavaScript prints it ----------------------------------------------------------------------------------


def js_json(value: object) -> str:
    """``JSON.stringify(value)`` for a decoded JSON value.

    No spaces, non-ASCII as it is, lone surrogates escaped, numbers as JavaScript prints them, NaN and infinities as
    ``null``, integer-like keys first. Any depth of nesting is fine. Raises TypeError for what JSON cannot hold.
    """
    return _print_json(value, sort_keys=False)


def canonical_digest(value: object) -> str:
    """The first 16 hex digits of SHA-256 over the value's JSON with sorted keys.

    Keys are in UTF-16 order, but integer-like keys come first and ascend, since JavaScript cannot order them otherwise.
    """
    return hashlib.sha256(_print_json(value, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def digest_message(message: Mapping[str, Any]) -> str:
    """The digest of what a message says: its content, else its summary, else its output, else null."""
    for key in ("content", "summary", "output"):
        value = message.get(key)
        if value is not None:
            return canonical_digest(value)
    return canonical_digest(None)


def js_items(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The items of an object in the order of ``Object.entries``: integer-like keys first and ascending."""
    for key in _js_order(list(value)):
        yield key, value[key]


def _print_json(value: object, *, sort_keys: bool) -> str:
    # Iterative: sessions may hold values nested deeper than Python's stack allows.
    out: list[str] = []
    open_containers: list[tuple[Iterator[tuple[str, object]], str]] = [(iter([("", value)]), "")]
    while open_containers:
        members, closing = open_containers[-1]
        for lead_in, member in members:
            out.append(lead_in)
            if isinstance(member, dict):
                out.append("{")
                open_containers.append((_object_members(member, sort_keys), "}"))
                break
            if isinstance(member, list | tuple):
                out.append("[")
                open_containers.append((_array_members(member), "]"))
                break
            out.append(_print_atom(member))
        else:
            out.append(closing)
            open_containers.pop()
    return "".join(out)


def _object_members(value: dict[str, Any], sort_keys: bool) -> Iterator[tuple[str, object]]:
    keys = sorted(value, key=utf16_key) if sort_keys else list(value)
    separator = ""
    for key in _js_order(keys):
        yield f"{separator}{_quote(key)}:", value[key]
        separator = ","


def _array_members(value: Iterable[object]) -> Iterator[tuple[str, object]]:
    separator = ""
    for element in value:
        yield separator, element
        separator = ","


def _js_order(keys: list[str]) -> list[str]:
    indices = [key for key in keys if _is_array_index(key)]
    if not indices:
        return keys
    return [*sorted(indices, key=int), *(key for key in keys if not _is_array_index(key))]


def _is_array_index(key: str) -> bool:
    # At most ten digits: int() of a long key would be slow, or refused.
    if not ("0" <= key[:1] <= "9") or len(key) > 10 or not (key.isascii() and key.isdigit()):
        return False
    return key == "0" or (key[0] != "0" and int(key) <= _MAX_ARRAY_INDEX)


def _print_atom(value: object) -> str:
    if isinstance(value, str):
        return _quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER:
            return str(value)
        try:
            return _print_float(float(value))
        except OverflowError:
            return "null"
    if isinstance(value, float):
        return _print_float(value)
    raise TypeError(f"JSON cannot hold a {type(value).__name__}")


def _quote(text: str) -> str:
    quoted = encode_basestring(text)
    if text.isascii():
        return quoted
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _PAIR_OR_LONE_SURROGATE.sub(_pair_or_escape, quoted)
    return quoted


def _pair_or_escape(match: re.Match[str]) -> str:
    found = match.group()
    if len(found) == 1:
        return f"\\u{ord(found):04x}"
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _print_float(value: float) -> str:
    """Number::toString of ECMAScript: the shortest digits that round-trip, exponents from 1e21 up and below 1e-6."""
    if not math.isfinite(value):
        return "null"
    if value == 0:
        return "0"  # also for -0
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS * 10**point.
    point = int(exponent or 0) + len(whole) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        text = f"{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{point - 1:+d}"
    return f"-{text}" if value < 0 else text


# --- messages ------------------------------------------------------------------------------------------------------


def text_of(content: object, separator: str = "") -> str:
    """The text of a message's content: the string itself, or its text blocks joined by ``separator``."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text")
    return separator.join(text if isinstance(text, str) else "" for text in texts)


def timestamp_ms(timestamp: object) -> int | None:
    """Milliseconds since 1970 of an entry's ISO timestamp, as ``new Date(timestamp).getTime()`` has it.

    Digits beyond the millisecond are dropped. A time without a zone is local time, a date alone is UTC. None for
    anything that is not such a timestamp.
    """
    if isinstance(timestamp, int | float) and not isinstance(timestamp, bool):
        return int(timestamp) if abs(timestamp) <= _MAX_SAFE_INTEGER else None
    match = _ISO_DATE.fullmatch(timestamp) if isinstance(timestamp, str) else None
    if match is None:
        return None
    year, month, day, time, hour, minute, second, fraction, utc, sign, zone_hours, zone_minutes = match.groups()
    try:
        moment = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
            1000 * int(((fraction or "") + "000")[:3]),
        )  # fmt: skip
        if time is None or utc is not None:
            moment = moment.replace(tzinfo=UTC)
        elif sign is not None:
            offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
            moment = moment.replace(tzinfo=timezone(-offset if sign == "-" else offset))
        else:
            moment = moment.astimezone()
    except (ValueError, OverflowError):
        return None  # the 31st of February, an offset of 99 hours
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def bash_execution_text(message: Mapping[str, Any]) -> str:
    """What the model reads of a command that the user ran."""
    parts = [f"Ran `{_shown(message.get('command'))}`\n"]
    output = message.get("output")
    parts.append(f"```\n{_shown(output)}\n```" if js_truthy(output) else "(no output)")
    exit_code = message.get("exitCode")
    if js_truthy(message.get("cancelled")):
        parts.append("\n\n(command cancelled)")
    elif exit_code is not None and (isinstance(exit_code, bool) or exit_code != 0):
        parts.append(f"\n\nCommand exited with code {_shown(exit_code)}")
    if js_truthy(message.get("truncated")) and js_truthy(message.get("fullOutputPath")):
        parts.append(f"\n\n[Output truncated. Full output: {_shown(message['fullOutputPath'])}]")
    return "".join(parts)


def convert_to_llm(messages: Iterable[Message]) -> list[Message]:
    """The messages in the four roles that providers know: system, user, assistant, toolResult.

    Messages of those roles are returned as they are; commands, custom messages and summaries become user messages;
    commands excluded from the context and messages of unknown roles are left out.
    """
    converted: list[Message] = []
    for message in messages:
        match message:
            case {"role": "system" | "user" | "assistant" | "toolResult"}:
                converted.append(message)
            case {"role": "bashExecution"}:
                if not js_truthy(message.get("excludeFromContext")):
                    converted.append(_user(message, _text_block(bash_execution_text(message))))
            case {"role": "custom"}:
                content = message.get("content")
                converted.append(_user(message, _text_block(content) if isinstance(content, str) else content))
            case {"role": "branchSummary"}:
                text = f"{_BRANCH_PREFIX}{_shown(message.get('summary'))}{_BRANCH_SUFFIX}"
                converted.append(_user(message, _text_block(text)))
            case {"role": "compactionSummary"}:
                text = f"{_COMPACTION_PREFIX}{_shown(message.get('summary'))}{_COMPACTION_SUFFIX}"
                converted.append(_user(message, _text_block(text)))
    return converted


def current_system_message(messages: Iterable[Message]) -> Message | None:
    """All system messages replayed into the one that holds the prompt and the tools now in force.

    Texts are joined by a blank line. Sections are patched by name: null deletes, a section set again keeps its place
    unless it was deleted first. ``toolsRemoved`` is applied before ``toolsAdded``. The timestamp is the first one.
    None if there is no system message (or none with a timestamp, and no tools).
    """
    texts: list[str] = []
    sections: dict[str, Any] = {}
    tools: dict[object, Any] = {}
    timestamp: Any = None
    for message in messages:
        if not isinstance(message, dict) or message.get("role") != "system":
            continue
        if timestamp is None:
            timestamp = message.get("timestamp")
        text = text_of(message.get("content"), "\n")
        if text:
            texts.append(text)
        patch = message.get("sections")
        for name, section in js_items(patch) if isinstance(patch, dict) else ():
            if section is None:
                sections.pop(name, None)
            else:
                sections[name] = section
        for tool in _tools(message, "toolsRemoved"):
            tools.pop(_tool_name(tool), None)
        for tool in _tools(message, "toolsAdded"):
            tools[_tool_name(tool)] = tool
    if timestamp is None and not tools:
        return None
    current: Message = {"role": "system", "content": "\n\n".join(texts)}
    if sections:
        current["sections"] = sections
    if tools:
        current["toolsAdded"] = list(tools.values())
    current["timestamp"] = 0 if timestamp is None else timestamp
    return current


def _user(source: Message, content: object) -> Message:
    message: Message = {"role": "user", "content": content}
    if "timestamp" in source:
        message["timestamp"] = source["timestamp"]
    return message


def _text_block(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _shown(value: object) -> str:
    """A value inside a text: absent ones show as nothing (Pi would write "undefined")."""
    if isinstance(value, str):
        return value
    return "" if value is None else js_json(value)


def _tools(message: Message, key: str) -> list[dict[str, Any]]:
    tools = message.get(key)
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


def _tool_name(tool: dict[str, Any]) -> str | None:
    name = tool.get("name")
    return name if isinstance(name, str) else None
