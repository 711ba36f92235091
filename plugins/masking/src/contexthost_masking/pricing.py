"""What a batch of masks costs and saves: the cached prefix that is written anew once, against tokens sent no more.

With a warm cache every token of the context costs the price of a cache read on each turn. A batch takes S tokens out
of every coming request, and makes the R tokens behind its first mask be written to the cache once instead of read:

    break-even in turns = R x (write - read) / (S x read)

With a cold cache, or none, the next request pays for everything anyway, and a batch has paid for itself at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from contexthost.context import ModelInfo
from contexthost.messages import timestamp_ms
from contexthost.projection import Snapshot
from contexthost.projection.charges import LOOK_BACK, finite, paid_per_million, recent_requests
from contexthost_masking.settings import Price

__all__ = ["CacheState", "Costs", "costs_of"]

CacheState = Literal["warm", "cold", "none", "unknown"]
"""Whether the provider's prompt cache holds this context: it does, it has run out, the provider keeps none, unknown
(then it is taken for warm)."""

_ENOUGH_REQUESTS: Final = 3
"""Requests without a cached token after which there is no cache."""


@dataclass(frozen=True, slots=True)
class _Usual:
    """A provider's usual terms: prices as multiples of the input price, the cache's life in seconds."""

    read: float
    write: float
    seconds: float


# Published price lists and cache documentation of the providers, end of 2025; a model's own prices come before these.
_PROVIDERS: Final = {
    "anthropic": _Usual(0.1, 1.25, 300),
    "amazon-bedrock": _Usual(0.1, 1.25, 300),
    "openai": _Usual(0.1, 1.0, 300),
    "openai-codex": _Usual(0.1, 1.0, 300),
    "deepseek": _Usual(0.1, 1.0, 3600),
}
_OTHERS: Final = _Usual(0.25, 1.0, 300)


@dataclass(frozen=True, slots=True)
class Costs:
    """What tokens cost now.

    Attributes:
        read, write: the price of a token read from the cache, and of one that is sent anew: dollars per million
            tokens, or multiples of the input price.
        dollars: which of the two.
        cache: whether there is a cache to lose.
        lifetime: how long the cache lives after its last use, in seconds.
        source: where the prices are from: ``settings``, ``model``, ``session`` or ``provider`` (the usual terms).
    """

    read: float
    write: float
    dollars: bool
    cache: CacheState
    lifetime: float
    source: str

    @property
    def has_cache(self) -> bool:
        """Whether an edit in the middle makes anything dearer."""
        return self.cache in ("warm", "unknown")

    def break_even(self, saved: int, rewritten: int) -> float | None:
        """Turns after which a batch that frees ``saved`` tokens has paid for ``rewritten``; None: never."""
        extra = rewritten * (self.write - self.read) if self.has_cache else 0.0
        if extra <= 0:
            return 0.0
        return extra / (saved * self.read) if saved > 0 and self.read > 0 else None

    def rewrite_dollars(self, rewritten: int) -> float | None:
        """What writing so many tokens to the cache costs more than reading them; None without prices."""
        if not self.dollars:
            return None
        return rewritten * max(self.write - self.read, 0.0) / 1e6 if self.has_cache else 0.0

    def turn_dollars(self, saved: int) -> float | None:
        """What a coming turn costs less; None without prices."""
        return saved * (self.write if self.cache == "none" else self.read) / 1e6 if self.dollars else None


def costs_of(
    snapshot: Snapshot, pricing: Mapping[str, Price], *, model: ModelInfo | None = None, now: float | None = None
) -> Costs:
    """Prices and cache state of a context: the settings' first, then the model's, then what the session shows.

    Args:
        model: what is known of the model in use.
        now: seconds since the epoch; None leaves it open whether the cache still lives.
    """
    named = snapshot.model or {}
    provider = model.provider if model is not None else named.get("provider")
    model_id = model.id if model is not None else named.get("modelId")
    own = pricing.get(f"{provider}/{model_id}") or pricing.get(str(provider)) or Price()
    usual = _PROVIDERS.get(str(provider), _OTHERS)
    requests = list(recent_requests(snapshot))
    prices, source = _prices(own, model, requests)
    read, write = prices["cacheRead"], prices["cacheWrite"] or prices["input"]
    known = prices["input"] or (write if read is not None else None)
    dollars = known is not None
    base = known if known is not None else 1.0
    lifetime = own.cacheSeconds
    if lifetime is None and model is not None:
        lifetime = model.prompt_cache_short_seconds
    if lifetime is None:
        lifetime = usual.seconds
    return Costs(
        read=read if read is not None and dollars else usual.read * base,
        write=write if prices["cacheWrite"] and write is not None else max(usual.write * base, base),
        dollars=dollars,
        cache=_cache_state(requests, _last_use(snapshot), lifetime, now),
        lifetime=lifetime,
        source=source if dollars else "provider",
    )


def _prices(
    own: Price, model: ModelInfo | None, requests: list[Mapping[str, Any]]
) -> tuple[dict[str, float | None], str]:
    """Dollars per million tokens, each from the first that knows it; and who knew first."""
    listed = {kind: float(value) or None for kind, value in (model.cost if model is not None else {}).items()}
    given: dict[str, float | None] = {
        "input": own.input, "cacheRead": own.cacheRead, "cacheWrite": own.cacheWrite
    }  # fmt: skip
    # The session is looked through only for what nobody else tells: a look goes over many requests.
    implied = {
        kind: paid_per_million(requests, kind) for kind in given if given[kind] is None and listed.get(kind) is None
    }
    sources = (("settings", given), ("model", listed), ("session", implied))
    found: dict[str, float | None] = {}
    for kind in given:
        found[kind] = next((prices[kind] for _, prices in sources if prices.get(kind) is not None), None)
    first = next((name for name, prices in sources if any(value is not None for value in prices.values())), "provider")
    return found, first


def _last_use(snapshot: Snapshot) -> float | None:
    """When the cache was last used, in seconds since the epoch: by an answer, or by what keeps it warm."""
    entries = snapshot.entries
    for position in range(len(entries) - 1, max(len(entries) - LOOK_BACK, 0) - 1, -1):
        source = entries[position].source
        if source.role == "assistant" or source.type == "usage":
            return finite(timestamp_ms(source.timestamp)) / 1000 or None
    return None


def _cache_state(
    requests: list[Mapping[str, Any]], last_use: float | None, lifetime: float, now: float | None
) -> CacheState:
    recent = requests[:10]
    cached = any(finite(usage.get("cacheRead")) + finite(usage.get("cacheWrite")) > 0 for usage in recent)
    if len(recent) >= _ENOUGH_REQUESTS and not cached:
        return "none"
    if last_use is None or now is None:
        return "unknown"
    return "cold" if now - last_use > lifetime else "warm"
