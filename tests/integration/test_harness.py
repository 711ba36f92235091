"""The oracle says what Pi does with a session whose figures are worked out here by hand, and the builder and the
generator write the files that they claim to write."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from support.builder import Literal, SessionBuilder, image_block, tool_call, usage_of
from support.pi import oracle
from support.sessions import entry_ids, random_session, sessions


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.fixture
def conversation() -> SessionBuilder:
    """A question, a call of a tool with its result, an answer; then a label and a second question."""
    build = SessionBuilder()
    build.system("Be brief.")  # 0: 9 characters, 3 tokens
    build.user("What is in a.txt?")  # 1: 17 characters, 5 tokens
    build.assistant("", calls=[tool_call("call-1", "read", {"path": "a.txt"})])  # 2: read{"path":"a.txt"}: 20, 5 tokens
    build.tool_result("call-1", "x" * 400)  # 3: 100 tokens
    answer = build.assistant("Four hundred x.", usage=usage_of(1234))  # 4: 15 characters, 4 tokens
    build.label(answer, "answer")  # 5
    build.user([{"type": "text", "text": "And b.txt?"}, image_block()])  # 6: 10 + 4,800 characters, 1,203 tokens
    return build


def test_a_plain_branch_is_projected_message_by_message(conversation: SessionBuilder, tmp_path: Path) -> None:
    [line] = oracle([conversation.write(tmp_path / "s.jsonl")])
    assert line["entries"] == 7
    assert line["contextPositions"] == [0, 1, 2, 3, 4, 5, 6]
    assert line["model"] == {"provider": "anthropic", "modelId": "claude-sonnet-4-5"}
    assert line["thinkingLevel"] == "off"
    assert [one["position"] for one in line["projected"]] == [0, 1, 2, 3, 4, 6]
    assert [one["roles"] for one in line["projected"]] == [
        ["system"],
        ["user"],
        ["assistant"],
        ["toolResult"],
        ["assistant"],
        ["user"],
    ]
    assert [one["estimatedTokens"] for one in line["projected"]] == [3, 5, 5, 100, 4, 1203]
    assert line["estimatedTokens"] == 1320
    assert line["projected"][1]["contentDigests"] == [digest('"What is in a.txt?"')]
    assert line["projected"][4]["contentDigests"] == [digest('[{"text":"Four hundred x.","type":"text"}]')]
    parts = [
        "[User]: What is in a.txt?",
        '[Assistant]: \n\n[Assistant tool calls]: read(path="a.txt")',
        "[Tool result]: " + "x" * 400,
        "[Assistant]: Four hundred x.",
        "[User]: And b.txt?",
    ]
    assert line["serializedDigest"] == digest(json.dumps("\n\n".join(parts)))
    assert line["preparation"] is None  # everything fits into 20,000 tokens


def test_the_oracle_names_the_roles_behind_a_false_split(conversation: SessionBuilder, tmp_path: Path) -> None:
    """Keeping 1,000 tokens cuts at the second question; the label before it makes Pi call that a split turn."""
    [line] = oracle([conversation.write(tmp_path / "s.jsonl")], keep_recent=1000)
    cut = {"firstKeptPosition": 5, "turnStartPosition": 1, "isSplitTurn": True, "rolesFromCut": ["user"]}
    assert line["cutPoint"] == cut
    prepared = line["preparation"]
    assert (prepared["firstKeptPosition"], prepared["isSplitTurn"]) == (5, True)
    assert prepared["rolesFromCut"] == ["user"]
    assert prepared["messagesToSummarize"] == []
    assert prepared["turnPrefixMessages"] == [
        digest('"What is in a.txt?"'),
        digest(
            '[{"text":"","type":"text"},{"arguments":{"path":"a.txt"},"id":"call-1","name":"read","type":"toolCall"}]'
        ),
        digest(f'[{{"text":"{"x" * 400}","type":"text"}}]'),
        digest('[{"text":"Four hundred x.","type":"text"}]'),
    ]
    assert prepared["tokensBefore"] == 1234 + 1203  # the provider's figure, and the question that came after it
    assert (prepared["readFiles"], prepared["changedFiles"]) == (["a.txt"], [])


def test_edits_compactions_and_branches_change_the_projection(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("old")  # 0
    kept = build.user("kept question")  # 1
    reply = build.assistant("long reply")  # 2
    build.compaction("the gist", kept, details={"readFiles": ["a"], "modifiedFiles": ["b"]})  # 3: 8 characters
    build.edit(reply, "short")  # 4
    abandoned = build.user("abandoned")  # 5
    build.branch_from(reply)
    build.user("elsewhere")  # 6
    path = build.write(tmp_path / "s.jsonl")
    compacted, other = oracle([(path, abandoned), path])
    assert compacted["contextPositions"] == [3, 1, 2, 4, 5]
    assert [one["roles"] for one in compacted["projected"]] == [
        ["compactionSummary"],
        ["user"],
        ["assistant"],
        ["user"],
    ]
    assert [one["estimatedTokens"] for one in compacted["projected"]] == [2, 4, 2, 3]
    assert compacted["projected"][2]["contentDigests"] == [digest('[{"text":"short","type":"text"}]')]
    assert other["contextPositions"] == [
        0,
        1,
        2,
        6,
    ]  # the leaf of the file: neither compaction nor edit is on its branch


def test_a_file_that_fails_answers_with_its_error_and_the_others_are_read(tmp_path: Path) -> None:
    ring = SessionBuilder()
    ring.entry("custom", parent=ring.id_at(2))
    ring.entry("custom", parent=ring.id_at(1))
    (tmp_path / "no-session.jsonl").write_bytes(b'{"type":"message"}\n')
    paths = [
        tmp_path / "missing.jsonl",
        tmp_path / "no-session.jsonl",
        ring.write(tmp_path / "ring.jsonl"),
        SessionBuilder().write(tmp_path / "empty.jsonl"),
    ]
    missing, no_session, cycle, empty = oracle(paths)
    assert "ENOENT" in missing["error"]
    assert no_session == {"error": "not a session"}
    assert cycle == {"error": "parent cycle at 00000002"}
    assert empty["entries"] == 0
    assert empty["contextPositions"] == empty["projected"] == []


def test_messages_are_added_on_request(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.custom_message("note", None, details={"a": 1})
    [line] = oracle([build.write(tmp_path / "s.jsonl")], messages=True)
    [message] = line["messages"]
    assert message == {
        "role": "custom",
        "customType": "note",
        "content": [],
        "display": True,
        "details": {"a": 1},
        "timestamp": 1767603601000,  # 2026-01-05T09:00:01Z
    }


def test_the_builder_writes_lines_as_pi_does_and_literals_as_given() -> None:
    build = SessionBuilder()
    build.user("é\u2028\ud83d")
    build.custom("n", [Literal(b"1e21"), Literal(b'"\xff"')])
    build.raw(b'{"torn', end=b"")
    literals = b'"customType":"n","data":[1e21,"\xff"]'
    assert build.bytes().split(b"\n") == [
        b'{"type":"session","version":3,"id":"session-1","timestamp":"2026-01-05T09:00:00.000Z","cwd":"/project"}',
        '{"type":"message","id":"00000001","parentId":null,"timestamp":"2026-01-05T09:00:01.000Z","message":'
        '{"role":"user","content":"é\u2028\\ud83d","timestamp":1767603601000}}'.encode(),
        b'{"type":"custom","id":"00000002","parentId":"00000001","timestamp":"2026-01-05T09:00:02.000Z",%s}' % literals,
        b'{"torn',
    ]


def test_a_version_1_file_has_neither_ids_nor_parents() -> None:
    build = SessionBuilder(version=1)
    build.user("question")
    build.compaction("gist", 1)
    header, message, compaction = (json.loads(line) for line in build.bytes().splitlines())
    assert header["version"] == 1
    assert list(message) == ["type", "timestamp", "message"]
    assert compaction["firstKeptEntryIndex"] == 1
    assert entry_ids(build.bytes()) == []


def test_a_seed_names_one_file() -> None:
    first = random_session(7)
    assert first == random_session(7)
    assert first != random_session(8)
    fingerprint = hashlib.sha256(first).hexdigest()[:16]
    assert fingerprint == "80c5d2f442ba0b0f"  # on every machine; changes with the generator


@settings(max_examples=20)
@given(sessions(max_size=5))
def test_drawn_sessions_begin_with_a_header(data: bytes) -> None:
    first = next(line for line in data.split(b"\n") if line.startswith(b"{"))
    assert json.loads(first)["type"] == "session"


def test_pi_reads_what_the_generator_writes_and_meets_the_cases_it_is_for(tmp_path: Path) -> None:
    paths = []
    for seed in range(200):
        paths.append(tmp_path / f"{seed}.jsonl")
        paths[-1].write_bytes(random_session(seed))
    lines = oracle(paths, keep_recent=300)
    assert [line["error"] for line in lines if "error" in line] == []
    roles = {role for line in lines for one in line["projected"] for role in one["roles"]}
    known = {
        "system",
        "user",
        "assistant",
        "toolResult",
        "bashExecution",
        "custom",
        "branchSummary",
        "compactionSummary",
    }
    assert roles == known | {"narrator", "hookMessage", None}
    prepared = [line["preparation"] for line in lines if line["preparation"]]
    split = [one for one in prepared if one["isSplitTurn"]]
    assert len(prepared) > 100
    assert any("user" in one["rolesFromCut"] for one in split)  # false split turns
    assert any("assistant" in one["rolesFromCut"] for one in split)
    assert any(one["rolesFromCut"] == [] for one in prepared)  # the cut behind an attempt that was taken back
    assert any(one["previousSummary"] for one in prepared)
    assert any(one["readFiles"] and one["changedFiles"] for one in prepared)
    assert any(line["contextPositions"] != sorted(line["contextPositions"]) for line in lines)


def test_rings_of_parents_come_only_when_asked_for(tmp_path: Path) -> None:
    paths = []
    for seed in range(30):
        paths.append(tmp_path / f"{seed}.jsonl")
        paths[-1].write_bytes(random_session(seed, size=4, cycles=True))
    errors = {line["error"].rsplit(" ", 1)[0] for line in oracle(paths) if "error" in line}
    assert errors == {"parent cycle at"}
