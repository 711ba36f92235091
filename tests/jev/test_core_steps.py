"""The steps of the core one by one: pairing calls, asking, batching, deciding, truncating; all values by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contexthost_jev.batch import batch_calls
from contexthost_jev.collect import ToolCall, collect_tool_calls
from contexthost_jev.decide import Decision, apply_decisions, decide_call, reduction_ratio, truncate_result
from contexthost_jev.errors import JevFailure
from contexthost_jev.estimate import estimate_tenths, to_json
from contexthost_jev.messages import JevMessage, ToolResult, history_chars, message_chars
from contexthost_jev.options import JevOptions
from contexthost_jev.questions import QuestionPair, question_pair
from jev.histories import calls, results, says, turns, user

OPTIONS = JevOptions()


# Pairing ---------------------------------------------------------------------------------------------------------


def test_calls_are_numbered_in_their_order_and_paired_by_id() -> None:
    history = [user("Go."), calls("a", "b"), results(b="2", a="1"), calls("c"), results(c="3"), says("Done.")]
    found = collect_tool_calls(history, JevOptions(preserve_recent_messages=0))
    assert [(call.id, call.use.id, call.result.text, call.use_index, call.result_index) for call in found.calls] == [
        ("t1", "a", "1", 1, 2),
        ("t2", "b", "2", 1, 2),
        ("t3", "c", "3", 3, 4),
    ]


def test_a_call_without_a_result_is_pending_and_gets_no_number() -> None:
    history = [user("Go."), calls("a", "b"), results(b="2")]
    found = collect_tool_calls(history, JevOptions(preserve_recent_messages=0))
    assert [(call.id, call.use.id) for call in found.calls] == [("t1", "b")]
    assert {index: [use.id for use in uses] for index, uses in found.pending.items()} == {1: ["a"]}


def test_a_result_without_a_call_is_left_alone() -> None:
    found = collect_tool_calls([user("Go."), results(lost="?"), *turns(1)[1:]], OPTIONS)
    assert [call.use.id for call in found.candidates] == ["c1"]


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ([calls("a"), results(a="1"), calls("a")], "message 3 repeats the id"),
        ([calls("a", "a"), results(a="1")], "message 1 repeats the id"),
        ([calls("a"), results(a="1"), results(a="2")], "message 3 holds a second result"),
        ([results(a="1"), calls("a")], "message 1 holds a result that stands before its call"),
    ],
)
def test_ids_that_cannot_be_paired_are_an_error(history: list[JevMessage], told: str) -> None:
    with pytest.raises(JevFailure, match=told) as caught:
        collect_tool_calls(history, OPTIONS)
    assert caught.value.kind == "malformed-history"


def test_the_first_message_and_the_newest_six_are_pinned_with_every_call_that_touches_them() -> None:
    history = [calls("first"), results(first="1"), calls("free"), results(free="2"), calls("late"), *turns(0)[1:6]]
    history += [results(late="3")]  # the call is old, its result is among the newest six
    found = collect_tool_calls(history, OPTIONS)
    assert {call.use.id: call.pinned for call in found.calls} == {"first": True, "free": False, "late": True}


def test_frozen_messages_at_the_end_are_pinned_beyond_the_newest_six() -> None:
    history = turns(3)  # 1 + 6 + 6 messages; freezing 8 of them reaches the third call
    found = collect_tool_calls(history, JevOptions(frozen_messages=8))
    assert [call.use.id for call in found.candidates] == ["c1", "c2"]


def test_a_result_that_an_earlier_round_truncated_is_no_candidate() -> None:
    history = turns(2)
    history[2] = JevMessage("user", tool_results=(ToolResult("c1", "head", truncated=True),))
    assert [call.use.id for call in collect_tool_calls(history, OPTIONS).candidates] == ["c2"]


# Asking ----------------------------------------------------------------------------------------------------------


def one_call(text: str = "x" * 1000, *, is_error: bool = False) -> ToolCall:
    history = turns(1)
    history[2] = JevMessage("user", tool_results=(ToolResult("c1", text, is_error),))
    (call,) = collect_tool_calls(history, OPTIONS).candidates
    return call


def test_two_questions_are_asked_about_a_call() -> None:
    pair = question_pair(one_call())
    assert list(pair.questions) == ["call_t1", "result_t1"]
    assert {question["type"] for question in pair.questions.values()} == {"noul"}
    assert "call t1 (read)" in pair.questions["call_t1"]["instructions"]
    assert "t1 (1000 characters)" in pair.questions["result_t1"]["instructions"]
    members = estimate_tenths(to_json(pair.questions)) - 2 * 9 + 9  # no braces, a comma
    assert pair.tokens == -(-members // 10)


def test_a_tool_name_cannot_blow_up_the_questions() -> None:
    call = one_call()
    call = replace(call, use=replace(call.use, tool="evil\n\x1b[31m" * 1000))
    assert question_pair(call).tokens < 150


# Batching --------------------------------------------------------------------------------------------------------


def pairs_of(*tokens: int) -> list[QuestionPair]:
    return [replace(question_pair(one_call()), tokens=count) for count in tokens]


@pytest.mark.parametrize(
    ("tokens", "limit", "sizes", "requests"),
    [
        ((30, 30, 30), 210, [3], [210]),  # 100 + 20 + 90: just fits
        ((30, 30, 30), 209, [2, 1], [180, 150]),  # one less does not
        ((30, 30, 30), 150, [1, 1, 1], [150, 150, 150]),
        ((10, 50, 10), 170, [1, 1, 1], [130, 170, 130]),
        ((), 150, [], []),
    ],
)
def test_requests_are_filled_up_to_the_limit(
    tokens: tuple[int, ...], limit: int, sizes: list[int], requests: list[int]
) -> None:
    batches = batch_calls(pairs_of(*tokens), 100, limit)
    assert [len(batch.pairs) for batch in batches] == sizes
    assert [batch.tokens for batch in batches] == requests


def test_a_pair_that_fits_no_request_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit into one request"):
        batch_calls(pairs_of(31), 100, 150)


# Deciding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep_call", "keep_result", "action"),
    [
        (0.0, 0.5, "keep"),  # the result's answer alone is enough
        (1.0, 0.5, "keep"),
        (0.5, 0.49, "truncate"),
        (0.49, 0.49, "drop"),
        (0.0, 0.0, "drop"),
        (1.0, 1.0, "keep"),
    ],
)
def test_a_call_is_kept_truncated_or_dropped_at_the_threshold(
    keep_call: float, keep_result: float, action: str
) -> None:
    assert decide_call(one_call(), keep_call, keep_result, OPTIONS).action == action


def test_results_can_have_a_threshold_of_their_own() -> None:
    options = JevOptions(keep_threshold=0.5, keep_result_threshold=0.3)
    assert decide_call(one_call(), 0.4, 0.3, options).action == "keep"
    assert decide_call(one_call(), 0.5, 0.29, options).action == "truncate"
    assert decide_call(one_call(), 0.4, 0.29, options).action == "drop"


@pytest.mark.parametrize(("length", "action"), [(420, "keep"), (421, "truncate")])
def test_a_result_of_head_and_note_stays_whole(length: int, action: str) -> None:
    assert decide_call(one_call("x" * length), 0.9, 0.1, OPTIONS).action == action


def test_a_truncated_result_has_its_head_and_one_line_about_the_rest() -> None:
    result = truncate_result(ToolResult("c1", "a" * 300 + "b" * 4213), 300)
    head, note = result.text.split("\n")
    assert head == "a" * 300
    assert note == "[… 4,213 more characters were cut here; run the tool again to have them]"
    assert (result.id, result.is_error, result.truncated) == ("c1", False, True)


def test_the_note_says_that_it_was_an_error() -> None:
    result = truncate_result(ToolResult("c1", "a" * 1000, is_error=True), 300)
    assert result.text.endswith("\n[… 700 more characters of an error were cut here; run the tool again to have them]")
    assert result.is_error


def test_without_a_head_the_note_stands_alone() -> None:
    text = truncate_result(ToolResult("c1", "a" * 121), 0).text
    assert text == "[… 121 more characters were cut here; run the tool again to have them]"


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("length", [421, 10_000, 999_999_999])
def test_truncating_always_makes_a_result_shorter(length: int, is_error: bool) -> None:
    class Long(str):  # only its length is looked at, besides the head
        def __len__(self) -> int:
            return length

    result = truncate_result(ToolResult("c1", Long("x" * 300), is_error), 300)
    assert len(result.text) < length
    assert len(result.text.split("\n")[1]) < 120


# Applying --------------------------------------------------------------------------------------------------------


def decided(history: list[JevMessage], **actions: str) -> list[JevMessage]:
    found = collect_tool_calls(history, OPTIONS)
    decisions = [Decision(call, 0, 0, actions[call.use.id]) for call in found.candidates]  # type: ignore[arg-type]
    return apply_decisions(history, decisions, OPTIONS)


def test_dropping_takes_the_call_and_its_result_and_what_is_empty_then() -> None:
    history = [user("Go."), calls("a", "b"), results(a="1", b="2"), calls("c"), results(c="3"), *turns(0)[1:]]
    after = decided(history, a="drop", b="keep", c="drop")
    assert after == [user("Go."), calls("b"), results(b="2"), *turns(0)[1:]]


def test_text_beside_a_dropped_call_stays() -> None:
    after = decided(turns(1), c1="drop")
    assert after == [user("Mend the parser."), says("Step 1."), *turns(0)[1:]]


def test_untouched_messages_stay_the_same_objects() -> None:
    history = turns(3)
    after = decided(history, c1="keep", c2="truncate", c3="keep")
    assert [old is new for old, new in zip(history, after, strict=True)] == [
        index != 4 for index in range(len(history))
    ]
    assert after[4].tool_results[0].text.startswith("x" * 300 + "\n[… 700 more")


def test_characters_are_texts_inputs_and_results() -> None:
    # 'Step 1.' is 7; {"path":"c1.py"} is 16; the result is 1,000.
    history = turns(1)
    assert [message_chars(message) for message in history[:3]] == [16, 7 + 16, 1000]
    assert history_chars(history) == 16 + 23 + 1000 + 6 * len("Note 1.")


def test_the_reduction_is_the_share_of_characters_that_went() -> None:
    assert reduction_ratio(200, 150) == 0.25
    assert reduction_ratio(0, 0) == 0.0
