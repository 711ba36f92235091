"""When a relay starts by itself: pure questions about a snapshot, a model and the time."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contexthost.context import ModelInfo
from contexthost.events import InputEvent
from contexthost.messages import timestamp_ms
from contexthost.projection import Snapshot
from contexthost.session import Entry
from contexthost.tokens.pi import assistant_usage, calculate_context_tokens
from contexthost_relay.material import is_relay
from contexthost_relay.settings import AutoSettings

__all__ = [
    "MARGIN_SECONDS",
    "CacheDeadline",
    "cache_deadline",
    "has_grown",
    "is_main",
    "waits_for_relay",
    "wants_relay",
]

MARGIN_SECONDS: Final = 20.0
"""How long before the prompt cache expires a relay starts; caches that live no longer than that are left alone."""

_SUBAGENT: Final = re.compile(r"#[0-9a-fA-F]{8}\Z")
"""How pi-subagents ends the names of the sessions that it starts."""

_ANTHROPIC_SECONDS: Final = (300.0, 3600.0)
"""Anthropic's two cache lifetimes: of writes in general, and of those that usage counts as ``cacheWrite1h``."""


def is_main(name: str | None, mode: str) -> bool:
    """Whether a session is one that a person works in: no subagent's, not run once without anybody there."""
    return mode not in ("print", "json") and not (name is not None and _SUBAGENT.search(name.strip()))


def waits_for_relay(event: InputEvent) -> bool:
    """Whether an input is of the kind that a relay may precede."""
    return (
        event.source in ("interactive", "rpc")
        and event.streaming_behavior is None
        and not event.text.lstrip().startswith("/")
    )


def wants_relay(snapshot: Snapshot, least_tokens: int, auto: AutoSettings) -> bool:
    """Whether the context is large enough by the provider's own word, and has grown enough since the last relay."""
    usage = snapshot.usage
    return usage.source == "provider" and usage.tokens >= least_tokens and has_grown(snapshot, auto.minGrowthTokens)


def has_grown(snapshot: Snapshot, least_growth: int) -> bool:
    """Whether the context has grown by so many tokens since the first request after the relay in force; true when
    no relay is in force."""
    relay = snapshot.checkpoint
    if relay is None or not is_relay(relay):
        return True
    for item in snapshot.entries:
        if item.source.position > relay.position and item.source.role == "assistant":
            usage = assistant_usage(item.source.message or {})
            if usage is not None:
                return snapshot.usage.tokens - int(calculate_context_tokens(usage)) >= least_growth
    return False


_SKEW_SECONDS = 5.0
"""How far a clock is set back by ordinary corrections; less than the margin."""


@dataclass(frozen=True, slots=True)
class CacheDeadline:
    """When the prompt cache expires, in seconds since 1970, and how long it lives from each request."""

    at: float
    lifetime: float

    def is_warm(self, now: float) -> bool:
        """Whether the cache lives at this time, for all that is known: a time well before the request that filled it
        means that the clock was set back since, and then nobody knows."""
        return self.at - self.lifetime - _SKEW_SECONDS <= now < self.at


def cache_deadline(
    snapshot: Snapshot, model: ModelInfo | None, environment: Mapping[str, str] = os.environ
) -> CacheDeadline | None:
    """When the prompt cache of the session expires; None where that is not known for sure, or nothing is cached.

    Counted from the last request since the last compaction; one that only kept the cache warm counts too.
    """
    if model is None:
        return None
    latest: float | None = None
    long_write: bool | None = None
    # Where writes do not tell, nobody looks for one: there may be none in the whole context.
    telling = len({_lifetime(model, write, environment) for write in (None, False, True)}) > 1
    for item in reversed(snapshot.entries):
        entry = item.source
        if entry.type == "compaction" or (
            snapshot.checkpoint is not None and entry.position < snapshot.checkpoint.position
        ):
            break
        usage = _request_usage(entry)
        if usage is None:
            continue
        if latest is None:
            if not (_count(usage, "cacheRead") or _count(usage, "cacheWrite")):
                return None
            latest = _time(entry)
            if latest is None:
                return None
        if _count(usage, "cacheWrite") > 0:
            hour = usage.get("cacheWrite1h")
            long_write = None if not isinstance(hour, (int, float)) else hour > 0
            break
        if not telling:
            break
    if latest is None:
        return None
    lifetime = _lifetime(model, long_write, environment)
    return CacheDeadline(latest + lifetime, lifetime) if lifetime is not None else None


def _lifetime(model: ModelInfo, long_write: bool | None, environment: Mapping[str, str]) -> float | None:
    short, long = model.prompt_cache_short_seconds, model.prompt_cache_long_seconds
    if short is None and long is None:
        return _ANTHROPIC_SECONDS[bool(long_write)] if model.api == "anthropic-messages" else None
    wants_long = long_write if long_write is not None else environment.get("PI_CACHE_RETENTION") == "long"
    return long if wants_long else short


def _request_usage(entry: Entry) -> Mapping[str, Any] | None:
    """The usage of a request that reached the model: an answer's, or that of a cache refresh."""
    if entry.type == "usage":
        usage = entry.data.get("usage")
        return usage if entry.data.get("kind") == "cache_warm" and isinstance(usage, dict) else None
    usage = entry.read_usage() if entry.role == "assistant" else None
    return usage if isinstance(usage, dict) and any(_count(usage, key) for key in usage) else None


def _count(usage: Mapping[str, Any], key: str) -> float:
    value = usage.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _time(entry: Entry) -> float | None:
    """Seconds since 1970 of the request that an entry records: the message's own time, else the entry's."""
    stamp = entry.message.get("timestamp") if entry.message is not None else None
    if isinstance(stamp, (int, float)) and not isinstance(stamp, bool):
        return stamp / 1000
    written = timestamp_ms(entry.timestamp)
    return written / 1000 if written is not None else None
