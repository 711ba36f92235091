"""A rescue saves every message in a new file, chains it as it was, and leaves that file whole or not at all."""

from __future__ import annotations

import random
import stat
from pathlib import Path
from typing import Any

import pytest

from contexthost.diagnosis import examine, plan_rescue, write_rescue
from contexthost.diagnosis.chain import Chain, Saved
from contexthost.errors import SessionFormatError, SessionWriteError
from contexthost.messages import convert_to_llm
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.broken import MENDED_BY_RESCUE, VARIANTS, broken_session
from support.builder import SessionBuilder, encode
from support.sessions import random_session
from support.talk import healthy_session, unpaired


def opened(path: Path) -> ProjectionAuthority:
    return ProjectionAuthority(Session.open(path))


def sent(authority: ProjectionAuthority) -> list[Any]:
    return convert_to_llm(authority.snapshot().messages)


@pytest.mark.parametrize("kind", MENDED_BY_RESCUE)
def test_a_rescue_saves_every_message_and_leaves_the_old_file_alone(kind: str, tmp_path: Path) -> None:
    for broken in (broken_session(kind, seed) for seed in range(VARIANTS)):
        path = tmp_path / f"{broken.seed}.jsonl"
        path.write_bytes(broken.data)
        rescue = plan_rescue(path)
        target = tmp_path / f"new-{broken.seed}.jsonl"
        authority, diagnosis = write_rescue(rescue, target)
        assert diagnosis.findings == (), broken.seed
        assert unpaired(sent(authority)) == []
        lost = 1 if kind == "no-message" else 0
        saved = sum(entry.type == "message" for entry in authority.session.entries)
        assert saved == broken.messages - lost, broken.seed
        assert authority.session.header.parent_session == str(path)
        assert authority.session.header.cwd == "/project"
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert path.read_bytes() == broken.data


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_whatever_the_file_a_rescue_is_without_problems(start: int, tmp_path: Path) -> None:
    rescued = 0
    for seed in range(start, start + 50):
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(random_session(seed, broken=seed % 3 == 0, cycles=seed % 3 == 1))
        try:
            rescue = plan_rescue(path)
        except SessionFormatError as error:
            assert "no message could be found" in str(error)  # noqa: PT017
            continue
        _, diagnosis = write_rescue(rescue, tmp_path / f"{seed}-new.jsonl")
        assert diagnosis.problems == [], seed
        rescued += 1
    assert rescued > 40


def test_an_entry_glued_to_half_a_line_is_found_again_by_a_rescue(tmp_path: Path) -> None:
    """What Pi leaves after a short write: the next entry stands behind the fragment, the one after is an orphan."""
    build = SessionBuilder()
    build.user("one")
    build.assistant("two")
    build.user("three")
    build.assistant("four")
    fragment = build.lines[2][:50]
    build.lines[2:4] = [fragment + build.lines[3]]
    build.user("five")
    path = build.write(tmp_path / "s.jsonl")
    assert [finding.kind for finding in examine(opened(path)).findings] == ["malformed-line", "missing-parent"]
    assert len(sent(opened(path))) == 1
    rescue = plan_rescue(path)
    assert (rescue.saved, rescue.from_broken_lines, rescue.rehung, rescue.lost_lines) == (4, 1, 1, ())
    authority, diagnosis = write_rescue(rescue, tmp_path / "new.jsonl")
    assert diagnosis.findings == ()
    texts = [encode(message["content"]) for message in sent(authority)]
    assert [word in text for word, text in zip([b"one", b"two", b"four", b"five"], texts, strict=True)] == [True] * 4


def test_what_followed_each_of_two_entries_with_one_id_follows_it_again(tmp_path: Path) -> None:
    build = SessionBuilder()
    first = build.user("first")
    build.assistant("after the first")
    build.branch_from(None)
    build.message({"role": "user", "content": "second"}, id=first)
    build.assistant("after the second")
    path = build.write(tmp_path / "s.jsonl")
    rescue = plan_rescue(path)
    old, old_child, new, new_child = rescue.entries
    assert (old["id"], old["parentId"], old_child["parentId"]) == (first, None, first)
    assert new["id"] != first
    assert (new["parentId"], new_child["parentId"]) == (None, new["id"])
    assert rescue.renamed == 1


def test_references_follow_the_entries_that_they_meant(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("zero")
    kept = build.entry("message")  # without a message: left out
    build.user("one")
    taken = build.message({"role": "user", "content": "two"})
    again = build.message({"role": "user", "content": "three"}, id=taken, parent=taken)
    build.edit(again, None)
    build.compaction("The summary.", kept)
    path = build.write(tmp_path / "s.jsonl")
    zero, one, two, three, edit, compaction = plan_rescue(path).entries
    assert [entry["parentId"] for entry in (one, two, three)] == [zero["id"], one["id"], two["id"]]
    assert edit["targetId"] == three["id"] != two["id"]
    assert compaction["firstKeptEntryId"] == one["id"]


def test_a_version_1_file_is_rescued_in_the_order_of_its_lines(tmp_path: Path) -> None:
    build = SessionBuilder(version=1)
    build.user("one")
    build.entry("message", message=None)
    build.message({"role": "hookMessage", "customType": "x", "content": "two"})
    build.compaction("The summary.", 3)
    one, two, compaction = plan_rescue(build.write(tmp_path / "s.jsonl")).entries
    assert [one["parentId"], two["parentId"], compaction["parentId"]] == [None, one["id"], two["id"]]
    assert two["message"]["role"] == "custom"
    assert compaction["firstKeptEntryId"] == two["id"]
    assert "firstKeptEntryIndex" not in compaction


def test_circles_are_opened_at_the_nearest_entry_that_leads_elsewhere(tmp_path: Path) -> None:
    """By hand: two circles of two, an entry that hangs on the first, then three in a circle around left-out ones."""
    build = SessionBuilder()
    ids = [build.id_at(at) for at in range(11)]
    say = {"role": "user", "content": "x"}
    root = build.user("go")
    for parent in (3, 2, 2, 6, 5):  # 2 ⇄ 3, 4 → 2, 5 ⇄ 6
        build.message(say, parent=ids[parent])
    build.entry("message", parent=ids[9])  # 7 → 9 → 8 → 7; 7 and 8 are left out
    build.entry("message", parent=ids[7])
    build.message(say, parent=ids[8])
    build.message(say, parent=ids[8])
    parents = {entry["id"]: entry["parentId"] for entry in plan_rescue(build.write(tmp_path / "s.jsonl")).entries}
    assert parents == {
        root: None, ids[2]: root, ids[3]: ids[2], ids[4]: ids[2], ids[5]: ids[4], ids[6]: ids[5],
        ids[9]: ids[6], ids[10]: ids[6],
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(300))
def test_parents_are_those_that_a_slow_walk_finds(seed: int) -> None:
    """Random chains with circles, repeated and lost ids and left-out entries, against the rule word for word."""
    rng = random.Random(seed)
    size = rng.randint(1, 14)
    found = []
    for place in range(size):
        named = rng.choice([None, "gone", *map(str, range(size)), *map(str, range(size))])
        found.append(Saved({"parentId": named}, str(rng.randrange(size)), rng.random() < 0.3, place))
    chain = Chain(found, linear=False)
    parents, rehung = slow_parents(found, chain)
    assert [one.parent for one in found] == parents
    assert chain.rehung == rehung
    for one in found:
        above = one.parent
        while above is not None and above.left_out:
            above = above.parent
        assert chain.saved_parent(one) is above


def slow_parents(found: list[Saved], chain: Chain) -> tuple[list[Saved | None], int]:
    parents: list[Saved | None] = [None] * len(found)
    rehung = 0

    def leads_to(start: Saved, goal: Saved) -> bool:
        at: Saved | None = start
        while at is not None and at is not goal:
            at = parents[at.place]
        return at is goal

    later = []
    for one in found:
        before = [other for other in found[: one.place] if not other.left_out]
        named = one.data["parentId"]
        if named is None:
            continue
        place = chain.meant(named, one.place)
        if place is not None and place > one.place:
            later.append((one, found[place], before))
        elif place is not None:
            parents[one.place] = found[place]
        elif before:
            parents[one.place] = before[-1]
            rehung += not one.left_out
    for one, parent, before in later:
        if leads_to(parent, one):
            parents[one.place] = next((other for other in reversed(before) if not leads_to(other, one)), None)
            rehung += not one.left_out
        else:
            parents[one.place] = parent
    return parents, rehung


@pytest.mark.parametrize("step", ["write", "fsync", "link", "directory"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_rescue_leaves_nothing_or_all(
    step: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(broken_session("orphan-result", 0).data)
    target = tmp_path / "new.jsonl"
    rescue = plan_rescue(path)

    def stop(*_arguments: object, **_keywords: object) -> None:
        raise error(28, "the disk is full") if error is OSError else error()

    with monkeypatch.context() as patch:
        name = {"write": "os.fdopen", "fsync": "os.fsync", "link": "os.link"}.get(step)
        patch.setattr(name or "contexthost.session.durable.sync_directory", stop)
        if step == "link" and error is OSError:
            write_rescue(rescue, target)  # a file system without hard links
        else:
            with pytest.raises(SessionWriteError if error is OSError else KeyboardInterrupt):
                write_rescue(rescue, target)
    whole = step == "link" if error is OSError else step == "directory"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new.jsonl", "s.jsonl"][not whole :]
    if whole:
        assert examine(opened(target)).findings == ()
        assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_rescue_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(healthy_session(1))
    before = path.read_bytes()
    rescue = plan_rescue(path)
    for target in (path, tmp_path):
        with pytest.raises(SessionWriteError, match="exists already"):
            write_rescue(rescue, target)
    with pytest.raises(SessionWriteError, match="cannot be written"):
        write_rescue(rescue, tmp_path / "nowhere" / "new.jsonl")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
