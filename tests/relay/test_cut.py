"""Where a relay cuts, and what of the session goes into its note."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from contexthost_relay.material import changed_files, find_cut
from contexthost_relay.relay import MARKER, VERSION, Relay
from contexthost_relay.settings import AutoSettings, Limits, RelaySettings
from support.builder import SessionBuilder, tool_call
from support.relay import commit, git, open_built, prepared, relayed, repository

LONG = "word " * 400  # 2,000 characters, 500 of Pi's tokens


def tail(build: SessionBuilder, characters: int) -> None:
    """A turn whose texts have so many characters, in results of 1,000."""
    for number in range(characters // 1_000):
        build.assistant(calls=[tool_call(f"t{number}", "bash", {"command": "x" * 500})])
        build.tool_result(f"t{number}", "y" * 1_000, tool="bash")


def cut_of(build: SessionBuilder, keep: int, tail_max_chars: int = 48_000) -> str:
    _, authority, _ = open_built(build)
    snapshot = authority.snapshot()
    return find_cut(snapshot, prepared(snapshot, keep), tail_max_chars).entry_id


def test_everything_from_the_last_user_message_on_is_kept() -> None:
    build = SessionBuilder()
    build.user("first")
    build.assistant(LONG)
    last = build.user("last")
    tail(build, 10_000)
    assert cut_of(build, keep=100) == last  # though Pi's own cut lies later


def test_a_longer_tail_is_cut_where_pi_cuts_if_that_is_later() -> None:
    build = SessionBuilder()
    build.user("first")
    build.assistant(LONG)
    last = build.user("last")  # 4 characters
    tail(build, 10_000)
    pi = cut_of(build, keep=100, tail_max_chars=0)
    assert pi != last
    assert cut_of(build, keep=100, tail_max_chars=10_004) == last  # exactly the limit is not more than it
    assert cut_of(build, keep=100, tail_max_chars=10_003) == pi


def test_a_longer_tail_is_kept_if_pi_cuts_earlier() -> None:
    build = SessionBuilder()
    for _ in range(4):
        build.user("first")
        build.assistant(LONG)
    last = build.user("last")
    tail(build, 3_000)
    assert cut_of(build, keep=2_000, tail_max_chars=10) == last


def test_without_a_user_message_pi_cuts() -> None:
    build = SessionBuilder()
    build.custom_message("task", LONG)
    build.assistant(LONG)
    kept = build.assistant("end " * 200)
    assert cut_of(build, keep=100) == kept


def test_an_omitted_user_message_is_not_the_last_one() -> None:
    build = SessionBuilder()
    build.user("first")
    build.assistant(LONG)
    last = build.user("last")
    build.assistant(LONG)
    omitted = build.user("never mind")
    build.edit(omitted, None)
    assert cut_of(build, keep=100) == last


# The note of a session -----------------------------------------------------------------------------------------------


def note_of(build: SessionBuilder, path: Path, **settings: Any) -> str:
    return made(build, path, **settings).note


def made(build: SessionBuilder, path: Path, **settings: Any) -> Relay:
    return asyncio.run(relayed(build.write(path / "s.jsonl"), RelaySettings(**settings)))


def two_turns() -> SessionBuilder:
    build = SessionBuilder(cwd="/nowhere")
    build.user("do the first thing")
    build.assistant(calls=[tool_call("e", "edit", {"path": "/nowhere/src/a.py"})])
    build.tool_result("e", "ok", tool="edit")
    build.assistant("The first thing is done.")
    build.user("do the second thing")
    build.assistant("The second thing is done.")
    return build


def test_what_is_kept_is_not_in_the_note(tmp_path: Path) -> None:
    note = note_of(two_turns(), tmp_path)
    assert "do the first thing" in note
    assert "> The first thing is done." in note
    assert "second thing" not in note
    assert "- src/a.py (1 edit)" in note


def test_details_say_what_it_is_and_where_the_note_lies(tmp_path: Path, home: Path) -> None:
    relay = made(two_turns(), tmp_path)
    path = home / "data" / "plugins" / "relay" / "session-1" / "1.md"
    assert relay.result.details == {"relay": True, "version": VERSION, "notePath": str(path)}
    assert relay.result.usage is None
    assert not path.exists()  # it is written with the compaction


def test_edits_count_in_the_note(tmp_path: Path) -> None:
    build = two_turns()
    first, edit_call, answer = build.id_at(1), build.id_at(2), build.id_at(4)
    build.edit(first, "do the REPLACED thing")
    build.edit(answer, None)
    note = note_of(build, tmp_path)
    assert "do the REPLACED thing" in note
    assert "first thing" not in note
    assert "The last answer" not in note
    build.edit(edit_call, None)
    build.edit(build.id_at(3), None)
    assert "src/a.py" not in note_of(build, tmp_path)


def test_a_second_relay_chains_the_instructions_of_the_first(tmp_path: Path) -> None:
    build = two_turns()
    relay = made(build, tmp_path)
    result = relay.result
    build.compaction(result.summary, result.first_kept_entry_id, details=dict(result.details or {}), fromHook=True)
    build.user("do the third thing")
    build.assistant("The third thing is done.")
    second = made(build, tmp_path)
    assert second.number == 2
    assert second.path.name == "2.md"
    assert "Before that, oldest first: “do the first thing”\n" in second.note
    assert "] do the second thing\n" in second.note  # it was kept by the first relay
    assert "> The second thing is done." in second.note
    assert "third thing" not in second.note
    assert "An earlier summary" not in second.note


def test_after_a_built_in_compaction_its_summary_is_pointed_to(tmp_path: Path) -> None:
    build = two_turns()
    compaction = build.compaction("a model's summary", build.id_at(5))
    build.user("do the third thing")
    build.assistant("done")
    note = note_of(build, tmp_path)
    assert f'An earlier summary is replaced too: `recall` with entryId "{compaction}".' in note
    assert "“do the first thing”" in note


def test_an_answer_that_calls_tools_or_failed_is_not_final(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    build.assistant("the real answer")
    build.assistant("half an answer", stop_reason="aborted")
    build.assistant("looking", calls=[tool_call("c", "bash")])
    build.tool_result("c", "out", tool="bash")
    build.user("last")
    assert "> the real answer" in note_of(build, tmp_path)


def test_commits_and_worktrees_are_in_the_note(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "before", "2026-01-05T08:00:00+00:00")
    made = commit(repo, "made meanwhile")
    tree = tmp_path / "worktrees" / "agent"
    git(repo, "worktree", "add", "-q", "-b", "agent-branch", str(tree))
    theirs = commit(tree, "by the agent", "2026-01-05T11:00:00+00:00")
    build = SessionBuilder(cwd=str(repo))
    build.user("go")
    data = {"id": "a", "status": "completed", "result": f"Worktree: {tree}/src"}
    build.custom("subagents:record", data)
    build.assistant("done")
    build.user("last")
    note = note_of(build, tmp_path)
    assert f"{repo}, branch main:\n- {made} made meanwhile (2026-01-05 10:00)\n" in note
    assert f"{tree}, branch agent-branch:\n- {theirs} by the agent (2026-01-05 11:00)\n" in note
    assert "before" not in note.split("## Commits")[1].split("---")[0]
    assert "## Commits" not in note_of(build, tmp_path, gitTimeoutMs=0)


def test_limits_are_settings(tmp_path: Path) -> None:
    build = two_turns()
    note = note_of(build, tmp_path, limits=Limits(files=0, answer=0))
    assert "## Files" not in note
    assert "## The last answer" not in note


def test_failed_calls_and_nested_ones() -> None:
    build = SessionBuilder(cwd="/p")
    build.assistant(calls=[tool_call("1", "write", {"path": "/p/a"}), tool_call("2", "edit", {"path": "/p/b"})])
    build.tool_result("1", "ok", tool="write")
    build.tool_result("2", "no", tool="edit", is_error=True)
    nested = {"calls": [{"name": "edit", "arguments": {"path": "/q/c"}}, {"name": "bash", "arguments": {}}, 7]}
    build.tool_result("3", "ok", tool="code", nestedCalls=nested)
    session, _, history = open_built(build)
    found = [(one.path, one.edits, one.writes) for one in changed_files(session.branch(), history, "/p")]
    assert found == [("a", 0, 1), ("/q/c", 1, 0)]


# What other plugins add ----------------------------------------------------------------------------------------------


def test_the_defaults_are_the_seeds() -> None:
    settings = RelaySettings()
    assert settings.model_dump(include={"enabled", "tailMaxChars", "gitTimeoutMs"}) == {
        "enabled": True,
        "tailMaxChars": 48_000,
        "gitTimeoutMs": 4_000,
    }
    assert (settings.limits.total, settings.limits.userMessages) == (9_500, 3_000)
    assert AutoSettings().model_dump() == {
        "onInput": True,
        "inputMinTokens": 100_000,
        "beforeExpiry": True,
        "expiryMinTokens": 140_000,
        "minGrowthTokens": 30_000,
        "writtenSection": False,
        "lightModel": None,
    }
    assert MARKER.strip()


