"""Compact JSON and the token estimate that every budget here is measured with."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from contexthost.messages import js_json

__all__ = ["estimate_tenths", "estimate_tokens", "to_json", "tokens_of_tenths"]

_LETTERS: Final = re.compile(r"[A-Za-z]{1,6}")
_WIDE_SYMBOLS: Final = re.compile(r"[^\s\x00-\x7f]")
_DIGITS: Final = b"0123456789"
_NO_ASCII_SYMBOL: Final = bytes(
    byte for byte in range(256) if byte >= 0x80 or chr(byte).isalnum() or chr(byte).isspace()
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def estimate_tenths(text: str) -> int:
    """The estimate of a text in tenths of a token, not rounded: exact, hence additive.

    A run of n letters costs 1 + floor((n - 1) / 6) tokens, a digit 0.5, any other symbol but white space 0.9. The
    figures are those of fast-jev-compaction, 2 to 18 % above what Jev reports. Letters are the ASCII ones: a Chinese
    or Cyrillic letter counts as a symbol, since tokens of such scripts are short. The estimates of two texts add up
    to that of the texts joined unless a run of letters crosses the border.
    """
    letters = len(_LETTERS.findall(text))  # a run of n letters makes ceil(n / 6) = 1 + floor((n - 1) / 6) pieces
    raw = text.encode("utf-8", "surrogatepass")  # deleting bytes is the fastest way to count them
    digits = len(raw) - len(raw.translate(None, _DIGITS))
    symbols = len(raw.translate(None, _NO_ASCII_SYMBOL))
    if not text.isascii():
        symbols += len(_WIDE_SYMBOLS.findall(text))
    return 10 * letters + 5 * digits + 9 * symbols


def estimate_tokens(text: str) -> int:
    """The estimated tokens of a text, rounded up; see `estimate_tenths`."""
    return tokens_of_tenths(estimate_tenths(text))


def tokens_of_tenths(tenths: int) -> int:
    """Tenths of a token as whole tokens, rounded up."""
    return -(-tenths // 10)


def to_json(value: Any) -> str:
    """Compact JSON without ASCII escapes.

    What Python would not print as JSON (NaN, infinities, values nested too deeply for it) is printed as JavaScript
    does it.
    """
    try:
        return _ENCODER.encode(value)
    except (ValueError, RecursionError):
        return js_json(value)
