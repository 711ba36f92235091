"""A Pi that serves one test of the bridge after the other, each in a session of its own, and what that must hold."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from support.live_pi import LivePi, PiHome, check_mirror, helper, live_home, python_sides, texts
from support.model_server import Answer, Received, call, say

__all__ = ["ANSWER", "FIRST", "OTHER_WINDOW", "PATIENT", "SECOND", "WINDOW", "SharedPi", "Stage", "spoken"]

FIRST, SECOND, ANSWER = "First. " * 50, "Second. " * 50, "Answer. " * 50
WINDOW, OTHER_WINDOW = 128_000, 64_000
PATIENT = {"pi": {"answerSeconds": 120}}  # twice what a test waits: no deadline helps out


def answer(request: Received) -> Answer:
    """Calls the plugin's tool when the last message asks for it."""
    if request.body["messages"][-1]["role"] == "user":
        said = texts(request, "user")[-1]
        if said.startswith("use the tool"):
            return call("probe_look", {"what": "you", "wait": "wait" in said})
        if said.startswith("take your time"):
            return say(ANSWER, hold_after=1)
    return say(ANSWER, delay_seconds=1.0 if "summar" in str(request.body["messages"][-1]).lower() else 0.0)


def spoken(entries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Who said what, in the order of the file."""
    found = []
    for entry in entries:
        if entry["type"] == "message" and entry["message"]["role"] in ("user", "assistant", "toolResult"):
            content = entry["message"]["content"]
            text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
            found.append((entry["message"]["role"], text))
    return found


class Stage:
    """A Pi that serves one case after the other, each in a session of its own, and what that session must hold."""

    def __init__(self, home: PiHome, pi: LivePi) -> None:
        self.home = home
        self.pi = pi
        self.said: list[tuple[str, str]] = []
        self.fault: dict[str, str] = {}
        self.window = WINDOW

    def control(self, **more: Any) -> None:
        """How the plugin behaves now, besides what goes wrong in it."""
        self.home.probe(**self.fault, **more)

    def begin(self) -> None:
        """Another session (hence another Python side, whose back-off begins anew) with two questions and answers."""
        self.fault = {}
        self.control()
        assert self.pi.ask("new_session")["data"] == {"cancelled": False}
        self.said = []
        for text in (FIRST, SECOND):
            self.prompt(text)

    def prompt(self, text: str) -> None:
        self.pi.prompt(text)
        self.answered(text)

    def answered(self, text: str) -> None:
        """The model was asked this, and Pi has its answer."""
        assert texts(self.home.server.requests[-1], "user")[-1] == text
        self.said += [("user", text), ("assistant", ANSWER)]

    def meet(self, hook: str, command: str, **fields: Any) -> tuple[str, int]:
        """Sends Pi a command, and waits until the plugin is in a hook: the command's id, the plugin's process."""
        known = len(self.home.seen(hook))
        number = self.pi.send(command, **fields)
        self.pi.until(lambda: len(self.home.seen(hook)) > known, hook)
        return number, int(self.home.seen(hook)[-1]["pid"])

    def result(self, number: str) -> dict[str, Any]:
        """The answer to a command, which must come."""
        self.pi.until(lambda: self.pi.answered(number) is not None, "the answer")
        found = self.pi.answered(number)
        assert found is not None
        return found

    def user_ids(self) -> list[str]:
        return [
            entry["id"]
            for entry in self.pi.entries()
            if entry["type"] == "message" and entry["message"]["role"] == "user"
        ]

    def compactions(self) -> list[str]:
        return [entry["summary"] for entry in self.pi.entries() if entry["type"] == "compaction"]

    def kill(self, python: int) -> None:
        """Kills a Python side whose plugin does nothing wrong any more when it comes back."""
        with contextlib.suppress(ProcessLookupError):  # it did so itself
            os.kill(python, signal.SIGSTOP)  # before it finds its fault gone and answers
        self.fault = {}
        self.control()
        with contextlib.suppress(ProcessLookupError):
            os.kill(python, signal.SIGKILL)

    def check(self) -> None:
        """Pi and Python have the same session, it holds what was said, and no process is too many."""
        check_mirror(self.pi, window=self.window)
        assert spoken(self.pi.entries()) == self.said
        assert len(python_sides(self.pi.process.pid)) == 1
        self.prompt("After.")
        assert spoken(self.pi.entries()) == self.said
        check_mirror(self.pi, window=self.window)
        assert self.pi.errors() == []
        assert (self.home.root / "pi-stderr.txt").read_text() == ""


class SharedPi:
    """One Pi for the tests here; after a failure, another one."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._open: contextlib.ExitStack | None = None
        self._stage: Stage | None = None

    @contextlib.contextmanager
    def stage(self) -> Iterator[Stage]:
        """For one test; a failure within ends this Pi."""
        if self._stage is None:
            self._open = contextlib.ExitStack()
            home = self._open.enter_context(live_home(self._factory.mktemp("pi"), answer))
            model = {"maxTokens": 1000, "input": ["text", "image"]}
            first = {"id": "faux-1", "contextWindow": WINDOW, **model}
            home.provider("faux", first, {"id": "faux-2", "contextWindow": OTHER_WINDOW, **model}, apiKey="x")
            home.settings(compaction={"keepRecentTokens": 10, "reserveTokens": 16384})
            home.host_settings(**PATIENT)
            home.probe()
            home.install()
            self._stage = Stage(home, self._open.enter_context(home.rpc(*helper(home))))
        try:
            self._stage.begin()
            yield self._stage
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends it, if it runs."""
        self._stage = None
        if self._open is not None:
            self._open.close()
