"""Values that no session should hold, and putting them into its lines: at any place, under any key, as raw JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from support.builder import Literal, encode

__all__ = ["NASTY", "decoded", "encoded", "nasty", "places", "replace_somewhere"]

Place: TypeAlias = "tuple[dict[str, Any] | list[Any], str | int]"
"""A container and where in it a value stands."""


def _nested(opening: str, middle: str, closing: str, depth: int) -> Literal:
    return Literal((opening * depth + middle + closing * depth).encode())


NASTY: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 7, 1.5, -2**63, 2**53 + 1, 2**64, 1e308, Literal(b"1e999"), Literal(b"-1e999"),
    Literal(b"-0"), Literal(b"1e-400"), Literal(b"9" * 5_000), Literal(b"0." + b"1" * 5_000), Literal(b"1E5"),
    Literal(b"NaN"), Literal(b"Infinity"), Literal(b"01"), Literal(b"+1"), Literal(b"undefined"), Literal(b"'a'"),
    "", " ", "\n", "\0", "\x1b[2J\x1b]0;title\x07", "\u202eabc", "\u2028", "\ufeff", "😀", "7", "null", "-1", "true",
    "../../../etc/passwd", "/dev/zero", "$(reboot)", "--help", "-", "<script>alert(1)</script>", "</script>", "%s%n{0}",
    "__proto__", "constructor", "toString", "latest", "root", "session", "message", "compaction", "user", "assistant",
    "toolResult", "system", "2026-02-30T25:61:61Z", "+275760-09-13T00:00:00.001Z", "0000-00-00", "call-1",
    "call-1|fc_1",
    "[pi-compaction] Earlier result", "[pi-compaction] Earlier a\nb", "[red]bold[/red]", "a b c " * 300, "x" * 20_000,
    Literal(b'"\\ud83d"'), Literal(b'"a\\udc00b"'), Literal(b'"\xff\xfe"'), Literal(b'"\xed\xa0\x80"'),
    Literal(b'"a\tb"'),
    Literal(b'"\\u0000"'), Literal(b'"\\x41"'), Literal(b'"open'), Literal(b""), Literal(b"{"), Literal(b"]"),
    [], {}, [[]], [{}], [None], [0], ["a"], [[["a"]]], ["", ""], {"": ""}, {"a": {"b": {"c": [{}]}}},
    [True, {"type": 1}],
    {"__proto__": {"a": 1}, "constructor": 2}, {"content": "other"}, {"content": []}, {"content": None},
    {"content": [1]},
    {"role": "user", "content": "hi"}, {"role": "assistant"}, {"role": "toolResult", "toolCallId": "call-1"},
    {"role": "system", "content": [], "sections": 5}, {"role": "system", "sections": {"a": {"b": 1}}, "toolsAdded": 1},
    [{"type": "text"}], [{"type": "text", "text": ""}], [{"type": "text", "text": None}],
    [{"type": "text", "text": ["a"]}],
    [{"type": "image"}], [{"type": "image", "data": 5, "mimeType": []}], [{"type": "thinking", "thinking": {}}],
    [{"type": "thinking", "thinking": "", "thinkingSignature": "{"}], [{"type": "toolCall"}],
    [{"type": "toolCall", "id": None, "name": None, "arguments": None}],
    [{"type": "toolCall", "id": "call-1", "name": "no such tool 😀", "arguments": "text"}],
    [{"type": "toolCall", "id": "", "name": "", "arguments": []}], [{"type": ["text"]}], [{"text": "no type"}],
    ["text"],
    {"input": -1, "output": "many", "totalTokens": Literal(b"1e400")}, {"input": 2**70}, {"totalTokens": True},
    {"input": None, "output": None, "cost": {"total": "free"}}, {"readFiles": [1, None, {}], "modifiedFiles": "a"},
    Literal(b'{"a":1,"a":2,"a":{"a":3}}'), _nested("[", "", "]", 60), _nested("[", "1", "]", 1_100),
    _nested('{"a":', "null", "}", 1_500), _nested("[", "", "]", 9_000),
    _nested('{"type":"text","text":', '""', "}", 300),
    {f"key{number}": number for number in range(300)}, list(range(300)), [{"type": "text", "text": "a"}] * 200,
)  # fmt: skip
"""Of every type that JSON has and some that it has not, at the edges of what readers, counters and printers take."""


def nasty(draw: random.Random, known: list[str]) -> Any:
    """A nasty value, or one of the strings that the file uses elsewhere (ids above all)."""
    return draw.choice(known) if known and draw.random() < 0.25 else draw.choice(NASTY)


def decoded(line: bytes) -> dict[str, Any] | None:
    """The object in a line; None where there is none, or where it is nested more deeply than Python reads."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def encoded(value: Any, draw: random.Random) -> bytes:
    """A line, as Pi writes it or escaped to ASCII."""
    return encode(value, ascii_only=draw.random() < 0.2)


def places(value: Any) -> Iterator[Place]:
    """Every place in a value, outermost first."""
    waiting: list[Any] = [value]
    for container in waiting:
        if isinstance(container, dict):
            for key in container:
                yield container, key
            waiting.extend(container.values())
        elif isinstance(container, list):
            for index in range(len(container)):
                yield container, index
            waiting.extend(container)


def replace_somewhere(value: dict[str, Any], new: Any, draw: random.Random) -> None:
    """Puts a value into one of the places, deeper ones as likely as shallow ones; an empty object stays as it is."""
    found = list(places(value))
    if found:
        container: Any
        container, key = draw.choice(found)
        container[key] = new
