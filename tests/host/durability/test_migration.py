"""An append to a version 1 or 2 file, which migrates the file first, killed at every line of code on its way: the file
is the untouched original or the complete version 3 one, never anything between; where it is version 3 the original's
bytes lie beside it; a second try completes and clears up. Also what else may stand in a migration's way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contexthost.errors import SessionChanged, SessionWriteError
from contexthost.session import Session
from contexthost.session.file import SessionFile
from support.durability import Process, numbered, old_session


def ids(session: Session) -> list[str]:
    return [entry.id for entry in session.entries]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_migration_killed_at_any_step_leaves_a_whole_file(
    version: int, links: bool, tmp_path: Path, home: Path
) -> None:
    original_path = tmp_path / "original.jsonl"
    original = old_session(original_path, version, entries=3)
    steps = tmp_path / "steps"
    steps.mkdir()
    with Process("migrator.py", home) as process:
        process.tell(original=original_path, directory=steps, name="s.jsonl", links=links)
        count = process.hear()["steps"]
    assert count > 80  # every line of the migration was a place to die at

    before = [(entry.id, entry.message) for entry in Session.open(original_path).entries]
    undisturbed = tmp_path / "undisturbed.jsonl"
    undisturbed.write_bytes(original)
    SessionFile(undisturbed).migrate()
    migrated = undisturbed.read_bytes()
    outcomes = set()
    for step in range(1, count + 1):
        path = steps / str(step) / "s.jsonl"
        backup = path.with_name(f"s.jsonl.v{version}.bak")
        data = path.read_bytes()
        if data != original:
            assert data.startswith(migrated)
            assert backup.read_bytes() == original
        left = {one.name for one in path.parent.iterdir()} - {path.name, backup.name}
        outcomes.add((data == original, data == migrated, backup.exists(), bool(left)))
        session = Session.open(path)
        assert [(entry.id, entry.message) for entry in session.entries[: len(before)]] == before
        there = len(session.entries)
        assert there - len(before) in ((0, 1) if data.startswith(migrated) else (0,))

        [entry] = session.append([numbered(1, 100)])
        again = Session.open(path)
        assert again.header.version == 3
        assert ids(again) == [*(one for one, _ in before), *ids(session)[len(before) : there], entry.id]
        assert path.read_bytes().startswith(migrated)
        assert backup.read_bytes() == original
        assert {one.name for one in path.parent.iterdir()} == {path.name, backup.name}
    assert {(old, new) for old, new, _, _ in outcomes} == {(True, False), (False, True), (False, False)}
    assert (True, False, False, True) in outcomes  # killed with the copy half made …
    assert (True, False, True, True) in outcomes  # … and between the two names and the rename


def test_files_of_other_sessions_are_not_cleared_away(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "s.jsonl"
    old_session(path, 1)
    stale = tmp_path / ".s.jsonl.contexthost-abcd1234.tmp"
    others = [tmp_path / name for name in (".s.jsonl.tmp", ".s.jsonl.b.contexthost-abcd1234.tmp", "s.jsonl.old")]
    for one in (stale, *others):
        one.write_bytes(b"x")
    Session.open(path).append([numbered(0, 100)])
    assert not stale.exists()
    assert all(one.exists() for one in others)


def test_a_line_that_another_program_adds_while_the_copy_is_made_is_not_left_out(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    original = old_session(path, 1)
    line = b'{"type":"message","message":{"role":"user","content":"late"}}\n'
    link = os.link

    def link_after_a_late_line(source: Path, target: Path) -> None:
        with path.open("ab") as file:
            file.write(line)
        link(source, target)

    session = Session.open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link_after_a_late_line)
        with pytest.raises(SessionWriteError, match=r"another program wrote to it meanwhile.*as it was"):
            session.append([numbered(0, 100)])
    assert path.read_bytes() == original + line
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["s.jsonl"]
    session.append([numbered(0, 100)])  # it was only longer: reading on is enough
    contents = [(entry.message or {})["content"] for entry in Session.open(path).entries]
    assert contents[-2] == "late"
    assert (tmp_path / "s.jsonl.v1.bak").read_bytes() == original + line


def test_a_second_process_that_had_the_old_file_open_is_told_to_open_it_again(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "s.jsonl"
    old_session(path, 1)
    first, second = Session.open(path), Session.open(path)
    first.append([numbered(0, 100)])
    data = path.read_bytes()
    with pytest.raises(SessionChanged, match="open it again"):
        second.append([numbered(1, 100)])
    assert path.read_bytes() == data
    Session.open(path).append([numbered(1, 100)])
    assert path.read_bytes().startswith(data)
