"""``contexthost mask``: what it prints and what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from contexthost.errors import SessionNotFound
from contexthost.projection import ProjectionAuthority, Snapshot
from contexthost.session import Session
from contexthost_masking.cli import mask
from contexthost_masking.plan import MaskPlan, plan_mask
from contexthost_masking.settings import MaskSettings
from support.builder import SessionBuilder, tool_call, usage_of
from support.masking import answer, turn

OUTPUT = "error: expected 3 but got 4\n" * 200  # 10 tokens a line by cl100k: 2,000 in all


def work(version: int = 3, *, usage: int = 90_000, turns: int = 12) -> SessionBuilder:
    """Twelve turns of 2,000 tokens each and an answer: the last ten turns are kept, three results may go."""
    build = SessionBuilder(version=version)
    build.user("make the tests pass")
    for number in range(turns):
        turn(build, OUTPUT, arguments={"command": f"pytest -k case{number}"})
    answer(build, usage=usage)
    return build


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return work().write(tmp_path / "session.jsonl")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__MASK__MINCLEARTOKENS", "1000")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(mask, [str(argument) for argument in arguments])


def run_json(*arguments: str | Path) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_a_dry_run_tells_everything_and_writes_nothing(session: Path) -> None:
    before = session.read_bytes()
    result = run(session, "--dry-run")
    assert result.exit_code == 0
    assert session.read_bytes() == before
    assert sorted(session.parent.iterdir()) == [session]
    assert result.stdout.startswith(
        f"{session}\nUsage 90,000 of 200,000 tokens (the provider's last figure and what came since); "
        "masking starts at 80,000, down to 40,000.\n"
    )
    assert "   2,000  00000003    bash pytest -k case0\n" in result.stdout
    assert "to mask    3 results, 6,000 tokens\n" in result.stdout
    assert "reclaimed  5," in result.stdout
    assert "tokens behind the first mask go into the prompt cache anew, once" in result.stdout
    assert result.stdout.endswith("Dry run: nothing was written. Run it again without --dry-run to mask them.\n")


def test_masking_only_appends(session: Path) -> None:
    before = session.read_bytes()
    result = run(session)
    assert result.exit_code == 0
    after = session.read_bytes()
    assert after.startswith(before)
    added = [json.loads(line) for line in after[len(before) :].splitlines()]
    assert [(entry["type"], entry["targetId"]) for entry in added] == [
        ("context_edit", "00000003"),
        ("context_edit", "00000005"),
        ("context_edit", "00000007"),
    ]
    assert "masked     3 results, 6,000 tokens\n" in result.stdout
    assert "3 context edits were appended; every original is still in the file." in result.stdout


def test_the_dry_run_says_exactly_what_the_run_then_does(session: Path) -> None:
    planned = run_json(session, "--dry-run")
    done = run_json(session)
    assert {**planned, "dryRun": False, "applied": True} == done
    with Session.open(session) as opened:
        snapshot = ProjectionAuthority(opened).snapshot()
    assert snapshot.tokens == done["tokensAfter"]
    assert snapshot.ledger.reclaimed_tokens == done["reclaimedTokens"]


def test_masking_twice_appends_once(session: Path) -> None:
    run(session)
    once = session.read_bytes()
    result = run(session)
    assert result.exit_code == 0
    assert "Nothing to mask: usage is " in result.stdout
    assert session.read_bytes() == once


def test_the_json_keys_are_stable(session: Path) -> None:
    report = run_json(session, "--dry-run")
    assert list(report) == [
        "session", "sessionId", "dryRun", "applied", "contextWindow", "thresholds", "usage", "tokensBefore",
        "tokensAfter", "reclaimedTokens", "rewrittenTokens", "costs", "reason", "explanation", "results",
        "backup", "warnings",
    ]  # fmt: skip
    assert list(report["thresholds"]) == ["triggerTokens", "targetTokens", "minClearTokens"]
    assert list(report["usage"]) == ["tokens", "lower", "upper", "source", "window", "percent"]
    assert list(report["results"][0]) == [
        "entryId", "tool", "argument", "tokens", "placeholderTokens", "placeholder", "overtakenBy",
    ]  # fmt: skip
    assert list(report["costs"]) == [
        "cache", "cacheSeconds", "prices", "breakEvenTurns", "rewriteDollars", "dollarsPerTurn",
    ]  # fmt: skip
    assert report["tokensBefore"] - report["tokensAfter"] == report["reclaimedTokens"]


def test_nothing_to_do_is_said_with_its_reason(tmp_path: Path) -> None:
    path = work(usage=79_999).write(tmp_path / "session.jsonl")
    before = path.read_bytes()
    result = run(path)
    assert result.exit_code == 0
    assert result.stdout.endswith("Nothing to mask: usage is 79,999 tokens, masking starts at 80,000.\n")
    assert path.read_bytes() == before
    report = run_json(path)
    assert (report["reason"], report["applied"], report["results"]) == ("below-trigger", False, [])


def test_too_little_to_be_worth_it_is_said(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTEXTHOST_MASKING__MASK__MINCLEARTOKENS")
    result = run(session)
    assert "Nothing to mask: masking 3 results would free 5," in result.stdout
    assert result.stdout.endswith("tokens, a batch must free 10,000.\n")


def test_what_another_process_masks_between_planning_and_the_lock_is_not_masked_twice(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = 0

    def plan_slowly(snapshot: Snapshot, settings: MaskSettings, **options: Any) -> MaskPlan:
        nonlocal planned
        plan = plan_mask(snapshot, settings, **options)
        planned += 1
        if planned == 1:
            other = ProjectionAuthority(Session.open(session))
            other.commit(plan_mask(other.snapshot(), settings).drafts)
        return plan

    monkeypatch.setattr("contexthost_masking.plan.plan_mask", plan_slowly)
    report = run_json(session)
    assert (planned, report["applied"], report["reason"]) == (2, False, "below-trigger")
    edits = [entry.data["targetId"] for entry in Session.open(session).entries if entry.type == "context_edit"]
    assert len(edits) == len(set(edits)) == 3


def test_the_window_moves_the_thresholds(session: Path) -> None:
    report = run_json(session, "--dry-run", "--context-window", "100000")
    assert report["contextWindow"] == 100_000
    assert report["thresholds"]["triggerTokens"] == 50_000
    assert report["thresholds"]["targetTokens"] == 25_000


def test_a_window_of_nothing_is_a_bad_argument(session: Path) -> None:
    assert run(session, "--context-window", "0").exit_code == 2


def test_a_version_1_file_is_migrated_and_the_original_kept(tmp_path: Path) -> None:
    path = work(version=1).write(tmp_path / "session.jsonl")
    original = path.read_bytes()
    planned = run_json(path, "--dry-run")
    assert path.read_bytes() == original
    done = run_json(path)
    backup = tmp_path / "session.jsonl.v1.bak"
    assert done["backup"] == str(backup)
    assert backup.read_bytes() == original
    assert json.loads(path.read_bytes().splitlines()[0])["version"] == 3
    assert done["results"] == planned["results"]
    assert len(done["results"]) == 3


def test_the_backup_is_named_where_it_lies_when_the_session_is_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = work(version=1).write(tmp_path / "real" / "session.jsonl")
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    backup = run_json(link)["backup"]
    assert backup == f"{path}.v1.bak"
    assert Path(backup).exists()


def test_the_backup_is_told(tmp_path: Path) -> None:
    path = work(version=1).write(tmp_path / "session.jsonl")
    assert f"The file was brought to version 3; the original is {path}.v1.bak.\n" in run(path).stdout


def test_a_target_above_the_trigger_is_warned_about(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS", "40000")
    result = run(session, "--dry-run")
    assert result.stderr.startswith("warning: masking.json: the target in force (40,000 tokens) is not below")
    (warning,) = run_json(session, "--dry-run")["warnings"]
    assert "mask.targetTokens" in warning


def test_settings_that_do_not_fit_are_warned_about(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__MASK__KEEPRECENTTURNS", "many")
    result = run(session, "--dry-run")
    assert "warning: CONTEXTHOST_MASKING__MASK__KEEPRECENTTURNS: mask.keepRecentTurns: " in result.stderr
    assert "to mask    3 results" in result.stdout


def test_masking_that_is_switched_off_can_still_be_asked_for(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__ENABLED", "false")
    assert run_json(session)["applied"] is True


def test_control_sequences_of_a_session_do_not_reach_the_terminal(tmp_path: Path) -> None:
    build = SessionBuilder()
    nasty = "printf '\x1b]0;owned\x07\x1b[2J'\n\u202erm"
    build.assistant(calls=[tool_call("n", "ba\x1b[31msh", {"command": nasty})])
    build.tool_result("n", OUTPUT, tool="ba\x1b[31msh")
    for _ in range(9):
        turn(build, "ok")
    build.assistant("done", usage=usage_of(90_000))
    path = build.write(tmp_path / "session.jsonl")
    shown = run(path, "--dry-run").stdout
    assert "bash printf '' rm" in shown
    assert all(character == "\n" or character.isprintable() for character in shown)
    (result,) = run_json(path, "--dry-run")["results"]
    assert result["argument"] == nasty  # JSON is lossless; json.dumps escapes it


def test_no_such_session_is_an_error_of_the_host(tmp_path: Path) -> None:
    result = run(tmp_path / "none.jsonl")
    assert result.exit_code == 1
    assert isinstance(result.exception, SessionNotFound)
