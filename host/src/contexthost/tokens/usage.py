"""Effective usage: how full the context window is, how sure that is, and on whose word."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["EffectiveUsage", "effective_usage"]

LOWER_FACTOR: Final = 0.8
UPPER_FACTOR: Final = 1.4
"""How far a provider's count may lie from ours for the same text. Two recorded Anthropic sessions lie at 1.03 and
1.30 times the cl100k count of their messages; code-heavy text on other tokenizers can fall below it."""

UNSEEN_TOKENS: Final = 16_000
"""An upper bound for what every request carries that a session may not show: system prompt and tool declarations."""


@dataclass(frozen=True, slots=True)
class EffectiveUsage:
    """How many tokens the next request carries.

    Attributes:
        tokens: the best figure.
        lower, upper: honest bounds; ``lower <= tokens <= upper``.
        source: ``provider`` when a provider's own count of an earlier request is the base, else ``estimate``.
        window: the model's context window, in tokens.
    """

    tokens: int
    lower: int
    upper: int
    source: Literal["provider", "estimate"]
    window: int

    @property
    def percent(self) -> float:
        """``tokens`` as a share of the window, in per cent; may exceed 100."""
        return self.tokens / self.window * 100


def effective_usage(*, baseline: int | None, counted: int, window: int) -> EffectiveUsage:
    """Usage from a trusted provider figure and what was counted since, or from a count alone.

    Args:
        baseline: the provider's total for the last request and its answer; None when none is to be trusted.
        counted: our count of what came after the baseline, or of everything.
        window: the context window in tokens, above 0.
    """
    lower, upper = math.floor(counted * LOWER_FACTOR), math.ceil(counted * UPPER_FACTOR)
    if baseline is None:
        return EffectiveUsage(counted, lower, upper + UNSEEN_TOKENS, "estimate", window)
    return EffectiveUsage(baseline + counted, baseline + lower, baseline + upper, "provider", window)
