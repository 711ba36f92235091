"""Processes of this suite that tests talk to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self


class Told:
    """A script of this suite, told what to do by lines of JSON and answering by lines of JSON. A context manager.

    An answer is written only when what it says has happened, by one write to a pipe, so that it outlives a kill.
    """

    def __init__(self, script: Path, *arguments: str, environment: Mapping[str, str]) -> None:
        tests = Path(__file__).parents[1]
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": str(tests)},
        )

    def tell(self, **order: Any) -> None:
        """Gives an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order, default=str).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next answer; fails when the process ended without one."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.endswith(b"\n"), f"the process ended: {self._process.wait(10)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
