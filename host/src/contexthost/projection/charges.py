"""What the provider charged for a session's requests, as its newest answers record it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from contexthost.projection.snapshot import Snapshot
from contexthost.tokens.pi import calculate_context_tokens

__all__ = ["LOOK_BACK", "finite", "paid_per_million", "recent_requests"]

LOOK_BACK: Final = 100
"""Entries at the end of the context that are looked at for what the provider charged."""


def recent_requests(snapshot: Snapshot) -> Iterator[Mapping[str, Any]]:
    """The usage of the last requests to the model in use, newest first."""
    model = snapshot.model or {}
    entries = snapshot.entries
    for position in range(len(entries) - 1, max(len(entries) - LOOK_BACK, 0) - 1, -1):
        source = entries[position].source
        message = source.message if source.role == "assistant" else None
        if message is None or message.get("stopReason") in ("error", "aborted"):
            continue
        if (message.get("provider"), message.get("model")) != (model.get("provider"), model.get("modelId")):
            return
        usage = message.get("usage")
        if isinstance(usage, Mapping) and calculate_context_tokens(usage) > 0:
            yield usage


def paid_per_million(requests: Iterable[Mapping[str, Any]], kind: str) -> float | None:
    """What the newest request that used tokens of a kind (``input``, ``cacheRead``, ``cacheWrite``) paid for a million
    of them, in dollars; None when no request tells."""
    for usage in requests:
        cost = usage.get("cost")
        paid = finite(cost.get(kind)) if isinstance(cost, Mapping) else 0.0
        tokens = finite(usage.get(kind))
        if paid > 0 and tokens >= 1:
            return paid / tokens * 1e6
    return None


def finite(value: Any) -> float:
    """A number of a session as a float; 0.0 for what is none, infinite or beyond 10**15."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e15:
        return 0.0
    return float(value) if math.isfinite(value) else 0.0
