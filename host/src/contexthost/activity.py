"""What goes on in a live session: one run, compaction or move at a time, and what waits for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from contexthost.compaction import CompactionSettings, Preparation
from contexthost.context import AbortSignal
from contexthost.errors import CompactionFailed, SessionBusy, Unsupported
from contexthost.events import AgentSettledEvent, CompactionReason, CompactionResult
from contexthost.inbox import Inbox, Input
from contexthost.lifecycle import Lifecycle
from contexthost.loop import AgentRun
from contexthost.models.overflow import is_context_overflow
from contexthost.models.summarizer import summarize
from contexthost.runtime import Runtime
from contexthost.session import Entry
from contexthost.surroundings import Surroundings
from contexthost.watch import CompactionEnded, CompactionStarted, Notified, RunSettled, WatchEvent

__all__ = ["Activity"]


class Activity:
    """Runs, compactions and moves of one session, one at a time.

    1. The busy flag is set before anything is awaited, and cleared on every way out.
    2. What a plugin asks for within ``agent_settled`` happens after all handlers of it, in the order asked.
    3. When nothing goes on any more, queued inputs start the next run.
    """

    def __init__(
        self, runtime: Runtime, surroundings: Surroundings, inbox: Inbox, emit: Callable[[WatchEvent], None]
    ) -> None:
        self._runtime = runtime
        self._surroundings = surroundings
        self._inbox = inbox
        self._emit = emit
        self._idle = asyncio.Event()
        self._idle.set()
        self._deferred: list[Callable[[], Awaitable[None]]] = []
        self._run: AgentRun | None = None
        self._task: asyncio.Task[None] | None = None
        self.busy: str | None = None
        self.settling = False
        self.ended = False
        configured = runtime.settings.values.compaction
        settings = CompactionSettings(
            reserve_tokens=configured.reserveTokens, keep_recent_tokens=configured.keepRecentTokens
        )
        self.lifecycle = Lifecycle(runtime, settings=settings, observer=self, summarize=self._summarize)

    @property
    def idle(self) -> bool:
        """Whether nothing goes on; true within ``agent_settled``."""
        return self.busy is None or self.settling

    @property
    def signal(self) -> AbortSignal | None:
        """Of the compaction or run that goes on."""
        if self.lifecycle.signal is not None:
            return self.lifecycle.signal
        return self._run.signal if self._run is not None else None

    async def wait_idle(self) -> None:
        """Waits until nothing goes on any more."""
        while self.busy is not None:
            await self._idle.wait()

    def occupy(self, what: str | None) -> None:
        """Sets what goes on; None: nothing any more."""
        self.busy = what
        if what is None:
            self._idle.set()
        else:
            self._idle.clear()

    def require_free(self) -> None:
        """Refuses to begin something else.

        Raises:
            SessionBusy: something goes on.
        """
        if self.busy is not None:
            raise SessionBusy(
                f"a {self.busy} is going on: wait for it, abort it, or say how to queue this (streaming_behavior)"
            )

    # Runs ------------------------------------------------------------------------------------------------------------

    def begin(self, item: Input | None) -> None:
        """Starts a run with an input, or from the context as it is.

        Raises:
            SessionBusy: something goes on.
            Unsupported: there is no model.
        """
        self.require_free()
        if self._surroundings.chosen is None:
            raise Unsupported("there is no model to answer: give one to Host.open or set_model")
        self.occupy("run")
        self._run = AgentRun(
            self._runtime,
            self.lifecycle,
            self._inbox,
            self._surroundings,
            is_overflow=is_context_overflow,
            emit=self._emit,
        )
        self._task = asyncio.get_running_loop().create_task(self._drive(self._run, item))

    async def _drive(self, run: AgentRun, item: Input | None) -> None:
        try:
            await run.execute(item)
        finally:
            run.release()
            if item is not None:
                item.settle(None)
            self._run = None
            await self._settle(run.signal.aborted)

    async def _settle(self, aborted: bool) -> None:
        self.settling = True
        try:
            await self._runtime.notify("agent_settled", AgentSettledEvent(aborted=aborted))
        finally:
            self.settling = False
            self.occupy(None)
            self._emit(RunSettled(aborted))
        self.pump()

    async def settled(self, item: Input) -> None:
        """Waits for an input's answer and for the run that gave it to be over; raises what ended that run."""
        task = self._task
        if task is not None:
            await asyncio.shield(task)
        await asyncio.shield(item.answer)

    def pump(self) -> None:
        """Starts what waits, if nothing goes on: first what plugins asked for, then queued inputs."""
        if self.ended or self.busy is not None:
            return
        if self._deferred:
            self._runtime.spawn("", self._do_deferred(self._deferred.pop(0)))
            return
        if self._surroundings.chosen is not None:
            following = self._inbox.next_following()
            if following is not None:
                self.begin(following)

    async def _do_deferred(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self.pump()

    def abort(self) -> None:
        """Aborts the run and the compaction that go on; the session stays valid."""
        self.lifecycle.abort()
        if self._run is not None:
            self._run.signal.abort("aborted by the user")

    # Compactions -----------------------------------------------------------------------------------------------------

    async def compact(self, *, to: str | None, custom_instructions: str | None) -> Entry:
        """A compaction by hand; a run that goes on is aborted first.

        Raises:
            NothingToCompact, CompactionCancelled, CompactionFailed: the session is as it was.
        """
        if self.busy == "run":
            self.abort()
            await self.wait_idle()
        if self.busy is not None:
            raise CompactionFailed(f"a {self.busy} is going on; wait for it or abort it")
        self.occupy("compaction")
        try:
            return await self.lifecycle.compact("manual", to=to, custom_instructions=custom_instructions)
        finally:
            self.occupy(None)
            self.pump()

    def compact_for(
        self, plugin: str, *, only_if_idle: bool, to: str | None, custom_instructions: str | None
    ) -> Awaitable[Entry]:
        """A plugin's request: see `Context.compact`."""
        if only_if_idle and not self.idle:
            raise Unsupported(f"not idle: a {self.busy} is going on")
        result: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        result.add_done_callback(_look_at_exception)

        async def work() -> None:
            try:
                if only_if_idle and not self.idle:  # something else began since it was asked for
                    raise Unsupported(f"not idle: a {self.busy} is going on")
                entry = await self.compact(to=to, custom_instructions=custom_instructions)
            except asyncio.CancelledError:
                result.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - handed on to whoever awaits the request
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(entry)

        if self.settling or self._deferred:
            self._deferred.append(work)
        else:
            self._runtime.spawn(plugin, work())
        return result

    async def _summarize(
        self, preparation: Preparation, signal: AbortSignal, instructions: str | None
    ) -> CompactionResult:
        model = self._surroundings.chosen
        if model is None:
            raise CompactionFailed("no plugin made a compaction and no model is configured for a summary")
        return await summarize(preparation, model, signal, custom_instructions=instructions)

    def compaction_started(self, reason: CompactionReason) -> None:
        """See `contexthost.lifecycle.Observer`."""
        self._emit(CompactionStarted(reason))

    def compaction_ended(self, reason: CompactionReason, entry: Entry | None, error: str | None) -> None:
        """See `contexthost.lifecycle.Observer`."""
        self._emit(CompactionEnded(reason, entry, error))
        if error is not None:
            self._emit(Notified("", f"compaction failed: {error}", "error"))


def _look_at_exception(future: asyncio.Future[Entry]) -> None:
    """A request that nobody awaits must not end in a warning about its exception."""
    if not future.cancelled():
        future.exception()
