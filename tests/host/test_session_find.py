"""Which file a SESSION on the command line means: a path, an id, the beginning of one that fits once, or the latest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contexthost.errors import AmbiguousSession, SessionNotFound
from contexthost.session.find import find_session, list_sessions
from support.builder import SessionBuilder


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Four of Pi's sessions, the later named the older, among files that are none."""
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "agent"))
    monkeypatch.chdir(tmp_path)
    made: dict[str, Path] = {}
    for age, name in enumerate(["abc-1", "abc-2", "abd", "abc"]):
        folder = tmp_path / "agent" / "sessions" / f"--project-{age}--"
        folder.mkdir(parents=True)
        made[name] = SessionBuilder(header={"id": name}, cwd=f"/project/{age}").write(folder / f"time_{name}.jsonl")
        os.utime(made[name], (1_000_000 - age, 1_000_000 - age))
    (folder / "notes.jsonl").write_bytes(b'{"note": 1}\n')
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "binary.jsonl").write_bytes(b"\xff" * 100)
    (folder / "far.jsonl").write_bytes(b" " * 1_048_577 + SessionBuilder(header={"id": "far"}).bytes())
    (folder / "folder.jsonl").mkdir()
    os.mkfifo(folder / "pipe.jsonl")  # opened, it would wait for ever
    return made


def test_sessions_are_listed_newest_first_and_other_files_passed_over(sessions: dict[str, Path]) -> None:
    listed = list(list_sessions())
    assert [one.id for one in listed] == ["abc-1", "abc-2", "abd", "abc"]
    assert [one.path for one in listed] == list(sessions.values())
    first = listed[0]
    assert (first.cwd, first.timestamp, first.modified) == ("/project/0", "2026-01-05T09:00:00.000Z", 1_000_000)
    assert first.size == first.path.stat().st_size


def test_a_session_is_found_by_path_id_unique_beginning_and_as_the_latest(
    sessions: dict[str, Path], tmp_path: Path
) -> None:
    assert find_session(str(sessions["abd"])) == sessions["abd"]
    assert find_session("abc") == sessions["abc"]  # whole, though others begin with it
    assert find_session("abd") == sessions["abd"]
    assert find_session("abc-2") == sessions["abc-2"]
    assert find_session("latest") == sessions["abc-1"]
    (tmp_path / "abd").write_text("a file of that name is meant first")
    assert find_session("abd") == Path("abd")


def test_a_beginning_that_fits_several_is_refused_with_their_names(sessions: dict[str, Path]) -> None:
    with pytest.raises(AmbiguousSession, match="'ab' fits 4 sessions") as caught:
        find_session("ab")
    for name, path in sessions.items():
        assert f"{name} (" in str(caught.value)
        assert str(path) in str(caught.value)
    with pytest.raises(AmbiguousSession, match="'abc-' fits 2 sessions"):
        find_session("abc-")


@pytest.mark.parametrize("reference", ["zzz", "far", "gone.jsonl", "no/such", "*", "-"])
def test_what_fits_nothing_is_told(sessions: dict[str, Path], reference: str) -> None:
    with pytest.raises(SessionNotFound, match=r"sessions|neither a file nor a session id"):
        find_session(reference)


def test_without_any_session_the_latest_is_told_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path))
    with pytest.raises(SessionNotFound, match="there are no sessions in"):
        find_session("latest")
