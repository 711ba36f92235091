"""Which tool results to mask: a pure function of a snapshot and the settings.

1. Nothing happens until effective usage reaches the trigger, and a batch then goes down to the target: every edit in
   the middle of the context makes the provider's prompt cache useless from there on, so edits come rarely and together.
2. Results that a later call has overtaken go first, then the others, oldest first, until usage would be at the target
   or below; with the order ``age``, simply the oldest.
3. A batch that would free less than ``minClearTokens`` is not made; with the policy ``economic``, neither is one that
   does not pay for the cache it rewrites within ``breakEvenTurns``, unless the window forces it.
4. Planning again after a batch finds nothing. Once something is masked no earlier provider figure is trusted, so usage
   becomes our own count of the context. A batch therefore brings both figures down to the target, the usage it starts
   from and our count: either the count is then below the trigger, or no eligible result is left.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Final, Literal

from contexthost.bulk import many_objects
from contexthost.projection import ContextEditDraft, Snapshot
from contexthost.tokens import EffectiveUsage
from contexthost_masking.eligible import Candidate, Choice, eligible, tokens_before
from contexthost_masking.pricing import Costs, costs_of
from contexthost_masking.settings import MaskSettings, SummarySettings

__all__ = [
    "URGENT_MARGIN", "Candidate", "MaskPlan", "Reason", "Thresholds", "plan_mask", "summary_threshold", "thresholds",
    "urgent_threshold",
]  # fmt: skip

Reason = Literal["below-trigger", "nothing-eligible", "too-little", "does-not-pay"]
"""Why nothing is to be done."""

URGENT_MARGIN: Final = 4_000
"""Tokens before the host's own limit within which masking does not wait for the end of the run."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is in force for one context window, in tokens.

    ``target`` is below ``trigger``; ``warning`` says so when the settings had it otherwise.
    """

    trigger: int
    target: int
    min_clear: int
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class MaskPlan:
    """What to do about a context.

    Attributes:
        drafts: the batch, one context edit per result, in the context's order; empty when nothing is to be done.
        candidates: the results in the batch; those of a batch that was not worth making are still listed.
        usage: effective usage before.
        tokens_after: the usage expected after the batch, in tokens; as before when nothing is to be done.
        reclaimed_tokens: what the batch frees, net of placeholders.
        rewritten_tokens: what stands behind the first masked result, that placeholder included: the part of the
            prompt that the provider's cache will not have and that is written to it again, once.
        costs: what tokens cost; None below the trigger.
        reason: why nothing is to be done; None with a batch.
    """

    thresholds: Thresholds
    usage: EffectiveUsage
    tokens_after: int
    drafts: tuple[ContextEditDraft, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    reclaimed_tokens: int = 0
    rewritten_tokens: int = 0
    costs: Costs | None = None
    reason: Reason | None = None

    @property
    def break_even(self) -> float | None:
        """Turns after which the batch has paid for the cache that it rewrites; None when it never does, or there is
        none."""
        if self.costs is None or not self.candidates:
            return None
        return self.costs.break_even(sum(one.saved for one in self.candidates), self.rewritten_tokens)

    @property
    def explanation(self) -> str:
        """One sentence for people: what is to be done, or why nothing is."""
        found = f"{len(self.candidates):,} {'result' if len(self.candidates) == 1 else 'results'}"
        if self.reason == "below-trigger":
            return f"usage is {self.usage.tokens:,} tokens, masking starts at {self.thresholds.trigger:,}"
        if self.reason == "nothing-eligible":
            return "no tool result may be masked: all are recent, small, protected or masked already"
        if self.reason == "too-little":
            freed = sum(candidate.saved for candidate in self.candidates)
            return f"masking {found} would free {freed:,} tokens, a batch must free {self.thresholds.min_clear:,}"
        if self.reason == "does-not-pay":
            turns = "never" if self.break_even is None else f"in {self.break_even:,.1f} turns"
            return f"masking {found} would pay for the prompt cache that it rewrites {turns}; the policy is economic"
        return (
            f"masking {found} frees {self.reclaimed_tokens:,} tokens; "
            f"{self.rewritten_tokens:,} tokens of prompt cache are rewritten once"
        )


def thresholds(settings: MaskSettings, window: int) -> Thresholds:
    """The thresholds in force for a context window of so many tokens."""
    trigger = max(1, min(settings.triggerTokens, math.floor(settings.triggerRatio * window)))
    target = min(settings.targetTokens, math.floor(settings.targetRatio * window))
    warning = None
    if target >= trigger:
        warning = (
            f"masking.json: the target in force ({target:,} tokens) is not below the trigger ({trigger:,}); "
            f"{trigger - 1:,} is used: lower mask.targetTokens or mask.targetRatio"
        )
        target = trigger - 1
    return Thresholds(trigger, target, settings.minClearTokens, warning)


def urgent_threshold(settings: MaskSettings, window: int, reserve: int) -> int:
    """Usage from which masking does not wait for the end of the run, in tokens: above its share of the window, or
    within 4,000 tokens of the host's own limit, which is the window less so many tokens of reserve."""
    return max(1, min(math.floor(settings.urgentRatio * window) + 1, window - reserve - URGENT_MARGIN))


def summary_threshold(settings: SummarySettings, window: int) -> int:
    """Usage from which whole stretches are summarised, in tokens."""
    return max(1, min(settings.tokens, math.floor(settings.ratio * window)))


def plan_mask(
    snapshot: Snapshot, settings: MaskSettings, *, costs: Costs | None = None, forced: bool = False
) -> MaskPlan:
    """The batch of masks that a context needs now; see the rules in the module's docstring.

    Looks at no entry below the trigger, and at each entry once in its life otherwise.

    Args:
        costs: what tokens cost; None goes by the provider's usual terms.
        forced: whether the window forces a batch, paying or not.
    """
    limits = thresholds(settings, snapshot.window)
    usage = snapshot.usage
    if usage.tokens < limits.trigger:
        return MaskPlan(limits, usage, usage.tokens, reason="below-trigger")
    if costs is None:
        costs = costs_of(snapshot, {})
    counted = snapshot.tokens
    with many_objects():
        chosen, first, saved = _choose(snapshot, settings, max(usage.tokens, counted) - limits.target)
        candidates = tuple([choice.candidate for choice in chosen])
    rewritten = counted - tokens_before(snapshot, first) - saved if chosen else 0
    reason: Reason | None = None
    if not candidates:
        reason = "nothing-eligible"
    elif saved < settings.minClearTokens:
        reason = "too-little"
    elif settings.policy == "economic" and not forced:
        turns = costs.break_even(saved, rewritten)
        reason = "does-not-pay" if turns is None or turns > settings.breakEvenTurns else None
    if reason is not None:
        return MaskPlan(
            limits,
            usage,
            usage.tokens,
            candidates=candidates,
            rewritten_tokens=rewritten if reason == "does-not-pay" else 0,
            costs=costs,
            reason=reason,
        )
    return MaskPlan(
        limits,
        usage,
        tokens_after=counted - saved,
        drafts=tuple([choice.draft for choice in chosen]),
        candidates=candidates,
        reclaimed_tokens=saved,
        rewritten_tokens=rewritten,
        costs=costs,
    )


def _choose(snapshot: Snapshot, settings: MaskSettings, excess: int) -> tuple[list[Choice], int, int]:
    """A batch that frees ``excess`` tokens, or all there are, in the context's order; where in the context it begins;
    what it frees."""
    may_go = eligible(snapshot, settings)
    taken: list[list[Choice]] = [[] for _ in may_go]
    saved = 0
    for overtaken in (True, False):
        for chosen, (_, choices) in zip(taken, may_go, strict=True):
            if saved >= excess:
                break
            side = choices.overtaken if overtaken else choices.others
            together = choices.overtaken_saved if overtaken else choices.others_saved
            if saved + together <= excess:
                chosen.extend(side)
                saved += together
                continue
            for choice in side:
                chosen.append(choice)
                saved += choice.candidate.saved
                if saved >= excess:
                    break
    batch: list[Choice] = []
    first = 0
    for chosen, (start, _) in zip(taken, may_go, strict=True):
        chosen.sort(key=_place)
        if chosen and not batch:
            first = start + chosen[0].at
        batch.extend(chosen)
    return batch, first, saved


_place = operator.itemgetter(0)
