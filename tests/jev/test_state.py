"""The state and its fitting: what each stage does to a history, how far it goes, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from contexthost_jev.collect import collect_tool_calls
from contexthost_jev.estimate import estimate_tokens, to_json
from contexthost_jev.messages import JevMessage, ToolResult, ToolUse
from contexthost_jev.options import JevOptions
from contexthost_jev.state import (
    FittedState,
    Stage,
    StateDoesNotFit,
    abridge,
    default_goal,
    fit_state,
    state_budget,
)
from jev.histories import calls, results, says, turns, user

PIN_ONE = JevOptions(preserve_recent_messages=1, goal="Ship it.")


def fit(history: list[JevMessage], budget: int, options: JevOptions = PIN_ONE) -> FittedState:
    fitted = fit_state(history, collect_tool_calls(history, options), options, budget)
    assert fitted.tokens == estimate_tokens(to_json(fitted.state)) <= budget
    return fitted


def shrink_to(history: list[JevMessage], stage: Stage, options: JevOptions = PIN_ONE) -> list[Any]:
    """The history's entries at the first budget, coming down from the whole state, that takes this stage."""
    budget = fit(history, 10**9, options).tokens
    while True:
        fitted = fit(history, budget, options)
        if fitted.stage == stage:
            entries: list[Any] = fitted.state["history"]
            return entries
        assert list(Stage).index(fitted.stage) < list(Stage).index(stage), "the stage was jumped over"
        budget = fitted.tokens - 1


CUT = ToolResult("c", "kept", truncated=True)


# The whole state ---------------------------------------------------------------------------------------------------


def test_the_state_holds_texts_calls_and_notes_about_results_but_no_output() -> None:
    history = [
        user("Mend it."),
        calls("a", text="Reading."),
        JevMessage("user", tool_results=(ToolResult("a", "SECRET OUTPUT"),)),
        calls("b", "c", tool="bash"),
        JevMessage(
            "user", tool_results=(ToolResult("b", "E" * 7, is_error=True), ToolResult("c", "kept", False, True))
        ),
        calls("d", tool="write"),
        says("Well."),
    ]
    state = fit(history, 10**6).state
    assert state["goal"] == "Ship it."
    assert state["history"] == [
        {"i": 0, "role": "user", "text": "Mend it."},
        {
            "i": 1,
            "role": "assistant",
            "text": "Reading.",
            "tool_calls": [{"id": "t1", "tool": "read", "input": {"path": "a.py"}, "result": "ok, 13 chars (omitted)"}],
        },
        {
            "i": 3,
            "role": "assistant",
            "tool_calls": [
                {"id": "t2", "tool": "bash", "input": {"path": "b.py"}, "result": "error, 7 chars (omitted)"},
                {"id": "t3", "tool": "bash", "input": {"path": "c.py"}, "result": "ok, cut to 4 chars earlier"},
            ],
        },
        {"i": 5, "role": "assistant", "pending_calls": [{"tool": "write", "input": {"path": "d.py"}}]},
        {"i": 6, "role": "assistant", "text": "Well."},
    ]
    assert "SECRET" not in to_json(state)


def test_the_goal_is_the_last_three_prompts_of_500_characters_each() -> None:
    history = [user("one"), user("two"), says("no"), user("x" * 600), JevMessage("user", "ls", label="bash"), user("4")]
    assert default_goal(history) == "two\n\n" + "x" * 500 + "\n\n4"


def test_a_goal_of_the_options_comes_first() -> None:
    assert fit(turns(1), 10**6, JevOptions(goal="Mine.")).state["goal"] == "Mine."
    assert fit(turns(1), 10**6, JevOptions()).state["goal"] == "Mend the parser."


def test_the_budget_leaves_room_for_the_largest_pair_and_an_envelope_of_20() -> None:
    assert state_budget(JevOptions(), 100) == 25_000
    assert state_budget(JevOptions(max_request_tokens=25_120), 100) == 25_000
    assert state_budget(JevOptions(max_request_tokens=25_119), 100) == 24_999


# Stages ------------------------------------------------------------------------------------------------------------


def given(size: int) -> dict[str, str]:
    """An input whose JSON has that many characters: {"c":"…"} are eight besides the value."""
    return {"c": "w " * ((size - 8) // 2) + "w" * (size % 2)}


def long_inputs() -> list[JevMessage]:
    history = [calls("a", given=given(2000)), results(a="r")]
    history += [calls("b", given=given(900)), results(b="r"), calls("c", given=given(1500)), results(c="r")]
    return [user("Go."), *history, calls("p", given=given(1200)), says("End.")]


def inputs(entries: list[Any]) -> list[int | str]:
    found: list[int | str] = []
    for entry in entries:
        for call in (*entry.get("tool_calls", ()), *entry.get("pending_calls", ())):
            given_input = call["input"]
            found.append(len(given_input) if isinstance(given_input, str) else "whole")
    return found


def test_stage_1_cuts_the_oldest_input_to_1000_characters_and_stops_when_it_fits() -> None:
    entries = shrink_to(long_inputs(), Stage.INPUTS_1000)
    assert inputs(entries) == [1001, "whole", "whole", "whole"]  # 1,000 and the ellipsis
    assert entries[1]["tool_calls"][0]["input"].startswith('{"c":"w w w')


@pytest.mark.parametrize(
    ("stage", "sizes"),
    [
        (Stage.INPUTS_200, [201, "whole", 1001, 1001]),  # all were cut to 1,000 where longer; then the first to 200
        (Stage.INPUTS_60, [61, 201, 201, 201]),
    ],
)
def test_the_next_limits_start_over_with_the_oldest(stage: Stage, sizes: list[int | str]) -> None:
    assert inputs(shrink_to(long_inputs(), stage)) == sizes


def test_inputs_of_recent_messages_are_cut_last() -> None:
    history = [calls("first", given=given(2000)), results(first="r"), calls("old", given=given(2000)), results(old="r")]
    history += [says("End.")]
    assert inputs(shrink_to(history, Stage.INPUTS_1000)) == ["whole", 1001]


def test_a_text_is_abridged_to_400_and_150_characters() -> None:
    text = "h" * 400 + "m" * 1234 + "t" * 150
    assert abridge(text) == "h" * 400 + "\n[… 1,234 characters left out …]\n" + "t" * 150
    note = len("\n[… 33 characters left out …]\n")
    assert note == 30
    # 400 + 30 + 150 = 580: shorter texts would not get shorter.
    assert abridge("x" * 580) == "x" * 580
    assert len(abridge("x" * 583)) == 580


def long_texts() -> list[JevMessage]:
    return [user("u" * 2000), says("a" * 2000), calls("c", text="b" * 30), results(c="r"), says("e" * 2000)]


def texts(entries: list[Any]) -> list[int]:
    return [len(entry.get("text", "")) for entry in entries]


ABRIDGED = 400 + len("\n[… 1,450 characters left out …]\n") + 150


def test_stage_2_abridges_long_texts_pinned_ones_last() -> None:
    assert texts(shrink_to(long_texts(), Stage.TEXTS_ABRIDGED)) == [2000, ABRIDGED, 30, 2000]


def test_stage_3_collapses_old_texts_to_their_length() -> None:
    entries = shrink_to(long_texts(), Stage.TEXTS_COLLAPSED)
    assert texts(entries) == [ABRIDGED, 16, 30, ABRIDGED]  # by now the pinned ones are abridged too
    assert entries[1]["text"] == f"[{ABRIDGED} characters]"


def many_calls() -> list[JevMessage]:
    history = [user("Go.")]
    for number in range(1, 4):
        made = calls(f"c{number}", text="Some words about the step that comes now.")
        history += [made, JevMessage("user", tool_results=(ToolResult(f"c{number}", "r" * 480, number == 2),))]
    history += [says("Half of it is done, says this text."), calls("p", tool="bash")]
    return [*history, says("End.")]


def test_stage_4_makes_old_calls_one_line_each() -> None:
    entries = shrink_to(many_calls(), Stage.CALLS_AS_LINES)
    assert entries[1] == {
        "i": 1,
        "role": "assistant",
        "text": "[41 characters]",
        "tool_calls": ["t1 read path=c1.py → ok 480ch"],
    }
    assert isinstance(entries[2]["tool_calls"][0], dict)  # one was enough


def test_stage_5_leaves_out_old_messages_without_calls() -> None:
    before = shrink_to(many_calls(), Stage.CALLS_AS_LINES)
    entries = shrink_to(many_calls(), Stage.MESSAGES_OMITTED)
    assert [entry["i"] for entry in before] == [0, 1, 3, 5, 7, 8, 9]
    assert [entry["i"] for entry in entries] == [0, 1, 3, 5, 8, 9]
    assert entries[2]["tool_calls"] == ["t2 read path=c2.py → error 480ch"]


def test_stage_6_folds_runs_of_calls_into_one_entry() -> None:
    entries = shrink_to(many_calls(), Stage.RUNS_FOLDED)
    assert entries == shrunk_fully()


def shrunk_fully() -> list[Any]:
    return [
        {"i": 0, "role": "user", "text": "Go."},
        {
            "i": "1-8",
            "role": "assistant",
            "tool_calls": [
                "t1 read path=c1.py → ok 480ch",
                "t2 read path=c2.py → error 480ch",
                "t3 read path=c3.py → ok 480ch",
            ],
            "pending_calls": [{"tool": "bash", "input": {"path": "p.py"}}],
        },
        {"i": 9, "role": "assistant", "text": "End."},
    ]


def test_pending_calls_survive_every_stage() -> None:
    history = many_calls()
    budget = fit(history, 10**9).tokens
    reached = set()
    while True:
        try:
            fitted = fit(history, budget)
        except StateDoesNotFit:
            break
        pending = [call["tool"] for entry in fitted.state["history"] for call in entry.get("pending_calls", ())]
        assert pending == ["bash"]
        reached.add(fitted.stage)
        budget = fitted.tokens - 1
    assert Stage.RUNS_FOLDED in reached


def test_what_does_not_fit_after_all_stages_is_an_error_with_both_figures() -> None:
    smallest = estimate_tokens(to_json({**fit(many_calls(), 10**9).state, "history": shrunk_fully()}))
    with pytest.raises(StateDoesNotFit) as caught:
        fit(many_calls(), smallest - 1)
    assert (caught.value.tokens, caught.value.budget) == (smallest, smallest - 1)


def test_inputs_that_are_no_plain_json_stand_as_text() -> None:
    deep: Any = 1
    for _ in range(3000):
        deep = [deep]
    uses = (ToolUse("a", "x", {"n": float("nan")}), ToolUse("b", "x", deep))
    history = [user("Go."), JevMessage("assistant", "", uses), results(a="1", b="2"), says("End.")]
    shown = [call["input"] for call in fit(history, 10**6).state["history"][1]["tool_calls"]]
    assert shown == ['{"n":null}', "[" * 3000 + "1" + "]" * 3000]
