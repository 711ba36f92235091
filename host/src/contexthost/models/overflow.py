"""Whether an answer says that the request did not fit into the context window.

A wrong yes compacts a session for nothing, a wrong no leaves it stuck: the texts are those of real providers, and what
speaks of rates is never an overflow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from contexthost.messages import Message

__all__ = ["is_context_overflow", "is_recoverable_length"]

# Who says so: Anthropic and z.ai, Ollama, OpenAI, LiteLLM, Google, xAI, Groq, OpenRouter, Together, Copilot, llama.cpp,
# LM Studio, MiniMax, Kimi, Mistral, DS4, Bedrock, DashScope; the last ones are common to several.
_OVERFLOW: Final = re.compile(
    r"""
      prompt\ (?:is\ )?too\ long
    | prompt\ exceeds\ max\ length
    | request_too_large
    | input\ is\ too\ long\ for\ requested\ model
    | exceeds\ the\ context\ window
    | exceeds\ (?:the\ )?(?:model'?s\ )?maximum\ context\ length\s*(?:of\ [\d,]+\ tokens?|\([\d,]+\))
    | context\ window\ (?:exceeded|exceeds\ limit)
    | ContextWindowExceeded
    | input\ token\ count.*exceeds\ the\ maximum
    | maximum\ prompt\ length\ is\ \d
    | reduce\ the\ length\ of\ the\ messages
    | maximum\ context\ length\ (?:is|of)\ [\d,]+\ tokens
    | exceeds\ (?:the\ )?maximum\ allowed\ input\ length\ of\ [\d,]+\ tokens?
    | input\ \([\d,]+\ tokens\)\ is\ longer\ than\ the\ model'?s\ context\ length
    | prompt\ token\ count.*exceeds\ the\ limit\ of\ \d
    | exceeds\ the\ available\ context\ size
    | greater\ than\ the\ context\ length
    | exceeded\ model\ token\ limit
    | too\ large\ for\ model\ with\ [\d,]+\ maximum\ context\ length
    | prompt\ has\ [\d,]+\ tokens?,\ but\ the\ configured\ context\ size\ is
    | range\ of\ input\ length\ should\ be
    | context[_ ](?:length|window)[_ ]exceeded
    | too\ many\ tokens
    | token\ limit\ exceeded
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The status of the refusal itself, not one that its text mentions: the body was too large in bytes.
_TOO_LARGE: Final = re.compile(r"(?:[\w -]+ API error \(413\):|413(?:\s|:|$))", re.IGNORECASE)
_CEREBRAS: Final = re.compile(r"400 status code \(no body\)", re.IGNORECASE)  # says nothing more when it is too long
_RATES: Final = re.compile(
    r"rate.?limit|too many requests|throttl|tokens per (?:min|day)|\bTPM\b|\A(?:[\w -]+ API error \()?(?:429|503)\b"
    r"|\AService unavailable:",
    re.IGNORECASE,
)
_FILLED: Final = 0.99
"""A length stop without any output at this much of the window means that the server cut the input to fit."""


def is_context_overflow(message: Message, window: int | None) -> bool:
    """Whether the answer failed because the request was too long, or shows that it was.

    Three forms: an error whose text says so; a normal stop whose input is larger than the ``window`` (tokens; None or 0
    leaves these two out); a length stop without output whose input fills it.
    """
    stop_reason = message.get("stopReason")
    if stop_reason == "error":
        text = message.get("errorMessage")
        if not isinstance(text, str) or _RATES.search(text):
            return False
        silent = message.get("provider") == "cerebras" and _CEREBRAS.match(text)
        return bool(_OVERFLOW.search(text) or _TOO_LARGE.match(text) or silent)
    usage = message.get("usage")
    if not window or not isinstance(usage, Mapping):
        return False
    sent = _tokens(usage, "input") + _tokens(usage, "cacheRead")
    if stop_reason == "stop":
        return sent > window
    return stop_reason == "length" and _tokens(usage, "output") == 0 and sent >= window * _FILLED


def is_recoverable_length(message: Message, limit: int | None) -> bool:
    """Whether the answer was cut off below the output ``limit`` (tokens) that was wanted.

    Then the window was too full, or the provider cut it: a compaction and one more attempt may help. The limit is the
    request's or the model's own, not the one that was lowered to the room in the window.
    """
    usage = message.get("usage")
    if message.get("stopReason") != "length" or not limit or not isinstance(usage, Mapping):
        return False
    return _tokens(usage, "output") < limit


def _tokens(usage: Mapping[str, Any], kind: str) -> float:
    value = usage.get(kind)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
