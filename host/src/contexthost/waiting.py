"""Waiting for work that may be aborted, without being held up by work that does not listen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from contexthost.context import AbortSignal

__all__ = ["ABORT_GRACE_SECONDS", "until_abort"]

T = TypeVar("T")

ABORT_GRACE_SECONDS: Final = 1.0
"""How long aborted work may take to end by itself before it is cancelled, and then to clean up before it is left."""


async def until_abort(work: Awaitable[T], signal: AbortSignal, *, grace_seconds: float = 0.0) -> T | None:
    """What the work gives; None when it was aborted and had not ended after the grace (seconds).

    Work that is no longer waited for is cancelled. What it raises comes out, also when it raises after the abort.
    """
    task = asyncio.ensure_future(work)
    aborted = asyncio.ensure_future(signal.wait())
    try:
        await asyncio.wait({task, aborted}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and grace_seconds > 0:
            await asyncio.wait({task}, timeout=grace_seconds)
        return task.result() if task.done() else None
    finally:
        aborted.cancel()
        if not task.done():
            task.cancel()
            task.add_done_callback(_look_at_outcome)
            await asyncio.wait({task}, timeout=ABORT_GRACE_SECONDS)


def _look_at_outcome(task: asyncio.Future[Any]) -> None:
    """Nobody wants the outcome any more, and asyncio complains about exceptions that are never looked at."""
    if not task.cancelled():
        task.exception()
