"""Every acknowledged append is in the file after the appending process was killed, whenever that was: 200 times by a
`kill -9` from outside at a random moment, 100 times in the middle of its write. 10,000 acknowledged appends in all, of
1 to 5 entries of 100 to 90,000 characters, to files of version 3 and to files that begin as version 1; half of them in
memory where the system has such a file system, for a kill needs no disk and syncing one takes most of the time."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from contexthost.cli.inspect import describe
from contexthost.session import Session
from support.durability import Process, digest, environment, is_whole, old_session
from support.pi import oracle

FILES = 20
KILLS = 10  # from outside, for each file
TEARS = 5  # from inside, for each file
APPENDS = 500  # acknowledged, for each file
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def appender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    home = tmp_path_factory.mktemp("home")
    with environment({"CONTEXTHOST_HOME": str(home)}), Process("appender.py", home) as process:
        yield process


@pytest.fixture
def directory(seed: int, tmp_path: Path) -> Iterator[Path]:
    if seed % 4 < 2 or not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


class Journal:
    """What a session file must hold: what was there before, and what was acknowledged since."""

    def __init__(self, path: Path, version: int) -> None:
        self.path = path
        self.original = old_session(path, version)
        self.version = version
        self.before = [(entry.id, entry.message) for entry in Session.open(path).entries]
        self.seen = self.original
        self.lines: dict[str, str] = {}
        self.appends = 0

    def take(self, answer: dict[str, list[tuple[str, str]]]) -> None:
        self.lines.update(answer["ack"])
        self.appends += 1

    def check(self) -> None:
        data = self.path.read_bytes()
        backup = self.path.with_name(f"{self.path.name}.v1.bak")
        if self.version == 1 and self.seen == self.original and data != self.original:
            assert backup.read_bytes() == self.original  # migrated since the last look; from here on it only grows
        else:
            assert data.startswith(self.seen)
        self.seen = data

        session = Session.open(self.path)
        count = len(self.before)
        assert [(entry.id, entry.message) for entry in session.entries[:count]] == self.before
        added = session.entries[count:]
        assert all(is_whole(entry) for entry in added)
        assert max(Counter(entry.id for entry in session.entries).values()) == 1
        found = {entry.id: digest(entry.raw) for entry in added}
        assert {entry_id: found.get(entry_id) for entry_id in self.lines} == self.lines
        # One branch, in the order of the acknowledgements: each process went on where the last one ended.
        assert [entry.id for entry in session.branch()] == [entry.id for entry in session.entries]
        in_order = [entry.id for entry in added if entry.id in self.lines]
        assert in_order == list(self.lines)
        assert {problem.kind for problem in session.problems} <= {"malformed-line", "torn-line"}


def shares(total: int, parts: int, draw: random.Random) -> list[int]:
    cuts = sorted(draw.sample(range(1, total), parts - 1))
    return [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]


def test_the_numbers_are_those_that_are_promised() -> None:
    assert FILES * KILLS >= 200
    assert FILES * APPENDS >= 10_000


@pytest.mark.parametrize("seed", range(FILES))
def test_a_killed_process_loses_nothing_that_it_acknowledged(appender: Process, directory: Path, seed: int) -> None:
    draw = random.Random(seed)
    journal = Journal(directory / "session.jsonl", 3 if seed % 2 else 1)
    torn_at = set(draw.sample(range(KILLS), TEARS))
    for round_, goal in enumerate(shares(APPENDS, KILLS, draw)):
        if round_ in torn_at:
            appender.tell(path=journal.path, seed=draw.random(), appends=1000, tear=draw.randint(0, 3))
            for answer in appender.answers():
                if "ack" in answer:
                    journal.take(answer)
            assert answer == {"ended": -signal.SIGKILL}
            journal.check()
        appender.tell(path=journal.path, seed=draw.random(), appends=1000)
        kill_at = journal.appends + goal
        pid = appender.hear()["pid"]
        for answer in appender.answers():
            if "ack" in answer:
                journal.take(answer)
                if journal.appends == kill_at:
                    time.sleep(draw.random() * 0.005)
                    os.kill(pid, signal.SIGKILL)
        assert answer == {"ended": -signal.SIGKILL}
        journal.check()
    assert journal.appends >= APPENDS

    if seed < 4:  # the real Pi reads the file alike; asking it takes a second
        [line] = oracle([journal.path])
        ours = describe(journal.path)
        for key in ("entries", "contextPositions", "estimatedTokens", "serializedDigest"):
            assert line[key] == ours[key]
