"""Which calls and results do not belong together, and the smallest edits that make them whole; worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.diagnosis.content import clean_blocks
from contexthost.diagnosis.pairs import PairReport, Sent, examine_pairs, without_calls
from support.builder import text_block, tool_call

TEXT = text_block("Let me look.")
THINKING = {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}


def call(name: str) -> dict[str, Any]:
    return tool_call(name, "read", {"path": name})


def says(*blocks: Any, stop: str = "toolUse") -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), "stopReason": stop}


def result(name: str) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": name, "toolName": "read", "content": [], "isError": False}


USER = {"role": "user", "content": "and now?"}
SYSTEM = {"role": "system", "content": "tools changed"}


def examined(*messages: dict[str, Any]) -> PairReport:
    """The report over entries named e0, e1, …"""
    return examine_pairs([Sent(f"e{at}", message) for at, message in enumerate(messages)])


def faults(report: PairReport) -> list[tuple[str, str, str | None]]:
    return [(fault.kind, fault.entry_id, fault.call_id) for fault in report.faults]


def test_whole_batches_are_left_alone() -> None:
    report = examined(USER, says(call("a"), call("b")), SYSTEM, result("b"), result("a"), says(TEXT, stop="stop"))
    assert (report.faults, report.edits) == ((), {})


def test_the_same_id_in_two_batches_is_no_fault() -> None:
    """Some models count their calls anew in each answer."""
    report = examined(USER, says(call("0")), result("0"), says(call("0")), result("0"))
    assert (report.faults, report.edits) == ((), {})


def test_of_parallel_calls_only_those_without_a_result_are_taken_out() -> None:
    report = examined(USER, says(TEXT, call("a"), call("b"), call("c")), result("c"), result("a"))
    assert faults(report) == [("unanswered-call", "e1", "b")]
    assert report.edits == {"e1": {"content": [TEXT, call("a"), call("c")]}}


def test_a_message_of_which_only_text_is_left_keeps_it() -> None:
    report = examined(USER, says(TEXT, call("a"), call("b")))
    assert faults(report) == [("unanswered-call", "e1", "a"), ("unanswered-call", "e1", "b")]
    assert report.edits == {"e1": {"content": [TEXT]}}


@pytest.mark.parametrize("rest", [[], [THINKING], [text_block(" \n")]])
def test_a_message_of_which_nothing_is_left_is_omitted(rest: list[Any]) -> None:
    assert examined(USER, says(*rest, call("a"))).edits == {"e1": None}


def test_orphans_and_second_results_are_omitted() -> None:
    report = examined(USER, result("x"), says(call("a")), result("a"), result("a"), USER, result("a"))
    assert faults(report) == [
        ("orphan-result", "e1", "x"),
        ("duplicate-result", "e4", "a"),
        ("duplicate-result", "e6", "a"),
    ]
    assert report.edits == {"e1": None, "e4": None, "e6": None}


def test_a_result_behind_a_user_message_goes_with_its_call_and_the_others_stay() -> None:
    report = examined(USER, says(call("a"), call("b")), result("a"), USER, result("b"), says(TEXT, stop="stop"))
    assert faults(report) == [("late-result", "e4", "b")]
    assert report.edits == {"e1": {"content": [call("a")]}, "e4": None}


def test_a_failed_attempt_in_between_is_omitted_and_the_result_counts_again() -> None:
    report = examined(USER, says(call("a")), says(TEXT, stop="error"), result("a"))
    assert faults(report) == [("late-result", "e3", "a")]
    assert report.edits == {"e2": None}


def test_of_failed_attempts_before_several_results_each_names_the_newest_ones() -> None:
    failed = says(TEXT, stop="error")
    calls = says(call("a"), call("b"), call("c"))
    report = examined(USER, calls, failed, failed, result("a"), result("b"), failed, result("c"))
    assert [fault.targets for fault in report.faults] == [("e2", "e3"), ("e3",), ("e3", "e6")]
    assert report.edits == {"e2": None, "e3": None, "e6": None}


def test_results_of_a_failed_attempt_go_with_it() -> None:
    """Pi leaves the attempt out of requests, but sends its results."""
    report = examined(USER, says(call("a"), call("b"), stop="aborted"), result("a"), result("b"))
    assert faults(report) == [("orphan-result", "e2", "a"), ("orphan-result", "e3", "b")]
    assert [fault.failed_entry for fault in report.faults] == ["e1", "e1"]
    assert report.edits == {"e1": None, "e2": None, "e3": None}


def test_a_failed_attempt_without_results_is_healthy() -> None:
    report = examined(USER, says(call("a"), stop="aborted"), USER)
    assert (report.faults, report.edits, report.failed_with_calls) == ((), {}, ("e1",))


def test_a_result_behind_a_failed_attempt_with_the_id_of_an_older_call_is_the_attempts() -> None:
    report = examined(says(call("0")), result("0"), USER, says(call("0"), stop="error"), result("0"))
    assert faults(report) == [("orphan-result", "e4", "0")]
    assert report.edits == {"e3": None, "e4": None}


def test_the_second_of_two_calls_with_one_id_is_taken_out() -> None:
    report = examined(says(call("a"), {**call("a"), "name": "bash"}), result("a"))
    assert faults(report) == [("repeated-call", "e0", "a")]
    assert report.edits == {"e0": {"content": [call("a")]}}


def test_thinking_stays_with_what_it_led_to() -> None:
    """OpenAI refuses reasoning that nothing follows, and calls whose reasoning is missing."""
    second = {**THINKING, "thinking": "and b"}
    blocks = [THINKING, call("a"), second, call("b"), call("c")]
    assert without_calls(blocks, {3, 4}) == {"content": [THINKING, call("a")]}
    assert without_calls(blocks, {3}) == {"content": [THINKING, call("a"), second, call("c")]}
    assert without_calls(blocks, {1}) == {"content": [second, call("b"), call("c")]}


def test_content_that_pi_fails_on_is_made_whole() -> None:
    bare = {"type": "toolCall", "id": "a"}
    assert clean_blocks("assistant", [TEXT, None, {"type": "text"}, {"type": "thinking"}, bare]) == [
        TEXT,
        {"type": "toolCall", "id": "a", "name": "unknown", "arguments": {}},
    ]
    assert clean_blocks("toolResult", "plain") == [text_block("plain")]
    assert clean_blocks("user", 5) == []
    for role, content in [("user", "plain"), ("assistant", [TEXT]), ("bashExecution", None)]:
        assert clean_blocks(role, content) is None
