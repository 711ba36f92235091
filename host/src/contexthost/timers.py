"""Timers by wall clock, for what depends on the time outside: a prompt cache that expires, say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["WallTimer"]


class WallTimer:
    """A call by wall clock: a machine that slept fires it on waking, never early by a clock that was set back."""

    _LONGEST_SLEEP = 60.0

    def __init__(self, seconds: float, callback: Callable[[], None], running: set[WallTimer]) -> None:
        self._due = time.time() + seconds
        self._callback = callback
        self._running = running
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to wait."""
        self._running.add(self)
        self._sleep()

    def cancel(self) -> None:
        """Does not call back any more."""
        self._running.discard(self)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _sleep(self) -> None:
        left = min(max(self._due - time.time(), 0.0), self._LONGEST_SLEEP)
        self._handle = asyncio.get_running_loop().call_later(left, self._wake)

    def _wake(self) -> None:
        if time.time() < self._due:
            self._sleep()
            return
        self.cancel()
        self._callback()
