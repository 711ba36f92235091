"""A session file, or a directory, that may not be written: the append fails by name and nothing has changed anywhere.

Root may write everything, so under root the append runs in a process that has become somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builder import SessionBuilder
from support.durability import old_session

NOBODY = 65534
"""The user "nobody" of Linux distributions; any number without rights will do."""

APPEND = """
import os, sys
from contexthost.errors import SessionWriteError
from contexthost.session import Session
directory, name, user = sys.argv[1:]
os.environ["CONTEXTHOST_HOME"] = directory + "/warm"
with Session.open(directory + "/warm.jsonl") as session:  # imports everything while that is allowed
    session.append([{"type": "custom", "customType": "test"}])
os.environ["CONTEXTHOST_HOME"] = directory + "/home"
if os.getuid() == 0:
    os.setgid(int(user))
    os.setuid(int(user))
session = Session.open(directory + "/" + name)
before = [entry.raw for entry in session.entries], session.leaf_id, session.revision
try:
    session.append([{"type": "custom", "customType": "test"}])
except SessionWriteError as error:
    print(error)
    assert before == ([entry.raw for entry in session.entries], session.leaf_id, session.revision)
else:
    print("appended")
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach (pytest's own are closed to others), with room for contexthost's files."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "sessions").mkdir()
        (directory / "home").mkdir(mode=0o777)
        (directory / "home").chmod(0o777)
        SessionBuilder().write(directory / "warm.jsonl")
        yield directory
        (directory / "sessions").chmod(0o755)


def append(place: Path) -> str:
    """What came of an append to ``sessions/s.jsonl`` by a user who has only the rights that the modes give."""
    run = subprocess.run(
        [sys.executable, "-c", APPEND, str(place), "sessions/s.jsonl", str(NOBODY)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    return run.stdout.rstrip("\n")


def give(path: Path, mode: int) -> None:
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    path.chmod(mode)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "sessions").iterdir())


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_read_only_file_is_not_written_to_and_not_migrated(place: Path, version: int) -> None:
    path = place / "sessions" / "s.jsonl"
    original = old_session(path, version)
    give(path, 0o444)
    give(place / "sessions", 0o755)  # a rename over the file would be permitted
    said = append(place)
    assert said.startswith(str(path))
    assert ("may not write to it" if version == 3 else "Permission denied); the file is as it was") in said
    assert path.read_bytes() == original
    assert names(place) == ["s.jsonl"]


def test_in_a_read_only_directory_an_old_session_is_not_migrated(place: Path) -> None:
    path = place / "sessions" / "s.jsonl"
    original = old_session(path, 1)
    give(path, 0o644)
    give(place / "sessions", 0o555)
    assert append(place).endswith("could not be brought to version 3 (Permission denied); the file is as it was")
    assert path.read_bytes() == original
    assert names(place) == ["s.jsonl"]


def test_in_a_read_only_directory_a_session_of_version_3_grows(place: Path) -> None:
    path = place / "sessions" / "s.jsonl"
    original = old_session(path, 3)
    give(path, 0o644)
    give(place / "sessions", 0o555)
    assert append(place) == "appended"
    assert path.read_bytes().startswith(original)
    assert names(place) == ["s.jsonl"]


def test_without_a_writable_state_directory_nothing_is_written_and_the_message_says_what_to_set(place: Path) -> None:
    path = place / "sessions" / "s.jsonl"
    original = old_session(path, 3)
    give(path, 0o644)
    (place / "home").chmod(0o555)
    said = append(place)
    assert "cannot take the lock" in said
    assert said.endswith("set CONTEXTHOST_HOME to a directory you can write to")
    assert path.read_bytes() == original
