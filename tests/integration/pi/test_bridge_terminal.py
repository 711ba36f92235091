"""Held input in the real Pi at a terminal: with a switch in between it goes back into the editor, and nowhere else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.live_pi import TIMEOUT, PiHome, custom, live_home, read_entries
from support.model_server import say

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[\]_][^\x07\x1b]*(?:\x07|\x1b\\)")


class Terminal:
    """Pi's own user interface on a pseudo-terminal."""

    def __init__(self, home: PiHome) -> None:
        self.raw = b""
        command = home.command("rpc")
        where = command.index("--mode")
        del command[where : where + 2]
        self._fd, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {**home.environment, "TERM": "xterm-256color"}
        self._process = subprocess.Popen(
            command, cwd=home.project, env=environment, stdin=inside, stdout=inside, stderr=inside, process_group=0
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
        if select.select([self._fd], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):  # Pi has ended
                self.raw += os.read(self._fd, 65536)

    @property
    def text(self) -> str:
        """What was written to the screen, without control sequences."""
        return ESCAPES.sub(b"", self.raw).decode(errors="replace")

    def enter(self, line: str) -> None:
        """Types a line; the editor takes a quick burst for a paste, so the return key comes on its own."""
        mark = len(self.raw)
        os.write(self._fd, line.encode())
        self.until(lambda: line[-20:] in ESCAPES.sub(b"", self.raw[mark:]).decode(errors="replace"), f"{line!r} typed")
        os.write(self._fd, b"\r")

    def close(self) -> None:
        """Ends Pi in an orderly way."""
        self._process.terminate()
        end = time.monotonic() + 15
        while self._process.poll() is None:
            if time.monotonic() > end:
                self._process.kill()
            self._read()
        os.close(self._fd)


@contextlib.contextmanager
def terminal(home: PiHome) -> Iterator[Terminal]:
    made = Terminal(home)
    try:
        yield made
    finally:
        made.close()


def test_held_input_goes_back_into_the_editor_when_the_session_is_switched(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(compaction={"keepRecentTokens": 10, "reserveTokens": 16384}, quietStartup=True)
        home.probe(session_before_compact="hang")
        home.install()
        with terminal(home) as pi:
            pi.until(lambda: bool(home.seen("session_start")), "the start")
            for number in (1, 2):
                pi.enter(f"Question {number}. " * 20)
                pi.until(lambda number=number: len(home.seen("agent_settled")) == number, "an answer")  # type: ignore[misc]
            pi.enter("hold: keep me")
            pi.until(lambda: bool(home.seen("session_before_compact")), "the compaction")
            pi.enter("typed meanwhile")
            mark = len(pi.text)
            pi.enter("/new")
            pi.until(lambda: "a held message was not sent: it is in the editor." in pi.text[mark:], "the warning")
            pi.until(lambda: "New session started" in pi.text[mark:], "the new session")
            pi.until(lambda: len(home.seen("session_start")) == 2, "its Python side")
            shown = pi.text[pi.text.index("a held message was not sent") :]
            assert "hold: keep me" in shown
            assert "typed meanwhile" in shown
        assert len(home.server.requests) == 2
        (path,) = home.sessions.rglob("*.jsonl")  # the new session has no message, and so no file
        held, (sent,) = custom(read_entries(path), "contexthost:held"), custom(read_entries(path), "contexthost:sent")
        assert [one["text"] for one in held] == ["hold: keep me", "typed meanwhile"]
        assert sent == {"ids": [one["id"] for one in held], "returned": True}
