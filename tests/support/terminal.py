"""Pi's own user interface on a pseudo-terminal, as in a terminal's window."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest

from support.live_pi import TIMEOUT, PiHome

__all__ = ["Terminal", "terminal"]

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[\]_][^\x07\x1b]*(?:\x07|\x1b\\)")
LOGIN = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes the terminal the one that controls the program, which then gets its signals."""


class Terminal:
    """Pi in a terminal; the leader of a session and of a group of processes, which the Python side is in."""

    def __init__(self, home: PiHome, *arguments: str) -> None:
        self.raw = b""
        command = home.command("rpc", *arguments)
        where = command.index("--mode")
        del command[where : where + 2]
        self._fd, inside = pty.openpty()
        self._open = True
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {**home.environment, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOGIN, *command],
            cwd=home.project,
            env=environment,
            stdin=inside,
            stdout=inside,
            stderr=inside,
        )
        os.close(inside)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Reads the screen until something is so."""
        end = time.monotonic() + TIMEOUT
        while not condition():
            if time.monotonic() > end:
                pytest.fail(f"{what}: not within {TIMEOUT:g} s; the screen ends in {self.text[-1500:]!r}")
            self._read()

    def _read(self) -> None:
        if not self._open:
            time.sleep(0.05)
        elif select.select([self._fd], [], [], 0.05)[0]:
            try:
                self.raw += os.read(self._fd, 65536)
            except OSError:  # Pi has ended
                time.sleep(0.05)

    @property
    def text(self) -> str:
        """What was written to the screen, without control sequences."""
        return ESCAPES.sub(b"", self.raw).decode(errors="replace")

    def press(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self._fd, keys)

    def enter(self, line: str) -> None:
        """Types a line; the editor takes a quick burst for a paste, so the return key comes on its own."""
        mark = len(self.raw)
        self.press(line.encode())
        self.until(lambda: line[-20:] in ESCAPES.sub(b"", self.raw[mark:]).decode(errors="replace"), f"{line!r} typed")
        self.press(b"\r")

    def hang_up(self) -> None:
        """Closes the window."""
        if self._open:
            os.close(self._fd)
        self._open = False

    def ended(self) -> int:
        """Waits for Pi's end; its exit code."""
        self.until(lambda: self.process.poll() is not None, "the end of Pi")
        assert self.process.returncode is not None
        return self.process.returncode

    def close(self) -> None:
        """Ends Pi in an orderly way, if it still runs."""
        self.process.terminate()
        end = time.monotonic() + 15
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
            self._read()
        self.hang_up()


@contextlib.contextmanager
def terminal(home: PiHome, *arguments: str) -> Iterator[Terminal]:
    """Pi in a terminal, ended at the end."""
    made = Terminal(home, *arguments)
    try:
        yield made
    finally:
        made.close()
