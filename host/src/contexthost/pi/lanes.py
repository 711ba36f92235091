"""Order among what runs at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["Lane"]


class Lane:
    """Work that must be done in order: each piece begins when the one before it is over, however that ended."""

    def __init__(self) -> None:
        self._last: asyncio.Future[Any] | None = None

    def enter(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Queues a piece of work."""
        task = asyncio.get_running_loop().create_task(self._follow(self._last, work))
        self._last = task
        return task

    def fork(self) -> Lane:
        """Another lane, whose work begins when all that is queued here now is over."""
        made = Lane()
        made._last = self._last
        return made

    async def _follow(self, before: asyncio.Future[Any] | None, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            if before is not None and not before.done():
                await asyncio.wait({before})
        except asyncio.CancelledError:
            work.close()
            raise
        return await work
