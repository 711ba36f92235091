"""Subagents: what their traces in a session tell, in the shapes that pi-subagents writes."""

from __future__ import annotations

import time

import pytest

from contexthost_relay.subagents import Subagent, find_subagents, worktree_paths
from support.builder import Json, SessionBuilder, tool_call
from support.relay import open_built

STARTED = (
    "Agent started in background.\nAgent ID: agent-1\nType: Explore\nDescription: Look around\n"
    "Output file: /tmp/out.txt\n\nYou will be notified when this agent completes."
)
CAME_BACK = (
    "<task-notification>\n<task-id>agent-1</task-id>\n<status>completed</status>\n"
    "<summary>Agent completed</summary>\n<result>It is in /repo/.git/worktrees.\nChanges saved to branch "
    "`pi-agent-1`.\nSee /repo/.pi/worktrees/agent-1/src.</result>\n</task-notification>"
)


def found(build: SessionBuilder) -> list[Subagent]:
    session, _, history = open_built(build)
    return find_subagents(session.branch(), history)


def start(build: SessionBuilder, text: str = STARTED, **details: object) -> str:
    build.assistant(calls=[tool_call("c", "Agent", {"prompt": "go"})])
    extra: Json = {"details": details} if details else {}
    return build.tool_result("c", text, tool="Agent", **extra)


def test_started_and_not_come_back_is_running_with_its_start_time() -> None:
    build = SessionBuilder()
    build.user("go")
    entry_id = start(build)
    assert found(build) == [
        Subagent(
            "agent-1", "Explore", "Look around", "RUNNING", "2026-01-05T09:00:03.000Z", entry_id=entry_id
        )
    ]


def test_details_say_more_than_the_text() -> None:
    build = SessionBuilder()
    start(build, "started", agentId="x", subagentType="Plan", description="D", status="background")
    (agent,) = found(build)
    assert (agent.id, agent.type, agent.description, agent.running) == ("x", "Plan", "D", True)


def test_a_notification_brings_it_back_with_result_worktree_and_branch() -> None:
    build = SessionBuilder()
    start(build)
    details = {"id": "agent-1", "status": "completed"}
    entry_id = build.custom_message("subagent-notification", CAME_BACK, details=details)
    (agent,) = found(build)
    assert (agent.state, agent.type, agent.entry_id) == ("completed", "Explore", entry_id)
    assert (agent.branch, agent.worktree) == ("pi-agent-1", "/repo/.pi/worktrees/agent-1")
    assert agent.result.startswith("It is in")


def test_a_record_brings_it_back_too() -> None:
    build = SessionBuilder()
    start(build)
    data = {"id": "agent-1", "type": "Explore", "status": "error", "error": "ran out", "startedAt": 1767603600000}
    build.custom("subagents:record", data)
    (agent,) = found(build)
    assert (agent.state, agent.result) == ("error", "ran out")


def test_a_record_alone_tells_when_it_was_started() -> None:
    build = SessionBuilder()
    build.custom("subagents:record", {"id": "a", "status": "running", "startedAt": 1767603600000})
    assert [(agent.state, agent.started) for agent in found(build)] == [("RUNNING", "2026-01-05T09:00:00.000Z")]


def test_a_foreground_agent_has_come_back_with_its_result() -> None:
    build = SessionBuilder()
    start(build, "Agent completed in 3s.\n\nThe answer", agentId="f", status="completed")
    (agent,) = found(build)
    assert (agent.state, agent.result) == ("completed", "Agent completed in 3s.\n\nThe answer")


def test_a_group_notification_names_several() -> None:
    build = SessionBuilder()
    other = CAME_BACK.replace("agent-1", "agent-2").replace("completed", "aborted")
    details = {"id": "agent-1", "status": "completed", "others": [{"id": "agent-2", "status": "aborted"}]}
    build.custom_message("subagent-notification", f"2 finished\n\n{CAME_BACK}\n\n{other}", details=details)
    assert [(agent.id, agent.state) for agent in found(build)] == [("agent-1", "completed"), ("agent-2", "aborted")]


def test_one_that_is_started_again_runs_again_from_then() -> None:
    build = SessionBuilder()
    start(build)
    build.custom("subagents:record", {"id": "agent-1", "status": "completed", "result": "old"})
    start(build)
    (agent,) = found(build)
    assert (agent.running, agent.result, agent.started) == (True, "", "2026-01-05T09:00:05.000Z")


def test_what_was_omitted_does_not_count_and_replacements_do() -> None:
    build = SessionBuilder()
    start(build)
    notice = build.custom_message("subagent-notification", CAME_BACK, details={"id": "agent-1", "status": "completed"})
    build.edit(notice, None)
    (agent,) = found(build)
    assert agent.running
    build.edit(notice, CAME_BACK.replace("It is in", "Redacted"))
    (agent,) = found(build)
    assert agent.result.startswith("Redacted")


@pytest.mark.parametrize("data", [None, 1, [], {}, {"id": 7}, {"id": ""}, {"id": None, "status": []}])
def test_records_of_another_shape_are_passed_over(data: object) -> None:
    build = SessionBuilder()
    build.custom("subagents:record", data)
    build.custom_message("subagent-notification", "nothing", details=data)
    start(build, "no id here")
    assert found(build) == []


def test_worktree_paths_are_absolute_and_end_at_the_name() -> None:
    text = "in `/a/b/.pi/worktrees/one/src/x.py`, /worktrees/two, and rel/worktrees/three; see /c/worktrees/"
    assert worktree_paths(text) == ["/a/b/.pi/worktrees/one", "/worktrees/two", "/worktrees/three"]


def test_looking_for_worktrees_takes_no_time_in_hostile_text() -> None:
    began = time.perf_counter()
    worktree_paths("/" * 500_000 + "/worktrees/x " * 1_000)
    assert time.perf_counter() - began < 5
