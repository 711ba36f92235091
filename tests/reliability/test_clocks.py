"""Clocks that jump and processes that are suspended. Every writing command works a day back, a year ahead, in 1970 and
after 2038, and what it wrote is in order whatever the clock said; a suspended writer keeps its lock and nothing more; a
relay before the prompt cache expires is made after a short suspend, and not after one that the cache did not outlive.

The time of day is shifted inside the command (`runner.shift_clock`); suspends are real (SIGSTOP, SIGCONT)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contexthost.cli.inspect import describe
from contexthost.diagnosis import examine
from contexthost.errors import SessionLocked
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from reliability.campaign import Campaign
from reliability.operations import OPERATIONS, Operation, check_place, litter, made_ready
from reliability.running import Runner
from reliability.sleeper import LIFETIME, MARGIN
from support.builder import SessionBuilder
from support.durability import Process, acknowledged, digest, numbered
from support.pi import oracle
from support.relay_live import history_file

DAY = 86_400.0


def to(year: int) -> float:
    """Seconds from now to a year's 2nd of January."""
    return datetime(year, 1, 2, tzinfo=UTC).timestamp() - time.time()


CLOCKS: dict[str, Callable[[], float]] = {
    "a day back": lambda: -DAY,
    "a year ahead": lambda: 365 * DAY,
    "1970": lambda: to(1970),
    "2039": lambda: to(2039),
    "2107": lambda: to(2107),
}
SOME = 1
"""How many of these are tried with each command, in the default time."""


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_command_works_whatever_the_clock_says(
    runner: Runner, url: str, tmp_path: Path, campaign: Campaign, operation: Operation
) -> None:
    draw = campaign.draw(f"clocks, {operation.name}")
    ready = made_ready(operation, tmp_path / "ready")
    before = ready.files()
    whole = ready.again(tmp_path / "whole")
    assert runner.run(whole, operation.command(url), stdin=operation.stdin).ended == 0
    after = whole.files()
    names = draw.sample(list(CLOCKS), min(campaign.rounds(SOME), len(CLOCKS)))
    for number, name in enumerate(names):
        place = ready.again(tmp_path / str(number))
        outcome = runner.run(place, operation.command(url), stdin=operation.stdin, clock=CLOCKS[name]())
        assert outcome.ended == 0, (name, outcome)
        assert "Traceback" not in outcome.errors
        check_place(operation, place, before, after)
        assert litter(place) == []
        assert set(place.files()) == set(after)
        check_stamps(place.root / operation.session, before.get(operation.session, b""), CLOCKS[name]())
        again = runner.run(place, operation.command(url), stdin=operation.stdin)  # the clock is right again
        assert again.ended == 0 or (operation.done and operation.done in again.errors), (name, again)
        check_place(operation, place, before, after)
    campaign.report(f"clocks, {operation.name}: done at {', '.join(names)}, and again at the right time")


def check_stamps(path: Path, before: bytes, shift: float) -> None:
    """The new entries say the time that the clock said, in Pi's form."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[max(before.count(b"\n"), 1) : -1]:
        stamp = json.loads(line)["timestamp"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
        assert abs(datetime.fromisoformat(stamp).timestamp() - time.time() - shift) < 60


def test_a_session_written_while_the_clock_jumps_is_in_the_order_of_writing(
    runner: Runner, url: str, tmp_path: Path, campaign: Campaign
) -> None:
    draw = campaign.draw("jumps")
    place = made_ready(OPERATIONS[0], tmp_path / "place")
    path = place.work / "s.jsonl"
    chat = next(operation for operation in OPERATIONS if operation.name == "chat that goes on")
    commands = [chat, chat, OPERATIONS[0], chat, next(one for one in OPERATIONS if one.name == "relay"), chat]
    ids: list[str] = []
    for number, operation in enumerate(commands):
        clock = CLOCKS[draw.choice(list(CLOCKS))]()
        content = path.read_bytes()
        outcome = runner.run(place, operation.command(url), stdin=f"Request {number}.\n", clock=clock)
        assert outcome.ended == 0, outcome
        assert path.read_bytes().startswith(content)
        session = Session.open(path)
        assert [entry.id for entry in session.entries][: len(ids)] == ids
        ids = [entry.id for entry in session.entries]
        assert [entry.id for entry in session.branch()] == ids
        assert len(set(ids)) == len(ids)
        assert session.problems == []
    assert examine(ProjectionAuthority(session)).problems == []
    assert len(ids) > 50
    stamps = [entry.timestamp for entry in session.entries]
    assert stamps != sorted(stamps)
    [line] = oracle([path])  # the real Pi takes it as we do
    ours = describe(path)
    for key in ("entries", "contextPositions", "estimatedTokens", "serializedDigest"):
        assert line[key] == ours[key], key


def test_a_suspended_writer_keeps_its_lock_and_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("CONTEXTHOST_HOME", str(home))
    build = SessionBuilder()
    build.user("0 11 the start")
    path = build.write(tmp_path / "s.jsonl")
    with Process("appender.py", home) as holder:
        holder.tell(path=path, seed=0, appends=1_000, hold=True, owner="a suspended writer")
        pid = holder.hear()["pid"]
        os.kill(pid, signal.SIGSTOP)  # its answers fill the pipe before it is done, so it is still there
        try:
            wait_stopped(pid)
            seen = path.read_bytes()
            session = Session.open(path)
            for _ in range(3):
                with pytest.raises(SessionLocked, match=rf"a suspended writer \(process {pid}\)"):
                    session.append([numbered(0, 100)])
                time.sleep(0.3)
            assert path.read_bytes() == seen
        finally:
            os.kill(pid, signal.SIGCONT)
        lines = acknowledged(holder.answers())
    assert len(lines) >= 1_000
    [entry] = session.append([numbered(0, 100)])
    again = Session.open(path)
    assert lines.items() <= {one.id: digest(one.raw) for one in again.entries}.items()
    assert [one.id for one in again.branch()] == [one.id for one in again.entries]
    assert again.leaf_id == entry.id
    assert again.problems == []


def wait_stopped(pid: int) -> None:
    """Waits until a process has stopped: what it was writing it has written."""
    end = time.monotonic() + 20
    while True:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
        if state.startswith("T"):
            return
        assert time.monotonic() < end, state
        time.sleep(0.01)


def suspended(directory: Path, seconds: float | None) -> dict[str, Any]:
    """What a live session says that was suspended for so long right after it had settled."""
    directory.mkdir()
    path = history_file(directory / "s.jsonl", 10)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "CONTEXTHOST_HOME": str(directory / "home"),
        "CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS": "50",
    }
    script = Path(__file__).with_name("sleeper.py")
    with subprocess.Popen(
        [sys.executable, str(script), str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "settled\n"
        if seconds is not None:
            process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            process.send_signal(signal.SIGCONT)
        time.sleep(LIFETIME - min(seconds or 0, LIFETIME) + 0.5)
        told, _ = process.communicate("")
    found: dict[str, Any] = json.loads(told)
    found["compactions"] = sum(entry.type == "compaction" for entry in Session.open(path).entries)
    return found


def test_a_relay_before_the_cache_expires_is_not_made_when_the_machine_slept_too_long(
    tmp_path: Path, campaign: Campaign
) -> None:
    waits = {"none": None, "short": LIFETIME - MARGIN / 2, "long": LIFETIME + 1}
    with ThreadPoolExecutor() as pool:
        runs = {name: pool.submit(suspended, tmp_path / name, seconds) for name, seconds in waits.items()}
        found = {name: run.result() for name, run in runs.items()}
    assert [found["none"][key] for key in ("relayed", "compactions")] == [True, 1]
    # It woke three seconds before the cache's end, and the cache is used while it lives.
    assert [found["short"][key] for key in ("relayed", "compactions")] == [True, 1]
    assert found["long"] == {"relayed": False, "told": [], "compactions": 0}
    campaign.report(
        f"suspends: a cache of {LIFETIME:g} s and a relay due {MARGIN:g} s before its end: made without a suspend and "
        f"after one of {waits['short']:g} s, not after one of {waits['long']:g} s"
    )
