"""``contexthost relay`` and ``contexthost recall`` on files."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from contexthost.cli import compact
from contexthost.errors import CompactionFailed, EntryNotFound, NothingToCompact, SessionLocked, Unsupported
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost_relay import cli, files
from support.relay import SUBAGENT
from support.relay_live import history_file, log_lines


@pytest.fixture(autouse=True)
def keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "50")


def run(command: Any, *arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def data(command: Any, *arguments: str | Path) -> dict[str, Any]:
    result = run(command, *arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_dry_run_shows_the_note_and_writes_nothing(tmp_path: Path, home: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    before = path.read_bytes()
    result = run(cli.relay, path, "--dry-run")
    assert result.exit_code == 0
    assert "  # Relay note 1\n" in result.stdout
    assert "Dry run: nothing was written." in result.stdout
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path]
    assert (list((home / "data").rglob("*.md")), log_lines(home)) == ([], [])


def test_a_relay_appends_one_compaction_and_leaves_note_and_log(tmp_path: Path, home: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    before = path.read_bytes()
    report = data(cli.relay, path)
    after = path.read_bytes()
    assert after.startswith(before)
    (line,) = after[len(before) :].splitlines()
    entry = json.loads(line)
    assert (entry["type"], entry["summary"], entry["fromHook"]) == ("compaction", report["note"], True)
    assert entry["firstKeptEntryId"] == report["firstKeptEntryId"] == "00000003"
    assert entry["details"] == {"relay": True, "version": 1, "notePath": report["notePath"]}
    assert entry["tokensBefore"] == report["tokensBefore"] == 150_000
    note = Path(report["notePath"])
    assert note.read_text() == report["note"]
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert stat.S_IMODE(note.parent.stat().st_mode) == 0o700
    log = home / "data" / "plugins" / "relay" / "log.jsonl"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    (record,) = log_lines(home)
    assert list(record) == ["at", "sessionId", "trigger", "tokensBefore", "noteChars", "keptFrom", "ok"]
    assert (record["trigger"], record["keptFrom"], record["ok"]) == ("manual", "00000003", True)
    snapshot = ProjectionAuthority(Session.open(path)).snapshot()
    assert snapshot.tokens == report["tokensAfter"]
    assert [message["role"] for message in snapshot.messages] == ["compactionSummary", "user", "assistant"]


def test_a_compaction_that_is_asked_of_relay_by_name_is_the_same_relay(tmp_path: Path, home: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    planned = data(cli.relay, path, "--dry-run")
    report = data(compact.command, path, "--with", "relay")
    assert (report["plugin"], report["firstKeptEntryId"]) == ("relay", planned["firstKeptEntryId"])
    entry = json.loads(path.read_bytes().splitlines()[-1])
    assert (entry["type"], entry["summary"]) == ("compaction", planned["note"])
    assert Path(entry["details"]["notePath"]).read_text(encoding="utf-8").strip() == planned["note"].strip()
    assert [(line["trigger"], line["ok"]) for line in log_lines(home)] == [("manual", True)]
    # Relays are for main sessions only, whoever asks.
    subagent = history_file(tmp_path / "sub.jsonl", name=SUBAGENT)
    before = subagent.read_bytes()
    with pytest.raises(CompactionFailed, match="was for relay alone"):
        CliRunner().invoke(compact.command, [str(subagent), "--with", "relay"], catch_exceptions=False)
    assert subagent.read_bytes() == before


def test_nothing_to_relay_and_subagents_are_errors(tmp_path: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    run(cli.relay, path)
    assert isinstance(run(cli.relay, path).exception, NothingToCompact)
    child = history_file(tmp_path / "child.jsonl", name=SUBAGENT)
    assert isinstance(run(cli.relay, child).exception, Unsupported)


def test_a_session_that_is_in_use_is_left_alone(tmp_path: Path, home: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    code = f"from contexthost.session import Session; s = Session.open({str(path)!r}, owner='pi'); s.hold()"
    command = [sys.executable, "-c", f"{code}; print('held', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            before = path.read_bytes()
            assert isinstance(run(cli.relay, path).exception, SessionLocked)
            assert path.read_bytes() == before
            assert list((home / "data").rglob("*.md")) == []
        finally:
            other.kill()


def test_when_the_session_cannot_be_written_no_note_stays(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = history_file(tmp_path / "s.jsonl")

    def refuse(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("contexthost.session.session.SessionFile.append", refuse)
    assert isinstance(run(cli.relay, path).exception, OSError)
    assert list((home / "data").rglob("*.md")) == []


KILLED = """
import os, signal, sys
from contexthost_relay import cli, files
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
import contexthost.session.session as session
session.SessionFile.append = die
cli.relay([sys.argv[1]])
"""


def test_a_relay_that_is_killed_half_way_leaves_the_session_as_it_was(tmp_path: Path, home: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    before = path.read_bytes()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], env=dict(os.environ), check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    (left,) = (home / "data").rglob("*.md")  # harmless, and the next relay takes its place
    report = data(cli.relay, path)
    assert report["notePath"] == str(left)
    assert left.read_text() == report["note"]


@pytest.mark.parametrize("session_id", ["../../evil", "a/b", "", ".", "..", "x" * 500, "nul\x00", "späß"])
def test_a_hostile_session_id_stays_in_the_data_directory(tmp_path: Path, session_id: str) -> None:
    path = files.note_path(tmp_path, session_id, 1)
    assert path.parent.parent == tmp_path
    assert path.parent.name.startswith("id-")


# recall --------------------------------------------------------------------------------------------------------------


def test_recall_searches_and_reads(tmp_path: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    run(cli.relay, path)
    before = path.read_bytes()
    result = run(cli.recall, path, "FIRST", "answer")
    assert result.exit_code == 0
    assert "[00000002] assistant · 2026-01-05T09:00:02.000Z · compacted away" in result.stdout
    hits = data(cli.recall, path, "first answer")["hits"]
    assert [hit["entryId"] for hit in hits] == ["00000002"]
    assert data(cli.recall, path, "--entry", "00000001")["text"] == "the first request"
    assert data(cli.recall, path, "--entry", "note:1")["text"].startswith("# Relay note 1")
    assert path.read_bytes() == before


def test_recall_says_what_is_wrong(tmp_path: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    assert run(cli.recall, path).exit_code == 2
    assert isinstance(run(cli.recall, path, "--entry", "nope").exception, EntryNotFound)
    result = run(cli.recall, path, "nowhere")
    assert result.exit_code == 0
    assert "Nothing recorded holds all of: nowhere." in result.stdout


def test_what_a_terminal_would_obey_is_taken_out_but_not_from_json(tmp_path: Path) -> None:
    path = history_file(tmp_path / "s.jsonl")
    with Session.open(path) as session:
        session.append([{"type": "message", "message": {"role": "user", "content": "\x1b[31mred\x1b[0m"}}])
    assert "\x1b" not in run(cli.recall, path, "red").stdout
    assert data(cli.recall, path, "red")["hits"][0]["snippet"] == "\x1b[31mred\x1b[0m"




def test_on_a_file_recall_is_a_tool_and_relay_a_command_of_its_own(tmp_path: Path) -> None:
    path = history_file(tmp_path / "session.jsonl")
    arguments = [sys.executable, "-m", "contexthost"]
    found = subprocess.run(
        [*arguments, "tool", str(path), "recall", '{"query": "nothing of the kind"}'], capture_output=True, text=True
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "Nothing recorded holds all of: nothing of the kind" in found.stdout
    refused = subprocess.run([*arguments, "run", str(path), "/relay"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "/relay of plugin relay needs a live session: use `contexthost relay SESSION`" in refused.stderr


def test_a_dry_run_of_compact_for_relay_says_whose_cut_it_shows(tmp_path: Path) -> None:
    path = history_file(tmp_path / "session.jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "contexthost", "compact", str(path), "--with", "relay", "--dry-run"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "That is the host's cut; relay may keep more or less." in " ".join(done.stdout.split())
