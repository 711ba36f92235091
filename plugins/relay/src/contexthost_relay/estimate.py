"""What a relay would leave, for the host's report: a dry run; no model is asked and nothing is written."""

from __future__ import annotations

from contexthost.compaction import prepare_compaction
from contexthost.context import Context
from contexthost.errors import InvalidDraft
from contexthost.estimates import Estimate
from contexthost.events import ContextEstimatesEvent
from contexthost.projection import CompactionDraft, context_messages
from contexthost_relay.relay import make_relay
from contexthost_relay.settings import RelaySettings
from contexthost_relay.triggers import is_main

__all__ = ["estimate"]

_WHAT = "relay: a note and the latest part"


async def estimate(event: ContextEstimatesEvent, ctx: Context, settings: RelaySettings) -> Estimate:
    """The context after a relay made now, without the section that a model may write."""
    if not is_main(ctx.session.name, "tui"):
        return Estimate(what=_WHAT, note="A subagent's session: relays are for main sessions.")
    snapshot = event.snapshot
    limits = ctx.compaction_settings
    preparation = prepare_compaction(snapshot, snapshot.branch, limits, context_messages=context_messages)
    if preparation is None:
        return Estimate(what=_WHAT, note="Nothing to relay: everything is recent enough to be kept.")
    unwritten = settings.model_copy(update={"auto": settings.auto.model_copy(update={"writtenSection": False})})
    made = await make_relay(ctx, preparation, unwritten)
    draft = CompactionDraft(
        summary=made.note, first_kept_entry_id=made.result.first_kept_entry_id, tokens_before=made.result.tokens_before
    )
    try:
        after = event.preview([draft])
    except InvalidDraft as error:
        return Estimate(what=_WHAT, note=f"It would be refused: {error}.")
    kept = len(after.entries) - 1
    note = f"A note of {len(made.note):,} characters and {kept:,} entries; no model is asked."
    if settings.auto.writtenSection:
        note += " The section that a model writes comes on top."
    return Estimate(what=_WHAT, command="contexthost relay SESSION", tokens_after=after.tokens, note=note)
