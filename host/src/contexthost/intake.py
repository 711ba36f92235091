"""How an input gets into a live session: past the plugins, then into a run, a queue, or a plugin's hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from contexthost.activity import PROMPT, Activity, Turn
from contexthost.drivers.live import LiveDriver
from contexthost.events import Handled, Hold, Image, InputEvent
from contexthost.inbox import Inbox, Input, give_back, hold, join
from contexthost.messages import Message
from contexthost.runtime import Runtime
from contexthost.watch import InputQueued, WatchEvent

__all__ = ["Intake", "Prompted", "Source", "Streaming"]

Source: TypeAlias = Literal["interactive", "rpc", "extension"]
Streaming: TypeAlias = Literal["steer", "followUp"] | None


@dataclass(frozen=True, slots=True)
class Prompted:
    """What became of a prompt.

    Attributes:
        disposition: ``started`` a run, ``queued`` for the run or compaction that goes on, ``held`` by a plugin that
            will release it, ``handled`` by a plugin or as a slash command, ``returned`` to the editor (or recorded
            for the session's next start) because its session ended meanwhile.
        text: what a slash command printed.
    """

    disposition: Literal["started", "queued", "held", "handled", "returned"]
    _answer: asyncio.Future[Message | None] | None = None
    text: str | None = None

    async def answer(self) -> Message | None:
        """Waits for the assistant message that answered the prompt; None for one that was not sent."""
        return await asyncio.shield(self._answer) if self._answer is not None else None


class Intake:
    """The inputs of one session, each sent exactly once, given back, or recorded for the next start."""

    def __init__(
        self,
        runtime: Runtime,
        activity: Activity,
        inbox: Inbox,
        driver: LiveDriver,
        emit: Callable[[WatchEvent], None],
    ) -> None:
        self._runtime = runtime
        self._activity = activity
        self._inbox = inbox
        self._driver = driver
        self._emit = emit
        self._lock = asyncio.Lock()
        self._release_asked = False

    async def take(
        self, text: str, images: tuple[Image, ...], source: Source, streaming: Streaming
    ) -> tuple[Input, Prompted]:
        """Takes an input; what became of it.

        Raises:
            SessionBusy: something goes on and ``streaming`` does not say how to queue; nothing was sent.
            Unsupported: there is no model.
        """
        item = Input(text, images, streaming or "followUp")
        if self._activity.deferring:
            return item, self.take_later(item, source, streaming)
        return item, await self._take(item, source, streaming, None)

    def take_later(self, item: Input, source: Source, streaming: Streaming) -> Prompted:
        """Takes an input that was asked for within ``session_start`` or ``agent_settled``: after all handlers, in the
        order asked."""
        turn = self._activity.queue_up(PROMPT)

        async def work() -> None:
            await self._activity.come(turn)
            try:
                await self._take(item, source, streaming, turn)
            except BaseException:
                item.settle(None)
                raise

        self._runtime.spawn("", work())
        return Prompted("queued", item.answer)

    async def _take(self, item: Input, source: Source, streaming: Streaming, turn: Turn | None) -> Prompted:
        """``turn`` is the caller's, if it has one; it is given up here unless a run comes of it."""
        try:
            if turn is None and streaming is None and not self._inbox.held:
                self._activity.require_free()
            async with self._lock:  # inputs pass the plugins one by one, so that their order stays
                if self._activity.ended:  # the session that it was meant for
                    await give_back(self._runtime.session, [item], self._driver.editor)
                    return Prompted("returned", item.answer)
                holding = bool(self._inbox.held)
                if not holding:
                    if turn is None:
                        turn = self._activity.try_turn(PROMPT)
                    if turn is None and streaming is None:
                        self._activity.require_free()
                    self._release_asked = False
                    event = InputEvent(
                        text=item.text,
                        images=item.images,
                        source=source,
                        streaming_behavior=streaming if turn is None else None,
                    )
                    chained = await self._runtime.input(event)
                    item.text, item.images = chained.event.text, chained.event.images
                    ended = chained.ended_by[1] if chained.ended_by is not None else None
                    if isinstance(ended, Handled):
                        item.settle(None)
                        return Prompted("handled")
                    holding = isinstance(ended, Hold)
                return await self._place(item, holding, turn)
        finally:
            if turn is not None and self._activity.has(turn):
                self._activity.release()

    async def _place(self, item: Input, holding: bool, turn: Turn | None) -> Prompted:
        if self._activity.ended:  # while plugins looked at it
            await give_back(self._runtime.session, [item], self._driver.editor)
            return Prompted("returned", item.answer)
        if holding:
            hold(self._runtime.session, item)
            self._inbox.held.append(item)
            self._emit(InputQueued(item.text, held=True))
            if self._release_asked:
                self.release_held()
            return Prompted("held", item.answer)
        if turn is None and self._activity.busy is not None:
            self._inbox.queue(item)
            self._emit(InputQueued(item.text, held=False))
            return Prompted("queued", item.answer)
        self._activity.require_model()
        if self._activity.awaited or (len(self._inbox) and not self._activity.stalled):
            # Plugins asked for something within ``input``, or released what they held: that goes first.
            self._inbox.queue(item)
            if turn is None:
                self._activity.pump()
        else:
            self._activity.begin(item)
        return Prompted("started", item.answer)

    def send(self, items: list[Input]) -> Input | None:
        """Sends inputs that plugins have seen already, as one: now, or when what goes on is over.

        Raises:
            Unsupported: there is no model; nothing was sent.
        """
        if not items or self._activity.ended:
            return None
        self._activity.require_model()
        joined = join(items)
        if self._activity.busy is not None:
            self._inbox.queue(joined)
        else:
            self._activity.begin(joined)
        return joined

    def release_held(self) -> None:
        """Sends everything that is held as one input, exactly once; does nothing when nothing is held. What plugins are
        looking at meanwhile is sent as soon as it is held.

        Raises:
            Unsupported: there is no model; it stays held.
        """
        self._release_asked = not self._inbox.held  # whoever has one held may be done before it is held
        if self._inbox.held and not self._activity.ended:
            self._activity.require_model()
            self.send(self._inbox.take_held())

    async def end(self) -> None:
        """The session ends: what was not sent goes back to the editor, or is recorded for its next start.

        Raises:
            SessionWriteError, SessionLocked: some of it could not be recorded.
        """
        waiting = [*self._inbox.take_held(), *self._inbox.drain()]
        await give_back(self._runtime.session, waiting, self._driver.editor)
