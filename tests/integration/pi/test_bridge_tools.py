"""A tool or a slash command that takes too long in the real Pi, or that the user aborts: it is ended on both sides, the
model and the user are told, and everything goes on with the same Python side."""

from __future__ import annotations

from pathlib import Path

from support.live_pi import LivePi, live_home, texts
from support.model_server import Answer, Received, call, say

TOO_LONG = "took longer than 2 s and was ended (pi.toolSeconds in host.json is the limit)"


def answer(request: Received) -> Answer:
    """Calls the plugin's tool when the last message asks for it."""
    last = request.body["messages"][-1]
    if last["role"] == "user" and "use the tool" in texts(request, "user")[-1]:
        return call("probe_look", {"what": "you", "wait": "wait" in texts(request, "user")[-1]})
    return say("Answer.")


def results(pi: LivePi) -> list[tuple[str, bool]]:
    """The tool results of the session: text, and whether it is an error."""
    messages = [entry["message"] for entry in pi.entries() if entry["type"] == "message"]
    return [(one["content"][0]["text"], one["isError"]) for one in messages if one["role"] == "toolResult"]


def test_what_takes_too_long_is_ended_and_told(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        home.host_settings(pi={"toolSeconds": 2})
        home.probe(command="hang", hang_seconds=4)  # twice the limit, not longer: what waits longer hears no error
        home.install()
        with home.rpc() as pi:
            pi.prompt("use the tool and wait")
            assert results(pi) == [(f"probe_look {TOO_LONG}", True)]
            assert texts(home.server.requests[-1], "tool") == [f"probe_look {TOO_LONG}"]
            (ended,) = home.seen("tool ended")
            assert ended["aborted"]

            assert pi.slash("/probe wait") == f"/probe: it {TOO_LONG}"
            pi.until(lambda: len(home.seen("command ended")) == 1, "the end of the command")

            pi.prompt("use the tool")
            assert results(pi)[1] == (texts(home.server.requests[-1], "tool")[-1], False)
            assert results(pi)[1][0].startswith("looked at you among ")
            assert {one["pid"] for one in home.seen()} == {ended["pid"]}
            assert len(pi.notes()) == 1
            assert pi.errors() == []
            assert home.server.problems == []


def test_what_the_user_aborts_is_ended_in_python_as_well(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        home.probe()
        home.install()
        with home.rpc() as pi:
            mark = pi.mark()
            pi.send("prompt", message="use the tool and wait")
            pi.until(lambda: len(home.seen("tool")) == 1, "the tool")
            assert pi.ask("abort")["success"]
            pi.event("agent_settled", after=mark)
            pi.until(lambda: len(home.seen("tool ended")) == 1, "its end")
            assert home.seen("tool ended")[0]["aborted"]
            pi.prompt("use the tool")
            assert results(pi)[-1][0].startswith("looked at you among ")
            assert pi.errors() == []
