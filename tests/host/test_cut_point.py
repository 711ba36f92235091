"""Shows where a compaction cuts: Pi's rules over raw and over projected entries, and the one place where we differ.

The expected cuts are worked out by hand; Pi 1.6.0 printed the same for the worked example, for the walk back over
metadata and for the abandoned attempts.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from contexthost.compaction import CutPoint, find_cut_point, find_projected_cut_point
from contexthost.tokens.pi import pi_estimate
from support.compaction_fakes import (
    FakeEntry,
    assistant,
    call,
    compaction,
    context_messages,
    edit,
    entry,
    label,
    message,
    project,
    result,
    system,
    user,
)

# 100 + 100 + 100 + 5 + 1000 + 5 + 1000 tokens: 2310 in all.
WORKED = [
    user("u1"),
    assistant("a1"),
    user("u2"),
    call("c1", "read"),
    result("r1", 1000),
    call("c2", "edit"),
    result("r2", 1000),
]


def raw_cut(entries: Sequence[FakeEntry], keep: int, start: int = 0) -> CutPoint:
    return find_cut_point(entries, start, len(entries), keep, context_messages=context_messages)


def projected_cut(
    entries: Sequence[FakeEntry], keep: int, *, omitted: Sequence[str] = (), replaced: dict[str, object] | None = None
) -> CutPoint:
    projected = project(entries, omitted=omitted, replaced=replaced).entries
    return find_projected_cut_point(projected, 0, len(projected), keep, context_messages=context_messages)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (0, CutPoint(5, 2)),
        (1, CutPoint(5, 2)),
        (1000, CutPoint(5, 2)),  # the result alone reaches the budget: its call is kept with it
        (1005, CutPoint(5, 2)),
        (2005, CutPoint(5, 2)),  # the first result reaches it: the next place to cut is the second call
        (2006, CutPoint(3, 2)),
        (2010, CutPoint(3, 2)),
        (2011, CutPoint(2)),
        (2110, CutPoint(2)),
        (2111, CutPoint(1, 0)),
        (2210, CutPoint(1, 0)),
        (2211, CutPoint(0)),
        (2310, CutPoint(0)),
        (2311, CutPoint(0)),  # never reached: the first place where a cut is possible
    ],
)
def test_the_worked_example_cuts_as_pi_does(keep: int, expected: CutPoint) -> None:
    assert raw_cut(WORKED, keep) == expected
    assert projected_cut(WORKED, keep) == expected


def test_a_cut_is_a_split_turn_exactly_when_there_is_a_turn_start() -> None:
    assert CutPoint(5, 2).is_split_turn
    assert CutPoint(5, 0).is_split_turn
    assert not CutPoint(5).is_split_turn


def test_without_a_place_to_cut_everything_from_the_start_is_kept() -> None:
    entries = [label("l1"), system("s1"), result("r1", 500), label("l2")]
    assert raw_cut(entries, 10) == CutPoint(0)
    assert raw_cut(entries, 10, start=1) == CutPoint(1)
    assert projected_cut(entries, 10) == CutPoint(0)


def test_an_empty_range_has_its_cut_at_the_start() -> None:
    assert raw_cut([], 10) == CutPoint(0)
    assert raw_cut([user("u1")], 10, start=1) == CutPoint(1)


def test_system_messages_count_towards_the_budget_but_are_no_place_to_cut() -> None:
    entries = [user("u1"), assistant("a1"), system("s1", 300), user("u2")]
    assert raw_cut(entries, 100) == CutPoint(3)
    assert raw_cut(entries, 101) == CutPoint(3)  # the system message reaches it
    assert raw_cut(entries, 401) == CutPoint(1, 0)


def test_compactions_count_in_the_raw_walk_but_are_never_cut_at_or_crossed() -> None:
    entries = [compaction("k", "s" * 400), label("l1"), user("u1"), assistant("a1")]
    assert raw_cut(entries, 150) == CutPoint(1)  # back over the label, not over the compaction
    assert raw_cut(entries, 250) == CutPoint(1)


def test_the_cut_moves_back_over_entries_without_messages() -> None:
    entries = [user("u1"), assistant("a1"), label("l1"), edit("e1", "zz"), assistant("a2"), result("r1")]
    assert raw_cut(entries, 150) == CutPoint(2, 0)
    assert projected_cut(entries, 150) == CutPoint(2, 0)


def test_the_cut_moves_back_over_an_omitted_message() -> None:
    entries = [user("u1"), assistant("a1"), assistant("a2"), assistant("a3"), edit("e1", "a2")]
    assert projected_cut(entries, 100, omitted=["a2"]) == CutPoint(2, 0)


def test_metadata_before_a_user_message_makes_no_split_turn() -> None:
    # Pi 1.6.0 finds the same cut, but calls it a split of the turn that u1 began and a1 ended.
    entries = [user("u1"), assistant("a1"), label("l1"), label("l2"), user("u2"), assistant("a2")]
    assert raw_cut(entries, 150) == CutPoint(2)
    assert projected_cut(entries, 150) == CutPoint(2)


def test_an_omitted_answer_before_a_user_message_makes_no_split_turn() -> None:
    entries = [user("u1"), assistant("a1"), assistant("a2"), user("u2"), edit("e1", "a2")]
    assert projected_cut(entries, 100, omitted=["a2"]) == CutPoint(2)


@pytest.mark.parametrize("role", ["user", "custom", "bashExecution"])
def test_every_role_that_begins_a_turn_is_a_clean_boundary(role: str) -> None:
    entries = [
        user("u1"),
        assistant("a1"),
        message("x", role, "x" * 400, command="x" * 400, output=""),
        assistant("a2"),
    ]
    assert raw_cut(entries, 150) == CutPoint(2)


def test_a_branch_summary_is_a_clean_boundary() -> None:
    entries = [user("u1"), assistant("a1"), entry("b", "branch_summary", summary="s" * 400), assistant("a2")]
    assert raw_cut(entries, 150) == CutPoint(2)


# --- input that only an abandoned attempt answered -----------------------------------------------------------------

ATTEMPT = [user("u1"), assistant("a1"), user("u2"), assistant("a2"), edit("e1", "a2")]


def test_input_answered_only_by_an_abandoned_attempt_may_be_summarised() -> None:
    assert projected_cut(ATTEMPT, 100, omitted=["a2"]) == CutPoint(3, 2)


def test_the_abandoned_attempt_may_have_tool_results_if_they_are_omitted_too() -> None:
    entries = [user("u1"), call("c1"), result("r1"), edit("e1", "c1"), edit("e2", "r1"), label("l1")]
    assert projected_cut(entries, 100, omitted=["c1", "r1"]) == CutPoint(1, 0)
    assert projected_cut(entries, 200, omitted=["c1"]) == CutPoint(0)  # the result is still visible


def test_below_the_budget_unanswered_input_stays() -> None:
    assert projected_cut(ATTEMPT, 301, omitted=["a2"]) == CutPoint(0)


def test_metadata_alone_does_not_move_the_cut_past_unsent_input() -> None:
    assert projected_cut([*ATTEMPT[:3], label("l1"), label("l2")], 100) == CutPoint(2)


def test_an_omitted_user_message_is_no_attempt() -> None:
    entries = [user("u1"), assistant("a1"), user("u2"), user("u3"), edit("e1", "u3")]
    assert projected_cut(entries, 100, omitted=["u3"]) == CutPoint(2)


def test_replaced_input_is_new_input_and_is_kept() -> None:
    entries = [*ATTEMPT, edit("e2", "u2", {"content": "v" * 400})]
    assert projected_cut(entries, 100, omitted=["a2"], replaced={"u2": "v" * 400}) == CutPoint(2)


def test_a_replacement_inside_the_omitted_attempt_changes_nothing() -> None:
    # a2 was replaced first and omitted later.
    entries = [*ATTEMPT[:4], edit("e0", "a2", {"content": "v"}), edit("e1", "a2")]
    assert projected_cut(entries, 100, omitted=["a2"]) == CutPoint(3, 2)


def test_an_edit_with_an_unusable_target_counts_as_a_replacement_elsewhere() -> None:
    entries = [*ATTEMPT, entry("e2", "context_edit", targetId=["a2"], replacement={"content": ""})]
    assert projected_cut(entries, 100, omitted=["a2"]) == CutPoint(2)


# --- always and never ----------------------------------------------------------------------------------------------

SIZES = st.integers(min_value=0, max_value=50)
KINDS = {"user": user, "assistant": assistant, "result": result, "system": system}


@st.composite
def branches(draw: st.DrawFn) -> list[FakeEntry]:
    kinds = draw(st.lists(st.sampled_from([*KINDS, "call", "label", "edit", "compaction"]), max_size=14))
    entries = []
    for index, kind in enumerate(kinds):
        name = f"e{index}"
        if kind in KINDS:
            entries.append(KINDS[kind](name, draw(SIZES)))
        elif kind == "call":
            entries.append(call(name))
        elif kind == "edit":
            entries.append(edit(name, f"e{draw(st.integers(0, 14))}", draw(st.sampled_from([None, {"content": "x"}]))))
        else:
            entries.append(label(name) if kind == "label" else compaction(name))
    return entries


def size(entries: Sequence[FakeEntry]) -> int:
    return sum(pi_estimate(own) for item in entries for own in context_messages(item))


def role(item: FakeEntry) -> str:
    return str(context_messages(item)[0]["role"]) if context_messages(item) else ""


@given(branches(), st.integers(min_value=0, max_value=400))
def test_what_is_kept_never_begins_with_a_tool_result(entries: list[FakeEntry], keep: int) -> None:
    cut = raw_cut(entries, keep)
    visible = [role(item) for item in entries[cut.first_kept :] if role(item)]
    if any(role(item) in ("user", "assistant") for item in entries):
        assert visible[0] in ("user", "assistant")


@given(branches(), st.integers(min_value=1, max_value=400))
def test_what_is_kept_never_falls_short_of_the_budget_unless_an_entry_without_a_place_to_cut_crosses_it(
    entries: list[FakeEntry], keep: int
) -> None:
    cut = raw_cut(entries, keep)
    if size(entries[cut.first_kept :]) >= keep or cut.first_kept == 0:
        return
    # From the entry that reaches the budget (or from the start, if none does) up to the cut, no place is fit to cut at.
    crossing = max((index for index in range(len(entries)) if size(entries[index:]) >= keep), default=0)
    assert crossing < cut.first_kept
    assert not any(role(item) in ("user", "assistant") for item in entries[crossing : cut.first_kept])


@given(branches(), st.integers(min_value=0, max_value=400))
def test_a_split_turn_begins_before_the_cut_and_the_cut_is_an_answer(entries: list[FakeEntry], keep: int) -> None:
    cut = raw_cut(entries, keep)
    if cut.turn_start is not None:
        assert cut.turn_start < cut.first_kept
        assert role(entries[cut.turn_start]) == "user"
        assert next(role(item) for item in entries[cut.first_kept :] if role(item)) == "assistant"


@given(branches(), st.integers(min_value=0, max_value=400))
def test_without_edits_in_force_both_variants_agree(entries: list[FakeEntry], keep: int) -> None:
    assert projected_cut(entries, keep) == raw_cut(entries, keep)
