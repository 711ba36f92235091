"""JSON of any depth: Node parses values nested by the million, Python's own decoders stop at about a thousand."""

from __future__ import annotations

import re
from collections.abc import Callable
from json import JSONDecoder
from typing import Any, Final, TypeAlias

__all__ = ["loads_deep"]

_Holder: TypeAlias = "list[Any] | dict[str, Any]"

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_ATOM: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)|true|false|null")
_text: Final = JSONDecoder().raw_decode  # at a quote: the text, and where it ends
_WORDS: Final = {"true": True, "false": False, "null": None}


def loads_deep(text: str, parse_int: Callable[[str], int | float]) -> Any:
    """As ``json.loads``, without recursion and so at any depth, but many times slower: for what that gives up on.

    Args:
        parse_int: makes a number of digits without fraction and exponent.

    Raises:
        ValueError: not JSON; NaN and Infinity are not.
    """
    root: list[Any] = []
    holder: _Holder = root
    key = ""  # under which the next value goes, where the holder is an object
    around: list[tuple[_Holder, str]] = []
    at = _after_space(text, 0)
    while True:
        first = text[at : at + 1]
        value: Any
        if first in ("[", "{"):
            value = [] if first == "[" else {}
            at = _after_space(text, at + 1)
            if text[at : at + 1] != _closing(value):
                _put(holder, key, value)
                around.append((holder, key))
                holder = value
                key, at = _key(text, at) if first == "{" else ("", at)
                continue
            at += 1
        elif first == '"':
            value, at = _text(text, at)
        else:
            value, at = _atom(text, at, parse_int)
        _put(holder, key, value)
        while True:  # what comes after a value
            at = _after_space(text, at)
            if not around:
                if at != len(text):
                    raise ValueError(f"more behind the value at character {at}")
                return root[0]
            mark = text[at : at + 1]
            if mark == ",":
                at = _after_space(text, at + 1)
                key, at = _key(text, at) if isinstance(holder, dict) else ("", at)
                break
            if mark != _closing(holder):
                raise ValueError(f"no comma and no end at character {at}")
            at += 1
            holder, key = around.pop()


def _after_space(text: str, at: int) -> int:
    if text[at : at + 1] not in " \t\n\r":  # the usual case by far
        return at
    match = _SPACE.match(text, at)
    return match.end() if match is not None else at


def _closing(holder: _Holder) -> str:
    return "]" if isinstance(holder, list) else "}"


def _put(holder: _Holder, key: str, value: Any) -> None:
    if isinstance(holder, list):
        holder.append(value)
    else:
        holder[key] = value


def _key(text: str, at: int) -> tuple[str, int]:
    """A key and where its value begins."""
    if text[at : at + 1] != '"':
        raise ValueError(f"no key at character {at}")
    key, at = _text(text, at)
    at = _after_space(text, at)
    if text[at : at + 1] != ":":
        raise ValueError(f"no colon at character {at}")
    return key, _after_space(text, at + 1)


def _atom(text: str, at: int, parse_int: Callable[[str], int | float]) -> tuple[Any, int]:
    match = _ATOM.match(text, at)
    if match is None:
        raise ValueError(f"no value at character {at}")
    whole, rest = match.group(1, 2)
    if whole is None:
        return _WORDS[match.group()], match.end()
    return float(whole + rest) if rest else parse_int(whole), match.end()
