"""A disk that fills up in the middle of an append: the append fails by name, memory stays as it was, old bytes stay
where they are, and once there is room the next append succeeds; the fragment is skipped here and by the real Pi.

Twice: on a small file system that is really full (where mounting one is permitted), and with a limit on the size of
files, which can cut a write at any byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contexthost.cli.inspect import describe
from contexthost.errors import SessionWriteError
from contexthost.session import Session
from support.builder import SessionBuilder
from support.durability import is_whole, mounted, numbered, old_session, size_limit
from support.pi import oracle


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    with mounted(tmp_path / "disk", "size=256k") as where:
        yield where


def some_session(path: Path) -> Path:
    build = SessionBuilder()
    for number in range(5):
        build.user(f"{number} 10 x"[:10])
    return build.write(path)


def as_pi_reads(path: Path) -> None:
    """The real Pi finds the same entries, context and messages."""
    [line] = oracle([path])
    ours = describe(path)
    for key in ("entries", "contextPositions", "estimatedTokens", "serializedDigest"):
        assert line[key] == ours[key], key
    assert [one["contentDigests"] for one in line["projected"]] == [one["contentDigests"] for one in ours["projected"]]


def state(session: Session) -> tuple[object, ...]:
    return [entry.raw for entry in session.entries], session.leaf_id, session.revision, session.problems


def test_a_full_disk_stops_an_append_and_a_freed_one_lets_the_next_through(small_disk: Path, home: Path) -> None:
    path = some_session(small_disk / "session.jsonl")
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1024 * 1024))
    old = path.read_bytes()
    session = Session.open(path)
    before = state(session)

    with pytest.raises(SessionWriteError, match="disk full"):
        session.append([numbered(5, 30_000)])
    assert state(session) == before
    torn = path.read_bytes()
    assert torn.startswith(old)
    assert len(torn) > len(old)  # the rest of the file's last page
    with pytest.raises(SessionWriteError, match="the disk is full"):
        session.append([numbered(5, 30_000)])  # not even a byte this time
    assert path.read_bytes() == torn

    filler.unlink()
    [entry] = session.append([numbered(5, 30_000)])
    assert is_whole(entry)
    assert path.read_bytes().startswith(torn + b"\n")
    again = Session.open(path)
    assert [one.raw for one in again.entries] == [one.raw for one in session.entries]
    assert len(again.entries) == 6
    assert [problem.kind for problem in again.problems] == ["malformed-line"]
    as_pi_reads(path)


def test_a_full_disk_leaves_an_old_session_as_it_was(small_disk: Path, home: Path) -> None:
    path = small_disk / "session.jsonl"
    original = old_session(path, 1, entries=400)  # more than the space that is left
    (small_disk / "filler").write_bytes(bytes(256 * 1024 - 4096 - len(original) * 3 // 2))
    session = Session.open(path)
    before = state(session)
    with pytest.raises(SessionWriteError, match=r"No space left on device.*as it was"):
        session.append([numbered(5, 100)])
    assert path.read_bytes() == original
    assert state(session) == before
    assert sorted(one.name for one in small_disk.iterdir()) == ["filler", "session.jsonl"]

    (small_disk / "filler").unlink()
    session.append([numbered(5, 100)])
    assert sorted(one.name for one in small_disk.iterdir()) == ["session.jsonl", "session.jsonl.v1.bak"]
    assert (small_disk / "session.jsonl.v1.bak").read_bytes() == original
    assert len(Session.open(path).entries) == 401


@pytest.mark.parametrize(
    ("room", "whole"),
    [
        (1, 0),
        (600, 0),
        (-2, 0),  # all but the closing brace and the line feed
        (-1, 1),  # all but the line feed: Pi counts a last line without one
    ],
    ids=["one byte", "half", "no closing brace", "no line feed"],
)
def test_a_write_that_is_cut_short_is_reported_and_leaves_memory_alone(
    room: int, whole: int, tmp_path: Path, home: Path
) -> None:
    path = some_session(tmp_path / "session.jsonl")
    old = path.read_bytes()
    probe = Session.open(some_session(tmp_path / "probe.jsonl"))
    [would_be] = probe.append([numbered(5, 1000)])
    says = "only the first 1 of 1 entries stand in the file" if whole else "nothing was recorded"
    cut = room if room > 0 else len(would_be.raw) + 1 + room
    session = Session.open(path)
    before = state(session)

    with size_limit(len(old) + cut), pytest.raises(SessionWriteError, match=rf"\b{cut} of .*{says}"):
        session.append([numbered(5, 1000)])
    assert state(session) == before
    assert path.read_bytes()[: len(old)] == old
    assert path.stat().st_size == len(old) + cut
    assert len(Session.open(path).entries) == 5 + whole

    [entry] = session.append([numbered(6, 1000)])
    assert entry.parent_id == (session.entries[5].id if whole else before[1])
    again = Session.open(path)
    assert [one.raw for one in again.entries] == [one.raw for one in session.entries]
    assert len(again.entries) == 6 + whole
    assert session.problems == again.problems
    assert [problem.kind for problem in again.problems] == ["malformed-line"] * (1 - whole)
    as_pi_reads(path)


def test_of_a_batch_that_is_cut_short_the_message_counts_the_entries_that_are_in_the_file(
    tmp_path: Path, home: Path
) -> None:
    path = some_session(tmp_path / "session.jsonl")
    size = path.stat().st_size
    session = Session.open(path)
    with size_limit(size + 2500), pytest.raises(SessionWriteError, match=r"2 of 3 entries"):
        session.append([numbered(number, 700) for number in range(3)])
    assert len(session.entries) == 5

    assert session.refresh()  # the two are ordinary entries of the file, and found like anybody's
    assert len(session.entries) == 7
    assert session.leaf_id == session.entries[6].id
    session.append([numbered(9, 700)])
    assert [one.raw for one in Session.open(path).entries] == [one.raw for one in session.entries]
    as_pi_reads(path)


def test_a_limit_that_leaves_no_room_at_all_is_named(tmp_path: Path, home: Path) -> None:
    path = some_session(tmp_path / "session.jsonl")
    old = path.read_bytes()
    session = Session.open(path)
    with size_limit(len(old)), pytest.raises(SessionWriteError, match="size limit for files"):
        session.append([numbered(5, 1000)])
    assert path.read_bytes() == old


def test_failed_appends_one_after_the_other_do_no_harm(tmp_path: Path, home: Path) -> None:
    path = some_session(tmp_path / "session.jsonl")
    session = Session.open(path)
    for attempt in range(20):
        size = path.stat().st_size
        with size_limit(size + 37 * attempt + 1), pytest.raises(SessionWriteError):
            session.append([numbered(5, 1000)])
    assert len(session.entries) == 5
    [entry] = session.append([numbered(5, 1000)])
    again = Session.open(path)
    assert [one.id for one in again.branch()] == [one.id for one in session.branch()]
    assert again.leaf_id == entry.id
    assert len(again.entries) == 6
    as_pi_reads(path)
