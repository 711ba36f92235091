"""Notes and the log of relays where they cannot be written: half a line stays a line of its own, the error that is told
is the one that matters, and whoever only reads makes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contexthost.cli import main
from contexthost_relay.files import append_log
from support.builder import SessionBuilder
from support.durability import size_limit
from support.relay_live import history_file


def test_a_line_that_was_cut_off_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    append_log(tmp_path, {"number": 1})
    with size_limit(path.stat().st_size + 5), pytest.raises(OSError, match="No space left"):
        append_log(tmp_path, {"number": 2})
    append_log(tmp_path, {"number": 3})
    append_log(tmp_path, {"number": 4})
    first, torn, *rest = path.read_text().splitlines()
    assert json.loads(first) == {"number": 1}
    assert torn == '{"num'
    assert [json.loads(line) for line in rest] == [{"number": 3}, {"number": 4}]


def test_to_recall_makes_no_directory(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = SessionBuilder()
    build.user("the port is 4711")
    with pytest.raises(SystemExit) as ended:
        main(["recall", str(build.write(tmp_path / "s.jsonl")), "4711"])
    assert ended.value.code == 0
    assert "4711" in capsys.readouterr().out
    assert not (home / "data").exists()


def test_a_note_that_cannot_be_written_is_what_the_error_is_about(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "50")
    (home / "data" / "plugins" / "relay").mkdir(parents=True)
    (home / "data" / "plugins" / "relay" / "session-1").write_text("a file in the place of the directory")
    path = history_file(tmp_path / "s.jsonl")
    before = path.read_bytes()
    with pytest.raises(SystemExit) as ended:
        main(["relay", str(path)])
    assert ended.value.code == 1
    assert "session-1: File exists" in capsys.readouterr().err
    assert path.read_bytes() == before
