"""Reading session files: versions 1 to 3, the tree, and everything odd in a file named instead of fatal.

The files are written line by line, so that each test says which line is odd and what must be told about it. What the
real Pi makes of such files is compared in tests/integration; here it is what contexthost promises beyond that: ids that
stay, problems with their lines, errors that name the file, and that opening writes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contexthost.errors import EntryNotFound, ParentCycle, SessionFormatError, SessionNotFound
from contexthost.messages import js_json
from contexthost.session import Session
from contexthost.session.entries import encode_json
from contexthost.session.find import find_session
from support.builder import SessionBuilder, encode

HEADER = b'{"type":"session","version":3,"id":"s1","timestamp":"2026-01-05T09:00:00.000Z","cwd":"/project"}\n'


def entry(entry_id: str, parent: object, **fields: object) -> bytes:
    stamp = "2026-01-05T09:00:01.000Z"
    return encode({"type": "custom", "id": entry_id, "parentId": parent, "timestamp": stamp, **fields}) + b"\n"


def opened(tmp_path: Path, content: bytes) -> Session:
    path = tmp_path / "session.jsonl"
    path.write_bytes(content)
    return Session.open(path)


def problems(session: Session) -> list[tuple[str, int, str | None]]:
    return [(problem.kind, problem.line, problem.entry_id) for problem in session.problems]


# -- entries --------------------------------------------------------------------------------------------------------


def test_reading_an_entry_keeps_nothing_unless_its_data_was_asked_for(tmp_path: Path) -> None:
    session = opened(tmp_path, HEADER + entry("a", None, data={"x": 1}))
    one = session.entries[0]
    read = one.read()
    assert read["data"] == {"x": 1}
    assert one.read() is not read
    kept = one.data
    assert kept == read
    assert one.read() is one.data is kept


def test_the_parts_of_a_message_are_the_same_however_they_are_read(tmp_path: Path) -> None:
    reply = {"role": "assistant", "content": [], "usage": {"input": 1}, "stopReason": "stop", "model": "m"}
    lines = entry("a", None, type="message", message=reply) + entry("b", "a", type="message", message=5)
    session = opened(tmp_path, HEADER + lines + entry("c", "b"))
    for _ in range(2):  # undecoded, then decoded
        message, junk, other = session.entries
        assert (message.read_message(), message.read_usage(), message.role) == (reply, {"input": 1}, "assistant")
        assert (junk.read_message(), junk.read_usage(), junk.role) == (None, None, None)
        assert (other.read_message(), other.read_usage(), other.role) == (None, None, None)
        assert [one.data["id"] for one in session.entries] == ["a", "b", "c"]


# -- versions -------------------------------------------------------------------------------------------------------


def version_1() -> SessionBuilder:
    build = SessionBuilder(version=1)
    build.user("one")  # line 2, index 1
    build.assistant("two")  # line 3, index 2
    build.user("three")  # line 4, index 3
    return build


def test_version_1_entries_form_one_chain_with_ids_that_are_the_same_at_every_opening(tmp_path: Path) -> None:
    path = version_1().write(tmp_path / "session.jsonl")
    first, second = Session.open(path), Session.open(path)
    ids = [one.id for one in first.entries]
    assert ids == [one.id for one in second.entries]
    assert len(set(ids)) == 3
    lines = path.read_bytes().split(b"\n")
    assert ids[1] == hashlib.sha256(b"1:0:" + lines[2]).hexdigest()[:8]
    assert [one.parent_id for one in first.entries] == [None, ids[0], ids[1]]
    assert first.entries[1].data["id"] == ids[1]
    assert first.entries[1].data["parentId"] == ids[0]


def test_identical_lines_of_a_version_1_file_have_ids_of_their_own(tmp_path: Path) -> None:
    build = SessionBuilder(version=1)
    line = encode({"type": "custom", "timestamp": "t"})
    for _ in range(500):
        build.raw(line)
    session = Session.open(build.write(tmp_path / "session.jsonl"))
    assert len({one.id for one in session.entries}) == 500


@pytest.mark.parametrize("version", [None, 1, 0, True, "1", "", " ", [], [[1]], [None]])
def test_a_header_without_a_version_or_below_2_is_version_1(tmp_path: Path, version: object) -> None:
    session = Session.open(SessionBuilder(version=version).write(tmp_path / "session.jsonl"))
    assert session.header.version == 1


@pytest.mark.parametrize("version", ["abc", "nan", {"a": 1}, {}, [1, 2], 3.5, 99, 10**400, "inf"])
def test_a_version_of_another_kind_or_from_the_future_does_not_stop_the_reading(
    tmp_path: Path, version: object
) -> None:
    build = SessionBuilder(version=version)
    build.entry("custom", id="a", parent=None)
    session = Session.open(build.write(tmp_path / "session.jsonl"))
    assert session.header.version >= 3  # every comparison with it is false to JavaScript: nothing is migrated
    assert [entry.id for entry in session.entries] == ["a"]


def test_the_kept_index_of_version_1_counts_the_header_as_0(tmp_path: Path) -> None:
    build = version_1()
    build.compaction("sum", 2)
    session = Session.open(build.write(tmp_path / "session.jsonl"))
    assert session.entries[3].data["firstKeptEntryId"] == session.entries[1].id
    assert "firstKeptEntryIndex" not in session.entries[3].data


def test_a_kept_index_skips_malformed_lines_as_pi_does(tmp_path: Path) -> None:
    build = SessionBuilder(version=1)
    build.raw(b"garbage")
    build.user("one")  # index 1
    build.raw(b"")
    build.user("two")  # index 2
    build.compaction("sum", 2)
    session = Session.open(build.write(tmp_path / "session.jsonl"))
    assert session.entries[2].data["firstKeptEntryId"] == session.entries[1].id


@pytest.mark.parametrize("index", [b"0", b"-1", b"99", b"1.5", b"5", b"1e999"])
def test_a_kept_index_that_names_no_earlier_entry_keeps_nothing(tmp_path: Path, index: bytes) -> None:
    build = version_1()
    build.raw(b'{"type":"compaction","timestamp":"t","summary":"s","tokensBefore":1,"firstKeptEntryIndex":%b}' % index)
    build.user("four")
    session = Session.open(build.write(tmp_path / "session.jsonl"))
    data = session.entries[3].data
    assert "firstKeptEntryId" not in data
    assert "firstKeptEntryIndex" not in data


def test_a_whole_float_is_a_kept_index(tmp_path: Path) -> None:
    build = version_1()
    build.raw(b'{"type":"compaction","timestamp":"t","summary":"s","tokensBefore":1,"firstKeptEntryIndex":3.0}')
    session = Session.open(build.write(tmp_path / "session.jsonl"))
    assert session.entries[3].data["firstKeptEntryId"] == session.entries[2].id


def test_a_kept_index_that_is_not_a_number_stays_as_it_is(tmp_path: Path) -> None:
    build = version_1()
    build.raw(b'{"type":"compaction","timestamp":"t","summary":"s","tokensBefore":1,"firstKeptEntryIndex":"2"}')
    session = Session.open(build.write(tmp_path / "session.jsonl"))
    assert session.entries[3].data["firstKeptEntryIndex"] == "2"


@pytest.mark.parametrize("version", [1, 2])
def test_hook_messages_of_older_versions_are_custom_messages(tmp_path: Path, version: int) -> None:
    build = SessionBuilder(version=version)
    build.message({"role": "hookMessage", "content": "x"})
    path = build.write(tmp_path / "session.jsonl")
    assert Session.open(path).entries[0].role == "custom"  # from the probe
    message = Session.open(path).entries[0].message
    assert message == {"role": "custom", "content": "x"}


def test_version_3_keeps_the_role_of_a_hook_message(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.message({"role": "hookMessage", "content": "x"})
    assert Session.open(build.write(tmp_path / "session.jsonl")).entries[0].role == "hookMessage"


def test_the_header_is_read_with_what_it_says(tmp_path: Path) -> None:
    build = SessionBuilder(header={"parentSession": "/elsewhere.jsonl", "mine": 1})
    header = Session.open(build.write(tmp_path / "session.jsonl")).header
    assert (header.id, header.version, header.cwd) == ("session-1", 3, "/project")
    assert header.parent_session == "/elsewhere.jsonl"
    assert header.data["mine"] == 1


# -- the tree -------------------------------------------------------------------------------------------------------


def forked(tmp_path: Path) -> Session:
    """a ─ b ─ c, and d from a."""
    lines = [entry("a", None), entry("b", "a"), entry("c", "b"), entry("d", "a")]
    return opened(tmp_path, HEADER + b"".join(lines))


def ids(session: Session, leaf: str | None = None) -> list[str]:
    return [one.id for one in session.branch(leaf)]


def test_the_leaf_is_the_last_entry_and_branches_run_from_root_to_leaf(tmp_path: Path) -> None:
    session = forked(tmp_path)
    assert session.leaf_id == "d"
    assert ids(session) == ["a", "d"]
    assert ids(session, "c") == ["a", "b", "c"]
    assert ids(session, "nobody") == []
    assert [one.depth for one in session.entries] == [0, 1, 2, 1]
    assert [one.position for one in session.entries] == [0, 1, 2, 3]


def test_children_come_in_file_order_and_none_asks_for_the_roots(tmp_path: Path) -> None:
    session = forked(tmp_path)
    assert [one.id for one in session.children("a")] == ["b", "d"]
    assert [one.id for one in session.children(None)] == ["a"]
    assert session.children("c") == []
    session.append([{"type": "custom"}])
    assert [one.id for one in session.children("d")] == [session.leaf_id]


def test_moving_the_leaf_changes_the_branch_and_the_revision(tmp_path: Path) -> None:
    session = forked(tmp_path)
    before = session.revision
    session.move_leaf("c")
    assert (session.leaf_id, ids(session)) == ("c", ["a", "b", "c"])
    assert session.revision > before
    again = session.revision
    session.move_leaf("c")
    assert session.revision == again
    session.move_leaf(None)
    assert (session.leaf_id, ids(session)) == (None, [])
    with pytest.raises(EntryNotFound, match="'nobody' not found"):
        session.move_leaf("nobody")
    assert session.leaf_id is None


def test_the_last_label_counts_and_an_empty_one_clears(tmp_path: Path) -> None:
    build = SessionBuilder()
    target, other = build.user("a"), build.user("b")
    build.label(target, "first")
    build.label(target, "second")
    build.label(other, "gone")
    build.label(other, None)
    build.entry("label", targetId=7, label="odd")
    session = Session.open(build.write(tmp_path / "session.jsonl"))
    assert session.label(target) == "second"
    assert session.label(other) is None


def test_the_last_name_counts_trimmed_and_an_empty_one_clears(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.session_info("first")
    build.session_info("  second ")
    assert Session.open(build.write(tmp_path / "a.jsonl")).name == "second"
    build.session_info("  ")
    assert Session.open(build.write(tmp_path / "b.jsonl")).name is None


def test_an_entry_with_a_missing_parent_begins_a_branch(tmp_path: Path) -> None:
    session = opened(tmp_path, HEADER + entry("a", None) + entry("b", "lost") + entry("c", "b"))
    assert ids(session) == ["b", "c"]
    assert [one.depth for one in session.entries] == [0, 0, 1]
    assert [one.id for one in session.children(None)] == ["a", "b"]
    assert problems(session) == [("missing-parent", 3, "b")]


def test_a_parent_that_comes_after_its_child_is_found(tmp_path: Path) -> None:
    session = opened(tmp_path, HEADER + entry("b", "a") + entry("a", None) + entry("c", "b"))
    assert ids(session) == ["a", "b", "c"]
    assert [session.depth(one) for one in session.entries] == [1, 0, 2]
    assert [one.id for one in session.children("a")] == ["b"]
    assert problems(session) == []


def test_a_later_entry_hides_an_earlier_one_with_its_id(tmp_path: Path) -> None:
    lines = [entry("a", None), entry("b", "a", old=1), entry("c", "b"), entry("b", None, new=1), entry("e", "c")]
    session = opened(tmp_path, HEADER + b"".join(lines))
    assert ids(session) == ["b", "c", "e"]
    assert session.branch()[0].data["new"] == 1
    assert [one.position for one in session.children(None)] == [0, 3]
    assert session.children("a") == []
    assert problems(session) == [("duplicate-id", 5, "b")]
    assert [session.depth(one) for one in session.branch()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([("a", "a")], {"a"}),
        ([("a", "b"), ("b", "a")], {"a", "b"}),
        ([("a", "c"), ("b", "a"), ("c", "b")], {"a", "b", "c"}),
    ],
)
def test_a_parent_cycle_is_an_error_that_names_an_entry_and_no_hang(
    tmp_path: Path, lines: list[tuple[str, str]], named: set[str]
) -> None:
    content = HEADER + entry("ok", None) + b"".join(entry(*line) for line in lines) + entry("leaf", lines[-1][0])
    path = tmp_path / "session.jsonl"
    path.write_bytes(content)
    # In another process, so that a loop would be an expired timeout rather than a test run that never ends.
    program = (
        "import sys\n"
        "from contexthost.errors import ParentCycle\n"
        "from contexthost.session import Session\n"
        "session = Session.open(sys.argv[1])\n"
        "try:\n"
        "    session.branch()\n"
        "except ParentCycle as error:\n"
        "    print(error.entry_id, str(error), sep='\\n')\n"
        "print(*[p.entry_id for p in session.problems if p.kind == 'parent-cycle'])\n"
        "print(*[e.id for e in session.branch('ok')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    entry_id, text, told, good = done.stdout.split("\n")[:4]
    assert entry_id in named
    assert f"parent cycle at {entry_id}" in text
    assert set(told.split()) == named | {"leaf"}
    assert good == "ok"


def test_a_cycle_that_only_an_append_closes_is_met_too() -> None:
    lines = [{"type": "custom", "id": "b", "parentId": "a", "timestamp": ""}]
    session = Session.in_memory(entries=lines)
    session.append([{"type": "custom", "id": "a"}])  # a child of b, which is a child of a
    with pytest.raises(ParentCycle) as caught:
        session.branch()
    assert caught.value.entry_id in ("a", "b")


# -- odd lines ------------------------------------------------------------------------------------------------------

DEEP = b'{"type":"custom","id":"deep","parentId":"a","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"garbage", "malformed-line"),
        (b"{", "malformed-line"),
        (b'{"type":"custom","id":"x","data":NaN}', "malformed-line"),
        (b'{"type":"custom","id":"x","data":-Infinity}', "malformed-line"),
        (b'{"type":"custom","id":"x","data":01}', "malformed-line"),
        (b'{"type":"custom","id":"x","data":"a\x01"}', "malformed-line"),
        (b'{"type":"custom","id":"x"}{"type":"custom","id":"y"}', "malformed-line"),
        (b"\xef\xbb\xbf" + entry("x", None).strip(), "malformed-line"),
        (b"\xff\xfe\x00", "malformed-line"),
        (DEEP[:-1], "malformed-line"),
        (b"123", "not-an-object"),
        (b'"text"', "not-an-object"),
        (b"[1]", "not-an-object"),
        (b"null", "not-an-object"),
        (b'{"type":"custom"}', "missing-id"),
        (b'{"type":"custom","id":null}', "missing-id"),
        (b'{"type":"custom","id":7}', "missing-id"),
        (b'{"type":"custom","id":1e999}', "missing-id"),
        (HEADER.strip(), "second-header"),
    ],
    ids=range(19),
)
def test_an_odd_line_is_skipped_and_told_with_its_number(tmp_path: Path, line: bytes, kind: str) -> None:
    session = opened(tmp_path, HEADER + entry("a", None) + b"\n" + line + b"\n" + entry("b", "a"))
    assert ids(session) == ["a", "b"]
    assert [one.position for one in session.entries] == [0, 1]
    assert problems(session) == [(kind, 4, None)]
    assert all(problem.text for problem in session.problems)


@pytest.mark.parametrize("blank", [b"", b"   ", b"\t", b"\r"])
def test_blank_lines_and_carriage_returns_are_no_problem(tmp_path: Path, blank: bytes) -> None:
    content = b"\n" + HEADER + blank + b"\n" + entry("a", None).replace(b"\n", b"\r\n") + entry("b", "a")
    session = opened(tmp_path, content)
    assert ids(session) == ["a", "b"]
    assert problems(session) == []


def test_a_parent_that_is_not_text_is_told_and_begins_a_branch(tmp_path: Path) -> None:
    session = opened(tmp_path, HEADER + entry("a", None) + entry("b", 5))
    assert ids(session) == ["b"]
    assert problems(session) == [("missing-parent", 3, "b")]


def test_what_javascript_accepts_is_read_as_javascript_reads_it(tmp_path: Path) -> None:
    lines = [
        b'{"type":"custom","id":"a","parentId":null,"data":"\\ud83d alone"}\n',
        b'{"type":"custom","id":"b","parentId":"a","data":"bad \xff\xe2\x80 bytes"}\n',
        b'{"type":"custom","id":"c","parentId":"b","data":1e999}\n',
        b'{"type":"custom","id":"d","parentId":"c","data":' + b"9" * 5000 + b"}\n",
        b'{"type":"custom","id":"e","parentId":"d","data":123456789012345678901234567890}\n',
        b'{"type":"custom","id":"f","id":"g","parentId":"e","data":1,"data":2}\n',
    ]
    session = opened(tmp_path, HEADER + b"".join(lines))
    assert ids(session) == ["a", "b", "c", "d", "e", "g"]
    values = [one.data["data"] for one in session.entries]
    big = 123456789012345678901234567890
    assert values == ["\ud83d alone", "bad \ufffd\ufffd bytes", float("inf"), float("inf"), big, 2]
    assert problems(session) == []


@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
def test_an_entry_is_read_however_deep_it_is_nested_and_the_stack_is(tmp_path: Path, depth: int) -> None:
    """As Node reads it: Pi opens such a file."""
    line = b'{"type":"custom","id":"a","parentId":null,"data":' + b'[{"k":' * depth + b"1" + b"}]" * depth + b"}"
    session = opened(tmp_path, HEADER + line + b"\n" + entry("b", "a"))

    def look(frames: int) -> dict[str, Any]:
        return session.entries[0].data if frames == 0 else look(frames - 1)

    data = look(300)
    assert js_json(data).encode() == encode_json(data) == line
    assert [one.id for one in session.branch()] == ["a", "b"]
    assert problems(session) == []


def test_unknown_types_and_keys_survive(tmp_path: Path) -> None:
    line = entry("a", None, type="from-the-future", mine={"deep": [1, None]})
    session = opened(tmp_path, HEADER + line + b'{"type":7,"id":"b","parentId":"a","timestamp":5}\n')
    assert session.entries[0].type == "from-the-future"
    assert session.entries[0].data["mine"] == {"deep": [1, None]}
    assert session.entries[0].raw + b"\n" == line
    assert (session.entries[1].type, session.entries[1].timestamp) == ("", "")


@pytest.mark.parametrize("message", [b"null", b"5", b'"text"', b"[]", b'{"role":5}', b'{"role":["user"]}', b"{}"])
def test_a_message_that_is_not_an_object_or_has_no_role_has_none(tmp_path: Path, message: bytes) -> None:
    session = opened(tmp_path, HEADER + b'{"type":"message","id":"a","parentId":null,"message":%b}\n' % message)
    assert session.entries[0].role is None


# -- the end of the file --------------------------------------------------------------------------------------------


def test_a_whole_last_line_without_line_feed_counts(tmp_path: Path) -> None:
    session = opened(tmp_path, HEADER + entry("a", None) + entry("b", "a").rstrip(b"\n"))
    assert ids(session) == ["a", "b"]
    assert problems(session) == []


@pytest.mark.parametrize("tail", [b'{"type":"custom","id":"b"', b"12", b"garbage", b"\xe2\x82"])
def test_a_torn_last_line_is_skipped_and_told(tmp_path: Path, tail: bytes) -> None:
    session = opened(tmp_path, HEADER + entry("a", None) + tail)
    assert ids(session) == ["a"]
    assert problems(session) == [("torn-line", 3, None)]
    assert str(len(tail)) in session.problems[0].text


def test_what_another_program_completes_is_read_at_the_next_look(tmp_path: Path) -> None:
    line = entry("b", "a")
    session = opened(tmp_path, HEADER + entry("a", None) + line[:20])
    path = session.path
    assert path is not None
    with path.open("ab") as file:
        file.write(line[20:] + entry("c", "b")[:-1])
    assert session.refresh()
    assert ids(session) == ["a", "b", "c"]
    with path.open("ab") as file:
        file.write(b"\n" + b"garbage\n")
    session.refresh()
    assert problems(session) == [("malformed-line", 5, None)]


# -- files that are no sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "no session header"),
        (b"garbage", "no session header"),
        (b"garbage\nmore\n", "no session header"),
        (b"\xef\xbb\xbf" + HEADER, "no session header"),
        (b'{"type":"message","id":"a"}\n' + HEADER, "not a session header"),
        (b'{"type":"session"}\n', "not a session header"),
        (b'{"type":"session","id":5}\n', "not a session header"),
        (b"PK\x03\x04" + bytes(1000), "no session header"),
    ],
)
def test_a_file_that_is_no_session_is_refused_by_name_and_left_untouched(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(content)
    with pytest.raises(SessionFormatError, match=told) as caught:
        Session.open(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_malformed_lines_before_the_header_are_skipped(tmp_path: Path) -> None:
    session = opened(tmp_path, b"\nnot JSON\n" + HEADER + entry("a", None))
    assert ids(session) == ["a"]
    assert problems(session) == [("malformed-line", 2, None)]


def test_a_missing_file_a_directory_and_a_pipe_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound, match=r"gone\.jsonl: no such file"):
        Session.open(tmp_path / "gone.jsonl")
    with pytest.raises(SessionNotFound, match="is a directory"):
        Session.open(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SessionNotFound, match="pipe is a device or a pipe"):
        Session.open(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(HEADER)
    with pytest.raises(SessionFormatError, match="cannot be read: Not a directory"):
        Session.open(tmp_path / "file" / "below")


@pytest.mark.parametrize("tail", [b"", b"torn", b'{"type":"custom","id":"b","parentId":"a"}'])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_opening_and_reading_never_writes(tmp_path: Path, version: int, tail: bytes) -> None:
    path = tmp_path / "session.jsonl"
    content = SessionBuilder(version=version).bytes() + entry("a", None) + tail
    path.write_bytes(content)
    path.chmod(0o444)
    os.utime(path, ns=(10**18, 10**18))
    session = Session.open(path)
    session.refresh()
    session.branch()
    assert session.problems is not None
    session.close()
    assert path.read_bytes() == content
    assert path.stat().st_mtime_ns == 10**18
    assert [one.name for one in tmp_path.iterdir()] == ["session.jsonl"]


# -- in memory, and finding -----------------------------------------------------------------------------------------


def test_a_session_in_memory_reads_appends_and_has_no_file() -> None:
    session = Session.in_memory(header={"id": "mine", "cwd": "/x"}, entries=[json.loads(entry("a", None))])
    assert (session.path, session.id, session.header.cwd, session.leaf_id) == (None, "mine", "/x", "a")
    [added] = session.append([{"type": "session_info", "name": "n"}])
    assert (added.parent_id, session.name, session.leaf_id) == ("a", "n", added.id)
    assert not session.refresh()


def test_an_append_to_a_version_1_session_in_memory_goes_on_from_its_leaf() -> None:
    session = Session.in_memory(header={"version": 1}, entries=[{"type": "custom", "n": n} for n in range(3)])
    first = session.entries[0].id
    session.move_leaf(first)
    [added] = session.append([{"type": "custom", "id": "mine"}])
    assert (added.id, added.parent_id, session.header.version) == ("mine", first, 3)


@pytest.mark.parametrize("reference", ["x" * 5000, "~nobody-has-this-name/x.jsonl", "a\0b", "../x", "", "?"])
def test_a_reference_that_can_be_no_file_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if reference == "":
        assert find_session(reference) == Path()  # the directory, which opening then refuses
        return
    with pytest.raises(SessionNotFound):
        find_session(reference)
