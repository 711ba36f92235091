"""The life of a compaction: who makes it, whether it may be appended, and what everybody is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from contexthost.compaction import CompactionSettings, Preparation, prepare_compaction, should_compact
from contexthost.context import AbortSignal
from contexthost.errors import CompactionCancelled, CompactionFailed, InvalidDraft, NothingToCompact
from contexthost.events import (
    Cancel,
    CompactionReason,
    CompactionResult,
    SessionBeforeCompactEvent,
    SessionCompactEvent,
    SessionCompactFailedEvent,
)
from contexthost.plugins import PluginFailure
from contexthost.projection import CompactionDraft, context_messages
from contexthost.runtime import BoundaryOutcome, Runtime, compaction_draft
from contexthost.session import Entry

__all__ = ["Lifecycle", "Observer", "Summarize"]

Summarize = Callable[[Preparation, AbortSignal, str | None], Awaitable[CompactionResult]]
"""The built-in summary: preparation, abort signal, the user's instructions → the compaction, or CompactionFailed."""


class Observer(Protocol):
    """Who is told that compactions begin and end, for user interfaces; plugins have hooks."""

    def compaction_started(self, reason: CompactionReason) -> None:
        """One begins."""
        ...

    def compaction_ended(self, reason: CompactionReason, entry: Entry | None, error: str | None) -> None:
        """It was appended (``entry``), failed (``error``) or was cancelled (neither)."""
        ...


class Lifecycle:
    """Runs the compactions of one session, one at a time.

    1. A compaction is appended as a whole or not at all; an abort, a failing or hanging plugin and an unusable
       answer leave the session as it was.
    2. The first plugin that answers makes it; with no answer, the built-in summary does. One that is addressed to a
       plugin is that plugin's alone: if it gives nothing, the compaction fails and nobody else is asked.
    3. Every compaction that began ends in ``session_compact`` with the very entry, or in ``session_compact_failed``.

    Attributes:
        signal: of the compaction that goes on.
        last_plugin: who made the last one; None is the built-in summary.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        settings: CompactionSettings,
        observer: Observer,
        summarize: Summarize | None = None,
    ) -> None:
        self._runtime = runtime
        self._observer = observer
        self.settings = settings
        self.summarize = summarize
        self.signal: AbortSignal | None = None
        self.last_plugin: str | None = None

    @property
    def running(self) -> bool:
        """Whether a compaction is going on."""
        return self.signal is not None

    def over_threshold(self) -> bool:
        """Whether the context has outgrown the window less its reserve."""
        usage = self._runtime.authority.snapshot().usage
        return should_compact(usage.tokens, usage.window, self.settings)

    def prepare(self) -> Preparation | None:
        """What a compaction would summarise and keep now; None when there is nothing to compact."""
        snapshot = self._runtime.authority.snapshot()
        return prepare_compaction(snapshot, snapshot.branch, self.settings, context_messages=context_messages)

    async def compact(
        self,
        reason: CompactionReason,
        *,
        to: str | None = None,
        custom_instructions: str | None = None,
        will_retry: bool = False,
        parent_signal: AbortSignal | None = None,
    ) -> Entry:
        """Makes a compaction and appends it; the entry.

        Args:
            reason: what set it off.
            to: the only plugin that may answer.
            custom_instructions: the user's focus for the summary.
            will_retry: whether the failed request is sent again afterwards.
            parent_signal: an abort of this aborts the compaction too.

        Raises:
            NothingToCompact: everything fits already, or the last entry is a compaction; no hook was called.
            CompactionCancelled: a plugin or an abort stopped it.
            CompactionFailed: nobody could make it, or another one is running.
        """
        if self.signal is not None:
            raise CompactionFailed("a compaction is already running; wait for it or abort it")
        signal = self.signal = AbortSignal()  # set before the first await: nobody else can begin one from here on
        try:
            preparation = self.prepare()
            if preparation is None:
                raise NothingToCompact(
                    "nothing to compact: everything is recent enough to be kept, or the last entry is a compaction"
                )
            unlink = parent_signal.on_abort(lambda: signal.abort("the run was aborted")) if parent_signal else None
            self._observer.compaction_started(reason)
            plugin: str | None = to
            try:
                plugin, draft = await self._make(preparation, signal, reason, to, custom_instructions, will_retry)
                entry = self._append(draft)
            except (CompactionFailed, InvalidDraft) as error:
                await self._failed(reason, error, plugin, will_retry)
                raise
            except asyncio.CancelledError:
                await self._failed(reason, CompactionCancelled("aborted"), plugin, will_retry)
                raise
            finally:
                if unlink is not None:
                    unlink()
            await self._appended(entry, reason, plugin, will_retry)
            return entry
        finally:
            self.signal = None

    async def _make(
        self,
        preparation: Preparation,
        signal: AbortSignal,
        reason: CompactionReason,
        to: str | None,
        custom_instructions: str | None,
        will_retry: bool,
    ) -> tuple[str | None, CompactionDraft]:
        event = SessionBeforeCompactEvent(
            preparation=preparation,
            branch_entries=self._runtime.authority.snapshot().branch,
            reason=reason,
            signal=signal,
            custom_instructions=custom_instructions,
            will_retry=will_retry,
            addressed_to=to,
        )
        failures: list[PluginFailure] = []
        found = await _until_abort(self._runtime.before_compact(event, failures=failures), signal)
        if signal.aborted:
            raise CompactionCancelled("Compaction cancelled")
        if found is not None:
            plugin, answer = found
            if isinstance(answer, Cancel):
                why = f": {answer.reason}" if answer.reason else ""
                raise CompactionCancelled(f"Compaction cancelled by {plugin}{why}")
            return plugin, compaction_draft(answer)
        if to is not None:
            reasons = "; ".join(failure.problem for failure in failures) or "it gave no compaction"
            raise CompactionFailed(f"the compaction was for {to} alone, and {reasons}; nothing was changed")
        if self.summarize is None:
            raise CompactionFailed("no plugin made a compaction and no model is configured for a summary")
        result = await _until_abort(self.summarize(preparation, signal, custom_instructions), signal)
        if signal.aborted or result is None:
            raise CompactionCancelled("Compaction cancelled")
        return None, CompactionDraft(
            summary=result.summary,
            first_kept_entry_id=result.first_kept_entry_id,
            tokens_before=result.tokens_before,
            details=result.details,
            usage=result.usage,
            from_hook=False,
        )

    def _append(self, draft: CompactionDraft) -> Entry:
        self._runtime.authority.commit([draft])
        leaf = self._runtime.session.leaf
        assert leaf is not None  # the entry just appended
        return leaf

    async def commit_boundary(self, outcome: BoundaryOutcome) -> Sequence[Entry]:
        """Appends what plugins drafted at a boundary, as a whole; the entries.

        A compaction among the drafts is announced as any other: ``session_before_compact`` (for its own plugin, with
        the draft; a Cancel takes the draft out), then ``session_compact``.

        Raises:
            InvalidDraft, SessionLocked, SessionWriteError: nothing was appended.
        """
        kept: list[tuple[str, Any]] = []
        for plugin, draft in zip(outcome.proposers, outcome.drafts, strict=True):
            if not isinstance(draft, CompactionDraft) or await self._boundary_compaction_allowed(plugin, draft):
                kept.append((plugin, draft))
        before = len(self._runtime.session.entries)
        self._runtime.authority.commit([draft for _, draft in kept])
        added = self._runtime.session.entries[before:]
        for (plugin, draft), entry in zip(kept, added, strict=False):
            if isinstance(draft, CompactionDraft):
                await self._appended(entry, "threshold", plugin, will_retry=False)
        return added

    async def _boundary_compaction_allowed(self, plugin: str, draft: CompactionDraft) -> bool:
        preparation = self.prepare()
        if preparation is None:
            return True  # nothing to announce: no other compactor could say anything about it
        self._observer.compaction_started("threshold")
        event = SessionBeforeCompactEvent(
            preparation=preparation,
            branch_entries=self._runtime.authority.snapshot().branch,
            reason="threshold",
            signal=AbortSignal(),
            draft=draft,
        )
        found = await self._runtime.before_compact(event)
        if found is None or not isinstance(found[1], Cancel):
            return True
        await self._failed("threshold", CompactionCancelled(found[1].reason), plugin, will_retry=False)
        return False

    async def _appended(self, entry: Entry, reason: CompactionReason, plugin: str | None, will_retry: bool) -> None:
        self.last_plugin = plugin
        event = SessionCompactEvent(
            compaction_entry=entry,
            reason=reason,
            from_extension=plugin is not None,
            will_retry=will_retry,
            plugin=plugin,
        )
        await self._runtime.notify("session_compact", event)
        self._observer.compaction_ended(reason, entry, None)

    async def _failed(
        self, reason: CompactionReason, error: Exception, plugin: str | None, will_retry: bool
    ) -> None:
        aborted = isinstance(error, CompactionCancelled)
        message = None if aborted else str(error)
        event = SessionCompactFailedEvent(
            reason=reason,
            aborted=aborted,
            from_extension=plugin is not None,
            error_message=message,
            will_retry=False,
            plugin=plugin,
        )
        await self._runtime.notify("session_compact_failed", event)
        self._observer.compaction_ended(reason, None, message)

    def abort(self) -> None:
        """Aborts the compaction that is going on, if any."""
        if self.signal is not None:
            self.signal.abort("aborted by the user")


async def _until_abort(work: Awaitable[Any], signal: AbortSignal) -> Any:
    """Awaits work, but no longer than until the abort: a plugin that does not listen to it must not hold it up."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(signal.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        waiting.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
