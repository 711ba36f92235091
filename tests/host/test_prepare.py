"""Shows when there is something to compact, and what a compaction would summarise, keep and know of files.

The expected values are worked out by hand; Pi 1.6.0 printed the same for every branch here, but for the two on which it
sees a false split turn (metadata before a user message, and edits before one).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from contexthost.compaction import CompactionSettings, FileOps, Preparation, prepare_compaction, should_compact
from contexthost.messages import Message
from support.compaction_fakes import (
    FakeEntry,
    FakeProjection,
    assistant,
    call,
    compaction,
    context_messages,
    edit,
    label,
    project,
    result,
    system,
    user,
)


def prepare(branch: Sequence[FakeEntry], keep: int, projection: FakeProjection | None = None) -> Preparation | None:
    settings = CompactionSettings(keep_recent_tokens=keep)
    return prepare_compaction(projection or project(branch), branch, settings, context_messages=context_messages)


def prepared(branch: Sequence[FakeEntry], keep: int, projection: FakeProjection | None = None) -> Preparation:
    preparation = prepare(branch, keep, projection)
    assert preparation is not None
    return preparation


def messages(*entries: FakeEntry) -> tuple[Message, ...]:
    return tuple(message for entry in entries for message in context_messages(entry))


WORKED = [
    user("u1"),
    assistant("a1"),
    user("u2"),
    call("c1", "read"),
    result("r1", 1000),
    call("c2", "edit", "cd.py"),
    result("r2", 1000),
]


def test_a_split_turn_separates_the_history_from_the_beginning_of_the_turn() -> None:
    assert prepared(WORKED, 2005) == Preparation(
        first_kept_entry_id="c2",
        messages_to_summarize=messages(*WORKED[:2]),
        turn_prefix_messages=messages(*WORKED[2:5]),
        is_split_turn=True,
        tokens_before=2310,
        previous_summary=None,
        file_ops=FileOps(read=frozenset({"ab.py"})),
        settings=CompactionSettings(keep_recent_tokens=2005),
    )


def test_at_a_clean_boundary_all_before_it_is_history() -> None:
    preparation = prepared(WORKED, 2050)
    assert preparation.first_kept_entry_id == "u2"
    assert preparation.messages_to_summarize == messages(*WORKED[:2])
    assert preparation.turn_prefix_messages == ()
    assert not preparation.is_split_turn
    assert preparation.file_ops == FileOps()


def test_the_first_turn_split_leaves_a_prefix_and_no_history() -> None:
    preparation = prepared(WORKED, 2111)
    assert (preparation.first_kept_entry_id, preparation.is_split_turn) == ("a1", True)
    assert preparation.messages_to_summarize == ()
    assert preparation.turn_prefix_messages == messages(WORKED[0])


@pytest.mark.parametrize(
    ("branch", "keep"),
    [
        ([], 10),
        ([label("l1"), system("s1"), label("l2")], 10),
        (WORKED, 2211),
        (WORKED, 20000),
        ([*WORKED, compaction("k")], 10),
    ],
    ids=["empty", "only metadata", "kept to the first entry", "fits", "just compacted"],
)
def test_there_may_be_nothing_to_compact(branch: list[FakeEntry], keep: int) -> None:
    assert prepare(branch, keep) is None


def test_right_after_a_compaction_a_label_gives_nothing_new_to_compact() -> None:
    kept, cut = [user("u2"), assistant("a2")], compaction("k", firstKeptEntryId="u2")
    branch = [user("u1"), assistant("a1"), *kept, cut, label("l1")]
    assert prepare(branch, 1000, project([cut, *kept, label("l1")])) is None


def test_metadata_before_a_user_message_makes_no_split_turn() -> None:
    # Pi 1.6.0 calls this a split turn: no history, and u1 and a1 as its prefix.
    preparation = prepared([user("u1"), assistant("a1"), label("l1"), user("u2"), assistant("a2")], 150)
    assert preparation.first_kept_entry_id == "l1"
    assert not preparation.is_split_turn
    assert preparation.messages_to_summarize == messages(user("u1"), assistant("a1"))
    assert preparation.turn_prefix_messages == ()


def test_a_second_compaction_summarises_what_the_first_one_kept() -> None:
    kept = [user("u2"), call("c2", "write", "w2.py"), result("r2")]
    details = {"readFiles": ["old.py"], "modifiedFiles": ["new.py"]}
    cut = compaction("k", "first summary", firstKeptEntryId="u2", details=details)
    new = [user("u3"), assistant("a3")]
    branch = [user("u1"), assistant("a1"), *kept, cut, *new]
    preparation = prepared(branch, 150, project([cut, *kept, *new]))
    assert preparation.first_kept_entry_id == "u3"
    assert preparation.previous_summary == "first summary"
    assert preparation.messages_to_summarize == messages(*kept)
    # write{"path":"w2.py"} is 21 characters, the summary 13: 4 + 100 + 6 + 100 + 100 + 100.
    assert preparation.tokens_before == 410
    assert preparation.file_ops == FileOps(frozenset({"old.py"}), frozenset({"w2.py"}), frozenset({"new.py"}))


def test_an_older_compaction_in_the_kept_range_is_neither_the_previous_one_nor_history() -> None:
    old = compaction("k1", "old summary")
    cut = compaction("k2", "latest summary")
    context = [cut, user("u1"), old, assistant("a1"), user("u2")]
    branch = [user("u1"), old, assistant("a1"), cut, user("u2")]
    projection = project(context, omitted=["k1"])
    preparation = prepared(branch, 100, projection)
    assert preparation.previous_summary == "latest summary"
    assert preparation.messages_to_summarize == messages(user("u1"), assistant("a1"))


def test_system_messages_are_not_summarised_but_count_before() -> None:
    branch = [system("s1", 50), user("u1"), system("s2", 50), assistant("a1"), user("u2")]
    preparation = prepared(branch, 100)
    assert preparation.messages_to_summarize == messages(user("u1"), assistant("a1"))
    # Two prompts of 200 characters and a blank line between them are 101 tokens.
    assert preparation.tokens_before == 401


def test_context_edits_are_respected_in_what_is_summarised() -> None:
    branch = [
        user("u1"),
        call("c1", "edit", "secret.py"),
        result("r1"),
        assistant("a1"),
        edit("e1", "c1"),
        edit("e2", "r1"),
        edit("e3", "a1", {"content": "short"}),
        user("u2"),
    ]
    short = [{"type": "text", "text": "short"}]
    preparation = prepared(branch, 100, project(branch, omitted=["c1", "r1"], replaced={"a1": short}))
    assert preparation.first_kept_entry_id == "e1"
    assert not preparation.is_split_turn
    assert preparation.messages_to_summarize == (*messages(user("u1")), {"role": "assistant", "content": short})
    assert preparation.file_ops == FileOps()


def test_tokens_before_rest_on_a_trusted_usage() -> None:
    branch = [user("u1"), assistant("a1", usage={"totalTokens": 5000}), user("u2", 50)]
    assert prepared(branch, 50).tokens_before == 5050
    edited = [*branch, edit("e1", "gone")]
    assert prepared(edited, 50).tokens_before == 250


def test_input_answered_only_by_an_abandoned_attempt_is_a_split_turn_with_nothing_visible_kept() -> None:
    branch = [user("u1"), assistant("a1"), user("u2"), assistant("a2"), edit("e1", "a2")]
    preparation = prepared(branch, 100, project(branch, omitted=["a2"]))
    assert (preparation.first_kept_entry_id, preparation.is_split_turn) == ("a2", True)
    assert preparation.messages_to_summarize == messages(user("u1"), assistant("a1"))
    assert preparation.turn_prefix_messages == messages(user("u2"))


# --- settings ------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_pi() -> None:
    assert CompactionSettings() == CompactionSettings(enabled=True, reserve_tokens=16384, keep_recent_tokens=20000)


@pytest.mark.parametrize("name", ["reserve_tokens", "keep_recent_tokens"])
@pytest.mark.parametrize("value", [-1, 1.5, "10", True, None])
def test_token_settings_must_be_non_negative_integers(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a non-negative integer"):
        CompactionSettings(**{name: value})  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize(
    ("tokens", "enabled", "expected"), [(83616, True, False), (83617, True, True), (83617, False, False)]
)
def test_compaction_starts_when_the_reserve_is_touched(tokens: int, enabled: bool, expected: bool) -> None:
    # 100,000 - 16,384 = 83,616
    assert should_compact(tokens, 100_000, CompactionSettings(enabled=enabled)) is expected


# --- always and never ----------------------------------------------------------------------------------------------

PIECES = {
    "user": lambda name: [user(f"u{name}", 20)],
    "answer": lambda name: [assistant(f"a{name}", 20)],
    "work": lambda name: [call(f"c{name}"), result(f"r{name}", 30)],
    "label": lambda name: [label(f"l{name}")],
    "system": lambda name: [system(f"s{name}", 20)],
}


@given(st.lists(st.sampled_from(sorted(PIECES)), max_size=12), st.integers(min_value=0, max_value=300))
def test_every_message_is_either_summarised_or_kept_and_never_both(kinds: list[str], keep: int) -> None:
    branch = [entry for index, kind in enumerate(kinds) for entry in PIECES[kind](str(index))]
    preparation = prepare(branch, keep)
    if preparation is None:
        return
    first_kept = [entry.id for entry in branch].index(preparation.first_kept_entry_id)
    gone = [entry for entry in branch[:first_kept] if entry.type == "message" and not entry.id.startswith("s")]
    assert (*preparation.messages_to_summarize, *preparation.turn_prefix_messages) == messages(*gone)
    assert gone
