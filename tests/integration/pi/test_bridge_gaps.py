"""Entries that get lost on the way to the Python side of a real Pi: it asks for the session anew, and nothing is done
with an older one meanwhile."""

from __future__ import annotations

from pathlib import Path

from support.live_pi import change_extension, check_mirror, helper, live_home, texts
from support.model_server import Answer, Received, call, say

LOSES = """
    if (from > 0) return { from: from + 1, leaf, entries: entries.slice(1) };
    return { from, leaf, entries };"""
"""Whatever tells of new entries has lost the first one, but for the answer when the session is asked for anew."""


def answer(request: Received) -> Answer:
    """Calls the plugin's tool once in each run."""
    return call("probe_look", {}) if request.body["messages"][-1]["role"] == "user" else say("Answer.")


def test_no_plugin_sees_an_older_session_than_pi_had(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        home.probe()
        home.install()
        change_extension(home, "\n    return { from, leaf, entries };", LOSES)
        with home.rpc(*helper(home)) as pi:
            for number in range(6):
                pi.prompt(f"Question {number}.")
            check_mirror(pi)
            entries = pi.entries()
            assert pi.errors() == []
            assert not any("no answer" in note or "Python side" in note for note in pi.notes())
        order = [entry["id"] for entry in entries]
        users = [entry for entry in entries if entry.get("message", {}).get("role") == "user"]
        calls = [at for at, entry in enumerate(entries) if entry.get("message", {}).get("stopReason") == "toolUse"]
        inputs, turns = home.seen("input"), home.seen("turn_end")
        log = (home.host / "state" / "pi-bridge.log").read_text()
        assert log.count("the session is asked for anew") > 12  # at every input and the end of every turn
        assert [len(inputs), len(turns), len(home.seen("agent_settled"))] == [6, 12, 6]  # none is lost
        assert [one["leaf"] for one in inputs[1:]] == [user["parentId"] for user in users[1:]]
        for turn in turns:  # the leaf is the turn's message, or the tool's result behind it
            message = order.index(turn["event"]["message_entry_id"])
            assert turn["leaf"] == order[message + (message in calls)]
        # The tool counts all up to the message that calls it.
        looked = [f"looked at None among {at + 1} entries" for at in calls]
        assert texts(home.server.requests[-1], "tool") == looked
