"""Order among what runs at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from contexthost._budget import TimeBudget

__all__ = ["Lane"]


class Lane:
    """Work that must be done in order: each piece begins when all before it are over, however they ended."""

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None  # done when all that is queued here is over
        self._notices: set[TimeBudget] = set()

    def enter(self, work: Coroutine[Any, Any, Any], *, notice: TimeBudget | None = None) -> asyncio.Task[Any]:
        """Queues a piece of work; ``notice`` is the time of one that nobody waits for."""
        loop = asyncio.get_running_loop()
        before, over = self._last, loop.create_future()
        task = loop.create_task(self._follow(before, work))
        self._last = over

        def ended(_: object) -> None:
            work.close()  # it has not begun, when the task was cancelled right away
            if notice is not None:
                self._notices.discard(notice)
            if before is None or before.done():
                over.set_result(None)
            else:  # cancelled while it was waiting: what comes after it still has to
                before.add_done_callback(lambda _: over.set_result(None))

        if notice is not None:
            self._notices.add(notice)
        task.add_done_callback(ended)
        return task

    def hurry(self, seconds: float) -> None:
        """Somebody waits for what comes next: the notices that are queued here have so many seconds more."""
        for notice in self._notices:
            notice.shorten(seconds)

    def fork(self) -> Lane:
        """Another lane, whose work begins when all that is queued here now is over."""
        made = Lane()
        made._last = self._last
        return made

    async def _follow(self, before: asyncio.Future[None] | None, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            if before is not None and not before.done():
                await asyncio.wait({before})
        except asyncio.CancelledError:
            work.close()
            raise
        return await work
