"""What plugins have put on the screen of the real Pi, once the Python side has gone or wants no answer any more; what
commands may put there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.live_pi import kill_python, live_home, python_sides
from support.model_server import call, say
from support.terminal import Terminal, terminal


def test_status_lines_go_with_the_python_side(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        with home.rpc() as pi:
            pi.slash("/probe status three masked")
            mark = pi.mark()
            kill_python(pi)
            gone = pi.event("extension_ui_request", after=mark, method="setStatus")
            assert (gone["statusKey"], gone.get("statusText")) == ("contexthost-probe", None)
            pi.slash("/probe status four masked")
            pi.slash("/probe status")
            mark = pi.mark()
            kill_python(pi)  # which shows nothing now
            assert pi.slash("/probe entries").startswith("probe: ")
            assert [event for event in pi.events[mark:] if event.get("method") == "setStatus"] == []


def test_a_question_of_a_python_side_that_has_gone_takes_no_answer(tmp_path: Path) -> None:
    """Over RPC Pi does not take a question back; it has forgotten it, and whatever is answered counts for nothing."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        with home.rpc() as pi:
            pi.send("prompt", message="/probe confirm first")
            first = pi.event("extension_ui_request", method="confirm")
            kill_python(pi)
            pi.note("/probe: it ended with SIGKILL")
            mark = pi.mark()
            pi.send("prompt", message="/probe confirm second")
            second = pi.event("extension_ui_request", after=mark, method="confirm")
            pi.send("extension_ui_response", confirmed=True, id=first["id"])
            pi.send("extension_ui_response", confirmed=False, id=second["id"])
            assert pi.note("probe: ", after=mark) == "probe: False"
            pi.prompt("Hello.")
            assert pi.errors() == []


@pytest.mark.parametrize("seconds", ["1e8", "inf"])
def test_a_question_may_wait_for_an_answer_as_long_as_it_takes(tmp_path: Path, seconds: str) -> None:
    """A timer of JavaScript takes 24.8 days at most; one that is set to more ends at once."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        with home.rpc() as pi:
            pi.send("prompt", message=f"/probe confirm-for {seconds}")
            question = pi.event("extension_ui_request", method="confirm")
            pi.slash("/probe entries")  # time goes by
            pi.send("extension_ui_response", confirmed=True, id=question["id"])
            assert pi.note("probe: True") == "probe: True"


def ask(pi: Terminal, what: str) -> int:
    """Has the plugin ask something; the place on the screen from which on that is seen."""
    mark = len(pi.text)
    pi.enter(f"/probe confirm {what}")
    pi.until(lambda: "Sure?" in pi.text[mark:], "the question")
    return mark


def test_a_question_is_taken_from_the_screen_when_nobody_waits_for_the_answer(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.settings(quietStartup=True)
        home.probe()
        home.install()
        with terminal(home) as pi:
            pi.until(lambda: bool(home.seen("session_start")), "the start")
            mark = ask(pi, "one")
            home.host_settings(pi={"toolSeconds": 2})  # from the next Python side on
            (python,) = python_sides(pi.process.pid)
            os.kill(python, signal.SIGKILL)
            pi.until(lambda: "/probe: it ended with SIGKILL" in pi.text[mark:], "its end")
            mark = len(pi.text)
            pi.enter("/probe entries")  # where the question stands, nothing can be typed
            pi.until(lambda: "entries, leaf" in pi.text[mark:], "the next one")
            mark = ask(pi, "two")
            pi.until(lambda: "it took longer than 2 s and was ended" in pi.text[mark:], "the end of the command")
            pi.until(lambda: "the question is taken back" in pi.text[mark:], "the end of the question")
            mark = len(pi.text)
            pi.enter("/probe entries")
            pi.until(lambda: "entries, leaf" in pi.text[mark:], "the entries")


def test_what_a_command_tells_of_a_session_cannot_command_the_terminal(tmp_path: Path) -> None:
    """Pi's terminal shows notes as they are, and the model may call a tool by any name."""
    with live_home(tmp_path, [call("ba\x1b]0;title\x07\x1b[2Jsh", {}), say("No such tool.")]) as home:
        home.install()
        with home.rpc() as pi:
            pi.prompt("Look.")
            told = pi.slash("/context")
            assert "tool results: bash " in told
            assert "\x1b" not in told
