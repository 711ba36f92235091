"""`doctor` finds every kind of damage by the right entry or line, repair only appends and leaves nothing for a second
one; over generated files (`support.broken`) and files worked out by hand. (Rescues: `test_doctor_rescue`.)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from contexthost.diagnosis import Diagnosis, diagnose, examine, plan_rescue, repair, write_rescue
from contexthost.errors import InvalidDraft, SessionChanged
from contexthost.messages import convert_to_llm
from contexthost.projection import CompactionDraft, ProjectionAuthority
from contexthost.session import Session
from support.broken import (
    KINDS,
    MENDED_BY_APPENDING,
    VARIANTS,
    Broken,
    broken_session,
    deep_call,
)
from support.builder import SessionBuilder, text_block, tool_call
from support.sessions import sessions
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


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_twenty_variants_of_a_kind_and_they_differ(kind: str) -> None:
    """In what stands where, not in words alone: versions, types, roles, the number of blocks, who follows whom."""
    assert VARIANTS >= 20
    files = [broken_session(kind, seed).data for seed in range(VARIANTS)]
    assert len({shape(data) for data in files}) == VARIANTS


def shape(data: bytes) -> str:
    lines = []
    for line in data.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            lines.append("odd")
            continue
        message = value.get("message")
        said = message if isinstance(message, dict) else {}
        content = said.get("content")
        blocks = [block.get("type") if isinstance(block, dict) else "?" for block in content or () if content != ""]
        lines.append(f"{value.get('type')} {value.get('parentId')} {said.get('role')} {blocks}")
    return "\n".join(lines)


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


def test_healthy_sessions_have_no_findings(tmp_path: Path) -> None:
    for seed in range(60):
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(healthy_session(seed))
        diagnosis = examine(opened(path))
        assert (diagnosis.findings, diagnosis.drafts) == ((), ()), seed


@settings(max_examples=60)
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


def test_a_preview_without_checks_shows_what_would_be_refused(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    build.assistant("looking", calls=[tool_call("c1", "read")])
    result = build.tool_result("c1", "one")
    authority = opened(build.write(tmp_path / "s.jsonl"))
    draft = CompactionDraft(summary="The summary.", first_kept_entry_id=result)
    with pytest.raises(InvalidDraft, match="an orphaned result for c1"):
        authority.preview([draft])
    shown = authority.preview([draft], check=False)
    assert [message["role"] for message in shown.messages] == ["compactionSummary", "toolResult"]
    assert len(authority.session.entries) == 3


def test_a_compaction_that_keeps_nothing_on_purpose_is_healthy(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    build.compaction("The summary.", None)
    assert examine(opened(build.write(tmp_path / "s.jsonl"))).findings == ()


def test_results_are_joined_to_their_calls_with_two_projections_however_many_they_are(tmp_path: Path) -> None:
    """Two batches are cut off from their results. The second one's message was omitted since, the first's was not."""
    build = SessionBuilder()
    build.user("go")
    call = build.assistant("both", calls=[tool_call("c1", "read"), tool_call("c2", "read")])
    omitted = build.assistant("later", calls=[tool_call("c3", "read")])
    compaction = build.compaction("The summary.", None)
    build.edit(omitted, None)
    results = [build.tool_result(name, "x") for name in ("c1", "c2", "c3")]
    authority = opened(build.write(tmp_path / "s.jsonl"))
    diagnosis = examine(authority)
    assert [(one.kind, one.entry_id) for one in diagnosis.findings] == [
        ("compaction-inside-pair", compaction),
        ("orphan-result", results[2]),
    ]
    assert f"2 results and their calls ({results[0]}, {results[1]})" in diagnosis.findings[0].problem
    repair(authority, diagnosis)
    checkpoint = authority.snapshot().checkpoint
    assert checkpoint is not None
    assert checkpoint.data["firstKeptEntryId"] == call
    assert [message["role"] for message in sent(authority)] == ["user", "assistant", "toolResult", "toolResult"]


def test_a_compaction_that_does_not_say_what_it_keeps_is_told_from_one_that_names_a_strange_entry(
    tmp_path: Path,
) -> None:
    told = []
    for kept in (None, "gone"):
        build = SessionBuilder()
        build.user("go")
        build.compaction("The summary.", "x", firstKeptEntryId=kept)
        [finding] = examine(opened(build.write(tmp_path / "s.jsonl"))).findings
        told.append(finding.problem)
    assert told == [
        "the compaction does not say from which entry on it keeps what came before it",
        "the compaction keeps what came from entry gone on, but that is not on the branch before it",
    ]


def test_arguments_that_pi_cannot_print_are_taken_out_of_the_call(tmp_path: Path) -> None:
    """Deeper than Python's decoders go is read; deeper than Node prints is mended (tests/integration asks Pi)."""
    for depth, damaged in ((1_500, False), (5_000, True)):
        path = tmp_path / f"{depth}.jsonl"
        path.write_bytes(deep_call(depth))
        authority = opened(path)
        diagnosis = examine(authority)
        assert [(one.kind, one.line) for one in diagnosis.findings] == [("bad-content", 3)] * damaged
        assert repair(authority, diagnosis).findings == ()
        [_, reply, _] = sent(authority)
        assert (reply["content"][1]["arguments"] == {}) == damaged
        rescued, left = write_rescue(plan_rescue(path), tmp_path / f"new-{depth}.jsonl")
        assert (left.findings, len(sent(rescued))) == ((), 3)


# -- when others write, and without a file ---------------------------------------------------------------------------


def test_an_image_without_its_data_is_taken_out(tmp_path: Path) -> None:
    """Pi sends the word "undefined" in its place, with every request from then on; whole images stay."""
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    build = SessionBuilder()
    build.user([text_block("look"), image])
    build.assistant("I look.", calls=[tool_call("c1", "read")])
    result = build.tool_result("c1", [text_block("found"), {"type": "image", "mimeType": "image/png"}, image])
    authority = opened(build.write(tmp_path / "s.jsonl"))
    [finding] = examine(authority).problems
    assert (finding.kind, finding.entry_id) == ("bad-content", result)
    assert repair(authority, examine(authority)).findings == ()
    assert sent(authority)[-1]["content"] == [text_block("found"), image]


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
