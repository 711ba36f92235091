"""Where a session stands: usage, the thresholds in force, what is masked, the last batch and the last compaction.

``/compaction-status``, ``contexthost status`` and the status line all say this, of one and the same snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from contexthost.commands import usage_line
from contexthost.context import ModelInfo
from contexthost.messages import own_text
from contexthost.projection import Snapshot
from contexthost.session import Entry
from contexthost.text import one_line, shorten
from contexthost_masking.plan import MaskPlan, plan_mask, summary_threshold, thresholds, urgent_threshold
from contexthost_masking.pricing import Costs, costs_of
from contexthost_masking.settings import MaskingSettings

__all__ = ["Status", "costs_data", "pays_back", "status_line", "status_of"]


@dataclass(frozen=True, slots=True)
class Batch:
    """The last batch of masks: how many results, when, and what they save now, in tokens."""

    results: int
    timestamp: str
    reclaimed_tokens: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction in force. ``by`` is the plugin that made it, where that is known, else ``a plugin`` or ``the
    built-in summary``; ``kind`` is ``summary``, or what the plugin calls its own kind of checkpoint."""

    entry_id: str
    timestamp: str
    by: str
    kind: str


@dataclass(frozen=True, slots=True)
class Status:
    """What there is to say; ``limits`` are thresholds in tokens by name, in the order in which they are reached."""

    snapshot: Snapshot
    limits: Mapping[str, int]
    plan: MaskPlan
    costs: Costs
    batch: Batch | None
    compaction: Compaction | None
    enabled: bool

    def data(self) -> dict[str, Any]:
        """For ``--json``; the keys stay as they are."""
        usage, ledger = self.snapshot.usage, self.snapshot.ledger
        batch, compaction = self.batch, self.compaction
        return {
            "sessionId": self.snapshot.session_id,
            "enabled": self.enabled,
            "usage": asdict(usage) | {"percent": usage.percent},
            "tokens": self.snapshot.tokens,
            "thresholds": {
                name: {"tokens": limit, "distance": limit - usage.tokens} for name, limit in self.limits.items()
            },
            "maskedResults": ledger.masked_results,
            "reclaimedTokens": ledger.reclaimed_tokens,
            "lastBatch": None
            if batch is None
            else {"results": batch.results, "timestamp": batch.timestamp, "reclaimedTokens": batch.reclaimed_tokens},
            "compaction": None
            if compaction is None
            else {
                "entryId": compaction.entry_id,
                "timestamp": compaction.timestamp,
                "by": compaction.by,
                "kind": compaction.kind,
            },
            "nextBatch": {
                "results": len(self.plan.drafts),
                "reclaimedTokens": self.plan.reclaimed_tokens,
                "rewrittenTokens": self.plan.rewritten_tokens,
                "reason": self.plan.reason,
            },
            "costs": costs_data(self.plan, self.costs),
        }

    def text(self) -> str:
        """For people, line by line."""
        usage, ledger = self.snapshot.usage, self.snapshot.ledger
        lines = [f"usage        {usage_line(usage)}"]
        for name, limit in self.limits.items():
            distance = limit - usage.tokens
            state = f"{distance:,} tokens to go" if distance > 0 else "reached"
            lines.append(f"{_NAMES[name]:<12} at {limit:,} tokens: {state}")
        saved = f"; that saves {ledger.reclaimed_tokens:,} tokens" if ledger.masked_results else ""
        lines.append(f"masked       {_results(ledger.masked_results)}{saved}")
        if self.batch is not None:
            lines.append(
                f"last batch   {_results(self.batch.results)}, {self.batch.reclaimed_tokens:,} tokens, "
                f"{shorten(one_line(self.batch.timestamp), 30)}"
            )
        made = self.compaction
        lines.append(
            "compaction   none"
            if made is None
            else f"compaction   {shorten(one_line(made.entry_id), 40)} by {shorten(one_line(made.by), 40)}, "
            f"{shorten(one_line(made.timestamp), 30)}; checkpoint: {shorten(one_line(made.kind), 40)}"
        )
        lines.append(f"cache        {_CACHE[self.costs.cache]} (it lives {self.costs.lifetime:,.0f} s)")
        lines.append(f"next batch   {self.plan.explanation}")
        if self.plan.drafts:
            lines.append(f"             {pays_back(self.plan, self.costs)}")
        if not self.enabled:
            lines.append("switched off: enabled is false in masking.json")
        return "\n".join(lines)


_NAMES = {"masking": "masking", "summary": "summary", "urgent": "urgent", "host": "host's limit"}
_CACHE = {
    "warm": "holds this context",
    "cold": "has run out",
    "none": "the provider keeps none",
    "unknown": "not known",
}


def status_of(
    snapshot: Snapshot,
    settings: MaskingSettings,
    *,
    reserve: int,
    model: ModelInfo | None = None,
    now: float | None = None,
    compacted_by: Mapping[str, str] | None = None,
) -> Status:
    """The status of a snapshot.

    Args:
        reserve: what the host keeps free of the window, in tokens.
        model: what is known of the model in use.
        now: seconds since the epoch, for the state of the cache.
        compacted_by: compaction entry → the plugin that is known to have made it.
    """
    window = snapshot.window
    limits = {
        "masking": thresholds(settings.mask, window).trigger,
        "summary": summary_threshold(settings.summary, window),
        "urgent": urgent_threshold(settings.mask, window, reserve),
        "host": max(window - reserve, 0),
    }
    costs = costs_of(snapshot, settings.pricing, model=model, now=now)
    forced = snapshot.usage.tokens >= limits["urgent"]
    return Status(
        snapshot=snapshot,
        limits=limits,
        plan=plan_mask(snapshot, settings.mask, costs=costs, forced=forced),
        costs=costs,
        batch=_last_batch(snapshot),
        compaction=_compaction(snapshot.checkpoint, compacted_by or {}),
        enabled=settings.enabled,
    )


def status_line(snapshot: Snapshot) -> str | None:
    """A few words for a status line; None for a session in which nothing has been said."""
    if not snapshot.entries:
        return None
    usage, masked = snapshot.usage, snapshot.ledger.masked_results
    about = "" if usage.source == "provider" else "~"
    more = f" · {masked:,} masked" if masked else ""
    return f"{about}{_short(usage.tokens)}/{_short(usage.window)} {usage.percent:.0f} %{more}"


def costs_data(plan: MaskPlan, costs: Costs) -> dict[str, Any]:
    """What a batch costs and saves, for ``--json``; money in dollars, None without prices."""
    saved = sum(one.saved for one in plan.candidates)
    return {
        "cache": costs.cache,
        "cacheSeconds": costs.lifetime,
        "prices": costs.source,
        "breakEvenTurns": plan.break_even if plan.drafts or plan.reason == "does-not-pay" else None,
        "rewriteDollars": costs.rewrite_dollars(plan.rewritten_tokens) if plan.candidates else None,
        "dollarsPerTurn": costs.turn_dollars(saved) if plan.candidates else None,
    }


def pays_back(plan: MaskPlan, costs: Costs) -> str:
    """One sentence: when a batch has paid for the cache that it rewrites, and the money where prices are known."""
    turns = plan.break_even
    if turns is None:
        text = "it never pays for the cache that it rewrites: reading the cache costs nothing here"
    elif turns == 0:
        text = "it pays at once: there is no warm cache to lose"
    else:
        text = f"it has paid for itself after {turns:,.1f} turns"
    rewrite, turn = costs.rewrite_dollars(plan.rewritten_tokens), costs.turn_dollars(plan.reclaimed_tokens)
    if rewrite is None or turn is None:
        return f"{text} (by the provider's usual prices)"
    return f"{text} (${rewrite:,.4f} once, ${turn:,.4f} less each turn)"


def _last_batch(snapshot: Snapshot) -> Batch | None:
    """The masks that were appended together last: context edits side by side."""
    entries = snapshot.entries
    at = len(entries) - 1
    while at >= 0 and not _is_mask(snapshot, entries[at].source):
        at -= 1
    if at < 0:
        return None
    last = entries[at].source
    results = reclaimed = 0
    while at >= 0 and _is_mask(snapshot, entries[at].source):
        target = snapshot.find(own_text(entries[at].source.data.get("targetId")))
        if target is not None:
            results += 1
            reclaimed += target.base.tokens - target.tokens
        at -= 1
    return Batch(results, last.timestamp, reclaimed)


def _is_mask(snapshot: Snapshot, entry: Entry) -> bool:
    """Whether this entry is the mask in force on an entry of the context."""
    if entry.type != "context_edit":
        return False
    target = snapshot.find(own_text(entry.data.get("targetId")))
    return target is not None and target.edit is entry and target.masked


def _compaction(entry: Entry | None, known: Mapping[str, str]) -> Compaction | None:
    if entry is None:
        return None
    by = known.get(entry.id) or ("a plugin" if entry.data.get("fromHook") else "the built-in summary")
    details = entry.data.get("details")
    kind = details.get("kind") if isinstance(details, dict) else None
    return Compaction(entry.id, entry.timestamp, by, kind if isinstance(kind, str) and kind else "summary")


def _results(count: int) -> str:
    return f"{count:,} result{'' if count == 1 else 's'}"


def _short(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 1_000 else f"{tokens / 1_000:,.0f}k"
