"""Progress bars on standard error for work of more than a second, where that is a terminal."""

from __future__ import annotations

import sys
import threading

from contexthost import progress
from contexthost.progress import Stage

__all__ = ["AFTER_SECONDS", "Bars", "show_on_terminal"]

AFTER_SECONDS = 1.0
"""Work that takes no longer shows no bar."""

_REFRESH_SECONDS = 0.1


def show_on_terminal() -> None:
    """Shows long work from now on, if somebody looks at standard error."""
    if sys.stderr.isatty():
        progress.show_on(Bars())


class Bars:
    """Shows one stage at a time: a stage within another has none of its own."""

    def __init__(self) -> None:
        self._shown: tuple[Stage, threading.Event, threading.Thread] | None = None

    def begin(self, stage: Stage) -> None:
        """The bar comes after `AFTER_SECONDS`."""
        if self._shown is not None:
            return
        over = threading.Event()
        thread = threading.Thread(target=_show, args=(stage, over), name="progress", daemon=True)
        self._shown = stage, over, thread
        thread.start()

    def end(self, stage: Stage) -> None:
        """The bar is gone when this returns: what the command prints next must not get into it."""
        if self._shown is None or self._shown[0] is not stage:
            return
        _, over, thread = self._shown
        self._shown = None
        over.set()
        thread.join()


def _show(stage: Stage, over: threading.Event) -> None:
    if over.wait(AFTER_SECONDS):
        return
    from rich.console import Console  # a command that is quick must not wait for it
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(stage.what, total=stage.total)
        while not over.wait(_REFRESH_SECONDS):
            bar.update(task, completed=stage.done(), refresh=True)
