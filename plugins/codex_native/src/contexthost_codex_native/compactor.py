"""Making one native compaction, and what is remembered of a session between two of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from contexthost.errors import ContexthostError
from contexthost.models.responses import responses_usage
from contexthost.models.usage import priced
from contexthost_codex_native.body import compaction_body
from contexthost_codex_native.checkpoint import HISTORY_TOKENS, Checkpoint, replacement_history
from contexthost_codex_native.eligibility import kind_of, model_key
from contexthost_codex_native.errors import NativeFailure, UnsupportedGateway
from contexthost_codex_native.items import checkpoint_for, input_items, user_items_newest_first
from contexthost_codex_native.memory import place_of
from contexthost_codex_native.portable import portable_of, portable_text
from contexthost_codex_native.stream import request_compaction
from contexthost_codex_native.transport import has_authorization, resolve

if TYPE_CHECKING:
    from contexthost.context import AbortSignal, Context, ModelInfo
    from contexthost.projection import Snapshot
    from contexthost_codex_native.memory import Memory
    from contexthost_codex_native.settings import CodexNativeSettings

__all__ = ["Made", "compact_natively", "grown_enough", "run_threshold", "with_credential"]

_log = logging.getLogger(__name__)

_MARGIN_TOKENS: Final = 4_000
"""How much earlier than the host's own threshold the plugin compacts within a run, so that it is first."""
_GROWTH_RATIO: Final = 0.05
"""Share of the window that must have come since the last native compaction: one that freed too little is not made
again after every turn."""


@dataclass(frozen=True, slots=True)
class Made:
    """A compaction that was made: the entry's texts and details."""

    summary: str
    details: Mapping[str, Any]
    usage: Mapping[str, Any] | None


async def compact_natively(
    ctx: Context,
    model: ModelInfo,
    snapshot: Snapshot,
    memory: Memory,
    settings: CodexNativeSettings,
    *,
    signal: AbortSignal | None,
    focus: str | None = None,
) -> Made:
    """Has the provider compact what ``snapshot`` shows.

    Raises:
        Refused: nothing was sent. UnsupportedGateway: known to be useless, or found so now. NativeFailure: the
            request failed.
    """
    model, key = await with_credential(ctx, model)
    target = resolve(model, key, snapshot.session_id, base_url=settings.subApiBaseUrl)
    place = place_of(model, target.url)
    if place in memory.unsupported:
        raise UnsupportedGateway(memory.unsupported[place])
    checkpoint = checkpoint_for(snapshot, model)
    body = compaction_body(
        model,
        input_items(snapshot, model, checkpoint),
        system=snapshot.system_message,
        session_id=snapshot.session_id,
        shape=memory.shapes.get(model_key(model)),
    )
    try:
        answer = await request_compaction(target, body, signal=signal, timeout_seconds=settings.timeoutSeconds)
    except UnsupportedGateway as error:
        memory.cannot_compact(ctx, place, str(error))
        raise
    facts = portable_of(snapshot, checkpoint, focus=focus)
    # A small window must not be filled by what the user said alone.
    budget = min(HISTORY_TOKENS, snapshot.window // 2)
    made = Checkpoint(
        model_key(model),
        replacement_history(user_items_newest_first(snapshot, model, checkpoint), answer.item, budget),
        facts.carried(),
    )
    usage = priced(responses_usage(answer.usage), model) if answer.usage is not None else None
    _log.info("compacted by %s: %d messages of the user kept", model_key(model), len(made.user_items))
    return Made(portable_text(facts, settings.portableSummaryChars), made.details(), usage)


async def with_credential(ctx: Context, model: ModelInfo) -> tuple[ModelInfo, str | None]:
    """The model with the headers that are sent to it now, and the provider's key as the host knows it; that is not
    asked for where a header of the user's goes before it.

    Raises:
        NativeFailure: the user's way to fetch it failed.
    """
    model = replace(model, headers=await ctx.model_headers())
    if kind_of(model) == "sub-api" and has_authorization(model.headers):
        return model, None
    try:
        return model, await ctx.credentials(model.provider)
    except ContexthostError as error:
        raise NativeFailure(str(error)) from None


def run_threshold(window: int, ratio: float, reserve_tokens: int) -> int | None:
    """Usage, in tokens, at which a run is compacted at the end of a turn; None for windows too small for that.

    A share of the window alone would lie above the host's own threshold for windows under 163,840 tokens.
    """
    threshold = min(math.floor(ratio * window), window - reserve_tokens - _MARGIN_TOKENS)
    return threshold if threshold > 0 else None


def grown_enough(snapshot: Snapshot, model: ModelInfo) -> bool:
    """Whether enough came since the last native compaction of this model for another one to be worth it."""
    if checkpoint_for(snapshot, model) is None:
        return True
    return sum(entry.tokens for entry in snapshot.since_checkpoint) >= _GROWTH_RATIO * snapshot.window
