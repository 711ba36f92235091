"""What a live session tells whoever watches it: a user interface, a log, a test. Plugins have hooks instead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from contexthost._dispatch import Caught
from contexthost.context import NotifyLevel
from contexthost.events import CompactionReason
from contexthost.session import Entry

__all__ = [
    "CompactionEnded",
    "CompactionStarted",
    "InputQueued",
    "MessageRecorded",
    "Notified",
    "Retrying",
    "RunSettled",
    "RunStarted",
    "StatusSet",
    "TextArrived",
    "ToolEnded",
    "ToolStarted",
    "WatchEvent",
    "Watchers",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or begins again after a compaction or a continuation."""


@dataclass(frozen=True, slots=True)
class TextArrived:
    """A piece of the answer that is being written."""

    text: str


@dataclass(frozen=True, slots=True)
class MessageRecorded:
    """A message is in the session."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call begins."""

    call_id: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool call has its result."""

    call_id: str
    name: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class InputQueued:
    """An input waits for its turn, or is held by a plugin."""

    text: str
    held: bool


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """A compaction begins."""

    reason: CompactionReason


@dataclass(frozen=True, slots=True)
class CompactionEnded:
    """A compaction was appended (``entry``), failed (``error``) or was cancelled (neither)."""

    reason: CompactionReason
    entry: Entry | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Retrying:
    """A request failed and is sent again after a wait."""

    text: str


@dataclass(frozen=True, slots=True)
class Notified:
    """A plugin, or the host (plugin ""), says something to the user."""

    plugin: str
    message: str
    level: NotifyLevel


@dataclass(frozen=True, slots=True)
class StatusSet:
    """A plugin set or cleared (None) its part of the status line."""

    plugin: str
    text: str | None


@dataclass(frozen=True, slots=True)
class RunSettled:
    """The run is over and the session idle."""

    aborted: bool


WatchEvent: TypeAlias = (
    RunStarted
    | TextArrived
    | MessageRecorded
    | ToolStarted
    | ToolEnded
    | InputQueued
    | CompactionStarted
    | CompactionEnded
    | Retrying
    | Notified
    | StatusSet
    | RunSettled
)


class Watchers:
    """Who is told."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[WatchEvent], None]] = []

    def add(self, callback: Callable[[WatchEvent], None]) -> Callable[[], None]:
        """Calls back at every event, until the returned function is called."""
        self._callbacks.append(callback)

        def stop() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return stop

    def tell(self, event: WatchEvent) -> None:
        """Tells all of them; one that fails is logged and harms neither the session nor the others."""
        for callback in list(self._callbacks):
            with Caught() as caught:
                callback(event)
            if caught.error is not None:
                _log.error("a watcher failed at %s", event, exc_info=caught.error)
