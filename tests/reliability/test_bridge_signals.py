"""The real Pi is ended by a signal, alone or with its whole group of processes, or by its terminal, in the middle of a
tool and with a message held: plugins end their session, no process is left, the next start has all that was said."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.live_pi import LivePi, PiHome, live_home, read_entries, texts, wait_group_gone
from support.model_server import Answer, Received, call, say
from support.stage import spoken
from support.terminal import Terminal, terminal

LINGER = 0.5  # seconds that the plugin needs at the session's end
HELD = "keep: this"


def answer(request: Received) -> Answer:
    """Calls the plugin's tool, which does not come back, when the last message asks for it."""
    if request.body["messages"][-1]["role"] == "user" and texts(request, "user")[-1] == "use the tool":
        return call("probe_look", {"what": "you", "wait": True})
    return say("Answer.")


def counts(home: PiHome) -> list[int]:
    """How often the plugin's session has ended, how often with the time that it needs, and how often its tool."""
    return [len(home.seen(hook)) for hook in ("session_shutdown", "lingered", "tool ended")]


def users(file: Path) -> list[str]:
    return [text for role, text in spoken(read_entries(file)) if role == "user"]


def in_a_tool(pi: LivePi) -> None:
    """Has Pi wait for the plugin's tool, and a message held."""
    used = len(pi.home.seen("tool"))
    pi.send("prompt", message="use the tool")
    pi.until(lambda: len(pi.home.seen("tool")) > used, "the tool")
    assert pi.ask("prompt", message=HELD, streamingBehavior="followUp")["data"]["disposition"] == "handled"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -signal.SIGINT)]
)
def test_pi_is_ended_by_a_signal(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with live_home(tmp_path, answer) as home:
        home.probe(linger=LINGER)
        home.install()
        pi = home.rpc()
        pi.prompt("Hello.")
        file = pi.file
        for round_number, send in enumerate((os.kill, os.killpg), 1):
            in_a_tool(pi)
            send(pi.process.pid, number)
            assert pi.process.wait(20) == code
            pi.close()
            wait_group_gone(pi.process.pid)
            assert counts(home) == [round_number] * 3
            assert home.seen("session_shutdown")[-1]["event"]["reason"] == "quit"
            assert users(file) == ["Hello.", *["use the tool"] * round_number]
            pi = home.rpc("--session", str(file))
            assert pi.note("held back when this session ended").endswith(f": {HELD}")
        with pi:
            pi.prompt("Again.")
            assert users(file)[-1] == "Again."
        assert (home.root / "pi-stderr.txt").read_text() == ""


WAYS: dict[str, Callable[[Terminal], None]] = {
    "its window is closed": lambda pi: pi.hang_up(),
    "the user quits": lambda pi: pi.press(b"\x03\x03"),
    "SIGTERM": lambda pi: os.killpg(pi.process.pid, signal.SIGTERM),
    "SIGHUP": lambda pi: os.killpg(pi.process.pid, signal.SIGHUP),
    "SIGINT to Pi alone": lambda pi: os.kill(pi.process.pid, signal.SIGINT),
    "SIGINT": lambda pi: os.killpg(pi.process.pid, signal.SIGINT),
}
CODES = {"its window is closed": 129, "SIGINT to Pi alone": -2, "SIGINT": -2}


@contextmanager
def started(home: PiHome) -> Iterator[Terminal]:
    """Pi in a terminal with the plugin, whose session has begun."""
    home.settings(quietStartup=True)
    home.probe(linger=LINGER)
    home.install()
    with terminal(home) as pi:
        pi.until(lambda: bool(home.seen("session_start")), "the start")
        yield pi


def test_a_terminal_goes_away_while_pi_draws(tmp_path: Path) -> None:
    """Pi then ends at once, without a word to anybody."""
    with live_home(tmp_path, answer) as home:
        with started(home) as pi:
            pi.enter("use the tool")
            pi.until(lambda: bool(home.seen("tool")), "the tool")
            pi.hang_up()
            assert pi.ended() == 129
            wait_group_gone(pi.process.pid)
        assert counts(home) == [1, 1, 1]


@pytest.mark.parametrize("way", WAYS)
def test_pi_is_ended_in_a_terminal(tmp_path: Path, way: str) -> None:
    with live_home(tmp_path, answer) as home:
        with started(home) as pi:
            pi.enter("Hello.")
            pi.until(lambda: bool(home.seen("agent_settled")), "an answer")
            pi.enter(HELD)
            pi.until(lambda: len(home.seen("input")) == 2, "the message")
            pi.enter("use the tool")  # joins what is held
            (file,) = home.sessions.rglob("*.jsonl")
            pi.until(lambda: b"use the tool" in file.read_bytes(), "the record")
            WAYS[way](pi)
            assert pi.ended() == CODES.get(way, 0)
            wait_group_gone(pi.process.pid)
        assert counts(home) == [1, 1, 0]
        assert home.seen("session_shutdown")[-1]["event"]["reason"] == "quit"
        with terminal(home, "--session", str(file)) as pi:
            pi.until(lambda: "not sent: it is in the editor." in pi.text, "what is left")
            pi.press(b"\r")  # as it stands in the editor
            pi.until(lambda: len(home.seen("input")) == 3, "the message")
        assert home.seen("input")[-1]["event"]["text"] == f"{HELD}\n\nuse the tool"
        assert users(file) == ["Hello."]
