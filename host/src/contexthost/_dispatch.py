"""Running what plugins bring: any exception caught, awaited within a deadline, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from contexthost._budget import time_budget

GRACE_SECONDS = 1.0
"""How long an implementation may take to end after it was cancelled, at most; then it is abandoned."""


class PastDeadline(Exception):
    """The implementation outlived its deadline and was cancelled."""


class EndedItself(Exception):
    """The implementation was cancelled, but not by us: something that it awaited had been. Or it called `sys.exit`."""


def _exited(error: SystemExit) -> EndedItself:
    """Code that was written for a program of its own, such as a parser of arguments, must not end everybody else's."""
    made = EndedItself(f"it tried to end the program (exit status {error.code})")
    made.__cause__ = error
    return made


class Caught:
    """Catches whatever exception a plugin's code raises in its block, and keeps it as ``error``.

    The one place where any Exception is taken: a plugin is foreign code, and its failure must stay its own.
    SystemExit counts as one; CancelledError and KeyboardInterrupt go on.
    """

    error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self.error = error if isinstance(error, Exception) else None
        if isinstance(error, SystemExit):
            self.error = _exited(error)
        return self.error is not None


@dataclass(frozen=True, slots=True)
class Implementation:
    """One plugin's function for one hook."""

    plugin: str
    hook: str
    function: Callable[..., Any]
    arguments: Sequence[str]


async def call(implementation: Implementation, arguments: dict[str, Any], deadline: float, *, last: bool = True) -> Any:
    """Call an implementation with those of the arguments that it asked for; gives what it returns.

    ``deadline`` is in seconds. Where the dispatch has a `time_budget`, that may set an earlier one, and an earlier one
    still when this is not the ``last`` implementation.

    What it raises comes out, besides PastDeadline and EndedItself. A cancellation of the caller cancels the
    implementation and comes out too. A ``def`` cannot be interrupted: its deadline is not looked at here.
    """
    budget = time_budget.get()
    outside = time_budget.set(None)
    try:
        result = implementation.function(*(arguments[name] for name in implementation.arguments))
        if not inspect.isawaitable(result):
            return result
        # A task of its own, because a deadline around an await only works on code that lets itself be cancelled.
        task = asyncio.ensure_future(_contained(result))
    finally:
        time_budget.reset(outside)
    if inspect.iscoroutine(result):
        task.add_done_callback(lambda _: result.close())  # never begun, when the task was cancelled right away
    began = asyncio.get_running_loop().time()
    limit = asyncio.timeout(deadline)
    try:
        async with limit:
            with budget.ruling(limit, last=last) if budget is not None else contextlib.nullcontext():
                await asyncio.wait({task})
    except TimeoutError:
        if not task.done():
            await _end(task, GRACE_SECONDS if budget is None else min(GRACE_SECONDS, budget.left() / 2))
            raise PastDeadline(f"no answer within {round((limit.when() or began) - began, 2):g} s") from None
    except asyncio.CancelledError:
        await _end(task, GRACE_SECONDS)
        raise
    if task.cancelled():
        raise EndedItself("something that it waited for was cancelled")
    return task.result()


async def _contained(work: Awaitable[Any]) -> Any:
    """asyncio lets SystemExit end its loop, whoever waits for the task: it must not come out of one."""
    try:
        return await work
    except SystemExit as error:
        raise _exited(error) from error


async def _end(task: asyncio.Future[Any], grace: float) -> None:
    task.cancel()
    task.add_done_callback(_take_outcome)
    await asyncio.wait({task}, timeout=grace)


def _take_outcome(task: asyncio.Future[Any]) -> None:
    """Look at the outcome, which nobody wants any more: asyncio complains about exceptions never looked at."""
    if not task.cancelled():
        task.exception()
