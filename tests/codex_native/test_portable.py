"""The portable summary: facts from the snapshot, bounded, the same every time, good enough to go on with."""

from __future__ import annotations

import json

import pytest

from contexthost.projection import ProjectionAuthority, Snapshot
from contexthost.session import Session
from contexthost_codex_native.checkpoint import Checkpoint
from contexthost_codex_native.portable import Portable, portable_of, portable_text
from support.builder import SessionBuilder, tool_call

OPAQUE = {"type": "compaction", "encrypted_content": "sealed"}


def snapshot(build: SessionBuilder) -> Snapshot:
    entries = [json.loads(line) for line in build.bytes().splitlines()[1:]]
    return ProjectionAuthority(Session.in_memory(entries=entries)).snapshot()


def work() -> SessionBuilder:
    build = SessionBuilder()
    build.user("Make the booking API refuse double bookings.")
    build.assistant(
        "I look.", calls=[tool_call("c1", "read", {"path": "api.py"}), tool_call("c2", "read", {"path": "db.py"})]
    )
    build.tool_result("c1", "SECRET CONTENT")
    build.tool_result("c2", "rows")
    hidden = build.user("my password is hunter22")
    build.user("Keep the tests as they are.")
    build.assistant("Changed.", calls=[tool_call("c3", "edit", {"path": "api.py"})])
    build.tool_result("c3", "ok", tool="edit")
    build.assistant(
        "The lock is in place; the retry is still missing.", calls=[tool_call("c4", "bash", {"command": "pytest"})]
    )
    build.edit(hidden, None)
    return build


def test_it_holds_goal_constraints_state_files_and_open_calls() -> None:
    assert portable_text(portable_of(snapshot(work()), None), 12_000).split("\n\n")[1:-1] == [
        "## Goal\nMake the booking API refuse double bookings.",
        "## What the user said since, newest last\n- Keep the tests as they are.",
        "## State: the last answer\nThe lock is in place; the retry is still missing.",
        '## Calls without a result\n- bash {"command":"pytest"}',
        "## Files changed\n- api.py",
        "## Files read\n- db.py",
    ]


def test_it_says_what_it_is_and_how_to_look_up_the_rest() -> None:
    text = portable_text(portable_of(snapshot(work()), None), 12_000)
    assert text.startswith("The provider compacted the conversation before this point itself")
    assert "context_tree_query" in text.rpartition("## The rest\n")[2]


def test_what_an_edit_hides_is_not_in_it() -> None:
    assert "hunter22" not in portable_text(portable_of(snapshot(work()), None), 12_000)


def test_it_is_the_same_every_time() -> None:
    assert portable_text(portable_of(snapshot(work()), None), 12_000) == portable_text(
        portable_of(snapshot(work()), None), 12_000
    )


@pytest.mark.parametrize("most", [1_000, 2_500, 12_000])
def test_it_is_never_longer_than_it_may_be_and_every_kind_of_fact_is_in_it(most: int) -> None:
    long = "word " * 4_000
    facts = Portable(
        goal="GOAL " + long,
        before="BEFORE " + long,
        requests=tuple(f"request {number} {long}" for number in range(50)),
        state="STATE " + long,
        open_calls=tuple(f"bash call{number}" for number in range(400)),
        read_files=tuple(f"read{number}.py" for number in range(2_000)),
        modified_files=tuple(f"changed{number}.py" for number in range(2_000)),
        focus="FOCUS " + long,
    )
    text = portable_text(facts, most)
    assert len(text) <= most
    if most >= 2_500:
        wanted = ("GOAL", "FOCUS", "BEFORE", "request 49", "STATE", "call0", "changed0.py")
        assert [part for part in wanted if part not in text] == []
        assert "earlier ones are left out" in text


def test_goal_and_files_are_carried_from_checkpoint_to_checkpoint() -> None:
    first = portable_of(snapshot(work()), None)
    said = {"role": "user", "content": [{"type": "input_text", "text": "Keep the tests as they are."}]}
    checkpoint = Checkpoint("a:b:c", (said, OPAQUE), first.carried())
    build = work()
    build.compaction("portable", details=checkpoint.details())
    build.user("Now the retry.")
    build.assistant("Done.", calls=[tool_call("c9", "write", {"path": "db.py"})])
    second = portable_of(snapshot(build), checkpoint)
    assert second.goal == "Make the booking API refuse double bookings."
    assert second.requests == ("Keep the tests as they are.", "Now the retry.")
    assert (second.modified_files, second.read_files) == (("api.py", "db.py"), ())
    assert second.before == ""


def test_a_summary_of_another_making_is_handed_on() -> None:
    build = SessionBuilder()
    build.user("old")
    kept = build.user("Now the retry.")
    build.compaction("They built the lock.", kept, details={"readFiles": ["a.py"], "modifiedFiles": ["b.py"]})
    facts = portable_of(snapshot(build), None, focus="the retry")
    assert (facts.before, facts.goal, facts.requests) == ("They built the lock.", "", ("Now the retry.",))
    assert (facts.read_files, facts.modified_files, facts.focus) == (("a.py",), ("b.py",), "the retry")


def test_an_empty_session_gives_a_text_all_the_same() -> None:
    text = portable_text(Portable(), 1_000)
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## The rest"]
