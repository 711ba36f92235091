"""What goes on in a live session: one run, compaction or move at a time, and who comes next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from contexthost.compaction import Preparation
from contexthost.context import AbortSignal
from contexthost.errors import NOBODY_COMPACTS, CompactionCancelled, CompactionFailed, SessionBusy, Unsupported
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

__all__ = ["COMPACTION", "PROMPT", "RUN", "START", "Activity", "Turn"]

PROMPT: Final = "prompt"
"""An input is with the plugins; the session still counts as idle, as in Pi, but nothing else begins."""
START: Final = "start of the session"
RUN: Final = "run"
COMPACTION: Final = "compaction"


@dataclass(eq=False, slots=True)
class Turn:
    """A place in the line of those who want the session for themselves; ``come`` is resolved when it is theirs."""

    what: str
    come: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Activity:
    """Runs, compactions and moves of one session, one at a time.

    1. Who begins something has its turn before anything is awaited, and gives it up on every way out.
    2. A turn that is given up goes to who waits for one, in order, then to a queued input; nobody gets between.
    3. What is asked for within ``session_start`` and ``agent_settled`` waits in that line, and so comes after all
       handlers of it.
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
        self._turn: Turn | None = None
        self._line: deque[Turn] = deque()
        self._run: AgentRun | None = None
        self._runs = 0
        self.stalled = False  # a run could not be written; queued inputs would only fail in the same way
        self.settling = False
        self.ended = False
        self.lifecycle = Lifecycle(runtime, settings=runtime.compaction, observer=self, summarize=self._summarize)

    # Whose turn it is ------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> str | None:
        """What goes on; None: nothing."""
        return self._turn.what if self._turn is not None else None

    @property
    def idle(self) -> bool:
        """Whether no run, compaction, move or switch goes on; true within ``input`` and ``agent_settled``."""
        return self.busy in (None, PROMPT) or self.settling

    @property
    def deferring(self) -> bool:
        """Whether inputs wait until all plugins have seen ``session_start`` or ``agent_settled``."""
        return self.settling or self.busy == START

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._line)

    @property
    def signal(self) -> AbortSignal | None:
        """Of the compaction or run that goes on."""
        if self.lifecycle.signal is not None:
            return self.lifecycle.signal
        return self._run.signal if self._run is not None else None

    async def wait_idle(self) -> None:
        """Waits until nothing goes on any more."""
        while self._turn is not None:
            await self._idle.wait()

    def require_free(self) -> None:
        """Refuses to begin something else.

        Raises:
            SessionBusy: something goes on.
        """
        if self.busy is not None:
            raise SessionBusy(
                f"a {self.busy} is going on: wait for it, abort it, or say how to queue this (streaming_behavior)"
            )

    def require_model(self) -> None:
        """Refuses to begin a run that nobody could answer.

        Raises:
            Unsupported: there is no model.
        """
        if self._surroundings.chosen is None:
            raise Unsupported("there is no model to answer: give one to Host.open or set_model")

    def try_turn(self, what: str) -> Turn | None:
        """Takes the session if it is free."""
        if self._turn is not None:
            return None
        turn = Turn(what)
        self._give(turn)
        return turn

    def queue_up(self, what: str) -> Turn:
        """Takes the session as soon as it is free: at once, or after those who wait already. To be `come` for."""
        turn = Turn(what)
        if self._turn is None:
            self._give(turn)
        else:
            self._line.append(turn)
        return turn

    async def come(self, turn: Turn) -> None:
        """Waits for a turn."""
        try:
            await turn.come
        except asyncio.CancelledError:
            if self.has(turn):  # it came, and nobody is there any more
                self.release()
            raise

    def has(self, turn: Turn) -> bool:
        """Whether it is that turn now."""
        return self._turn is turn

    def _give(self, turn: Turn) -> None:
        self._turn = turn
        self._idle.clear()
        turn.come.set_result(None)

    def release(self) -> None:
        """Gives the turn up: to the next in line, then to a queued input."""
        self._turn = None
        while self._line:
            turn = self._line.popleft()
            if not turn.come.cancelled():
                self._give(turn)
                return
        if not self.ended and not self.stalled and self._surroundings.chosen is not None:
            following = self._inbox.next_following()
            if following is not None:
                self._start(following, queued=True)
                return
        self._idle.set()

    def pump(self) -> None:
        """Starts what is queued, if nothing goes on."""
        if self._turn is None:
            self.release()

    # Runs ------------------------------------------------------------------------------------------------------------

    def begin(self, item: Input) -> None:
        """Starts a run with an input. The caller has the turn, or nobody has.

        Raises:
            Unsupported: there is no model.
        """
        self.require_model()
        self.stalled = False
        self._start(item, queued=False)

    def _start(self, item: Input, *, queued: bool) -> None:
        self._give(Turn(RUN))
        self._runs += 1
        self._run = AgentRun(
            self._runtime,
            self.lifecycle,
            self._inbox,
            self._surroundings,
            is_overflow=is_context_overflow,
            emit=self._emit,
        )
        item.run = asyncio.get_running_loop().create_task(self._drive(self._run, item, queued))
        item.run.add_done_callback(_look_at_exception)

    async def _drive(self, run: AgentRun, item: Input, queued: bool) -> None:
        try:
            await run.execute(item)
        except Exception as error:
            self.stalled = True
            self._emit(Notified("", f"the run ended early: {error}", "error"))
            raise
        finally:
            if queued and not item.sent:
                self._inbox.put_back(item)
            else:
                item.settle(None)
            self._run = None
            await self._settle(run.signal.aborted)

    async def _settle(self, aborted: bool) -> None:
        self.settling = True
        try:
            await self._runtime.notify("agent_settled", AgentSettledEvent(aborted=aborted))
            self._emit(RunSettled(aborted))
        finally:
            self.settling = False
            self.release()

    async def settled(self, item: Input) -> None:
        """Waits for an input's answer and, if it began a run, for its end; raises what ended that run."""
        await asyncio.shield(item.answer)
        if item.run is not None:
            await asyncio.shield(item.run)

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
        return await self._compact(self._line_up_compaction(), to, custom_instructions)

    def compact_for(
        self, plugin: str, *, only_if_idle: bool, to: str | None, custom_instructions: str | None
    ) -> Awaitable[Entry]:
        """A plugin's request: see `Context.compact`."""
        result: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        result.add_done_callback(_look_at_exception)
        try:
            if only_if_idle and not self.idle:
                raise Unsupported(f"not idle: a {self.busy} is going on")
            turn = self._line_up_compaction()
        except (Unsupported, CompactionFailed) as error:
            result.set_exception(error)
            return result
        runs = self._runs if only_if_idle else None

        async def work() -> None:
            try:
                entry = await self._compact(turn, to, custom_instructions, runs)
            except asyncio.CancelledError:
                result.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - handed on to whoever awaits the request
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(entry)

        self._runtime.spawn(plugin, work())
        return result

    def _line_up_compaction(self) -> Turn:
        if self.ended:
            raise CompactionFailed("the session is ending")
        if self.busy == COMPACTION:
            raise CompactionFailed("a compaction is already running; wait for it or abort it")
        if self.busy == RUN and not self.settling:
            self.abort()
        return self.queue_up(COMPACTION)

    async def _compact(self, turn: Turn, to: str | None, instructions: str | None, runs: int | None = None) -> Entry:
        """``runs``: refuse if there have been more runs by the time it is its turn."""
        await self.come(turn)
        try:
            if self.ended:
                raise CompactionCancelled("the session has ended")
            if runs is not None and runs != self._runs:
                raise Unsupported("not idle: a run began before the compaction could")
            return await self.lifecycle.compact("manual", to=to, custom_instructions=instructions)
        finally:
            self.release()

    async def _summarize(
        self, preparation: Preparation, signal: AbortSignal, instructions: str | None
    ) -> CompactionResult:
        model = self._surroundings.chosen
        if model is None:
            raise CompactionFailed(NOBODY_COMPACTS)
        level = self._surroundings.thinking_level
        return await summarize(preparation, model, signal, custom_instructions=instructions, thinking_level=level)

    def compaction_started(self, reason: CompactionReason) -> None:
        """See `contexthost.lifecycle.Observer`."""
        self._emit(CompactionStarted(reason))

    def compaction_ended(self, reason: CompactionReason, entry: Entry | None, error: str | None) -> None:
        """See `contexthost.lifecycle.Observer`."""
        self._emit(CompactionEnded(reason, entry, error))
        if error is not None:
            self._emit(Notified("", f"compaction failed: {error}", "error"))

    def compaction_cancelled(self, plugin: str, why: str) -> None:
        """See `contexthost.lifecycle.Observer`."""
        self._emit(Notified(plugin, f"compaction cancelled: {why}", "info"))


def _look_at_exception(future: asyncio.Future[Entry] | asyncio.Task[None]) -> None:
    """A request or run that nobody awaits must not end in a warning about its exception."""
    if not future.cancelled():
        future.exception()
