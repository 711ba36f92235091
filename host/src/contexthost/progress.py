"""How far long work is, for whoever shows it. Without anybody to show it, it costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Display", "Stage", "show_on", "stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A piece of work: what it is, how much of it is done (asked for whenever it is shown), and how much there is."""

    what: str
    done: Callable[[], int]
    total: int


class Display(Protocol):
    """Who shows stages. Both calls come from the working thread; a stage that has ended must be off the screen."""

    def begin(self, stage: Stage) -> None: ...

    def end(self, stage: Stage) -> None: ...


_display: Display | None = None


def show_on(display: Display | None) -> None:
    """Has all stages of this process shown there, or nowhere (the default)."""
    global _display
    _display = display


@contextmanager
def stage(what: str, done: Callable[[], int], total: int) -> Iterator[None]:
    """While the body runs: one stage of the work; ``done`` is called from another thread and must be cheap."""
    display = _display
    if display is None:
        yield
        return
    begun = Stage(what, done, total)
    display.begin(begun)
    try:
        yield
    finally:
        display.end(begun)
