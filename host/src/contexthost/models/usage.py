"""What an answer used and cost, in the shape in which Pi records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contexthost.context import ModelInfo

__all__ = ["add_usage", "count", "empty_usage", "priced"]

_KINDS: Final = ("input", "output", "cacheRead", "cacheWrite")


def empty_usage() -> dict[str, Any]:
    """The usage of an answer whose provider has said nothing."""
    return {**dict.fromkeys((*_KINDS, "totalTokens"), 0), "cost": dict.fromkeys((*_KINDS, "total"), 0)}


def priced(usage: Mapping[str, Any], info: ModelInfo) -> dict[str, Any]:
    """The usage with what it cost at the model's prices, in dollars; a price that is not known counts as 0."""
    cost: dict[str, Any] = {}
    for kind in _KINDS:
        rate = info.cost.get(kind, 0)
        # Multiplied in Pi's order, so that the figures agree to the last digit.
        cost[kind] = rate * usage[kind] / 1_000_000 if kind == "cacheWrite" else rate / 1_000_000 * usage[kind]
    cost["total"] = cost["input"] + cost["output"] + cost["cacheRead"] + cost["cacheWrite"]
    cost["totalFromProvider"] = False
    return {**usage, "cost": cost}


def count(value: object) -> int:
    """A number of tokens from a provider: a non-negative integer; anything else counts as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def add_usage(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two usages as one. Keys that only one of them has are kept; ``totalFromProvider`` holds if it does for both."""
    total: dict[str, Any] = {}
    for key in [*first, *(key for key in second if key not in first)]:
        ours, theirs = first.get(key), second.get(key)
        if isinstance(ours, Mapping) or isinstance(theirs, Mapping):
            total[key] = add_usage(
                ours if isinstance(ours, Mapping) else {}, theirs if isinstance(theirs, Mapping) else {}
            )
        elif isinstance(ours, bool) or isinstance(theirs, bool):
            total[key] = bool(ours) and bool(theirs)
        else:
            total[key] = _number(ours) + _number(theirs)
    return total


def _number(value: object) -> int | float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
