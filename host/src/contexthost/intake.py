"""How an input gets into a live session: past the plugins, then into a run, a queue, or a plugin's hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from contexthost.activity import Activity
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
        self._ended = False

    async def take(
        self, text: str, images: tuple[Image, ...], source: Source, streaming: Streaming
    ) -> tuple[Input, Prompted]:
        """Takes an input; what became of it.

        Raises:
            SessionBusy: something goes on and ``streaming`` does not say how to queue; nothing was sent.
        """
        while self._activity.settling:  # asked for within agent_settled: after all its handlers
            await self._activity.wait_idle()
        if streaming is None and not self._inbox.held:
            self._activity.require_free()
        item = Input(text, images, streaming or "followUp")
        async with self._lock:  # inputs pass the plugins one by one, so that their order stays
            holding = bool(self._inbox.held)
            if not holding:
                event = InputEvent(
                    text=text,
                    images=images,
                    source=source,
                    streaming_behavior=streaming if self._activity.busy is not None else None,
                )
                chained = await self._runtime.input(event)
                item.text, item.images = chained.event.text, chained.event.images
                ended = chained.ended_by[1] if chained.ended_by is not None else None
                if isinstance(ended, Handled):
                    item.settle(None)
                    return item, Prompted("handled")
                holding = isinstance(ended, Hold)
            return item, await self._place(item, holding, streaming)

    async def _place(self, item: Input, holding: bool, streaming: Streaming) -> Prompted:
        if self._ended:  # the session that it was meant for has ended while plugins looked at it
            await give_back(self._runtime.session, [item], self._driver.editor)
            return Prompted("returned", item.answer)
        if holding:
            hold(self._runtime.session, item)
            self._inbox.held.append(item)
            self._emit(InputQueued(item.text, held=True))
            return Prompted("held", item.answer)
        if self._activity.busy is not None:
            if streaming is None:
                self._activity.require_free()
            self._inbox.queue(item)
            self._emit(InputQueued(item.text, held=False))
            return Prompted("queued", item.answer)
        self._activity.begin(item)
        return Prompted("started", item.answer)

    def send(self, items: list[Input]) -> Input | None:
        """Sends inputs that plugins have seen already, as one: now, or when what goes on is over."""
        if not items or self._ended:
            return None
        joined = join(items)
        if self._activity.busy is not None:
            self._inbox.queue(joined)
        else:
            self._activity.begin(joined)
        return joined

    def release_held(self) -> None:
        """Sends everything that is held as one input, exactly once; does nothing when nothing is held."""
        if not self._ended and not self._activity.ended:  # a session that ends begins no run: `end` gives it back
            self.send(self._inbox.take_held())

    async def end(self) -> None:
        """The session ends: what was not sent goes back to the editor, or is recorded for its next start."""
        self._ended = True
        waiting = [*self._inbox.take_held(), *self._inbox.drain()]
        await give_back(self._runtime.session, waiting, self._driver.editor)
