"""A live session as the plugin sees it: when a batch is due, and when a whole stretch is to be summarised."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from contexthost.config import load_settings
from contexthost.context import Context
from contexthost.errors import ContexthostError
from contexthost.events import AgentSettledEvent, Boundary
from contexthost.projection import Snapshot
from contexthost.session import Entry
from contexthost_masking.eligible import Scan, count_tokens
from contexthost_masking.plan import plan_mask, summary_threshold, thresholds, urgent_threshold
from contexthost_masking.pricing import costs_of
from contexthost_masking.settings import PACKAGE, MaskingSettings
from contexthost_masking.status import Status, status_line, status_of

__all__ = ["Live", "content_point"]

_log = logging.getLogger(__name__)

_CONTENT: frozenset[str] = frozenset({"message", "custom_message", "branch_summary", "compaction"})
"""Entry types that put something before the model; all others are bookkeeping."""


_SLICE_SECONDS = 0.001
"""A slice that took longer lets other work go first."""


@dataclass
class Live:
    """The state of one session, as long as it is open.

    Attributes:
        settings: ``masking.json``.
        compacted_by: compaction entry → the plugin that made it.
    """

    settings: MaskingSettings
    compacted_by: dict[str, str] = field(default_factory=dict)
    _tried: set[str] = field(default_factory=set)
    _failed_at: int | None = None  # usage at the last attempt that came to nothing; lowered when usage falls

    @classmethod
    def begin(cls) -> Live:
        """Reads the settings."""
        return cls(load_settings(MaskingSettings, PACKAGE).values)

    # Masks -----------------------------------------------------------------------------------------------------------

    def is_urgent(self, snapshot: Snapshot, ctx: Context) -> bool:
        """Whether masking must not wait for the end of the run."""
        return self.settings.enabled and snapshot.usage.tokens >= self._urgent_from(snapshot.window, ctx)

    def _urgent_from(self, window: int, ctx: Context) -> int:
        return urgent_threshold(self.settings.mask, window, ctx.compaction_settings.reserve_tokens)

    def due_from(self, boundary: str, ctx: Context) -> int:
        """Usage below which no batch can be due at a boundary, in tokens."""
        if not self.settings.enabled:
            return sys.maxsize
        window = ctx.snapshot.window
        trigger = thresholds(self.settings.mask, window).trigger
        return max(trigger, self._urgent_from(window, ctx)) if boundary == "turn_end" else trigger

    async def batch(self, snapshot: Snapshot, ctx: Context) -> Boundary | None:
        """The batch that is due, if one is."""
        if not self.settings.enabled:
            return None
        mask = self.settings.mask
        costs = None
        if snapshot.usage.tokens >= thresholds(mask, snapshot.window).trigger:
            await _warm(snapshot, Scan.of(mask))
            costs = costs_of(snapshot, self.settings.pricing, model=ctx.model, now=time.time())
        plan = plan_mask(snapshot, mask, costs=costs, forced=self.is_urgent(snapshot, ctx))
        if plan.thresholds.warning is not None:
            _log.warning("%s", plan.thresholds.warning)
        if not plan.drafts:
            _log.debug("nothing masked: %s", plan.explanation)
            return None
        _log.info("%s", plan.explanation)
        return Boundary(drafts=plan.drafts)

    # Whole stretches -------------------------------------------------------------------------------------------------

    def summarise_if_due(self, event: AgentSettledEvent, ctx: Context) -> None:
        """Asks for a compaction when the context has outgrown its threshold.

        1. Only when idle, and not after a run that the user aborted.
        2. Never twice at the same point of the context, whatever came of it.
        3. After an attempt that came to nothing only when usage has grown by ``summary.retryGrowthTokens`` since.
        """
        if not self.settings.enabled or event.aborted or not ctx.supports("compact") or not ctx.is_idle():
            return
        snapshot = ctx.snapshot
        usage = snapshot.usage.tokens
        if self._failed_at is not None:
            self._failed_at = min(self._failed_at, usage)
            if usage < self._failed_at + self.settings.summary.retryGrowthTokens:
                return
        point = content_point(snapshot)
        if usage < summary_threshold(self.settings.summary, snapshot.window) or point is None or point in self._tried:
            return
        self._tried.add(point)
        self._failed_at = None
        try:
            asked = ctx.compact(only_if_idle=True)
        except ContexthostError as error:
            self._came_to_nothing(usage, error)
            return
        ctx.spawn(self._follow(asked, usage))

    async def _follow(self, asked: Awaitable[Entry], usage: int) -> None:
        try:
            await asked
        except ContexthostError as error:
            self._came_to_nothing(usage, error)  # whoever made it has told the user

    def _came_to_nothing(self, usage: int, error: Exception) -> None:
        _log.info("no summary was made: %s", error)
        self._failed_at = usage

    def context_changed(self) -> None:
        """After a compaction or a move in the tree: what failed before says nothing about the context now."""
        self._failed_at = None

    # What is shown ---------------------------------------------------------------------------------------------------

    def status(self, ctx: Context) -> Status:
        """Where the session stands."""
        return status_of(
            ctx.snapshot,
            self.settings,
            reserve=ctx.compaction_settings.reserve_tokens,
            model=ctx.model,
            now=time.time(),
            compacted_by=self.compacted_by,
        )

    async def show(self, ctx: Context) -> None:
        """Sets the status line; a long context is counted in slices first, so that nothing else waits for it."""
        snapshot = ctx.snapshot
        await _warm(snapshot)
        if snapshot is ctx.snapshot:  # or something came meanwhile that shows it anew
            ctx.ui.set_status(status_line(snapshot))


async def _warm(snapshot: Snapshot, scan: Scan | None = None) -> None:
    """Counts the context, and looks through it for a plan, in slices of 256 entries; what is known costs nothing."""
    for chunk in snapshot.entries.chunks:
        begun = time.perf_counter()
        chunk.once(count_tokens)
        if scan is not None:
            chunk.once(scan)
        if time.perf_counter() - begun > _SLICE_SECONDS:
            await asyncio.sleep(0)


def content_point(snapshot: Snapshot) -> str | None:
    """The last entry that put something before the model: what is added behind it as bookkeeping changes nothing."""
    for position in range(len(snapshot.entries) - 1, -1, -1):
        source = snapshot.entries[position].source
        if source.type in _CONTENT:
            return source.id
    return None
