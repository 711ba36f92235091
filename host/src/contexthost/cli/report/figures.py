"""What a report shows: gathered once from a session, before anything is laid out."""

from __future__ import annotations

from dataclasses import dataclass

from contexthost.compaction import prepare_compaction
from contexthost.context import Tool
from contexthost.errors import InvalidDraft
from contexthost.estimates import Estimate, Prices
from contexthost.events import ContextEstimatesEvent
from contexthost.projection import CompactionDraft, Snapshot, context_messages
from contexthost.projection.breakdown import Breakdown, breakdown
from contexthost.projection.charges import paid_per_million, recent_requests
from contexthost.projection.timeline import Timeline, timeline
from contexthost.runtime import Runtime
from contexthost.session import Session

__all__ = ["Figures", "Hidden", "WhatIf", "gather"]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A row of the "what if" table; money in dollars, None without prices.

    Attributes:
        by: the plugin's name; empty for the host's own rows.
        tokens: what would be left; as now when there is nothing to do.
        turn: what reading that from the prompt cache costs, once per turn.
        once: what writing the changed part to the cache costs more than reading it.
        turns_to_pay: after how many turns ``once`` is paid; None when it never is, or nothing is known.
    """

    by: str
    estimate: Estimate
    tokens: int
    turn: float | None
    once: float | None
    turns_to_pay: float | None


@dataclass(frozen=True, slots=True)
class Hidden:
    """What the context holds in another form than the file: how many entries, and the tokens that this hides."""

    masked: int
    masked_tokens: int
    replaced: int
    replaced_tokens: int
    omitted: int
    omitted_tokens: int


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it. ``tools`` are the names of the tools that the installed plugins have."""

    session: Session
    snapshot: Snapshot
    parts: Breakdown
    life: Timeline
    what_if: tuple[WhatIf, ...]
    prices: Prices | None
    hidden: Hidden
    tools: frozenset[str]


async def gather(runtime: Runtime) -> Figures:
    """Counts everything; asks the plugins what they would do, and no model. Writes nothing.

    Raises:
        ParentCycle: the branch leads in a circle.
    """
    snapshot = runtime.authority.snapshot()
    life = timeline(snapshot)
    event = ContextEstimatesEvent(snapshot=snapshot, preview=runtime.authority.preview)
    answers = await runtime.plugins.chain(
        "context_estimates",
        event,
        runtime.context,
        timeout_seconds=runtime.settings.values.compactionTimeoutSeconds,
    )
    estimates: list[tuple[str, Estimate]] = [*answers.answers, ("", _built_in(runtime, snapshot))]
    prices = next((made.prices for _, made in estimates if made.prices is not None), None) or _paid(snapshot)
    nothing = Estimate(what="leave it as it is", tokens_after=snapshot.tokens, rewritten_tokens=0)
    return Figures(
        session=runtime.session,
        snapshot=snapshot,
        parts=breakdown(snapshot),
        life=life,
        what_if=tuple(_row(by, made, snapshot.tokens, prices) for by, made in [("", nothing), *estimates]),
        prices=prices,
        hidden=_hidden(snapshot),
        tools=frozenset(tool.name for _, tool in runtime.plugins.items("register_tools", Tool)),
    )


def _built_in(runtime: Runtime, snapshot: Snapshot) -> Estimate:
    what = "summary by a model (built in)"
    prepared = prepare_compaction(snapshot, snapshot.branch, runtime.compaction, context_messages=context_messages)
    if prepared is None:
        return Estimate(what=what, note="Nothing to compact: everything is recent enough to be kept.")
    draft = CompactionDraft(
        summary="…", first_kept_entry_id=prepared.first_kept_entry_id, tokens_before=prepared.tokens_before
    )
    try:
        after = runtime.authority.preview([draft])
    except InvalidDraft as error:
        return Estimate(what=what, note=f"Not possible here: {error}")
    messages = len(prepared.messages_to_summarize) + len(prepared.turn_prefix_messages)
    return Estimate(
        what=what,
        command="contexthost compact SESSION --base-url URL --model ID",
        tokens_after=after.tokens,
        at_least=True,
        note=f"A model reads {messages:,} messages once; the summary that it writes in their place comes on top.",
    )


def _row(by: str, made: Estimate, now: int, prices: Prices | None) -> WhatIf:
    tokens = now if made.tokens_after is None else max(0, made.tokens_after)
    if prices is None:
        return WhatIf(by, made, tokens, None, None, None)
    turn = tokens * prices.read / 1e6
    if made.tokens_after is None:
        return WhatIf(by, made, tokens, turn, 0.0, None)
    rewritten = tokens if made.rewritten_tokens is None else made.rewritten_tokens
    once = rewritten * max(prices.write - prices.read, 0.0) / 1e6
    saved = (now - tokens) * prices.read / 1e6
    return WhatIf(by, made, tokens, turn, once, once / saved if saved > 0 else None)


def _paid(snapshot: Snapshot) -> Prices | None:
    """What the session's newest requests paid; what was never cached is sent anew every time."""
    requests = list(recent_requests(snapshot))
    fresh = paid_per_million(requests, "input")
    write = paid_per_million(requests, "cacheWrite") or fresh
    read = paid_per_million(requests, "cacheRead") or write
    return Prices(read, write or read) if read is not None else None


def _hidden(snapshot: Snapshot) -> Hidden:
    counts = {"masked": [0, 0], "replaced": [0, 0], "omitted": [0, 0]}
    for item in snapshot.entries:
        if item.edit is None or not item.base.messages:
            continue
        kind = counts["masked" if item.masked else "omitted" if item.omitted else "replaced"]
        kind[0] += 1
        kind[1] += item.base.tokens if item.omitted else item.base.tokens - item.tokens
    return Hidden(*counts["masked"], *counts["replaced"], *counts["omitted"])
