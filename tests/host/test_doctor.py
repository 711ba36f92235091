"""`doctor` finds every kind of damage by the right entry or line, repair only appends and leaves nothing for a second
one, and a rescue saves every message; over generated files (`support.broken`) and files worked out by hand."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from contexthost.diagnosis import Diagnosis, diagnose, examine, plan_rescue, repair, write_rescue
from contexthost.errors import SessionChanged, SessionFormatError, SessionWriteError
from contexthost.messages import convert_to_llm
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.broken import (
    KINDS,
    MENDED_BY_APPENDING,
    MENDED_BY_RESCUE,
    VARIANTS,
    Broken,
    broken_session,
)
from support.builder import SessionBuilder, encode, tool_call
from support.sessions import random_session, sessions
from support.talk import healthy_session, unpaired

NOTICES = {"malformed-line", "torn-line", "second-header", "unknown-role", "dead-sibling"}


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTEXTHOST_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def opened(path: Path) -> ProjectionAuthority:
    return ProjectionAuthority(Session.open(path))


def variants(kind: str, directory: Path) -> Iterator[tuple[Broken, Path]]:
    for seed in range(VARIANTS):
        broken = broken_session(kind, seed)
        path = directory / f"{kind}-{seed}.jsonl"
        path.write_bytes(broken.data)
        yield broken, path


def sent(authority: ProjectionAuthority) -> list[Any]:
    return convert_to_llm(authority.snapshot().messages)


def orphan(seed: int) -> Broken:
    return broken_session("orphan-result", seed)


def append_only(diagnosis: Diagnosis) -> list[str]:
    return [finding.kind for finding in diagnosis.findings if finding.mend == "append"]


# -- every kind, many variants ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "no-header"])
def test_damage_is_found_where_it_is(kind: str, tmp_path: Path) -> None:
    for broken, path in variants(kind, tmp_path):
        authority = opened(path)
        found = [finding for finding in examine(authority).findings if finding.kind == kind]
        entries = authority.session.entries
        assert {one.line for one in found} >= set(broken.lines), broken.seed
        assert all(one.line > 0 and one.problem and one.model_sees and one.repair for one in found)
        if broken.positions:
            assert {one.entry_id for one in found} == {entries[at].id for at in broken.positions}, broken.seed
        assert {one.severity for one in found} <= ({"notice"} if kind in NOTICES else {"problem", "notice"})
        assert path.read_bytes() == broken.data


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("duplicate-id", "no-header")])
def test_one_damage_is_not_taken_for_another(kind: str, tmp_path: Path) -> None:
    for broken, path in variants(kind, tmp_path):
        assert {one.kind for one in examine(opened(path)).problems} <= {kind}, broken.seed


@pytest.mark.parametrize("kind", MENDED_BY_APPENDING)
def test_repair_appends_and_leaves_the_session_whole(kind: str, tmp_path: Path) -> None:
    for broken, path in variants(kind, tmp_path):
        authority = opened(path)
        assert all(one.drafts for one in examine(authority).problems)
        left = repair(authority, examine(authority))
        assert left.problems == [], broken.seed
        assert unpaired(sent(authority), failed_too=True) == [], broken.seed
        again = opened(path)
        assert sent(again) == sent(authority)
        assert examine(again).problems == []
        assert examine(again).drafts == ()
        if broken.version == 3:
            assert path.read_bytes().startswith(broken.data)
        else:
            assert path.with_name(f"{path.name}.v{broken.version}.bak").read_bytes() == broken.data


@pytest.mark.parametrize("kind", ["not-an-object", "missing-id"])
def test_pi_finds_its_place_again_after_a_record_was_appended(kind: str, tmp_path: Path) -> None:
    recorded = 0
    for broken, path in variants(kind, tmp_path):
        authority = opened(path)
        diagnosis = examine(authority)
        leaf = authority.session.leaf_id
        assert append_only(repair(authority, diagnosis)) == []
        if diagnosis.drafts:
            last = authority.session.entries[-1]
            assert (last.type, last.parent_id, last.data["customType"]) == ("custom", leaf, "contexthost.doctor")
            recorded += 1
        else:  # entries follow the line, or Pi finds it by an id that is not text
            assert broken.seed % 2 == 1 or b'"id":7' in broken.data or b'"id":["x"]' in broken.data
    assert recorded >= VARIANTS // 4


@pytest.mark.parametrize("kind", MENDED_BY_RESCUE)
def test_a_rescue_saves_every_message_and_leaves_the_old_file_alone(kind: str, tmp_path: Path) -> None:
    for broken, path in variants(kind, tmp_path):
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


def test_healthy_sessions_have_no_findings(tmp_path: Path) -> None:
    for seed in range(60):
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(healthy_session(seed))
        diagnosis = examine(opened(path))
        assert (diagnosis.findings, diagnosis.drafts) == ((), ()), seed


@settings(max_examples=60, deadline=None)
@given(sessions())
def test_whatever_the_session_repair_leaves_it_whole_and_leaves_nothing_to_repair(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "s.jsonl"
    path.write_bytes(data)
    authority = opened(path)
    diagnosis = examine(authority)
    for finding in diagnosis.findings:
        assert (finding.mend == "append") == bool(finding.drafts)
    whole = unpaired(sent(authority)) == []
    left = repair(authority, diagnosis)
    assert append_only(left) == []
    assert unpaired(sent(authority)) == []
    assert whole or diagnosis.problems


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


# -- by hand: compactions ---------------------------------------------------------------------------------------------


def test_an_unknown_kept_id_is_mended_at_pis_own_cut(tmp_path: Path) -> None:
    """By Pi's count a question has 5,000 tokens and an answer 2,500: the question of the third turn from the end is
    the one that reaches 20,000."""
    build = SessionBuilder()
    users = []
    for turn in range(6):
        users.append(build.user("u" * 20_000))
        build.assistant(f"{turn}" * 10_000)
    compaction = build.compaction("The summary.", "gone")
    build.user("and now?")
    authority = opened(build.write(tmp_path / "s.jsonl"))
    assert [message["role"] for message in sent(authority)] == ["user", "user"]
    diagnosis = examine(authority)
    [finding] = diagnosis.findings
    assert (finding.kind, finding.entry_id, finding.line) == ("unknown-kept-id", compaction, 14)
    repair(authority, diagnosis)
    checkpoint = authority.snapshot().checkpoint
    assert checkpoint is not None
    assert checkpoint.data["firstKeptEntryId"] == users[3]
    assert checkpoint.data["summary"] == "The summary."
    assert [message["role"] for message in sent(authority)] == ["user", *["user", "assistant"] * 3, "user"]


def test_an_empty_summary_is_mended_with_all_that_fits_and_the_summary_before_it(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("long ago")
    first = build.compaction("Long ago we began.", None)
    question = build.user("a question")
    build.assistant("an answer")
    late = build.user("another")
    empty = build.compaction("  ", late)
    authority = opened(build.write(tmp_path / "s.jsonl"))
    diagnosis = examine(authority)
    assert [(finding.kind, finding.entry_id) for finding in diagnosis.findings] == [("empty-summary", empty)]
    repair(authority, diagnosis)
    summary, *rest = authority.snapshot().messages
    assert summary["summary"] == (
        "The summary of the conversation before this point was lost: it was recorded empty. Nothing else is missing: "
        "the messages that it was to stand for follow.\n\n"
        "The summary before it, of an earlier part of the conversation:\n\nLong ago we began."
    )
    assert [message["content"] for message in rest if message["role"] == "user"] == ["a question", "another"]
    checkpoint = authority.snapshot().checkpoint
    assert checkpoint is not None
    assert checkpoint.data["firstKeptEntryId"] == question
    assert first != question


def test_an_empty_summary_brings_back_no_more_than_half_the_window(tmp_path: Path) -> None:
    """A turn has 200 tokens and a little; in a window of 1,000 two of them fit into half."""
    build = SessionBuilder()
    users = []
    for _ in range(5):
        users.append(build.user("a " * 100))
        build.assistant("a " * 100)
    build.compaction("", None)
    path = build.write(tmp_path / "s.jsonl")
    authority = ProjectionAuthority(Session.open(path), window=1000)
    repair(authority, examine(authority))
    checkpoint = authority.snapshot().checkpoint
    assert checkpoint is not None
    assert checkpoint.data["firstKeptEntryId"] == users[3]
    assert "the most recent part" in checkpoint.data["summary"]


def test_a_compaction_inside_a_pair_is_mended_without_losing_the_result(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    call = build.assistant("looking", calls=[tool_call("c1", "read"), tool_call("c2", "read")])
    build.tool_result("c1", "one")
    second = build.tool_result("c2", "two")
    compaction = build.compaction("The summary.", second)
    authority = opened(build.write(tmp_path / "s.jsonl"))
    diagnosis = examine(authority)
    [finding] = diagnosis.findings
    assert (finding.kind, finding.entry_id) == ("compaction-inside-pair", compaction)
    assert second in finding.problem
    repair(authority, diagnosis)
    roles = [message["role"] for message in sent(authority)]
    assert roles == ["user", "assistant", "toolResult", "toolResult"]
    assert [entry.source.id for entry in authority.snapshot().entries if entry.messages][1] == call


def test_a_compaction_that_keeps_nothing_on_purpose_is_healthy(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    build.compaction("The summary.", None)
    assert examine(opened(build.write(tmp_path / "s.jsonl"))).findings == ()


# -- by hand: the tree ------------------------------------------------------------------------------------------------


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


def test_repair_refuses_when_somebody_wrote_after_the_diagnosis(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(next(b.data for b in map(orphan, range(VARIANTS)) if b.version == 3))
    authority = opened(path)
    diagnosis = examine(authority)
    with Session.open(path) as other:
        other.append([{"type": "custom", "customType": "x", "data": 1}])
    before = path.read_bytes()
    with pytest.raises(SessionChanged, match="is Pi still running"):
        repair(authority, diagnosis)
    assert path.read_bytes() == before


def test_a_session_in_memory_can_be_examined_and_repaired() -> None:
    result = {"role": "toolResult", "toolCallId": "gone", "toolName": "read", "content": [], "isError": False}
    session = Session.in_memory(entries=[{"type": "message", "id": "00000001", "parentId": None, "message": result}])
    authority = ProjectionAuthority(session)
    diagnosis = diagnose(authority)
    assert [(one.kind, one.entry_id, one.line) for one in diagnosis.findings] == [("orphan-result", "00000001", 0)]
    assert repair(authority, diagnosis).findings == ()
