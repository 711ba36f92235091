"""What a batch of masks would leave, for the host's report; nothing is written."""

from __future__ import annotations

import time

from contexthost.config import HostSettings, load_settings
from contexthost.estimates import Estimate, Prices
from contexthost.projection import Snapshot
from contexthost_masking.plan import MaskPlan, plan_mask, urgent_threshold
from contexthost_masking.pricing import Costs, costs_of
from contexthost_masking.settings import PACKAGE, MaskingSettings, MaskSettings

__all__ = ["estimate"]


def estimate(snapshot: Snapshot) -> Estimate:
    """The batch that `contexthost mask` would append now; below the trigger, what all that may go would free."""
    settings = load_settings(MaskingSettings, PACKAGE).values
    reserve = load_settings(HostSettings, "host").values.compaction.reserveTokens
    costs = costs_of(snapshot, settings.pricing, now=time.time())
    forced = snapshot.usage.tokens >= urgent_threshold(settings.mask, snapshot.window, reserve)
    plan = plan_mask(snapshot, settings.mask, costs=costs, forced=forced)
    if plan.drafts:
        return _row(snapshot, plan, costs, "contexthost mask SESSION", f"{_sentence(plan)}.")
    if plan.reason == "below-trigger":
        possible = plan_mask(snapshot, _everything(settings.mask), costs=costs, forced=True)
        if possible.drafts:
            found = "1 result" if len(possible.drafts) == 1 else f"all {len(possible.drafts):,} results"
            return _row(snapshot, possible, costs, "", f"Not yet: {plan.explanation}. This masks {found} that may go.")
    return Estimate(what="mask old tool results", note=f"{_sentence(plan)}.", prices=_prices(costs))


def _row(snapshot: Snapshot, plan: MaskPlan, costs: Costs, command: str, note: str) -> Estimate:
    return Estimate(
        what="mask old tool results",
        command=command,
        tokens_after=snapshot.tokens - plan.reclaimed_tokens,
        rewritten_tokens=plan.rewritten_tokens,
        note=note,
        prices=_prices(costs),
    )


def _everything(settings: MaskSettings) -> MaskSettings:
    """The settings with thresholds that let every eligible result go."""
    return settings.model_copy(update={"triggerTokens": 1, "targetTokens": 0, "minClearTokens": 0})


def _sentence(plan: MaskPlan) -> str:
    return plan.explanation[:1].upper() + plan.explanation[1:]


def _prices(costs: Costs) -> Prices | None:
    if not costs.dollars:
        return None
    return Prices(read=costs.write if costs.cache == "none" else costs.read, write=costs.write)
