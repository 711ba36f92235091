"""Shows that token figures are Pi's: per message, from a provider's usage, and over a projection.

The expected figures were printed by Pi 1.6.0, except where the input would crash it; all can be checked by hand, a
token being four UTF-16 units.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from contexthost.messages import Message
from contexthost.tokens.pi import (
    ContextEstimate,
    assistant_usage,
    calculate_context_tokens,
    estimate_projected_context_tokens,
    pi_estimate,
)
from support.compaction_fakes import FakeEntry, assistant, compaction, edit, entry, label, project, system, user


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": ""}, 0),
        ({"role": "user", "content": "abcde"}, 2),
        ({"role": "user", "content": "😀😀😀"}, 2),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "abc"}, {"type": "image"}, {"type": "x", "text": "no"}],
            },
            1201,
        ),
        ({"role": "custom", "content": "abcdefghi"}, 3),
        ({"role": "toolResult", "content": [{"type": "text", "text": "12345678"}]}, 2),
        (
            # 4 + 5 + read{"path":"a.py","limit":1}, which is 4 + 27; neither ids nor signatures
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "abcd"},
                    {"type": "thinking", "thinking": "12345", "thinkingSignature": "zzzz"},
                    {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "a.py", "limit": 1.0}},
                ],
            },
            10,
        ),
        (
            # w{"text":"é\ud800"}: the lone surrogate is six units in JSON
            {"role": "assistant", "content": [{"type": "toolCall", "name": "w", "arguments": {"text": "é\ud800"}}]},
            5,
        ),
        ({"role": "bashExecution", "command": "ls", "output": "abc", "excludeFromContext": True}, 2),
        ({"role": "branchSummary", "summary": "123456789"}, 3),
        ({"role": "compactionSummary", "summary": "1234"}, 1),
        (
            # 4 + 3 + [{"name":"t"}]; neither section names nor removed tools
            {
                "role": "system",
                "content": "abcd",
                "sections": {"longname": "efg", "gone": None},
                "toolsAdded": [{"name": "t"}],
                "toolsRemoved": [{"name": "xxxxxxxxxxxxx"}],
            },
            6,
        ),
        ({"role": "system", "content": "", "toolsAdded": []}, 1),
        ({"role": "unknown", "content": "abc"}, 0),
    ],
)
def test_a_message_is_worth_a_quarter_of_its_characters(message: Message, tokens: int) -> None:
    assert pi_estimate(message) == tokens


@pytest.mark.parametrize("role", ["user", "assistant", "toolResult", "custom", "system"])
@pytest.mark.parametrize("content", [None, 5, {"type": "text", "text": "abcd"}, [None, 5, "abcd", {"type": []}]])
def test_content_that_would_crash_pi_counts_nothing(role: str, content: object) -> None:
    assert pi_estimate({"role": role, "content": content}) == 0


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": ["user"], "content": "abcd"},
        {"role": "assistant", "content": [{"type": "text"}, {"type": "thinking", "thinking": 5}, {"type": "toolCall"}]},
        {"role": "bashExecution"},
        {"role": "compactionSummary", "summary": ["abcd"]},
        {"role": "system", "content": "", "sections": "abcd", "toolsAdded": 0},
    ],
)
def test_missing_and_mistyped_parts_count_nothing(message: Message) -> None:
    assert pi_estimate(message) == 0


def estimate_of(branch: list[FakeEntry], context: list[FakeEntry] | None = None) -> ContextEstimate:
    return estimate_projected_context_tokens(project(branch if context is None else context).entries, branch)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["text", "toolCall", "image", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "type", "text", "content", "name", "arguments", "usage", "totalTokens"]), inner
        )
    ),
)


@given(st.sampled_from(["system", "user", "assistant", "toolResult", "bashExecution", "custom"]), JUNK, JUNK)
def test_no_message_ever_crashes_the_estimates(role: str, content: object, usage: object) -> None:
    message: Message = {"role": role, "content": content, "usage": usage, "sections": content, "toolsAdded": usage}
    assert pi_estimate(message) >= 0
    assert estimate_of([entry("e1", "message", message=message)]).tokens >= 0
    assert calculate_context_tokens(usage) == calculate_context_tokens(usage)


# --- usage ---------------------------------------------------------------------------------------------------------

PARTS = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4}


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"totalTokens": 7, **PARTS}, 7),
        ({"totalTokens": 0, **PARTS}, 10),
        (PARTS, 10),
        ({"totalTokens": None, **PARTS, "input": None}, 9),
        ({"totalTokens": 12.0}, 12),
        ({"totalTokens": -5, **PARTS}, -5),
    ],
)
def test_the_total_counts_and_without_it_the_sum_of_the_parts(usage: dict[str, Any], tokens: int) -> None:
    assert calculate_context_tokens(usage) == tokens


@pytest.mark.parametrize(
    "usage",
    [
        None, 7, "x", [], {}, {"input": 1}, {"totalTokens": "7", **PARTS}, {"totalTokens": True},
        {"totalTokens": 1e400}, {"totalTokens": 10**400}, {**PARTS, "input": "1"}, {"totalTokens": [], **PARTS},
    ],
)  # fmt: skip
def test_usage_that_is_no_number_counts_nothing(usage: object) -> None:
    assert calculate_context_tokens(usage) == 0


@pytest.mark.parametrize("stop", ["stop", "length", "toolUse", None])
def test_an_answer_that_ended_normally_or_was_cut_off_provides_its_usage(stop: str | None) -> None:
    usage = {"totalTokens": 100}
    assert assistant_usage({"role": "assistant", "content": [], "stopReason": stop, "usage": usage}) is usage


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "stopReason": "aborted", "usage": {"totalTokens": 100}},
        {"role": "assistant", "stopReason": "error", "usage": {"totalTokens": 100}},
        {"role": "assistant", "usage": {"totalTokens": 0, "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}},
        {"role": "assistant", "usage": {"totalTokens": -5}},
        {"role": "assistant", "usage": None},
        {"role": "assistant"},
        {"role": "user", "usage": {"totalTokens": 100}},
    ],
)
def test_aborted_failed_and_empty_answers_provide_no_usage(message: Message) -> None:
    assert assistant_usage(message) is None


def asked(chars: int) -> Message:
    return {"role": "user", "content": "x" * chars}


def answered(total: int | None, stop: str = "stop", chars: int = 4) -> Message:
    usage = None if total is None else {"totalTokens": total}
    return {"role": "assistant", "content": [{"type": "text", "text": "x" * chars}], "stopReason": stop, "usage": usage}


@pytest.mark.parametrize(
    ("messages", "estimate"),
    [
        ([], ContextEstimate(0, 0, 0)),
        ([asked(8), answered(100), asked(40), answered(None)], ContextEstimate(111, 100, 11)),
        ([asked(8), answered(100, "aborted")], ContextEstimate(3, 0, 3)),
        ([asked(8), answered(100), asked(4), answered(50, "error", 400)], ContextEstimate(201, 100, 101)),
        ([asked(8), answered(0)], ContextEstimate(3, 0, 3)),
        (
            [answered(30, "length"), {"role": "toolResult", "content": "x" * 41}],
            ContextEstimate(41, 30, 11),
        ),
    ],
)
def test_the_last_valid_usage_is_the_base_of_the_estimate(messages: list[Message], estimate: ContextEstimate) -> None:
    branch = [entry(f"e{at}", "message", message=message) for at, message in enumerate(messages)]
    assert estimate_of(branch) == estimate


# --- usage on a branch ---------------------------------------------------------------------------------------------

USAGE = {"totalTokens": 5000}


def test_without_edits_and_compactions_usage_is_trusted() -> None:
    branch = [user("u1"), assistant("a1", usage=USAGE), label("l1"), user("u2", 50)]
    assert estimate_of(branch) == ContextEstimate(5050, 5000, 50)


@pytest.mark.parametrize("invalidating", [edit("x", "u1"), edit("x", "gone"), compaction("x", "")])
def test_usage_from_before_an_edit_or_compaction_is_not_trusted(invalidating: FakeEntry) -> None:
    branch = [user("u1"), assistant("a1", usage=USAGE), invalidating, user("u2", 50)]
    assert estimate_of(branch) == ContextEstimate(250, 0, 250)


def test_usage_from_after_the_latest_edit_is_trusted() -> None:
    branch = [user("u1"), edit("x", "u1"), assistant("a1", usage=USAGE)]
    assert estimate_of(branch) == ContextEstimate(5000, 5000, 0)


def test_a_kept_answer_that_stands_after_the_compaction_in_context_order_is_not_trusted() -> None:
    kept, cut = [user("u1"), assistant("a1", usage=USAGE)], compaction("k", "s" * 40)
    assert estimate_of([*kept, cut], [cut, *kept]) == ContextEstimate(210, 0, 210)


def test_usage_that_is_not_on_the_branch_is_not_trusted() -> None:
    assert estimate_of([user("u1")], [user("u1"), assistant("a1", usage=USAGE)]) == ContextEstimate(200, 0, 200)


def test_a_pure_estimate_counts_the_replayed_system_message_once() -> None:
    branch = [system("s1", 10), user("u1"), system("s2", 10)]
    # 40 + 40 characters and the blank line between them: 82 / 4, rounded up once.
    assert estimate_of(branch) == ContextEstimate(121, 0, 121)
