"""The time that all implementations of a hook have together, where somebody waits for the answer only so long."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
from collections.abc import Iterator
from typing import Final

__all__ = ["TimeBudget", "time_budget"]

_SHARE: Final = 0.75
"""Of what is left, how much one implementation may take while others come after it; the last one may take it all."""

_LEAST_SECONDS: Final = 0.05
"""What each one has in any case: enough for one that does not really wait for anything."""

_MARGIN: Final = 0.1
_LONGEST_MARGIN_SECONDS: Final = 1.0
"""Kept back from the end, for the way of the answer, and for what is cancelled to end."""


class TimeBudget:
    """Ends some seconds from now; without ``seconds`` only when it is made shorter.

    One implementation that hangs must neither take the others' time nor let the whole answer come too late.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._ends = math.inf
        self._limit: asyncio.Timeout | None = None  # of the implementation that is running
        self._longest = math.inf
        self._share = 1.0
        if seconds is not None:
            self.extend(seconds)

    def extend(self, seconds: float) -> None:
        """It has so many seconds from now on, whatever was left of it."""
        self._ends = self._end_of(seconds)
        self._move()

    def shorten(self, seconds: float) -> None:
        """It ends in so many seconds at the latest."""
        self._ends = min(self._ends, self._end_of(seconds))
        if self._limit is not None:
            self._longest = min(self._longest, self._limit.when() or math.inf)
        self._move()

    def left(self) -> float:
        """Seconds until its end, not less than 0."""
        return max(self._ends - asyncio.get_running_loop().time(), 0.0)

    @contextlib.contextmanager
    def ruling(self, limit: asyncio.Timeout, *, last: bool) -> Iterator[None]:
        """Moves a limit that has been entered to what this leaves for the block, but never to later than it is."""
        self._limit = limit
        self._longest = limit.when() or math.inf
        self._share = 1.0 if last else _SHARE
        self._move()
        try:
            yield
        finally:
            self._limit = None

    def _move(self) -> None:
        if self._limit is None or self._limit.expired():
            return
        now = asyncio.get_running_loop().time()
        mine = now + max(self.left() * self._share, _LEAST_SECONDS)
        self._limit.reschedule(min(mine, self._longest))

    def _end_of(self, seconds: float) -> float:
        return asyncio.get_running_loop().time() + seconds - min(seconds * _MARGIN, _LONGEST_MARGIN_SECONDS)


time_budget: contextvars.ContextVar[TimeBudget | None] = contextvars.ContextVar("time_budget", default=None)
"""What the hooks that the running task dispatches have in all. Plugins' own code does not inherit it."""
