"""The log of relays on a disk that fills up: half a line stays a line of its own, and the writer is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contexthost.cli import main
from contexthost_relay.files import append_log
from support.builder import SessionBuilder
from support.durability import size_limit


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
