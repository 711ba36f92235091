"""A session of 1 GB and 500,000 entries: how long it takes to open, project, search and check it, and in which memory.

Each step runs in a process of its own and its figures are printed. What is asserted is that the figures are right, that
nothing is written by looking, that a step after opening costs the same as in a small session, and bounds on time and
memory that leave a slow machine room. It is one test, so that the session is made once, whichever worker gets it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reliability.campaign import Campaign
from support.huge import RARE, Huge, write_huge
from support.large import write_large

ENTRIES = 500_000
RESULT_CHARS = 7_300  # makes 1 GB of it
SPACE = 4 << 30  # bytes that the disk must have free
HYDRATION = 120.0  # seconds until the session is open and projected
COMMAND = 240.0  # seconds for any command
MEMORY = 2.0  # times the file at most: every line stands in memory once, with an index entry of some 600 bytes
STEP = 0.005  # seconds that a step may take besides ten times what it takes in a small session
INTERRUPTED = 10.0  # seconds from Ctrl-C to the end
SCRIPT = Path(__file__).with_name("huge_session.py")


@dataclass(frozen=True)
class Ran:
    """A process that ended: what it printed, and the figures that it gave."""

    status: int
    out: str
    err: str
    figures: dict[str, Any]


@dataclass(frozen=True)
class Place:
    """The session, and where contexthost keeps its own."""

    huge: Huge
    home: Path
    before: tuple[int, int]  # size and time of the last change

    def environment(self) -> dict[str, str]:
        tests = str(Path(__file__).parents[1])
        return {**os.environ, "CONTEXTHOST_HOME": str(self.home), "PYTHONPATH": tests}

    def run(self, *arguments: str) -> Ran:
        command = [sys.executable, str(SCRIPT), *arguments]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=COMMAND, check=False
        )
        *told, last = done.stderr.splitlines() or ["{}"]
        assert last.startswith("{"), done.stderr[-3_000:]
        return Ran(done.returncode, done.stdout, "\n".join(told), json.loads(last))

    def is_untouched(self) -> bool:
        state = self.huge.path.stat()
        return (state.st_size, state.st_mtime_ns) == self.before and len(list(self.huge.path.parent.iterdir())) == 1


@pytest.fixture
def place(tmp_path: Path, campaign: Campaign) -> Iterator[Place]:
    directory = tmp_path / "huge"
    directory.mkdir()
    free = shutil.disk_usage(directory).free
    if free < SPACE:
        pytest.skip(f"{free / 1e9:.1f} GB are free where temporary files go, and this needs {SPACE / 1e9:.1f} GB")
    session = directory / "session"
    session.mkdir()
    started = time.perf_counter()
    huge = write_huge(session / "huge.jsonl", ENTRIES, result_chars=RESULT_CHARS)
    campaign.report(
        f"huge session: {huge.size / 1e6:,.0f} MB, {huge.entries:,} entries, {huge.branch:,} on the branch, made in "
        f"{time.perf_counter() - started:.0f} s"
    )
    state = huge.path.stat()
    yield Place(huge, directory / "home", (state.st_size, state.st_mtime_ns))
    shutil.rmtree(directory)


def times_of_the_file(figures: dict[str, Any], huge: Huge) -> str:
    return f"peak memory {figures['peak'] / 1e6:,.0f} MB, {figures['peak'] / huge.size:.2f} times the file"


COMMANDS = [
    (("context", "FILE", "--json"), "sessionId"),
    (("recall", "FILE", RARE, "--json"), RARE),
    (("status", "FILE"), "checkpoint"),
    (("mask", "FILE", "--dry-run", "--json"), "results"),
    (("relay", "FILE", "--dry-run", "--json"), "note"),
    (("doctor", "FILE"), "Healthy."),
]


def check_command(place: Place, campaign: Campaign, command: tuple[str, ...], says: str) -> None:
    huge = place.huge
    ran = place.run("command", *(part.replace("FILE", str(huge.path)) for part in command))
    assert ran.status == 0, ran.err[-2_000:]
    assert says in ran.out
    if command[0] == "recall":
        assert [hit["entryId"] for hit in json.loads(ran.out)["hits"]] == [huge.rare]
    name = " ".join(part for part in command if part != "FILE")
    campaign.report(f"huge session, `{name}`: {ran.figures['seconds']:.1f} s, {times_of_the_file(ran.figures, huge)}")
    assert place.is_untouched()
    assert ran.figures["peak"] < MEMORY * huge.size


def check_interrupt(place: Place, campaign: Campaign, share: float) -> None:
    """Ctrl-C when a share of the file is read: the command ends at once, and nothing was written."""
    process = subprocess.Popen(
        [sys.executable, "-m", "contexthost", "context", str(place.huge.path)],
        env=place.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until_read(process, round(place.huge.size * share))
        started = time.perf_counter()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=INTERRUPTED)
    finally:
        process.kill()
        process.wait()
    seconds = time.perf_counter() - started
    campaign.report(f"huge session, Ctrl-C when {share:.0%} is read: it ended after {seconds * 1e3:,.0f} ms")
    assert process.returncode == 130
    assert (out, err.decode().strip()) == (b"", "Aborted.")
    assert place.is_untouched()
    assert not [path for path in place.home.rglob("*") if path.is_file()]


def wait_until_read(process: subprocess.Popen[bytes], size: int) -> None:
    """Waits until a process has read so many bytes."""
    counts = Path(f"/proc/{process.pid}/io")
    if not counts.exists():
        pytest.skip("only Linux says how much a process has read")
    while process.poll() is None:
        if int(counts.read_text(encoding="ascii").split()[1]) >= size:
            return
        time.sleep(0.005)
    pytest.fail(f"it ended before it had read {size:,} bytes")


def digest(path: Path, size: int) -> str:
    """SHA-256 of a file's first bytes."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0:
            part = file.read(min(size, 1 << 22))
            made.update(part)
            size -= len(part)
    return made.hexdigest()


def check_going_on(place: Place, campaign: Campaign, tmp_path: Path) -> None:
    """Appends: the counts are right, and what comes after opening costs what it costs anywhere."""
    huge = place.huge
    old = digest(huge.path, huge.size)
    found = place.run("hydrate", str(huge.path)).figures
    small = place.run("hydrate", str(write_large(tmp_path / "small.jsonl", 2_000))).figures
    campaign.report(
        f"huge session, opened in {found['open']:.1f} s, projected in {found['project']:.1f} s, "
        f"{found['tokens']:,} tokens counted in {found['count']:.1f} s: {times_of_the_file(found, huge)} "
        f"(a bare interpreter: {found['bare'] / 1e6:,.0f} MB)"
    )
    ours, theirs = (
        {key: statistics.median(figures[key]) for key in ("appends", "projections")} for figures in (found, small)
    )
    campaign.report(
        f"huge session, going on: an append {ours['appends'] * 1e6:,.0f} µs, a projection after it "
        f"{ours['projections'] * 1e6:,.0f} µs; at 2,000 entries {theirs['appends'] * 1e6:,.0f} µs and "
        f"{theirs['projections'] * 1e6:,.0f} µs"
    )
    assert found["entries"] == huge.entries
    assert found["branch"] == huge.branch
    assert found["leaf"] == huge.leaf
    assert found["shown"] == found["sent"] == huge.shown
    assert found["problems"] == 0
    assert found["open"] + found["project"] < HYDRATION
    assert max(found["peak"], found["peakAfter"]) < MEMORY * huge.size
    for step, seconds in ours.items():
        assert seconds < 10 * theirs[step] + STEP, step
    with huge.path.open("rb") as file:
        file.seek(huge.size)
        added = [json.loads(line) for line in file]
    assert [entry["message"]["content"] for entry in added] == [f"one more {number}" for number in range(20)]
    assert [entry["parentId"] for entry in added] == [huge.leaf, *(entry["id"] for entry in added[:-1])]
    assert added[-1]["id"] == found["appended"]
    assert digest(huge.path, huge.size) == old


def test_a_session_of_a_gigabyte(place: Place, campaign: Campaign, tmp_path: Path) -> None:
    for command, says in COMMANDS:
        check_command(place, campaign, command, says)
    for share in (0.02, 0.5, 0.98):
        check_interrupt(place, campaign, share)
    check_going_on(place, campaign, tmp_path)
