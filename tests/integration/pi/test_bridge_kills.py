"""``kill -9`` of the Python side in every kind of event that the bridge serves, and where Python itself has begun
something: the real Pi finishes what it was doing, its session has all that was said and nothing else, the next prompts
work, another Python side knows the session, and the plugin is asked again.

The kinds are the code's own (`EVENTS`, and what else Pi asks the bridge for): one without a case here fails.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files

import pytest

from contexthost import EVENTS
from contexthost.pi.bridge import Bridge
from support.live_pi import at_start, offered, texts, wait_gone
from support.stage import ANSWER, FIRST, OTHER_WINDOW, PATIENT, SECOND, WINDOW, SharedPi, Stage, spoken

NOT_IN_PI = {"context_estimates", "boundary_threshold", "provider_headers_wanted"}
"""Asked by a report of the command line, and by the bridge's Python side itself; Pi's extension does not know them."""
KINDS = [kind for kind in (*EVENTS, *Bridge.METHODS) if kind not in NOT_IN_PI]


Case = Callable[[Stage, bool], Iterator[int]]
"""Does in Pi what leads to the event (killed: with the plugin hanging in it), gives the process that the plugin is in,
and checks what becomes of it; `Stage.said` then is what the session must hold."""


def act(stage: Stage, kind: str, case: Case, *, killed: bool) -> int:
    """Runs a case, with the kill in its middle or without, and looks at everything; the process that was in it."""
    stage.fault = {kind: "die" if kind == "session_shutdown" else "hang"} if killed else {}
    stage.control()
    file, mark = stage.pi.file, stage.pi.mark()
    before = file.read_bytes()
    going = case(stage, killed)
    python = next(going)
    if killed:
        stage.kill(python)
    assert next(going, None) is None
    if killed:
        wait_gone(python)
        if kind != "session_shutdown":
            stage.pi.note("the Python side has stopped (it ended with SIGKILL)", after=mark)
    stage.check()
    assert file.read_bytes().startswith(before)
    return python


# The cases -----------------------------------------------------------------------------------------------------------


def within_a_run(hook: str) -> Case:
    def case(stage: Stage, killed: bool) -> Iterator[int]:
        text, mark = f"{'Killed' if killed else 'Not killed'} in {hook}.", stage.pi.mark()
        _, python = stage.meet(hook, "prompt", message=text)
        yield python
        stage.pi.event("agent_settled", after=mark)
        stage.answered(text)

    return case


def request_to_the_provider(stage: Stage, killed: bool) -> Iterator[int]:
    if killed:  # requests cross only while a native checkpoint is in force, as this one is from now on
        stage.control(details={"replacementHistory": []})
        assert stage.pi.ask("compact")["success"]
    yield from within_a_run("before_provider_request")(stage, killed)


def start(stage: Stage, killed: bool) -> Iterator[int]:
    mark = stage.pi.mark()
    number, python = stage.meet("session_start", "new_session")
    assert stage.result(number)["data"] == {"cancelled": False}
    stage.pi.send("prompt", message="Hello.")  # waits for the start
    yield python
    stage.pi.event("agent_settled", after=mark)
    stage.said = []
    stage.answered("Hello.")


def new_session_in(hook: str) -> Case:
    def case(stage: Stage, killed: bool) -> Iterator[int]:
        old = stage.pi.file
        number, python = stage.meet(hook, "new_session")
        yield python
        assert stage.result(number)["data"] == {"cancelled": False}
        assert stage.pi.file != old
        stage.said = []
        stage.prompt("In the new session.")

    return case


def resume_in(hook: str) -> Case:
    def case(stage: Stage, killed: bool) -> Iterator[int]:
        first, said = stage.pi.file, stage.said
        stage.fault, fault = {}, stage.fault
        stage.control()
        assert stage.pi.ask("new_session")["data"] == {"cancelled": False}
        stage.fault = fault
        stage.control()
        number, python = stage.meet(hook, "switch_session", sessionPath=str(first))
        yield python
        assert stage.result(number)["data"] == {"cancelled": False}
        assert stage.pi.file == first
        stage.said = said

    return case


def fork_in(hook: str) -> Case:
    def case(stage: Stage, killed: bool) -> Iterator[int]:
        old, second = stage.pi.file, stage.user_ids()[1]
        asked = stage.said[2][1]
        number, python = stage.meet(hook, "fork", entryId=second)
        yield python
        assert stage.result(number)["data"] == {"text": asked, "cancelled": False}
        assert stage.pi.file != old
        stage.said = stage.said[:2]
        stage.prompt(SECOND)

    return case


def reload_in(hook: str) -> Case:
    def case(stage: Stage, killed: bool) -> Iterator[int]:
        file = stage.pi.file
        number, python = stage.meet(hook, "prompt", message="/again")
        yield python
        assert stage.result(number)["success"]
        assert stage.pi.file == file

    return case


def move_in_the_tree(stage: Stage, killed: bool) -> Iterator[int]:
    number, python = stage.meet("session_tree", "prompt", message=f"/go {stage.user_ids()[1]}")
    yield python
    assert stage.result(number)["success"]
    stage.prompt("Elsewhere.")
    assert texts(stage.home.server.requests[-1], "user") == [FIRST, "Elsewhere."]


def compaction(stage: Stage, killed: bool) -> Iterator[int]:
    for text in (FIRST, SECOND):
        stage.prompt(text)
    made = len(stage.compactions())
    number, python = stage.meet("session_before_compact", "compact")
    yield python
    assert stage.result(number)["success"]
    summary = stage.compactions()[made:]
    assert len(summary) == 1
    assert summary[0].startswith("Answer." if killed else "probe: manual summary")  # Pi's own, or the plugin's


def compacted(stage: Stage, killed: bool) -> Iterator[int]:
    for text in (FIRST, SECOND):
        stage.prompt(text)
    made = len(stage.compactions())
    number, python = stage.meet("session_compact", "compact")
    yield python
    assert stage.result(number)["data"]["summary"] == "probe: manual summary"
    assert stage.compactions()[made:] == ["probe: manual summary"]


def compaction_that_fails(stage: Stage, killed: bool) -> Iterator[int]:
    stage.control(compaction="cancel")
    number, python = stage.meet("session_compact_failed", "compact")
    yield python
    assert not stage.result(number)["success"]
    assert stage.compactions() == []


def another_model(stage: Stage, killed: bool) -> Iterator[int]:
    number, python = stage.meet("model_select", "set_model", provider="faux", modelId="faux-2" if killed else "faux-1")
    yield python
    assert stage.result(number)["success"]
    stage.window = OTHER_WINDOW if killed else WINDOW


def tool(stage: Stage, killed: bool) -> Iterator[int]:
    text, mark = f"use the tool{' and wait' if killed else ''}", stage.pi.mark()
    _, python = stage.meet("tool", "prompt", message=text)
    yield python
    stage.pi.event("agent_settled", after=mark)
    (result,) = [said for role, said in spoken(stage.pi.entries())[len(stage.said) :] if role == "toolResult"]
    assert result == "it ended with SIGKILL" if killed else result.startswith("looked at you")
    stage.said += [("user", text), ("assistant", ""), ("toolResult", result), ("assistant", ANSWER)]
    assert texts(stage.home.server.requests[-1], "tool")[-1] == result


def command(stage: Stage, killed: bool) -> Iterator[int]:
    stage.fault = {"command": "hang"} if killed else {}
    stage.control()
    mark = stage.pi.mark()
    number, python = stage.meet("command", "prompt", message="/probe wait")
    yield python
    assert stage.result(number)["success"]
    assert ("/probe: it ended with SIGKILL" in stage.pi.notes(after=mark)) is killed


def greeting(stage: Stage, killed: bool) -> Iterator[int]:
    if killed:
        asleep = stage.home.root / "asleep"
        at_start(stage.home, f"open({str(asleep)!r}, 'w').close()\ntime.sleep(3600)")
    mark = stage.pi.mark()
    assert stage.pi.ask("new_session")["data"] == {"cancelled": False}
    stage.pi.send("prompt", message="Hello.")  # waits for the start
    stage.pi.until(lambda: stage.pi.python_side() is not None, "a Python side")
    python = stage.pi.python_side()
    assert python is not None
    if killed:
        stage.pi.until(asleep.exists, "its sleep")  # from here on it does not look any more
    at_start(stage.home, "")
    yield python
    stage.pi.event("agent_settled", after=mark)
    stage.said = []
    stage.answered("Hello.")
    # It never ran: the model is not offered what it cannot use.
    assert ("probe_look" in offered(stage.home.server.requests[-1])) is not killed


def heartbeat(stage: Stage, killed: bool) -> Iterator[int]:
    stage.home.host_settings(pi={**PATIENT["pi"], "heartbeatSeconds": 1})
    assert stage.pi.ask("new_session")["data"] == {"cancelled": False}
    stage.said = []
    stage.prompt("Hello.")
    python = stage.pi.python_side()
    assert python is not None
    if killed:
        os.kill(python, signal.SIGSTOP)
    time.sleep(1.3)  # a beat, which is not answered when it is stopped
    stage.home.host_settings(**PATIENT)
    yield python


CASES: Mapping[str, Case] = {
    "session_start": start,
    "session_shutdown": new_session_in("session_shutdown"),
    "session_before_switch": new_session_in("session_before_switch"),
    "session_before_fork": fork_in("session_before_fork"),
    "session_tree": move_in_the_tree,
    "session_before_compact": compaction,
    "session_compact": compacted,
    "session_compact_failed": compaction_that_fails,
    "model_select": another_model,
    **{
        hook: within_a_run(hook)
        for hook in (
            "input",
            "agent_start",
            "context",
            "before_provider_headers",
            "turn_end",
            "agent_before_settle",
            "agent_settled",
        )
    },
    "before_provider_request": request_to_the_provider,
    "initialize": greeting,
    "ping": heartbeat,
    "tool/call": tool,
    "command/run": command,
}
OTHER_WAYS: Mapping[str, tuple[str, Case]] = {
    "resume": ("session_shutdown", resume_in("session_shutdown")),
    "fork": ("session_shutdown", fork_in("session_shutdown")),
    "reload": ("session_shutdown", reload_in("session_shutdown")),
    "before a resume": ("session_before_switch", resume_in("session_before_switch")),
}
SAME = {"session/end": "session_shutdown"}
"""What Pi asks for under another name than the hook's."""


def killed_and_asked_again(shared: SharedPi, kind: str, case: Case) -> None:
    with shared.stage() as stage:
        killed = act(stage, kind, case, killed=True)
        assert act(stage, kind, case, killed=False) != killed


@pytest.mark.parametrize("kind", KINDS)
def test_the_python_side_is_killed_in_each_kind_of_event(shared: SharedPi, kind: str) -> None:
    killed_and_asked_again(shared, SAME.get(kind, kind), CASES[SAME.get(kind, kind)])


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_the_python_side_is_killed_while_the_session_ends_in_other_ways(shared: SharedPi, way: str) -> None:
    killed_and_asked_again(shared, *OTHER_WAYS[way])


def test_kinds_that_have_no_case_are_none_of_pis() -> None:
    extension = (files("contexthost.pi") / "extension.ts").read_text(encoding="utf-8")
    assert all(kind not in extension for kind in NOT_IN_PI)
    assert all(kind in extension for kind in KINDS)
