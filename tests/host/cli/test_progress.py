"""Progress bars: on a terminal, for work that lasts, gone before anything else is printed; nowhere otherwise."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contexthost import progress
from contexthost.cli.progress import Bars
from contexthost.progress import Stage
from contexthost.session import Session
from support.large import write_large

# What is to be done begins when the bar is there: the thread that shows it may get its turn late.
AT_ONCE = """
import sys, threading
from contexthost import cli
from contexthost.cli import progress
from rich.progress import Progress
progress.AFTER_SECONDS = 0.0
progress._REFRESH_SECONDS = 0.001
shown, update, begin = threading.Event(), Progress.update, progress.Bars.begin
Progress.update = lambda *given, **more: (update(*given, **more), shown.set())
progress.Bars.begin = lambda *given: (begin(*given), shown.wait(60))
cli.main(sys.argv[1:])
"""


def on_a_terminal(*arguments: str) -> tuple[str, str]:
    """A command with standard error on a terminal: what it printed, and what the terminal got."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", AT_ONCE, *arguments], stdout=subprocess.PIPE, stderr=follower, encoding="utf-8"
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(leader)
    printed, _ = process.communicate()
    assert process.returncode == 0, shown
    return printed, shown.decode()


def test_a_bar_is_shown_on_the_terminal_and_taken_away(tmp_path: Path) -> None:
    path = write_large(tmp_path / "large.jsonl", 20_000, result_chars=200)
    printed, shown = on_a_terminal("context", str(path))
    assert "reading the session" in shown
    assert re.search(r"\d+%", shown)
    assert shown.endswith("\x1b[2K")  # the line is empty again
    assert "%" in printed
    assert "\x1b" not in printed


def test_without_a_terminal_there_is_nothing(tmp_path: Path) -> None:
    path = write_large(tmp_path / "large.jsonl", 1_000, result_chars=200)
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, "context", str(path)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


class Seen:
    """A display that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int, int]] = []

    def begin(self, stage: Stage) -> None:
        self.told.append(("begin", stage.what, stage.done(), stage.total))

    def end(self, stage: Stage) -> None:
        self.told.append(("end", stage.what, stage.done(), stage.total))


@pytest.fixture
def seen() -> Iterator[Seen]:
    display = Seen()
    progress.show_on(display)
    yield display
    progress.show_on(None)


def test_reading_tells_how_many_bytes_of_the_file_are_read(tmp_path: Path, seen: Seen) -> None:
    path = write_large(tmp_path / "large.jsonl", 500, result_chars=200)
    size = path.stat().st_size
    Session.open(path).close()
    assert seen.told == [("begin", "reading the session", 0, size), ("end", "reading the session", size, size)]


def test_a_stage_that_fails_ends_and_one_within_another_has_no_bar_of_its_own() -> None:
    bars = Bars()
    outer, inner = Stage("outer", lambda: 0, 1), Stage("inner", lambda: 0, 1)
    bars.begin(outer)
    bars.begin(inner)
    bars.end(inner)
    bars.begin(inner)  # the outer one still has the line
    bars.end(outer)
    bars.end(inner)
    bars.begin(inner)  # nothing is left over
    bars.end(inner)

    progress.show_on(bars)
    try:
        with pytest.raises(ZeroDivisionError), progress.stage("fails", lambda: 0, 1):
            raise ZeroDivisionError
        assert bars._shown is None
    finally:
        progress.show_on(None)
