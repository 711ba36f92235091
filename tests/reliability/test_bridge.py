"""The bridge inside the real Pi, with all plugins: the Python side killed and Pi killed at random moments of a working
session, either of them suspended, and a clock that is set back. Pi goes on, every message is sent once, the session
file only grows and is whole, no process and no lock is left behind, and the next Pi goes on with the session."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from contexthost.diagnosis import examine
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from reliability.campaign import Campaign
from reliability.disks import fill, take_all_names
from reliability.operations import whole
from support.durability import mounted
from support.live_pi import LivePi, PiHome, check_mirror, helper, live_home, wait_gone
from support.model_server import Answer, Received, call, say

PLUGINS = ["codex_native", "jev", "masking", "relay"]
PYTHON_KILLS, PI_KILLS = 5, 2
"""In the default time."""

MASKING = {
    "mask": {"triggerTokens": 2_000, "triggerRatio": 1, "targetTokens": 500, "minClearTokens": 100,
             "keepRecentTurns": 1, "minEntryTokens": 50},
}  # fmt: skip
CLOCK = """
export default function (pi: any) {
  const real = Date.now;
  pi.registerCommand("clock", { handler: async (seconds: string, ctx: any) => {
    Date.now = () => real() + Number(seconds) * 1000;
    ctx.ui.notify(`clock: ${new Date(Date.now()).toISOString()}`);
  } });
}
"""


def answer(request: Received) -> Answer:
    """Reads the file when it is asked to, else answers."""
    last = request.body["messages"][-1]
    if last["role"] == "user" and "read it" in json.dumps(last["content"]):
        return call("read", {"path": "notes.txt"})
    return say("An answer. " * 30)


@contextlib.contextmanager
def working_home(root: Path, *, probe: bool = True, **pi: float) -> Iterator[PiHome]:
    """A Pi with all plugins and, if it is wanted, the probe, and a file to read."""
    with live_home(root, answer, plugins=PLUGINS) as home:
        home.settings(compaction={"keepRecentTokens": 100, "reserveTokens": 16384})
        home.host_settings(compaction={"keepRecentTokens": 100}, pi=pi)
        (home.host / "config" / "masking.json").write_text(json.dumps(MASKING))
        (home.host / "config" / "relay.json").write_text(json.dumps({"gitTimeoutMs": 0}))
        (home.project / "notes.txt").write_text("a line of the notes\n" * 300)
        if probe:
            home.probe()
        home.install()
        yield home


def users(path: Path) -> list[str]:
    """The texts of the user messages, in order."""
    found = []
    for entry in Session.open(path).entries:
        if entry.role == "user" and entry.message is not None:
            content = entry.message["content"]
            found.append(content if isinstance(content, str) else "".join(one.get("text", "") for one in content))
    return found


def check_file(path: Path, before: bytes) -> bytes:
    """The session grew and is whole, and doctor finds nothing that appending could not mend."""
    content = path.read_bytes()
    assert content.startswith(before)
    session = Session.open(path)
    assert {problem.kind for problem in session.problems} <= {"torn-line", "malformed-line"}
    assert all(problem.mend == "append" for problem in examine(ProjectionAuthority(session)).problems)
    return content


def check_stores(home: PiHome) -> None:
    """What plugins keep for themselves can be read, and so can the bridge's log."""
    for path in (home.host / "data").rglob("*"):
        if path.is_file() and path.parent.name != "probe" and path.suffix != ".tmp":
            assert whole(path) or path.suffix == ".md"
    assert whole(home.host / "state" / "pi-bridge.log")


def revived(pi: LivePi, seconds: float = 30.0) -> None:
    """Waits until a Python side answers again; with each command that Pi gets it looks whether the time has come."""
    end = time.monotonic() + seconds
    while not pi.slash("/probe entries").startswith("probe: "):  # "/probe: …" says why not
        assert time.monotonic() < end, "the Python side was not started again"
        time.sleep(0.3)


KINDS = ["ask", "read", "relay", "context", "compact"]
"""What is done in a session."""


class Sent:
    """What was asked of Pi, message by message."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def step(self, pi: LivePi, kind: str) -> float:
        """Does something in the session and waits until it is done; how many seconds that took."""
        began = time.monotonic()
        if kind in ("ask", "read"):
            self.texts.append(f"Request {len(self.texts)}{': read it' if kind == 'read' else ''}.")
            pi.prompt(self.texts[-1])
        elif kind == "compact":
            pi.ask("compact")  # refused when there is nothing to compact
        else:
            pi.slash(f"/{kind}")
        return time.monotonic() - began


def kinds(draw: random.Random) -> Iterator[str]:
    """Each of `KINDS` in some order, over and over."""
    while True:
        yield from draw.sample(KINDS, len(KINDS))


def test_the_python_side_is_killed_at_random_moments(tmp_path: Path, campaign: Campaign) -> None:
    draw = campaign.draw("bridge, Python")
    sent, ends = Sent(), Counter[str]()
    with working_home(tmp_path) as home, home.rpc(*helper(home)) as pi:
        usual = {kind: sent.step(pi, kind) for kind in KINDS}
        path, content = pi.file, b""
        for _, kind in zip(range(campaign.rounds(PYTHON_KILLS)), kinds(draw), strict=False):
            pi.slash("/again")  # a new instance: no back-off yet
            pi.slash("/probe entries")
            python = pi.python_side()
            assert python is not None
            killer = threading.Timer(draw.random() * usual[kind], os.kill, (python, signal.SIGKILL))
            killer.start()
            sent.step(pi, kind)
            ends[f"after {kind}" if killer.is_alive() else f"in {kind}"] += 1
            killer.join()
            wait_gone(python)
            sent.step(pi, draw.choice(KINDS))  # Pi goes on without
            content = check_file(path, content)
            assert users(path) == sent.texts, f"--campaign-seed {campaign.seed}: {kind}"
            check_stores(home)
        pi.slash("/again")
        check_mirror(pi)
        assert pi.errors() == []
    when = ", ".join(f"{number} {kind}" for kind, number in ends.items())
    campaign.report(
        f"bridge: the Python side killed {sum(ends.values())} times ({when}), {len(sent.texts)} messages sent once each"
    )


def test_pi_is_killed_at_random_moments(tmp_path: Path, campaign: Campaign) -> None:
    draw = campaign.draw("bridge, Pi")
    sent, rounds = Sent(), campaign.rounds(PI_KILLS)
    with working_home(tmp_path) as home:
        with home.rpc(*helper(home)) as pi:
            sent.step(pi, "ask")
            path = pi.file
        content = check_file(path, b"")
        for _ in range(rounds):
            pi = home.rpc("--session", str(path), *helper(home))
            pi.slash("/probe entries")
            python = pi.python_side()
            assert python is not None
            killer = threading.Timer(draw.random() * 1.5, pi.process.kill)
            killer.start()
            with contextlib.suppress(pytest.fail.Exception, BrokenPipeError):
                for kind in kinds(draw):
                    sent.step(pi, kind)
            killer.join()
            assert pi.process.wait(10) == -signal.SIGKILL
            wait_gone(python)
            pi.close()
            content = check_file(path, content)
            check_stores(home)
            # A message that Pi had taken is in the file or was never answered for; none is there twice.
            there = users(path)
            assert there == sent.texts[: len(there)]
            assert len(there) >= len(sent.texts) - 1
            sent.texts = there
            # The lock went with the process: the command line may write at once.
            done = home.contexthost("doctor", str(path), "--repair", "--yes", check=False)
            assert "locked" not in done.stderr
            assert "healthy" in done.stdout.lower() or "whole" in done.stdout, done
            content = check_file(path, content)
        with home.rpc("--session", str(path), *helper(home)) as pi:
            pi.prompt("After.")
            check_mirror(pi)
            assert users(path) == [*sent.texts, "After."]
            assert pi.errors() == []
    campaign.report(f"bridge: Pi killed {rounds} times and started again with the same session")


def test_a_full_disk_below_our_own_files_is_nothing_to_pi(tmp_path: Path) -> None:
    """No lock can be taken, no note and no log be written; the session lies elsewhere, with Pi."""
    with (
        mounted(tmp_path / "contexthost", "size=512k,nr_inodes=60") as disk,
        working_home(tmp_path, probe=False) as home,
    ):
        in_the_way = [fill(disk, 0), *take_all_names(disk)]
        with home.rpc(*helper(home)) as pi:
            sent = Sent()
            for kind in ("ask", "read", "context"):
                sent.step(pi, kind)
            assert users(pi.file) == sent.texts
            told = pi.slash("/relay")
            assert "No space left on device" in told
            assert str(disk) in told
            sent.step(pi, "ask")
            content = check_file(pi.file, b"")
            assert b'"type":"compaction"' not in content
            assert pi.errors() == []

            for path in in_the_way:
                path.unlink()
            pi.slash("/again")
            assert pi.slash("/relay").startswith("context-relay: relay ")
            sent.step(pi, "ask")
            assert users(pi.file) == sent.texts
            assert b'"type":"compaction"' in check_file(pi.file, content)
            check_stores(home)
            assert pi.errors() == []
        assert "Traceback" not in (home.root / "pi-stderr.txt").read_text()


def test_a_suspended_python_side_is_waited_for_or_replaced(tmp_path: Path, campaign: Campaign) -> None:
    """A heartbeat every 1.5 s, three may be missed: a short suspend is borne, a long one is not. When the whole
    machine slept, nobody is replaced."""
    with working_home(tmp_path, answerSeconds=0.5, heartbeatSeconds=1.5) as home, home.rpc(*helper(home)) as pi:
        pi.slash("/probe entries")
        python = pi.python_side()
        assert python is not None

        os.kill(python, signal.SIGSTOP)
        pi.send("prompt", message="While it is suspended for a moment.")
        time.sleep(0.8)
        os.kill(python, signal.SIGCONT)
        pi.event("agent_settled")
        time.sleep(2)
        check_mirror(pi)
        assert pi.python_side() == python

        # As if the lid was closed: both stand still, and wake together.
        for process in (pi.process.pid, python):
            os.kill(process, signal.SIGSTOP)
        time.sleep(4)
        for process in (python, pi.process.pid):
            os.kill(process, signal.SIGCONT)
        time.sleep(2)
        check_mirror(pi)
        assert pi.python_side() == python
        assert not any("has stopped" in note for note in pi.notes())

        began = time.monotonic()
        os.kill(python, signal.SIGSTOP)
        pi.prompt("While it is suspended for good.")
        pi.note("the Python side has stopped (it ended with SIGKILL)")
        replaced = time.monotonic() - began
        wait_gone(python)
        revived(pi)
        assert pi.python_side() not in (None, python)
        check_mirror(pi)
        assert users(pi.file) == ["While it is suspended for a moment.", "While it is suspended for good."]
        assert pi.errors() == []
    campaign.report(f"bridge: a Python side suspended for good was replaced after {replaced:.1f} s (heartbeat 1.5 s)")


def test_a_clock_that_is_set_back_does_not_keep_the_python_side_away(tmp_path: Path) -> None:
    with working_home(tmp_path) as home:
        extension = home.root / "clock.ts"
        extension.write_text(CLOCK)
        with home.rpc(*helper(home), "-e", str(extension)) as pi:
            for seconds in (-86_400, 365 * 86_400):
                pi.slash("/again")
                pi.slash("/probe entries")
                python = pi.python_side()
                assert python is not None
                mark = pi.mark()
                os.kill(python, signal.SIGKILL)
                pi.note("the Python side has stopped", after=mark)
                assert pi.slash(f"/clock {seconds}").startswith("clock: ")
                revived(pi)
                pi.prompt(f"At {seconds}.")
                check_mirror(pi)
            assert len(users(pi.file)) == 2
            assert pi.errors() == []
