"""The process that runs commands and gets in their way (`runner.py`), as tests use it, and directories to work in."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.processes import Told

__all__ = ["NOBODY", "Outcome", "Place", "Runner"]

NOBODY: Final = 65534
"""The user "nobody" of Linux distributions; any number without rights will do."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended: the exit status (negative: the signal), what it printed, and how long it took (seconds).

    ``lines`` is how many lines ran in the watched functions and ``passed`` which of them ran; a killed command does not
    tell.
    """

    ended: int
    output: str
    errors: str
    seconds: float
    lines: int = 0
    passed: frozenset[str] = frozenset()

    @property
    def killed(self) -> bool:
        return self.ended in (-signal.SIGKILL, -signal.SIGXFSZ)


@dataclass(frozen=True)
class Place:
    """The directories of one run: contexthost's own four, Pi's, and one to work in."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def agent(self) -> Path:
        return self.root / "agent"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def relay_data(self) -> Path:
        return self.home / "data" / "plugins" / "relay"

    def files(self) -> dict[str, bytes]:
        """Every file but those of the locks: its name from `root` → its bytes."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_file() and not name.startswith("home/state/locks/"):
                found[name] = path.read_bytes()
        return found

    def again(self, root: Path) -> Place:
        """A copy of it."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return Place(root)

    def for_everybody(self) -> None:
        """Gives all of it to nobody, so that it may be used by a process that has become that user."""
        if os.getuid() == 0:
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, NOBODY, NOBODY)


class Runner(Told):
    """One such process; commands run one after another."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PI_", "CONTEXTHOST_"))}
        environment = {**kept, "OPENAI_API_KEY": "x", "NO_COLOR": "1", "COLUMNS": "200"}
        super().__init__(Path(__file__).with_name("runner.py"), str(directory), environment=environment)
        self.hear()

    def run(self, place: Place, arguments: Sequence[str | Path], **order: Any) -> Outcome:
        """Runs a command to its end, or until it is killed; for what may be ordered see `runner.py`."""
        places = {"home": str(place.home), "agent": str(place.agent), "cwd": str(place.work)}
        started = time.monotonic()
        self.tell(arguments=[str(one) for one in arguments], **places, **order)
        answer = self.hear()
        passed = frozenset(answer.pop("passed", ()))
        return Outcome(seconds=time.monotonic() - started, passed=passed, **answer)
