"""``kill -9`` of the Python side of the real Pi while something goes on that Python itself has begun: a compaction, a
message, held input, a timer; and at Pi's own end. Each ends as the user would want it, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.live_pi import custom, live_home, texts, wait_gone
from support.model_server import say
from support.stage import ANSWER, SharedPi, Stage


def python_of(stage: Stage) -> int:
    python = stage.pi.python_side()
    assert python is not None
    return python


def test_a_compaction_that_a_plugin_asked_of_pi_is_made_all_the_same(shared: SharedPi) -> None:
    with shared.stage() as stage:
        stage.control(compaction="nothing")
        requests, mark = len(stage.home.server.requests), stage.pi.mark()
        number = stage.pi.send("prompt", message="/probe compact")
        # Pi's own summary takes a second.
        stage.pi.until(lambda: len(stage.home.server.requests) > requests, "the request for the summary")
        stage.kill(python_of(stage))
        assert stage.result(number)["success"]
        assert "/probe: it ended with SIGKILL" in stage.pi.notes(after=mark)
        stage.pi.event("compaction_end", after=mark)
        (summary,) = stage.compactions()
        assert summary.startswith("Answer.")
        stage.check()


def test_a_compaction_that_a_plugin_asked_of_itself_is_cancelled(shared: SharedPi) -> None:
    with shared.stage() as stage:
        stage.fault = {"session_before_compact": "hang"}
        stage.control()
        requests, mark = len(stage.home.server.requests), stage.pi.mark()
        number, python = stage.meet("session_before_compact", "prompt", message="/probe compact probe")
        stage.kill(python)
        assert stage.result(number)["success"]
        stage.pi.event("compaction_end", after=mark)
        assert stage.pi.note("probe did not compact", after=mark).endswith("nothing was changed.")
        assert stage.compactions() == []
        assert len(stage.home.server.requests) == requests  # no model was asked in its place
        stage.check()


def test_a_compaction_that_waits_for_an_input_dies_with_who_asked_for_it(shared: SharedPi) -> None:
    with shared.stage() as stage:
        stage.fault = {"input": "hang"}
        stage.control()
        mark = stage.pi.mark()
        _, python = stage.meet("input", "prompt", message="Killed while this is looked at.")
        stage.meet("command", "prompt", message="/probe compact probe")
        stage.pi.ask("get_state")  # by now Pi has the plugin's request, too, which waits for that input
        stage.kill(python)
        stage.pi.event("agent_settled", after=mark)
        stage.answered("Killed while this is looked at.")
        assert stage.compactions() == []
        stage.check()
        assert not any(event["type"] == "compaction_start" for event in stage.pi.events[mark:])


@pytest.mark.parametrize("parked", ["held", "released"])
def test_held_input_is_sent_once_when_the_timer_dies_that_was_to_release_it(shared: SharedPi, parked: str) -> None:
    with shared.stage() as stage:
        stage.control(parked=parked)
        mark = stage.pi.mark()
        assert stage.pi.ask("prompt", message="park: this")["data"]["disposition"] == "handled"
        stage.pi.event("agent_settled", after=mark)
        stage.answered("park: this")
        (held,) = custom(stage.pi.entries(), "contexthost:held")
        assert custom(stage.pi.entries(), "contexthost:sent") == [{"ids": [held["id"]]}]
        assert any("it ended with SIGKILL" in note for note in stage.pi.notes(after=mark))
        stage.check()


def test_a_timer_dies_while_pi_is_idle_and_while_it_runs(shared: SharedPi) -> None:
    with shared.stage() as stage:
        mark = stage.pi.mark()
        stage.pi.slash("/probe die-later")
        stage.pi.note("it ended with SIGKILL", after=mark)
        stage.check()

        python, mark = python_of(stage), stage.pi.mark()
        stage.home.server.rearm()
        stage.pi.send("prompt", message="take your time")
        assert stage.home.server.reached.wait(20)
        stage.pi.slash("/probe die-later")
        wait_gone(python)
        stage.home.server.release()
        stage.pi.event("agent_settled", after=mark)
        stage.answered("take your time")
        stage.check()


def test_a_message_that_a_plugin_sent_is_sent_once(shared: SharedPi) -> None:
    with shared.stage() as stage:
        python, mark = python_of(stage), stage.pi.mark()
        stage.home.server.rearm()
        stage.pi.send("prompt", message="take your time")
        assert stage.home.server.reached.wait(20)
        stage.pi.slash("/probe send From the plugin.")
        stage.pi.until(lambda: home_saw(stage, "From the plugin."), "the message")
        stage.kill(python)
        wait_gone(python)
        stage.home.server.release()
        stage.pi.until(lambda: texts(stage.home.server.requests[-1], "user")[-1] == "From the plugin.", "its request")
        stage.pi.event("agent_settled", after=mark)
        stage.said += [("user", "take your time"), ("assistant", ANSWER)]
        stage.answered("From the plugin.")
        stage.check()


def home_saw(stage: Stage, text: str) -> bool:
    """Whether a message has come by the plugin's `input`."""
    return any(one["event"]["text"] == text for one in stage.home.seen("input"))


def test_pi_ends_when_the_python_side_is_killed_at_its_end(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe(session_shutdown="die")
        home.install()
        pi = home.rpc()
        pi.prompt("Hello.")
        file, python = pi.file, pi.python_side()
        before = file.read_bytes()
        assert python is not None
        pi.close()
        assert pi.process.returncode == 0
        wait_gone(python)
        assert [one["event"]["reason"] for one in home.seen("session_shutdown")] == ["quit"]
        assert file.read_bytes() == before
        assert (home.root / "pi-stderr.txt").read_text() == ""

        # As it was left, the next Pi goes on with it.
        with home.rpc("--session", str(file)) as pi:
            pi.prompt("Again.")
            python = pi.python_side()
            assert pi.file == file
            assert file.read_bytes().startswith(before)
            assert texts(home.server.requests[-1], "user") == ["Hello.", "Again."]
            assert python is not None
        wait_gone(python)
