"""Appending: what reaches the disk, what memory knows, and who may write.

Faults are real where they can be (another process holds the lock or is killed, a file-size limit stops a write, a file
is replaced); where a system call has to fail at one moment, the test puts its own function in that call's place, which
does to the real file what the fault would have done.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contexthost.errors import SessionChanged, SessionFormatError, SessionLocked, SessionWriteError
from contexthost.session import Session
from support.builder import Literal, SessionBuilder, encode, text_block

Write = Callable[[int, Any], int]
REAL_WRITE: Write = os.write


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock files' place, for this test and the processes that it starts."""
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("CONTEXTHOST_HOME", str(place))
    return place


@pytest.fixture
def path(tmp_path: Path) -> Path:
    build = SessionBuilder()
    build.user("hello")
    return build.write(tmp_path / "session.jsonl")


def line(entry_id: str, parent: str | None, **fields: object) -> bytes:
    return encode({"type": "custom", "id": entry_id, "parentId": parent, "timestamp": "t", **fields}) + b"\n"


def add(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def ids(session: Session) -> list[str]:
    return [one.id for one in session.entries]


def state(session: Session) -> tuple[object, ...]:
    return ids(session), session.leaf_id, session.revision, [one.id for one in session.branch()], session.problems


# -- what is written ------------------------------------------------------------------------------------------------


def test_an_append_is_whole_lines_in_pis_shape_chained_behind_the_leaf(path: Path) -> None:
    before = path.read_bytes()
    session = Session.open(path)
    added = session.append(
        [
            {"type": "message", "message": {"role": "user", "content": "ä\u2028"}},
            {"type": "label", "targetId": "00000001", "label": "start"},
        ]
    )
    written = path.read_bytes()
    assert written.startswith(before)
    stamp = rb'"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"'
    pattern = (
        rb'\{"type":"message","id":"([0-9a-f]{8})","parentId":"00000001",' + stamp + rb',"message":'
        rb'\{"role":"user","content":"' + "ä\u2028".encode() + rb'"\}\}\n'
        rb'\{"type":"label","id":"([0-9a-f]{8})","parentId":"\1",' + stamp + rb',"targetId":"00000001",'
        rb'"label":"start"\}\n'
    )
    match = re.fullmatch(pattern, written[len(before) :])
    assert match is not None
    assert [one.id.encode() for one in added] == list(match.groups())
    assert session.leaf_id == added[1].id
    assert session.label("00000001") == "start"
    assert [one.raw for one in session.entries] == written.split(b"\n")[1:-1]
    assert [one.data for one in Session.open(path).entries] == [one.data for one in session.entries]


def test_a_given_id_and_time_are_used_and_the_parent_is_always_the_leaf(path: Path) -> None:
    session = Session.open(path)
    [added] = session.append([{"type": "custom", "id": "mine", "timestamp": "then", "parentId": "else", "data": 1}])
    assert added.raw == b'{"type":"custom","id":"mine","parentId":"00000001","timestamp":"then","data":1}'


def test_after_a_leaf_move_the_append_makes_a_branch_and_after_a_reset_a_root(path: Path) -> None:
    session = Session.open(path)
    session.append([{"type": "custom", "id": "a"}])
    session.move_leaf("00000001")
    assert session.append([{"type": "custom", "id": "b"}])[0].parent_id == "00000001"
    session.move_leaf(None)
    assert session.append([{"type": "custom", "id": "c"}])[0].parent_id is None
    again = Session.open(path)
    assert [one.id for one in again.branch("b")] == ["00000001", "b"]
    assert [one.id for one in again.branch()] == ["c"]


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"data": 1}, "needs a type"),
        ({"type": 5}, "needs a type"),
        ({"type": "session"}, "needs a type"),
        ({"type": "custom", "id": "00000001"}, "'00000001' is taken"),
        ({"type": "custom", "id": "twice"}, "'twice' is taken"),
        ({"type": "custom", "id": ""}, "not an id"),
        ({"type": "custom", "id": 5}, "not an id"),
        ({"type": "custom", "data": object()}, "cannot be written as JSON"),
        ({"type": "custom", "data": {(1, 2): 3}}, "cannot be written as JSON"),
        ({"type": "custom", "data": ["\ud800", object()]}, "cannot be written as JSON"),
    ],
    ids=range(10),
)
def test_one_bad_payload_refuses_the_batch(path: Path, payload: dict[str, Any], told: str) -> None:
    before = path.read_bytes()
    session = Session.open(path)
    known = state(session)
    with pytest.raises(SessionFormatError, match=told):
        session.append([{"type": "custom", "id": "twice"}, payload])
    assert path.read_bytes() == before
    assert state(session) == known


def test_values_that_are_hard_to_write_are_written_as_json_stringify_does(path: Path) -> None:
    session = Session.open(path)
    [one, two] = session.append(
        [
            {"type": "custom", "data": ["\ud83d", float("nan"), 2.5]},
            {"type": "custom", "data": [float("inf"), 10**40, "\u2029"]},
        ]
    )
    assert one.raw.endswith(b'"data":["\\ud83d",null,2.5]}')
    assert two.raw.endswith(b'"data":[null,1' + b"0" * 40 + b',"\xe2\x80\xa9"]}')
    assert [entry.data for entry in Session.open(path).entries[1:]] == [one.data, two.data]


def test_nothing_to_append_writes_nothing(path: Path) -> None:
    before = path.stat().st_mtime_ns
    assert Session.open(path).append([]) == []
    assert path.stat().st_mtime_ns == before


def test_a_batch_is_one_write_synced_before_it_is_acknowledged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session.open(path)
    calls: list[str] = []

    def counted_write(descriptor: int, block: bytes) -> int:
        if not same_file(descriptor, path):  # the lock writes too
            return REAL_WRITE(descriptor, block)
        calls.append(f"write {block.count(10)}")
        assert session.leaf_id == "00000001"
        return REAL_WRITE(descriptor, block)

    def counted_sync(descriptor: int) -> None:
        calls.append("fsync")
        assert session.leaf_id == "00000001"

    monkeypatch.setattr(os, "write", counted_write)
    monkeypatch.setattr(os, "fsync", counted_sync)
    session.append([{"type": "custom"}] * 50)
    assert calls == ["write 50", "fsync"]


def same_file(descriptor: int, path: Path) -> bool:
    return os.fstat(descriptor).st_ino == path.stat().st_ino


# -- writes that fail -----------------------------------------------------------------------------------------------


def faulty(path: Path, monkeypatch: pytest.MonkeyPatch, fault: Write) -> Callable[[], None]:
    """Puts `fault` in the place of the next write to the session file; gives back how to undo it."""

    def write(descriptor: int, block: bytes) -> int:
        return fault(descriptor, block) if same_file(descriptor, path) else REAL_WRITE(descriptor, block)

    monkeypatch.setattr(os, "write", write)
    return lambda: monkeypatch.setattr(os, "write", REAL_WRITE)


def test_a_partial_write_leaves_memory_as_it_was_and_the_next_append_isolates_the_fragment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    session = Session.open(path)
    known = state(session)
    undo = faulty(path, monkeypatch, lambda descriptor, block: REAL_WRITE(descriptor, block[: len(block) // 2]))
    with pytest.raises(SessionWriteError, match=r"\d+ of \d+ bytes could be written .*: nothing was recorded"):
        session.append([{"type": "custom", "id": "lost"}])
    undo()
    assert state(session) == known
    fragment = path.read_bytes()[len(before) :]
    assert fragment.startswith(b'{"type":"custom","id":"lost"')

    session.append([{"type": "custom", "id": "next", "timestamp": "t"}])
    assert path.read_bytes() == before + fragment + b"\n" + line("next", "00000001")
    for reader in (session, Session.open(path)):
        assert [one.id for one in reader.branch()] == ["00000001", "next"]
        assert [(p.kind, p.line) for p in reader.problems] == [("malformed-line", 3)]


def test_of_a_batch_cut_short_the_whole_entries_are_told_and_read_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session.open(path)
    known = state(session)
    undo = faulty(path, monkeypatch, lambda descriptor, block: REAL_WRITE(descriptor, block[:-20]))
    with pytest.raises(SessionWriteError, match="only the first 2 of 3 entries stand in the file"):
        session.append([{"type": "custom", "id": name} for name in "abc"])
    undo()
    assert state(session) == known
    session.append([{"type": "custom", "id": "d"}])
    assert [one.id for one in session.branch()] == ["00000001", "a", "b", "d"]
    assert [one.id for one in Session.open(path).branch()] == ["00000001", "a", "b", "d"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "size limit"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_refused_write_leaves_everything_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    before = path.read_bytes()
    session = Session.open(path)
    known = state(session)

    def refuse(descriptor: int, block: bytes) -> int:
        raise OSError(code, os.strerror(code))

    undo = faulty(path, monkeypatch, refuse)
    with pytest.raises(SessionWriteError, match=f"session.jsonl: nothing was recorded: .*{told}"):
        session.append([{"type": "custom"}])
    assert path.read_bytes() == before
    assert state(session) == known
    undo()
    session.append([{"type": "custom", "id": "next", "timestamp": "t"}])
    assert path.read_bytes() == before + line("next", "00000001")


def test_an_append_that_the_disk_does_not_confirm_is_not_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session.open(path)
    known = state(session)

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(SessionWriteError, match="written, but the disk did not confirm it"):
        session.append([{"type": "custom", "id": "unsure"}])
    assert state(session) == known
    monkeypatch.undo()
    session.append([{"type": "custom", "id": "next"}])
    assert ids(session) == ids(Session.open(path)) == ["00000001", "unsure", "next"]


@pytest.mark.parametrize(
    ("code", "told"),
    [(errno.EACCES, "read-only"), (errno.EPERM, "append-protected"), (errno.EROFS, "read-only file system")],
)
def test_a_file_that_may_not_be_written_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    session = Session.open(path)
    known = state(session)
    real_open = os.open

    def open_(name: Any, flags: int, *rest: Any, **more: Any) -> int:
        if Path(name) == path and flags & os.O_WRONLY:
            raise OSError(code, os.strerror(code))
        return real_open(name, flags, *rest, **more)

    monkeypatch.setattr(os, "open", open_)
    with pytest.raises(SessionWriteError, match=told):
        session.append([{"type": "custom"}])
    assert state(session) == known


def test_a_real_short_write_at_a_file_size_limit(path: Path) -> None:
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from contexthost.errors import SessionWriteError\n"
        "from contexthost.session import Session\n"
        "path = Path(sys.argv[1])\n"
        "session = Session.open(path)\n"
        "session.hold()\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "size = path.stat().st_size\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))\n"
        "for data in ('x' * 500, 'y'):\n"
        "    try:\n"
        "        session.append([{'type': 'custom', 'id': 'lost', 'data': data}])\n"
        "    except SessionWriteError as error:\n"
        "        print(error)\n"
        "print(session.leaf_id, path.stat().st_size - size)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "session.append([{'type': 'custom', 'id': 'next'}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    short, full, rest = done.stdout.strip().split("\n")
    assert "100 of" in short
    assert "nothing was recorded" in short
    assert "size limit for files" in full
    assert rest == "00000001 100"
    assert [one.id for one in Session.open(path).branch()] == ["00000001", "next"]


# -- other writers --------------------------------------------------------------------------------------------------


def test_a_foreign_torn_tail_is_not_cut_and_the_append_begins_with_a_line_feed(path: Path) -> None:
    add(path, b'{"type":"custom","id":"half')
    before = path.read_bytes()
    session = Session.open(path)
    session.append([{"type": "custom", "id": "next", "timestamp": "t"}])
    assert path.read_bytes() == before + b"\n" + line("next", "00000001")
    assert [(p.kind, p.line) for p in session.problems] == [("malformed-line", 3)]
    assert session.problems == Session.open(path).problems


def test_a_whole_last_line_without_line_feed_is_ended_before_the_append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + line("a", "00000001").rstrip(b"\n"))
    session = Session.open(path)
    session.append([{"type": "custom", "id": "b"}])
    session.append([{"type": "custom", "id": "c"}])
    assert ids(session) == ids(Session.open(path)) == ["00000001", "a", "b", "c"]
    assert session.problems == Session.open(path).problems == []


def test_the_leaf_follows_what_another_program_appended_to_our_branch(path: Path) -> None:
    session = Session.open(path)
    add(path, line("theirs", "00000001") + line("more", "theirs"))
    [added] = session.append([{"type": "custom"}])
    assert added.parent_id == "more"
    assert ids(session) == ["00000001", "theirs", "more", added.id]


def test_the_leaf_stays_when_another_program_appended_elsewhere(path: Path) -> None:
    session = Session.open(path)
    session.append([{"type": "custom", "id": "ours"}])
    add(path, line("theirs", "00000001"))
    [added] = session.append([{"type": "custom"}])
    assert added.parent_id == "ours"
    assert [one.id for one in session.children("00000001")] == ["ours", "theirs"]


def test_a_foreign_duplicate_of_our_leaf_hides_it(path: Path) -> None:
    session = Session.open(path)
    add(path, line("00000001", None, data="new"))
    session.refresh()
    assert session.leaf is not None
    assert session.leaf.data["data"] == "new"


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("theirs", [b'{"type":"custom","id":"ha', line("theirs", "00000001") + b'{"ha', b"12"])
def test_a_torn_line_that_arrives_between_our_read_and_our_write_does_not_cost_an_entry(
    path: Path, monkeypatch: pytest.MonkeyPatch, theirs: bytes, batch: int
) -> None:
    session = Session.open(path)
    writes = 0

    def late(descriptor: int, block: bytes) -> int:
        nonlocal writes
        writes += 1
        if writes == 1:
            add(path, theirs)
        return REAL_WRITE(descriptor, block)

    undo = faulty(path, monkeypatch, late)
    added = session.append([{"type": "custom", "data": n} for n in range(batch)])
    undo()
    assert writes == 2
    assert theirs in path.read_bytes()
    again = Session.open(path)
    for reader in (session, again):
        branch = reader.branch()
        assert [one.id for one in branch] == ["00000001", *(one.id for one in added)]
        assert [one.data.get("data") for one in branch[1:]] == list(range(batch))
        assert (reader.get("theirs") is not None) == (b"theirs" in theirs)
    assert [one.raw for one in session.entries] == [one.raw for one in again.entries]
    assert session.problems == again.problems
    session.append([{"type": "custom", "id": "after"}])
    assert [one.id for one in Session.open(path).branch()][-2:] == [added[-1].id, "after"]


def test_a_torn_line_that_arrives_before_our_write_is_seen_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session.open(path)
    before = path.read_bytes()
    real_open = os.open

    def open_(name: Any, flags: int, *rest: Any, **more: Any) -> int:
        if Path(name) == path and flags & os.O_WRONLY:
            add(path, b'{"torn')
        return real_open(name, flags, *rest, **more)

    monkeypatch.setattr(os, "open", open_)
    session.append([{"type": "custom", "id": "ours", "timestamp": "t"}])
    assert path.read_bytes() == before + b'{"torn\n' + line("ours", "00000001")
    assert session.problems == Session.open(path).problems


def test_whole_lines_that_arrive_around_our_write_are_read_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session.open(path)

    def busy(descriptor: int, block: bytes) -> int:
        add(path, line("before", "00000001"))
        written = REAL_WRITE(descriptor, block)
        add(path, line("behind", "00000001") + b'{"torn')
        return written

    undo = faulty(path, monkeypatch, busy)
    session.append([{"type": "custom", "id": "ours"}])
    undo()
    assert ids(session) == ids(Session.open(path)) == ["00000001", "before", "ours", "behind"]
    assert session.leaf_id == "ours"
    assert [p.kind for p in session.problems] == ["torn-line"]


@pytest.mark.parametrize("how", ["replaced", "shortened", "deleted", "rewritten", "glued"])
def test_a_file_that_is_no_longer_the_one_that_was_read_is_not_written(path: Path, tmp_path: Path, how: str) -> None:
    session = Session.open(path)
    session.append([{"type": "custom", "id": "a"}])
    content = path.read_bytes()
    if how == "replaced":
        other = tmp_path / "other"
        other.write_bytes(content + line("b", "a"))
        other.replace(path)
    elif how == "shortened":
        os.truncate(path, len(content) - 5)
    elif how == "deleted":
        path.unlink()
    elif how == "rewritten":  # in place and longer, as Pi migrates an old file
        path.write_bytes(content.replace(b"hello", b"hello, hello, hello" * 50))
    else:
        path.write_bytes(content.rstrip(b"\n"))
        session = Session.open(path)
        add(path, b" and more\n")
    now = path.read_bytes() if path.exists() else None
    known = state(session)
    with pytest.raises(SessionChanged, match=r"session.jsonl was .* nothing was written"):
        session.append([{"type": "custom"}])
    assert (path.read_bytes() if path.exists() else None) == now
    assert state(session) == known


def test_a_file_replaced_between_our_read_and_our_write_is_not_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session.open(path)
    theirs = b"x" * path.stat().st_size
    real_open = os.open

    def open_(name: Any, flags: int, *rest: Any, **more: Any) -> int:
        if Path(name) == path and flags & os.O_WRONLY:
            (tmp_path / "other").write_bytes(theirs)
            (tmp_path / "other").replace(path)
        return real_open(name, flags, *rest, **more)

    monkeypatch.setattr(os, "open", open_)
    with pytest.raises(SessionChanged):
        session.append([{"type": "custom"}])
    assert path.read_bytes() == theirs


# -- the lock -------------------------------------------------------------------------------------------------------

HOLDER = (
    "import sys\n"
    "from contexthost.session import Session\n"
    "session = Session.open(sys.argv[1], owner='a live Pi session; use /relay there')\n"
    "session.hold()\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)


@contextlib.contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the session until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_process_is_refused_and_told_who_holds_the_session(path: Path) -> None:
    before = path.read_bytes()
    session = Session.open(path)
    with held_elsewhere(path) as process:
        told = f"session.jsonl is locked by a live Pi session; use /relay there .process {process.pid}."
        with pytest.raises(SessionLocked, match=told):
            session.append([{"type": "custom"}])
        with pytest.raises(SessionLocked):
            session.hold()
        assert session.leaf_id == "00000001"  # reading goes on
    assert path.read_bytes() == before
    session.append([{"type": "custom"}])


def test_a_killed_process_holds_nothing(path: Path) -> None:
    session = Session.open(path)
    with held_elsewhere(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    session.append([{"type": "custom", "id": "a"}])
    assert ids(session) == ["00000001", "a"]


def test_a_symbolic_link_shares_the_lock_and_nothing_lies_beside_the_session(path: Path, home: Path) -> None:
    link = path.parent / "link.jsonl"
    link.symlink_to(path)
    with held_elsewhere(link), pytest.raises(SessionLocked, match="a live Pi session"):
        Session.open(path).append([{"type": "custom"}])
    Session.open(link).append([{"type": "custom", "id": "a"}])
    assert ids(Session.open(path)) == ["00000001", "a"]
    assert sorted(one.name for one in path.parent.iterdir()) == ["link.jsonl", "session.jsonl"]
    assert link.is_symlink()
    assert any(home.rglob("*.lock"))


def test_a_held_session_is_given_back_by_close_and_by_the_end_of_a_with_block(path: Path) -> None:
    with Session.open(path) as first:
        first.hold()
        first.append([{"type": "custom"}])
        with pytest.raises(SessionLocked):
            Session.open(path).append([{"type": "custom"}])
    second = Session.open(path)
    second.hold()
    second.close()
    first.append([{"type": "custom"}])


def test_a_state_directory_that_cannot_be_made_is_told(path: Path, home: Path) -> None:
    (home / "state").write_text("in the way")
    with pytest.raises(SessionWriteError, match="cannot take the lock"):
        Session.open(path).append([{"type": "custom"}])


# -- migration ------------------------------------------------------------------------------------------------------


def old(version: int) -> SessionBuilder:
    build = SessionBuilder(version=version, header={"mine": [1]})
    build.user("one")
    build.message({"role": "hookMessage", "content": "two"})
    build.raw(b"garbage \xff")
    build.raw(b"")
    build.assistant([text_block("three")], usage={"input": Literal(b"1.50")})
    if version == 1:
        build.compaction("sum", 2)
    build.raw(encode({"type": "custom", "id": "same", "parentId": None, "data": Literal(b"1e999")}) + b" \r")
    return build


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_the_first_append_migrates_and_keeps_the_original(path: Path, version: int, mode: int) -> None:
    path.write_bytes(old(version).bytes())
    path.chmod(mode)
    original = path.read_bytes()
    session = Session.open(path)
    known = ids(session)
    datas = [one.data for one in session.entries]
    [added] = session.append([{"type": "custom", "id": "new", "timestamp": "t"}])
    backup = path.with_name(f"session.jsonl.v{version}.bak")
    assert backup.read_bytes() == original
    assert path.stat().st_mode & 0o7777 == mode
    assert backup.stat().st_mode & 0o7777 == mode
    assert sorted(one.name for one in path.parent.iterdir()) == ["session.jsonl", backup.name]
    again = Session.open(path)
    for reader in (session, again):
        assert reader.header.version == 3
        assert reader.header.data["mine"] == [1]
        assert ids(reader) == [*known, "new"]
        assert reader.leaf_id == "new"
    assert added.parent_id == known[-1]
    # 1e999 has no other spelling than null once it is written anew, which only version 1 needs.
    expected = [{**one, "data": None} if one.get("id") == known[-1] and version == 1 else one for one in datas]
    assert [one.data for one in again.entries[:-1]] == expected
    lines, old_lines = path.read_bytes().split(b"\n"), original.split(b"\n")
    assert lines[3:5] == old_lines[3:5] == [b"garbage \xff", b""]
    if version == 2:  # only the header and the renamed role are written anew
        assert lines[1] == old_lines[1]
        assert lines[5:-2] == old_lines[5:-1]
    assert [one["role"] for one in (json.loads(text)["message"] for text in lines[1:3])] == ["user", "custom"]


def test_the_second_append_finds_version_3(path: Path) -> None:
    path.write_bytes(old(1).bytes())
    session = Session.open(path)
    session.append([{"type": "custom"}])
    before = path.read_bytes()
    session.append([{"type": "custom"}])
    assert path.read_bytes().startswith(before)


def test_a_torn_tail_survives_the_migration_as_a_line(path: Path) -> None:
    path.write_bytes(old(1).bytes() + b'{"torn')
    session = Session.open(path)
    session.append([{"type": "custom", "id": "new"}])
    assert b'\n{"torn\n' in path.read_bytes()
    assert session.problems == Session.open(path).problems
    assert session.leaf_id == Session.open(path).leaf_id == "new"


def test_a_link_to_an_old_session_stays_a_link(path: Path, tmp_path: Path) -> None:
    path.write_bytes(old(1).bytes())
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.jsonl"
    link.symlink_to(path)
    Session.open(link).append([{"type": "custom", "id": "new"}])
    assert link.is_symlink()
    assert Session.open(path).leaf_id == "new"
    assert path.with_name("session.jsonl.v1.bak").read_bytes() == old(1).bytes()
    assert list((tmp_path / "links").iterdir()) == [link]


def test_another_backup_is_not_overwritten(path: Path) -> None:
    path.write_bytes(old(1).bytes())
    backup = path.with_name("session.jsonl.v1.bak")
    backup.write_bytes(b"something else")
    session = Session.open(path)
    known = state(session)
    with pytest.raises(SessionWriteError, match=r"session.jsonl.v1.bak exists and is something else; move it away"):
        session.append([{"type": "custom"}])
    assert backup.read_bytes() == b"something else"
    assert path.read_bytes() == old(1).bytes()
    assert state(session) == known
    backup.write_bytes(old(1).bytes())  # what an interrupted migration leaves
    session.append([{"type": "custom"}])
    assert backup.read_bytes() == old(1).bytes()


def test_without_hard_links_the_original_is_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(old(1).bytes())
    path.chmod(0o600)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    Session.open(path).append([{"type": "custom"}])
    backup = path.with_name("session.jsonl.v1.bak")
    assert backup.read_bytes() == old(1).bytes()
    assert backup.stat().st_mode & 0o7777 == 0o600


class Stopped(BaseException):
    """What a Ctrl-C is: no OSError, and not to be swallowed."""


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), Stopped()])
@pytest.mark.parametrize("step", ["mkstemp", "write", "fchmod", "fsync", "link", "replace"])
def test_a_migration_interrupted_at_any_step_leaves_the_original_and_nothing_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str, fault: BaseException
) -> None:
    path.write_bytes(old(1).bytes())
    inode = path.stat().st_ino
    session = Session.open(path)
    session.hold()  # so that the steps below are those of the migration
    known = state(session)

    def fail(*_: object, **__: object) -> Any:
        raise fault

    if step == "mkstemp":
        monkeypatch.setattr("tempfile.mkstemp", fail)
    elif step == "write":
        monkeypatch.setattr("contexthost.session.entries.Entry.migrated_line", fail)
    elif step == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    elif step == "link" and isinstance(fault, OSError):
        monkeypatch.setattr(os, "link", fail)
        monkeypatch.setattr(Path, "rename", fail)
    else:
        monkeypatch.setattr(os, step, fail)
    expected = SessionWriteError if isinstance(fault, OSError) else Stopped
    with pytest.raises(expected):
        session.append([{"type": "custom"}])
    monkeypatch.undo()
    assert path.read_bytes() == old(1).bytes()
    assert path.stat().st_ino == inode
    assert [one.name for one in path.parent.iterdir()] == ["session.jsonl"]
    assert state(session) == known


def test_what_another_program_writes_during_the_migration_stops_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(old(1).bytes())
    session = Session.open(path)
    session.hold()
    real = os.fdopen

    def late(descriptor: int, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if mode == "wb":
            add(path, b'{"type":"custom","data":"theirs"}\n')
        return real(descriptor, mode, *rest, **more)

    monkeypatch.setattr(os, "fdopen", late)
    with pytest.raises(SessionWriteError, match="another program wrote to it meanwhile"):
        session.append([{"type": "custom"}])
    monkeypatch.undo()
    assert path.read_bytes().endswith(b'"theirs"}\n')
    session.append([{"type": "custom", "id": "new"}])
    assert [one.data.get("data") for one in Session.open(path).branch()][-2:] == ["theirs", None]
