"""Processes that look at fuzzed files side by side, watched from outside: one that hangs is killed and replaced."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.fuzz_writes import small_settings

__all__ = ["HANG", "Answer", "look_at_all"]

HANG: Final = 5.0
"""Seconds that a file may take with everything that is done with it; then its process is killed."""
_START: Final = 60.0
_HUNG: Final = "hung for"
_SCRIPT: Final = Path(__file__).parents[1] / "reliability" / "fuzz_worker.py"
"""What a process runs: it is told numbers and answers by lines of JSON."""


@dataclass(frozen=True)
class Answer:
    """What became of one file: the worker's answer, or, if there was none, why not (hang or death, and where)."""

    number: int
    done: dict[str, Any] | None
    failure: str = ""


class _Worker:
    """One process and its directory."""

    def __init__(self, seed: int, directory: Path, script: Path, hang: float) -> None:
        self._seed = seed
        self._directory = directory
        self._script = script
        self._hang = hang
        directory.mkdir(parents=True)
        small_settings(directory / "home")
        self._errors = directory / "stderr"
        self._start()

    def _start(self) -> None:
        environment = {**os.environ, "CONTEXTHOST_HOME": str(self._directory / "home")}
        environment |= {"PYTHONPATH": str(Path(__file__).parents[1]), "HOME": str(self._directory)}
        command = [sys.executable, str(self._script), str(self._seed), str(self._directory)]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        self._heard = b""
        ready = self._hear(time.monotonic() + _START)
        assert ready == {"ready": True}, f"the worker did not start: {self._errors.read_text()[-2_000:]}"

    def _hear(self, until: float) -> dict[str, Any] | None:
        """The next answer; None at the end of the time, or of the process."""
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return None
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                return None
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def look(self, number: int) -> Answer:
        """Has one file looked at. Where that takes too long it is done once more, since the machine may have been busy
        with something else; a hang hangs again."""
        answer = self._look(number)
        return self._look(number) if answer.failure.startswith(_HUNG) else answer

    def _look(self, number: int) -> Answer:
        """One try; starts another process if this one hangs or dies over it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n".encode())
        self._process.stdin.flush()
        until = time.monotonic() + self._hang
        at = "making the file"
        while (answer := self._hear(until)) is not None:
            if "done" in answer:
                return Answer(number, answer["done"])
            at = answer["begun"]
        hung = time.monotonic() >= until
        self.close()
        how = f"{_HUNG} {self._hang:g} s" if hung else f"died with status {self._process.returncode}"
        where = self._errors.read_text(encoding="utf-8", errors="replace")[-3_000:]
        self._start()
        return Answer(number, None, f"{how} at: {at}\n{where}")

    def close(self) -> None:
        """Ends the process, however it is."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def look_at_all(
    seed: int, numbers: Iterable[int], directory: Path, *, workers: int, script: Path = _SCRIPT, hang: float = HANG
) -> list[Answer]:
    """Looks at the files of a seed with these numbers; the answers, in the order of numbers.

    Args:
        directory: where the processes may write.
        workers: how many there are.
        script: what they run.
        hang: seconds until one is taken to hang.
    """
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        left.put(number)

    def work(place: Path) -> list[Answer]:
        worker = _Worker(seed, place, script, hang)
        found: list[Answer] = []
        try:
            while not left.empty():
                with contextlib.suppress(queue.Empty):  # another has taken the last one meanwhile
                    found.append(worker.look(left.get_nowait()))
        finally:
            worker.close()
        return found

    places = [directory / f"worker-{at}" for at in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        found = [answer for answers in pool.map(work, places) for answer in answers]
    return sorted(found, key=lambda answer: answer.number)
