"""Pi's session mirrored: from the file when it holds what Pi has, else from Pi; then only what is new."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contexthost.errors import SessionLocked, Unsupported
from contexthost.pi.mirror import Gap, Mirror, NotWhole
from contexthost.pi.protocol import Sync
from contexthost.session import Session
from contexthost.session.entries import encode_json
from support.builder import SessionBuilder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))


def entry(entry_id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": "custom", "id": entry_id, "parentId": parent, "timestamp": "", "customType": "t", **fields}


def sync(start: int, *entries: dict[str, Any], leaf: str | None) -> Sync:
    return Sync(start, leaf, [msgspec.Raw(encode_json(one)) for one in entries])


def written(tmp_path: Path) -> tuple[Path, list[str]]:
    builder = SessionBuilder()
    ids = [builder.user("one"), builder.assistant("two"), builder.user("three")]
    return builder.write(tmp_path / "session.jsonl"), ids


def start(path: Path | None, count: int, last: str | None, leaf: str | None, session_id: str) -> dict[str, Any]:
    header = {"type": "session", "version": 3, "id": session_id, "cwd": "/project"}
    return {"file": str(path) if path else None, "header": header, "count": count, "lastId": last, "leaf": leaf}


def test_a_complete_file_is_read(tmp_path: Path) -> None:
    path, ids = written(tmp_path)
    session_id = Session.open(path).id
    mirror = Mirror.hydrate(start(path, 3, ids[2], ids[1], session_id), None)
    assert [one.id for one in mirror.session.entries] == ids
    assert (mirror.session.leaf_id, mirror.count, mirror.session.path) == (ids[1], 3, path)


@pytest.mark.parametrize("told", ["one more", "another last entry", "another session", "no file"])
def test_a_file_that_is_not_what_pi_has_is_not_used(tmp_path: Path, told: str) -> None:
    path, ids = written(tmp_path)
    session_id = "another" if told == "another session" else Session.open(path).id
    count = 4 if told == "one more" else 3
    last = ids[1] if told == "another last entry" else ids[2]
    event = start(None if told == "no file" else path, count, last, ids[2], session_id)
    with pytest.raises(NotWhole):
        Mirror.hydrate(event, None)
    mirror = Mirror.hydrate(event, sync(0, entry("a", None), entry("b", "a"), leaf="a"))
    assert [one.id for one in mirror.session.entries] == ["a", "b"]
    assert (mirror.session.leaf_id, mirror.session.id, mirror.count) == ("a", session_id, 2)


def test_deltas_move_it_along_and_what_is_known_already_is_passed_over() -> None:
    mirror = Mirror.hydrate(start(None, 0, None, None, "s"), sync(0, leaf=None))
    assert mirror.apply(sync(0, entry("a", None), entry("b", "a"), leaf="b"))
    assert mirror.apply(sync(1, entry("b", "a"), entry("c", "b"), leaf="c"))
    assert not mirror.apply(sync(3, leaf="c"))
    assert [one.id for one in mirror.session.entries] == ["a", "b", "c"]
    assert mirror.apply(sync(3, leaf="a"))  # the leaf alone
    assert mirror.session.leaf_id == "a"
    assert mirror.apply(sync(3, entry("d", "a"), leaf="d"))
    assert [one.id for one in mirror.session.branch()] == ["a", "d"]
    assert mirror.apply(sync(4, leaf=None))
    assert mirror.session.branch() == []


def test_a_gap_is_noticed_and_everything_sent_anew_closes_it() -> None:
    mirror = Mirror.hydrate(start(None, 0, None, None, "s"), sync(0, entry("a", None), leaf="a"))
    with pytest.raises(Gap):
        mirror.apply(sync(2, entry("c", "b"), leaf="c"))
    assert mirror.apply(sync(0, entry("a", None), entry("b", "a"), entry("c", "b"), leaf="c"))
    assert [one.id for one in mirror.session.entries] == ["a", "b", "c"]


def test_entries_that_cannot_be_used_count_as_pi_counts_them() -> None:
    mirror = Mirror.hydrate(start(None, 0, None, None, "s"), sync(0, leaf=None))
    mirror.apply(sync(0, {"type": "custom"}, entry("a", None), leaf="a"))
    mirror.apply(sync(2, entry("b", "a"), leaf="b"))
    assert ([one.id for one in mirror.session.entries], mirror.count) == (["a", "b"], 3)


def test_it_holds_the_lock_and_writes_nothing(tmp_path: Path) -> None:
    path, ids = written(tmp_path)
    before = path.read_bytes()
    mirror = Mirror.hydrate(start(path, 3, ids[2], ids[2], Session.open(path).id), None)
    assert mirror.hold() is None
    with pytest.raises(Unsupported, match="written by another program"):
        mirror.session.append([{"type": "custom", "customType": "t"}])
    code = f"from contexthost.session import Session; Session.open({str(path)!r}).append([{{'type': 'custom'}}])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "locked by a live Pi session: use its slash commands (such as /relay) there" in run.stderr
    assert SessionLocked.__name__ in run.stderr
    assert path.read_bytes() == before
    mirror.session.close()
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lock_that_somebody_else_has_is_told(tmp_path: Path) -> None:
    path, ids = written(tmp_path)
    other = Session.open(path, owner="contexthost mask")
    other.hold()
    mirror = Mirror.hydrate(start(path, 3, ids[2], ids[2], other.id), None)
    assert "locked by contexthost mask" in (mirror.hold() or "")
    other.close()
    assert mirror.hold() is None
    mirror.session.close()
