"""Whatever happens to the Python side of a real Pi: Pi goes on, nothing is lost, no process is left behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support.live_pi import LivePi, change_extension, check_mirror, helper, live_home, python_sides, texts, wait_gone
from support.model_server import Answer, Received, call, say

SMALL = {"compaction": {"keepRecentTokens": 10, "reserveTokens": 16384}}
QUICK = {"pi": {"answerSeconds": 0.5, "heartbeatSeconds": 1}}


def answer(request: Received) -> Answer:
    """Calls the plugin's tool when it is asked to wait, else answers."""
    said = texts(request, "user")[-1]
    if request.body["messages"][-1]["role"] == "user" and said.startswith("use the tool"):
        return call("probe_look", {"wait": True})
    return say("Answer. " * 50)


def users(pi: LivePi) -> list[str]:
    """The user messages of the session file."""
    found = []
    for entry in pi.entries():
        if entry["type"] == "message" and entry["message"]["role"] == "user":
            content = entry["message"]["content"]
            found.append(content if isinstance(content, str) else "".join(block.get("text", "") for block in content))
    return found


def revived(pi: LivePi, old: int) -> None:
    """Waits until another Python side runs; something must happen in Pi for it to be started."""

    def there() -> bool:
        pi.ask("prompt", message="/probe entries")
        return pi.python_side() not in (None, old) and any(note.startswith("probe: ") for note in pi.notes(after=mark))

    mark = pi.mark()
    pi.until(there, "another Python side")


def test_a_plugin_that_raises_prints_or_exits_everywhere_is_told_once_and_harms_nothing(tmp_path: Path) -> None:
    hooks = ["session_start", "input", "agent_start", "context", "turn_end", "agent_before_settle", "agent_settled"]
    with live_home(tmp_path, answer) as home:
        home.probe(**dict.fromkeys(hooks, "raise"))
        home.install()
        with home.rpc() as pi:
            pi.prompt("First.")
            pi.prompt("Second.")
            for hook in hooks:
                told = [note for note in pi.notes() if f"hook {hook}:" in note]
                assert told == [f"contexthost: plugin probe, hook {hook}: ValueError: the probe fails in {hook}"]
            home.probe(**dict.fromkeys(hooks, "print"))
            mark = pi.mark()
            pi.prompt("Third.")
            check = pi.slash("/probe entries")
            assert check.startswith("probe: ")
            assert pi.notes(after=mark) == [check]
            python, mark = pi.python_side(), pi.mark()
            home.probe(**dict.fromkeys(hooks, "exit"))
            pi.prompt("Fourth.")
            assert pi.slash("/probe exit") == "/probe: SystemExit: 2"
            assert pi.notes(after=mark) == ["/probe: SystemExit: 2"]  # each hook's first failure has been told
            assert pi.python_side() == python
            assert users(pi) == ["First.", "Second.", "Third.", "Fourth."]
            assert pi.errors() == []


def test_a_plugin_that_blocks_everything_is_started_anew_and_pi_waits_no_longer_than_its_deadline(
    tmp_path: Path,
) -> None:
    with live_home(tmp_path, answer) as home:
        home.host_settings(**QUICK)
        home.probe(input="block")
        home.install()
        with home.rpc() as pi:
            pi.slash("/probe entries")
            python, started = pi.python_side(), time.monotonic()
            assert python is not None
            pi.prompt("Hello.")
            assert time.monotonic() - started < 30
            assert "no answer to hook/input within 0.5 s. Pi goes on without it." in pi.note("no answer")
            pi.note("the Python side has stopped (it ended with SIGKILL)")  # the heartbeat
            wait_gone(python)
            home.probe()
            revived(pi, python)
            pi.prompt("Again.")
            assert users(pi) == ["Hello.", "Again."]


def test_long_and_odd_texts_cross_the_bridge(tmp_path: Path) -> None:
    long = "x" * 30_000_000
    odd = "one\u2028two\u2029three\x85four \ud800 five \U0001f600 six\r\x0c\x1c seven"
    with live_home(tmp_path, answer, window=100_000_000, plugins=("masking", "relay")) as home:
        home.host_settings(pi={"answerSeconds": 60, "heartbeatSeconds": 5})
        home.probe()
        home.install()
        with home.rpc(*helper(home)) as pi:
            pi.prompt(odd)
            check_mirror(pi, window=100_000_000)
            assert home.seen("input")[-1]["event"]["text"] == odd
            # Pi keeps the lone surrogate in the session, and leaves it out of what it sends to providers.
            assert texts(home.server.requests[-1], "user") == [odd.replace("\ud800", "")]
            pi.prompt(long)
            check_mirror(pi, window=100_000_000)
            assert len(texts(home.server.requests[-1], "user")[-1]) == len(long)
            pi.slash(f"/probe append {odd}")
            pi.until(lambda: pi.entries()[-1].get("data") == {"text": odd}, "the entry")
            check_mirror(pi, window=100_000_000)
            assert pi.errors() == []
            assert " of 100,000,000 tokens" in pi.slash("/context")  # which counts it all
            assert not any("Python side" in note or "no answer" in note for note in pi.notes())


@pytest.mark.parametrize("works", ["hang", "block"])
def test_pi_is_killed_while_python_works(tmp_path: Path, works: str) -> None:
    with live_home(tmp_path, answer) as home:
        home.host_settings(pi={"answerSeconds": 60, "heartbeatSeconds": 60})
        home.probe(turn_end=works)
        home.install()
        pi = home.rpc()
        pi.send("prompt", message="Hello.")
        pi.until(lambda: bool(home.seen("turn_end")), "the plugin")
        python = pi.python_side()
        assert python is not None
        pi.process.kill()
        wait_gone(python)
        pi.close()


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("const PROTOCOL = 1;", "const PROTOCOL = 7;", "run `contexthost pi install` again, then /reload. Pi goes on"),
        ('"-m", "contexthost", "pi"', '"-m", "no_such_module", "pi"', "No module named no_such_module"),
        ('command: ["', 'command: ["/nowhere', "it cannot be started"),
    ],
    ids=["another version", "broken", "missing"],
)
def test_a_python_side_that_cannot_work_is_told_once_and_pi_is_as_without_it(
    tmp_path: Path, old: str, new: str, note: str
) -> None:
    with live_home(tmp_path, answer) as home:
        home.probe()
        home.install()
        change_extension(home, old, new)
        with home.rpc() as pi:
            pi.prompt("First.")
            pi.prompt("Second.")
            assert note in pi.note("contexthost")
            assert len(pi.notes()) == 1
            assert all("probe_look" not in str(one.body.get("tools")) for one in home.server.requests)
            assert users(pi) == ["First.", "Second."]
            assert pi.errors() == []
            assert python_sides(pi.process.pid) == []
            assert "is not running" in pi.slash("/probe entries")
