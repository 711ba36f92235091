"""Two processes write to one session at the same time: nothing that either acknowledged is lost or altered, whether the
other is contexthost (the lock orders them) or a program that knows no lock, as Pi does not."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contexthost.cli.inspect import describe
from contexthost.errors import SessionChanged, SessionLocked
from contexthost.session import Session
from support.builder import SessionBuilder
from support.durability import Process, acknowledged, digest, is_whole, numbered
from support.pi import oracle

APPENDS = 500


def started(path: Path) -> tuple[Path, str]:
    build = SessionBuilder()
    leaf = build.user("0 11 the start")
    return build.write(path), leaf


def everything_is_there(path: Path, *promised: dict[str, str]) -> Session:
    session = Session.open(path)
    assert max(Counter(entry.id for entry in session.entries).values()) == 1
    found = {entry.id: digest(entry.raw) for entry in session.entries}
    for lines in promised:
        assert {entry_id: found.get(entry_id) for entry_id in lines} == lines
    assert len(session.entries) == 1 + sum(map(len, promised))
    assert all(is_whole(entry) for entry in session.entries[1:])
    assert [problem.text for problem in session.problems] == []
    return session


def test_a_writer_without_a_lock_and_we_lose_nothing_of_each_other(tmp_path: Path, home: Path) -> None:
    path, leaf = started(tmp_path / "s.jsonl")
    with Process("appender.py", home) as ours, Process("foreign.py", home) as foreign:
        foreign.tell(path=path, parent=leaf, appends=0)
        acknowledged(foreign.answers())  # it has started
        ours.tell(path=path, seed=1, appends=APPENDS, pause=0.004)  # takes longer than the other is ever held up
        ours.hear()  # it is at work
        foreign.tell(path=path, parent=leaf, appends=APPENDS)
        with ThreadPoolExecutor() as pool:
            our_lines, their_lines = pool.map(acknowledged, [ours.answers(), foreign.answers()])
    assert len(their_lines) == APPENDS
    assert len(our_lines) >= APPENDS
    session = everything_is_there(path, our_lines, their_lines)
    assert [entry.id for entry in session.branch(list(their_lines)[-1])] == [leaf, *their_lines]
    writers = ["foreign" if entry.id in their_lines else "ours" for entry in session.entries[1:]]
    turns = sum(one != other for one, other in itertools.pairwise(writers))
    assert turns > 20  # they did write at the same time
    [line] = oracle([path])
    for key in ("entries", "contextPositions", "serializedDigest"):
        assert line[key] == describe(path)[key]


def test_two_of_us_without_a_hold_take_turns_and_lose_nothing(tmp_path: Path, home: Path) -> None:
    path, _ = started(tmp_path / "s.jsonl")
    with Process("appender.py", home) as one, Process("appender.py", home) as other:
        for seed, process in enumerate((one, other)):
            process.tell(path=path, seed=seed, appends=0)
            acknowledged(process.answers())  # it has started
        for seed, process in enumerate((one, other)):
            process.tell(path=path, seed=seed, appends=250, pause=0.01)
        with ThreadPoolExecutor() as pool:
            lines = list(pool.map(acknowledged, [one.answers(), other.answers()]))
    session = everything_is_there(path, *lines)
    writers = [entry.id in lines[0] for entry in session.entries[1:]]
    assert sum(one != other for one, other in itertools.pairwise(writers)) > 20
    # Each looked at the tail before it wrote, so they share one branch as long as both go on from its end.
    assert [entry.id for entry in session.branch()] == [entry.id for entry in session.entries]


def test_whoever_holds_the_session_is_named_to_the_second_writer_and_its_death_frees_the_lock(
    tmp_path: Path, home: Path
) -> None:
    path, _ = started(tmp_path / "s.jsonl")
    session = Session.open(path)
    with Process("appender.py", home) as holder:
        holder.tell(path=path, seed=0, appends=10**6, hold=True, owner="a live Pi session")
        pid = holder.hear()["pid"]
        with pytest.raises(SessionLocked, match=rf"s\.jsonl is locked by a live Pi session \(process {pid}\)"):
            session.append([numbered(0, 100)])
        with pytest.raises(SessionLocked, match="a live Pi session"):
            session.hold()
        os.kill(pid, 9)
        lines = acknowledged(holder.answers())
    session.append([numbered(0, 100)])
    assert lines.items() <= {entry.id: digest(entry.raw) for entry in session.entries}.items()


def test_half_a_line_that_lands_between_our_reading_and_our_writing_costs_us_nothing(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other program died within its line; our first line is glued to the fragment and is written again."""
    path, leaf = started(tmp_path / "s.jsonl")
    session = Session.open(path)
    whole = b'{"type":"custom","id":"f0000001","parentId":"%s","timestamp":"t","customType":"x"}\n' % leaf.encode()
    write = os.write
    overtaken = False

    def write_late(descriptor: int, data: bytes) -> int:
        nonlocal overtaken
        if data.startswith(b'{"type":"message"') and not overtaken:
            overtaken = True
            with path.open("ab") as file:
                file.write(whole + b'{"type":"message","id":"f000')
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", write_late)
    entries = session.append([numbered(number, 300) for number in range(3)])
    assert [is_whole(entry) for entry in entries] == [True, True, True]
    assert [entry.parent_id for entry in entries] == [leaf, entries[0].id, entries[1].id]
    assert session.leaf_id == entries[2].id
    assert session.get("f0000001") is not None

    again = Session.open(path)
    assert [entry.raw for entry in again.entries] == [entry.raw for entry in session.entries]
    assert [entry.id for entry in again.branch()] == [leaf, *(entry.id for entry in entries)]
    assert [entry.id for entry in session.branch()] == [entry.id for entry in again.branch()]
    # Two lines of the first try came through and stand there twice, word for word: the later one counts.
    assert Counter(problem.kind for problem in again.problems) == {"malformed-line": 1, "duplicate-id": 2}
    assert again.problems == session.problems
    [line] = oracle([path])
    ours = describe(path)
    for key in ("entries", "contextPositions", "serializedDigest"):
        assert line[key] == ours[key]


def test_a_last_line_without_a_line_feed_is_whole_and_the_next_append_goes_below_it(tmp_path: Path, home: Path) -> None:
    path, leaf = started(tmp_path / "s.jsonl")
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    session, other = Session.open(path), Session.open(path)
    assert session.leaf_id == leaf
    session.append([numbered(0, 100)])
    other.append([numbered(1, 100)])
    again = Session.open(path)
    assert [entry.raw for entry in other.entries] == [entry.raw for entry in again.entries]
    assert again.problems == other.problems == []
    assert other._reader.line_count == again._reader.line_count == 4


def test_a_last_line_that_another_program_wrote_on_is_noticed(tmp_path: Path, home: Path) -> None:
    """Pi does not look whether the file ends in a line feed: of such a line and its own it makes one that is lost."""
    path, leaf = started(tmp_path / "s.jsonl")
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    session = Session.open(path)
    with path.open("ab") as file:
        file.write(b'{"type":"custom","id":"f0000001","parentId":"%s","customType":"x"}\n' % leaf.encode())
    data = path.read_bytes()
    with pytest.raises(SessionChanged, match="its last line went on"):
        session.append([numbered(0, 100)])
    assert path.read_bytes() == data
    assert len(session.entries) == 1
    assert Session.open(path).entries == []
