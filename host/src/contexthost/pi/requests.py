"""What Pi has asked for and is waiting for."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contexthost._budget import TimeBudget
from contexthost.context import AbortSignal
from contexthost.pi.protocol import Message

__all__ = ["Refused", "Requests", "current_request"]

_ABORT_GRACE: Final = 1.0
"""Seconds that a plugin has to look at its abort signal before its work is cancelled."""

_BOUNDARIES: Final = ("hook/turn_end", "hook/agent_before_settle")


current_request: contextvars.ContextVar[int | str | None] = contextvars.ContextVar("current_request", default=None)
"""The id of the request that the running task works for."""


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Request:
    method: str | None
    task: asyncio.Task[Any]
    signal: AbortSignal
    budget: TimeBudget | None


class Requests:
    """The requests that are being worked on, by their ids."""

    def __init__(self) -> None:
        self._running: dict[int | str, _Request] = {}

    def add(self, message: Message, task: asyncio.Task[Any], signal: AbortSignal, budget: TimeBudget | None) -> None:
        """Keeps a request until `forget`."""
        assert message.id is not None
        self._running[message.id] = _Request(message.method, task, signal, budget)

    def forget(self, number: int | str) -> None:
        """It is answered."""
        self._running.pop(number, None)

    def cancel(self, event: Mapping[str, Any]) -> None:
        """Pi does not wait any more: the user aborted (``kind`` is ``abort``), or it is too late."""
        request = self._running.get(event.get("id", ""))
        if request is None:
            return
        request.signal.abort(str(event.get("reason") or ""))
        if event.get("kind") == "abort":
            asyncio.get_running_loop().call_later(_ABORT_GRACE, request.task.cancel)
        else:
            request.task.cancel()

    def extend(self, number: int | str | None, seconds: float) -> bool:
        """A compaction is made at a boundary, which has so many seconds now; False when this request is none."""
        request = self._running.get(number) if number is not None else None
        if request is None or request.method not in _BOUNDARIES:
            return False
        if request.budget is not None:
            request.budget.extend(seconds)
        return True

    def end(self, *spared: asyncio.Task[Any] | None) -> None:
        """Pi has gone: all are aborted, and cancelled but for those that are spared."""
        for request in list(self._running.values()):
            request.signal.abort("Pi has ended")
            if request.task not in spared:
                request.task.cancel()
