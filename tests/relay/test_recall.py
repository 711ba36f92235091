"""``recall``: what it finds and gives back, in which form, within which limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contexthost.history import History
from contexthost.projection import MASK_PREFIX, ProjectionAuthority
from contexthost.session import Session
from contexthost_relay.files import note_path, write_note_file
from contexthost_relay.recall import PARAMETERS, Recalled, recall
from support.builder import SessionBuilder, image_block, text_block, tool_call


def ask(build: SessionBuilder, path: Path, **arguments: Any) -> Recalled:
    session = Session.open(build.write(path / "s.jsonl"))
    return recall(arguments, History(session, ProjectionAuthority(session).snapshot), path)


def test_a_search_tells_id_kind_time_state_and_what_is_around(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.assistant(calls=[tool_call("c", "bash", {"command": "make"})])
    build.tool_result("c", "a" * 300 + " Undefined Reference to `foo` " + "b" * 300, tool="bash")
    kept = build.user("go on")
    build.compaction("note", kept)
    assert ask(build, tmp_path, query="reference UNDEFINED").text == (
        "Entries with all of: reference UNDEFINED. Read one whole by its id.\n"
        "\n"
        "[00000002] tool result (bash) · 2026-01-05T09:00:02.000Z · compacted away\n"
        "…" + "a" * 189 + " Undefined Reference to `foo` " + "b" * 190 + "…"
    )


def test_all_words_must_be_there(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("red apple")
    build.user("green apple")
    answer = ask(build, tmp_path, query="apple green")
    assert [hit["entryId"] for hit in answer.data["hits"]] == ["00000002"]


@pytest.mark.parametrize(
    ("limit", "hits"), [(None, 8), (1, 1), (0, 1), (-5, 1), (12, 12), (30, 30), (31, 30), (10**9, 30), (2.9, 2),
                        ("5", 8), ([1], 8), (True, 8), (float("nan"), 8), (float("inf"), 8)]
)  # fmt: skip
def test_limits_are_clamped_and_other_types_ignored(tmp_path: Path, limit: Any, hits: int) -> None:
    build = SessionBuilder()
    for number in range(40):
        build.user(f"swift {number}")
    arguments = {"query": "swift"} if limit is None else {"query": "swift", "limit": limit}
    assert len(ask(build, tmp_path, **arguments).data["hits"]) == hits


@pytest.mark.parametrize("arguments", [{}, {"query": 5}, {"query": " "}, {"entryId": ["x"]}, {"query": None}])
def test_without_anything_usable_it_says_what_it_needs(tmp_path: Path, arguments: dict[str, Any]) -> None:
    answer = ask(SessionBuilder(), tmp_path, **arguments)
    assert answer.text == "Give a query (words to search for) or an entryId (an entry to read)."
    assert not answer.found


def test_the_schema_refuses_nothing() -> None:
    assert all("type" not in value for value in PARAMETERS["properties"].values())
    assert set(PARAMETERS["properties"]) == {"query", "limit", "scope", "entryId", "offset"}


def test_with_both_the_entry_counts(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("one")
    build.user("two")
    assert ask(build, tmp_path, query="two", entryId="00000001").text.endswith("in context\none")
    assert "Entries with all of: two" in ask(build, tmp_path, query="two", entryId=7).text


def test_a_search_has_at_most_8000_characters(tmp_path: Path) -> None:
    build = SessionBuilder()
    for _ in range(40):
        build.user("x" * 250 + " quail " + "y" * 250)
    text = ask(build, tmp_path, query="quail", limit=30).text
    assert 7_000 < len(text) <= 8_000
    assert "more did not fit: ask with more words)" in text


def test_echoes_are_cut_and_cleaned(tmp_path: Path) -> None:
    assert len(ask(SessionBuilder(), tmp_path, query="q" * 9_000).text) < 300
    assert len(ask(SessionBuilder(), tmp_path, entryId="e" * 9_000).text) < 300
    assert "\x1b" not in ask(SessionBuilder(), tmp_path, query="\x1b[31mx").text


def test_an_entry_comes_whole_in_pages_of_12000_characters(tmp_path: Path) -> None:
    build = SessionBuilder()
    text = "".join(f"{number:05d}🦊" for number in range(5_000))  # 30,000 code points
    build.user(text)
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        answer = ask(build, tmp_path, entryId="00000001", offset=offset)
        pages.append(answer.data["text"])
        offset = answer.data["nextOffset"]
        assert offset is None or f"(goes on: offset {offset})" in answer.text
    assert [len(page) for page in pages] == [12_000, 12_000, 6_000]
    assert "".join(pages) == text
    assert "characters 12,000 to 24,000 of 30,000" in ask(build, tmp_path, entryId="00000001", offset=12_000).text


@pytest.mark.parametrize("offset", [-1, "3", None, [], True, float("nan")])
def test_offsets_that_are_none_are_0(tmp_path: Path, offset: Any) -> None:
    build = SessionBuilder()
    build.user("hello")
    assert ask(build, tmp_path, entryId="00000001", offset=offset).data["text"] == "hello"


def test_an_offset_behind_the_end_says_so(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("hello")
    assert ask(build, tmp_path, entryId="00000001", offset=99).text.endswith("(the text ends at 5)")


def test_images_are_named(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user([text_block("see"), image_block()])
    assert ask(build, tmp_path, entryId="00000001").data["text"] == "see\n[image]"


def test_omitted_replaced_and_masked(tmp_path: Path) -> None:
    build = SessionBuilder()
    omitted, replaced = build.user("crow omitted"), build.user("crow before")
    build.assistant(calls=[tool_call("c", "read")])
    masked = build.tool_result("c", "crow original")
    build.edit(omitted, None)
    build.edit(replaced, "crow after")
    build.edit(masked, f"{MASK_PREFIX}read masked")
    answer = ask(build, tmp_path, query="crow")
    assert [hit["snippet"] for hit in answer.data["hits"]] == ["crow original", "crow after"]
    told = ask(build, tmp_path, entryId=omitted)
    assert told.text == f"Entry {omitted} was omitted from the conversation: its text is not to be recalled."
    assert "crow" not in str(told.data)
    assert ask(build, tmp_path, entryId=replaced).data["text"] == "crow after"
    assert ask(build, tmp_path, entryId=masked).data["text"] == "crow original"


def test_other_branches_are_not_read(tmp_path: Path) -> None:
    build = SessionBuilder()
    root = build.user("start")
    left = build.user("magpie")
    build.branch_from(root)
    build.user("right")
    assert not ask(build, tmp_path, query="magpie").found
    assert "on another branch" in ask(build, tmp_path, entryId=left).text


def test_commands_kept_from_the_conversation_stay_there(tmp_path: Path) -> None:
    build = SessionBuilder()
    hidden = build.bash("cat secret", "raven", exclude=True)
    assert not ask(build, tmp_path, query="raven").found
    assert "kept from the conversation" in ask(build, tmp_path, entryId=hidden).text


def test_earlier_recalls_are_not_found(tmp_path: Path) -> None:
    build = SessionBuilder()
    original = build.user("the port is 48151")
    for number in range(12):
        build.assistant(calls=[tool_call(f"c{number}", "recall", {"query": "port 48151"})])
        build.tool_result(f"c{number}", "the port is 48151", tool="recall")
    answer = ask(build, tmp_path, query="port 48151")
    assert [hit["entryId"] for hit in answer.data["hits"]] == [original]


def test_unknown_and_silent_entries(tmp_path: Path) -> None:
    build = SessionBuilder()
    label = build.model_change("p", "m")
    assert ask(build, tmp_path, entryId="nope").text == "There is no entry nope here."
    assert ask(build, tmp_path, entryId=label).text == f"Entry {label} says nothing that could be recalled."


# Notes ---------------------------------------------------------------------------------------------------------------


def test_notes_are_read_by_number(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("x")
    kept = build.user("y")
    for number in (1, 2):
        details = {"relay": True, "version": 1, "notePath": f"/elsewhere/{number}.md"}
        build.compaction(f"note {number}", kept, details=details)
    assert ask(build, tmp_path, entryId="note:1").text == "[note:1]\nnote 1"
    assert ask(build, tmp_path, entryId=" NOTE: 2 ").data["text"] == "note 2"
    assert ask(build, tmp_path, entryId="note:3").text == "There is no relay note 3 in this session."


def test_a_note_that_only_its_file_has_is_read_there(tmp_path: Path) -> None:
    build = SessionBuilder()
    write_note_file(note_path(tmp_path, "session-1", 4), "from the file")
    assert ask(build, tmp_path, entryId="note:4").data["text"] == "from the file"


# Lineage -------------------------------------------------------------------------------------------------------------


def family(path: Path) -> SessionBuilder:
    """A parent with a fact that the fork does not have, and one that the fork has omitted."""
    parent = SessionBuilder(header={"id": "parent"})
    parent.user("owl shared")
    parent.user("owl only in the parent")
    parent.write(path / "parent.jsonl")
    fork = SessionBuilder(header={"id": "fork", "parentSession": str(path / "parent.jsonl")})
    shared = fork.user("owl shared")
    fork.entry("context_edit", id="edit0001", targetId=shared, replacement=None)
    fork.user("here")
    fork.parents.pop("00000002", None)
    return fork


def test_earlier_sessions_only_when_asked(tmp_path: Path) -> None:
    fork = SessionBuilder(header={"id": "fork", "parentSession": str(tmp_path / "parent.jsonl")})
    parent = SessionBuilder(header={"id": "parent"})
    fact = parent.entry("message", id="fact0001", message={"role": "user", "content": "owl only in the parent"})
    parent.write(tmp_path / "parent.jsonl")
    fork.user("here")
    answer = ask(fork, tmp_path, query="owl")
    assert not answer.found
    assert 'scope "lineage"' in answer.text
    answer = ask(fork, tmp_path, query="owl", scope="lineage")
    assert "· earlier session · session parent" in answer.text
    assert ask(fork, tmp_path, entryId=fact).data["text"] == "owl only in the parent"
    assert not ask(fork, tmp_path, query="owl", scope=["lineage"]).found


def test_what_the_fork_omitted_is_not_found_in_its_parent(tmp_path: Path) -> None:
    fork = family(tmp_path)
    assert not ask(fork, tmp_path, query="owl shared", scope="lineage").found
    assert "was omitted" in ask(fork, tmp_path, entryId="00000001").text


def test_a_parent_that_is_gone_is_told(tmp_path: Path) -> None:
    fork = SessionBuilder(header={"parentSession": str(tmp_path / "gone.jsonl")})
    fork.user("here")
    answer = ask(fork, tmp_path, query="owl", scope="lineage")
    assert "gone.jsonl cannot be read" in answer.text
