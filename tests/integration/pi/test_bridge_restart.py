"""A tool or a slash command that is used while the Python side of the real Pi is not there: it is started at once, a
start that goes on already is waited for, and what cannot be started is said within its limit."""

from __future__ import annotations

import time
from pathlib import Path

from support.live_pi import at_start, check_mirror, helper, kill_python, live_home, offered, python_sides, texts
from support.model_server import Answer, Received, call, say

TOOL_ALONE = """
from contexthost import Tool, ToolResult, hookimpl

async def _look(arguments, ctx):
    return ToolResult("looked")

@hookimpl
def register_tools():
    schema = {"type": "object", "properties": {}}
    return [Tool(name="probe_look", description="Looks.", parameters=schema, handler=_look)]
"""


def answer(request: Received) -> Answer:
    """Calls the plugin's tool when the last message asks for it."""
    last = request.body["messages"][-1]
    if last["role"] == "user" and texts(request, "user")[-1].startswith("use the tool"):
        return call("probe_look", {"what": "you"})
    return say("Answer.")


def test_a_command_and_a_tool_start_what_has_gone_without_waiting_for_its_time(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        home.probe()
        home.install()
        with home.rpc(*helper(home)) as pi:
            pi.prompt("Hello.")
            # More often than the back-off would allow: after the third death it is 16 seconds.
            for _ in range(3):
                kill_python(pi)
                started = time.monotonic()
                check_mirror(pi)
                assert time.monotonic() - started < 10
            kill_python(pi)
            at_start(home, "time.sleep(2)")  # so that what comes next meets a start that goes on
            number, other = (pi.send("prompt", message="/probe entries") for _ in range(2))
            pi.until(lambda: pi.answered(number) is not None and pi.answered(other) is not None, "both answers")
            assert len([note for note in pi.notes() if note.startswith("probe: ")]) == 5
            assert len({one["pid"] for one in home.seen("session_start")}) == 5  # the last was started once for both
            kill_python(pi)
            pi.prompt("use the tool")
            assert texts(home.server.requests[-1], "tool")[-1].startswith("looked at you among ")
            assert not any("not running" in note for note in pi.notes())
            assert [one["event"]["reason"] for one in home.seen("session_start")] == ["startup", *["reload"] * 5]
            assert pi.errors() == []


def test_what_cannot_be_started_is_said_within_its_limit_and_tried_again_when_asked(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        home.probe()
        home.install()
        with home.rpc(*helper(home)) as pi:
            pi.prompt("Hello.")
            kill_python(pi)
            at_start(home, "os._exit(3)")
            for _ in range(3):
                said = pi.slash("/probe entries")
                assert said == "/probe: contexthost is not running (it ended with code 3)"
            pi.prompt("use the tool")
            assert texts(home.server.requests[-1], "tool")[-1] == "contexthost is not running (it ended with code 3)"

            at_start(home, "time.sleep(3600)")
            started = time.monotonic()
            said = pi.slash("/probe entries")
            assert said == "/probe: contexthost is not running (no answer to initialize within 10 s)"
            assert 9 < time.monotonic() - started < 20
            pi.until(lambda: python_sides(pi.process.pid) == [], "its end")

            # A user who aborts does not wait for that.
            mark, started = pi.mark(), time.monotonic()
            pi.send("prompt", message="use the tool")
            pi.event("tool_execution_start", after=mark)
            assert pi.ask("abort")["success"]
            pi.event("agent_settled", after=mark)
            assert time.monotonic() - started < 8

            at_start(home, "")
            pi.until(lambda: "not running" not in pi.slash("/probe entries"), "a start that works")
            check_mirror(pi)
            pi.prompt("use the tool")
            assert texts(home.server.requests[-1], "tool")[-1].startswith("looked at you among ")
            assert pi.errors() == []


def test_a_tool_that_has_run_is_offered_though_the_next_start_fails(tmp_path: Path) -> None:
    """Otherwise the prompt cache would be lost; also that of a plugin that listens to nothing."""
    with live_home(tmp_path, answer) as home:
        home.plugin(TOOL_ALONE)
        home.install()
        with home.rpc() as pi:
            pi.prompt("use the tool")
            assert texts(home.server.requests[-1], "tool") == ["looked"]
            kill_python(pi)
            at_start(home, "os._exit(3)")
            pi.prompt("use the tool")
            said = "contexthost is not running (it ended with code 3)"
            assert texts(home.server.requests[-1], "tool") == ["looked", said]
            pi.prompt("Hello.")
            assert ["probe_look" in offered(request) for request in home.server.requests] == [True] * 5
            assert pi.errors() == []
