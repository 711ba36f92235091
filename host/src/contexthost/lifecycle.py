"""The life of a compaction: who makes it, whether it may be appended, and what everybody is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from contexthost._dispatch import Caught
from contexthost.compaction import (
    CompactionSettings,
    Preparation,
    drafted_preparation,
    prepare_compaction,
    should_compact,
)
from contexthost.context import AbortSignal
from contexthost.errors import (
    NOBODY_COMPACTS,
    CompactionCancelled,
    CompactionFailed,
    ContexthostError,
    InvalidDraft,
    NothingToCompact,
    SessionFormatError,
)
from contexthost.events import (
    Cancel,
    CompactionReason,
    CompactionResult,
    SessionBeforeCompactEvent,
    SessionCompactEvent,
    SessionCompactFailedEvent,
)
from contexthost.plugins import PluginFailure
from contexthost.projection import CompactionDraft, Draft, context_messages
from contexthost.runtime import BoundaryOutcome, Runtime, compaction_draft
from contexthost.session import Entry
from contexthost.waiting import until_abort

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

    def compaction_cancelled(self, plugin: str, why: str) -> None:
        """A plugin cancelled it, and says why; `compaction_ended` follows."""
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
            SessionWriteError, SessionLocked, SessionChanged: it could not be written.
        """
        with self._begun(parent_signal) as signal:
            preparation = self.prepare()
            if preparation is None:
                raise NothingToCompact(
                    "nothing to compact: everything is recent enough to be kept, or the last entry is a compaction"
                )
            event = SessionBeforeCompactEvent(
                preparation=preparation,
                branch_entries=self._runtime.authority.snapshot().branch,
                reason=reason,
                signal=signal,
                custom_instructions=custom_instructions,
                will_retry=will_retry,
                addressed_to=to,
            )
            self._observer.compaction_started(reason)
            plugin: str | None = to
            try:
                with _told_as_failure():
                    plugin, draft = await self._make(event)
                    entry = self._append(draft)
            except (ContexthostError, asyncio.CancelledError) as error:
                await self._failed(reason, error, plugin)
                raise
            await self._appended(entry, reason, plugin, will_retry)
            return entry

    @contextlib.contextmanager
    def _begun(self, parent: AbortSignal | None) -> Iterator[AbortSignal]:
        """Marks a compaction as running: from before the first await, so that nobody else can begin one."""
        if self.signal is not None:
            raise CompactionFailed("a compaction is already running; wait for it or abort it")
        signal = self.signal = AbortSignal()
        unlink = parent.on_abort(lambda: signal.abort("the run was aborted")) if parent is not None else None
        try:
            yield signal
        finally:
            self.signal = None
            if unlink is not None:
                unlink()

    async def _make(self, event: SessionBeforeCompactEvent) -> tuple[str | None, CompactionDraft]:
        """Who made it (None: the built-in summary), and what is to be appended."""
        signal, to = event.signal, event.addressed_to
        failures: list[PluginFailure] = []
        found = await until_abort(self._runtime.before_compact(event, failures=failures), signal)
        if signal.aborted:
            raise CompactionCancelled("Compaction cancelled")
        if found is not None:
            plugin, answer = found
            if isinstance(answer, Cancel):
                raise self._cancelled_by(plugin, answer)
            return plugin, compaction_draft(answer)
        if to is not None:
            reasons = "; ".join(failure.problem for failure in failures) or "it gave no compaction"
            raise CompactionFailed(f"the compaction was for {to} alone, and {reasons}; nothing was changed")
        if self.summarize is None:
            raise CompactionFailed(NOBODY_COMPACTS)
        result = await until_abort(self.summarize(event.preparation, signal, event.custom_instructions), signal)
        if signal.aborted or result is None:
            raise CompactionCancelled("Compaction cancelled")
        return None, replace(compaction_draft(result), from_hook=False)

    def _cancelled_by(self, plugin: str, answer: Cancel) -> CompactionCancelled:
        if answer.reason:
            self._observer.compaction_cancelled(plugin, answer.reason)
        why = f": {answer.reason}" if answer.reason else ""
        return CompactionCancelled(f"Compaction cancelled by {plugin}{why}")

    def _append(self, draft: CompactionDraft) -> Entry:
        self._runtime.authority.commit([draft])
        leaf = self._runtime.session.leaf
        assert leaf is not None  # the entry just appended
        return leaf

    # Compactions that plugins drafted at a boundary ------------------------------------------------------------------

    async def commit_boundary(self, outcome: BoundaryOutcome, parent_signal: AbortSignal) -> Sequence[Entry]:
        """Appends what plugins drafted at a boundary, as a whole; the entries.

        A compaction among the drafts is announced as any other: ``session_before_compact`` with the draft (a Cancel
        takes it out), then ``session_compact``. Drafts that can no longer be appended are dropped, all of them, and
        that is told.

        Raises:
            SessionLocked, SessionWriteError, SessionChanged: nothing was appended.
        """
        if not outcome.drafts:
            return ()
        drafted = zip(outcome.proposers, outcome.drafts, strict=True)
        if not any(isinstance(draft, CompactionDraft) for draft in outcome.drafts):
            return await self._commit(list(drafted))
        with self._begun(parent_signal) as signal:
            kept: list[tuple[str, Draft]] = []
            for plugin, draft in drafted:
                if not isinstance(draft, CompactionDraft) or await self._may_append(plugin, draft, signal):
                    kept.append((plugin, draft))
            return await self._commit(kept)

    async def _commit(self, kept: Sequence[tuple[str, Draft]]) -> Sequence[Entry]:
        if not kept:
            return ()
        try:
            self._runtime.authority.commit([draft for _, draft in kept])
        except ContexthostError as error:
            for plugin, draft in kept:
                if isinstance(draft, CompactionDraft):
                    await self._failed("threshold", error, plugin)
            if not isinstance(error, (InvalidDraft, SessionFormatError)):
                raise
            self._runtime.driver.ui("").notify(f"what plugins drafted was dropped: {error}", "error")
            return ()
        added = self._runtime.session.entries[-len(kept) :]
        for (plugin, draft), entry in zip(kept, added, strict=True):
            if isinstance(draft, CompactionDraft):
                await self._appended(entry, "threshold", plugin, will_retry=False)
        return added

    async def _may_append(self, plugin: str, draft: CompactionDraft, signal: AbortSignal) -> bool:
        self._observer.compaction_started("threshold")
        snapshot = self._runtime.authority.snapshot()
        branch = snapshot.branch
        event = SessionBeforeCompactEvent(
            preparation=drafted_preparation(snapshot, branch, draft.first_kept_entry_id, self.settings),
            branch_entries=branch,
            reason="threshold",
            signal=signal,
            draft=draft,
        )
        cancel = await until_abort(self._runtime.draft_cancelled(event), signal)
        if cancel is not None:
            error = self._cancelled_by(*cancel)
        elif signal.aborted:
            error = CompactionCancelled("Compaction cancelled")
        else:
            return True
        await self._failed("threshold", error, plugin)
        return False

    # What everybody is told ------------------------------------------------------------------------------------------

    async def gave_up(self, reason: CompactionReason, message: str) -> None:
        """Tells that a compaction that was called for is not tried."""
        await self._failed(reason, CompactionFailed(message), None)

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

    async def _failed(self, reason: CompactionReason, error: BaseException, plugin: str | None) -> None:
        aborted = isinstance(error, (CompactionCancelled, asyncio.CancelledError))
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


@contextlib.contextmanager
def _told_as_failure() -> Iterator[None]:
    """Whatever else goes wrong in making a compaction, in a model say, is its failure and nobody else's."""
    with Caught() as caught:
        yield
    if isinstance(caught.error, ContexthostError):
        raise caught.error
    if caught.error is not None:
        raise CompactionFailed(f"{type(caught.error).__name__}: {caught.error}") from caught.error
