"""`provider_messages` can be sent: whatever the projection holds, every call is answered once, right behind it.

Random message lists hold calls with repeated, missing and reused ids, results anywhere, failed attempts and system
messages in between; the rules are checked on what comes out by a reader that knows nothing of how it was made. Lists
written by hand show each kind of mend.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

from contexthost.messages import convert_to_llm
from contexthost.projection.provider import Mend, mend

Message = dict[str, Any]


def user(text: str = "u") -> Message:
    return {"role": "user", "content": text}


def system(text: str = "s") -> Message:
    return {"role": "system", "content": text}


def call(*ids: Any, stop: str = "toolUse", time: int = 1) -> Message:
    blocks = [{"type": "toolCall", "id": one, "name": f"tool-{one}", "arguments": {}} for one in ids]
    return {"role": "assistant", "content": blocks, "stopReason": stop, "timestamp": time}


def result(call_id: Any, text: str = "r") -> Message:
    return {"role": "toolResult", "toolCallId": call_id, "content": [{"type": "text", "text": text}]}


def no_result(call_id: str, time: int = 1) -> Message:
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": f"tool-{call_id}",
        "content": [{"type": "text", "text": "No result provided"}],
        "isError": True,
        "timestamp": time,
    }


def mended(*messages: Message) -> tuple[list[Message], set[Mend]]:
    out, mends = mend(messages)
    assert len(set(mends)) == len(mends)
    return out, set(mends)


# -- by hand --------------------------------------------------------------------------------------------------------


def test_a_healthy_conversation_is_passed_on_as_it_is() -> None:
    messages = [
        system(), user(), call("a", "b"), result("a"), result("b"), call("c"), result("c"),
        {"role": "assistant", "content": [{"type": "text", "text": "done"}], "stopReason": "stop"}, user(),
    ]  # fmt: skip
    out, mends = mend(messages)
    assert [id(one) for one in out] == [id(one) for one in messages]
    assert mends == []


def test_an_orphaned_result_is_left_out() -> None:
    u = user()
    assert mended(result("x"), u, result(None)) == (
        [u],
        {Mend("orphan-result", "x", 0), Mend("orphan-result", None, 2)},
    )


def test_a_second_result_is_left_out() -> None:
    c, first = call("a"), result("a", "first")
    out, mends = mended(c, first, result("a", "second"))
    assert out == [c, first]
    assert mends == {Mend("duplicate-result", "a", 2)}


def test_an_unanswered_call_gets_a_result_that_says_so() -> None:
    c, r, u = call("a", "b", time=7), result("a"), user()
    out, mends = mended(c, r, u)
    assert out == [c, r, no_result("b", 7), u]
    assert mends == {Mend("unanswered-call", "b", 0)}


def test_a_late_result_moves_up_to_its_call() -> None:
    c, u, r = call("a"), user(), result("a")
    assert mended(c, u, r) == ([c, r, u], {Mend("late-result", "a", 2)})


def test_a_result_before_its_call_answers_nothing() -> None:
    c = call("a")
    out, mends = mended(result("a"), c)
    assert out == [c, no_result("a")]
    assert mends == {Mend("orphan-result", "a", 0), Mend("unanswered-call", "a", 1)}


def test_a_failed_attempt_is_left_out_with_its_results() -> None:
    u, again, r = user(), call("a"), result("a", "good")
    out, mends = mended(u, call("x", stop="error"), result("x"), call("y", stop="aborted"), again, r)
    assert out == [u, again, r]
    assert mends == {Mend("failed-attempt", None, 1), Mend("orphan-result", "x", 2), Mend("failed-attempt", None, 3)}


def test_an_id_used_again_belongs_to_the_newest_call() -> None:
    first, second, r1, r2 = call("a"), call("a"), result("a", "1"), result("a", "2")
    assert mended(first, r1, second, r2) == ([first, r1, second, r2], set())
    out, mends = mended(first, second, r2)
    assert out == [first, no_result("a"), second, r2]
    assert mends == {Mend("unanswered-call", "a", 0)}


def test_a_call_without_an_id_or_with_one_twice_is_left_out_of_its_message() -> None:
    c, r = call("a", "a", None), result("a")
    out, mends = mend([c, r])
    assert out == [{**c, "content": c["content"][:1]}, r]
    assert sorted(mends, key=str) == [Mend("repeated-call", "a", 0), Mend("repeated-call", None, 0)]
    assert len(c["content"]) == 3  # the original is as it was


def test_a_system_message_among_results_moves_behind_them() -> None:
    c, s1, r1, s2, r2 = call("a", "b"), system("1"), result("a"), system("2"), result("b")
    out, mends = mended(c, s1, r1, s2, r2)
    assert out == [c, r1, r2, s1, s2]
    assert mends == {Mend("late-system", None, 1), Mend("late-system", None, 3)}


def test_indices_count_the_converted_messages() -> None:
    hidden = {"role": "bashExecution", "command": "c", "output": "o", "excludeFromContext": True}
    out, mends = mended(hidden, {"role": "unknown"}, user(), result("x"))
    assert [one["role"] for one in out] == ["user"]
    assert mends == {Mend("orphan-result", "x", 1)}


# -- at random ------------------------------------------------------------------------------------------------------

call_ids = st.sampled_from(["a", "b", "c", "d", None, 5])
junk_block = st.sampled_from([{"type": "text", "text": "t"}, {"type": "toolCall"}, "junk", None, {}])


@st.composite
def assistants(draw: st.DrawFn) -> Message:
    message = call(
        *draw(st.lists(call_ids, max_size=4)), stop=draw(st.sampled_from(["toolUse", "stop", "error", "aborted"]))
    )
    content: list[Any] = message["content"] + draw(st.lists(junk_block, max_size=2))
    return {**message, "content": draw(st.sampled_from([content, content, content, "text", None]))}


others = st.sampled_from([
    user(), system(), {"role": "bashExecution", "command": "c", "output": ""}, {"role": "unknown"}, {},
    {"role": "custom", "content": "x"}, {"role": "compactionSummary", "summary": "s"},
])  # fmt: skip
lists = st.lists(st.one_of(assistants(), st.builds(result, call_ids), st.builds(result, call_ids), others), max_size=25)


def calls_of(message: Message) -> list[Any]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block.get("id") for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall"]


@settings(max_examples=400)
@given(lists)
def test_every_call_is_answered_once_right_behind_it_and_no_other_result_exists(messages: list[Message]) -> None:
    out, mends = mend(messages)
    expected: list[Any] = []
    for message in out:
        if message["role"] == "toolResult":
            assert expected, "a result that answers nothing"
            assert message["toolCallId"] == expected.pop(0)
            continue
        assert expected == [], "a call without a result"
        if message["role"] == "assistant":
            expected = calls_of(message)
            assert len(set(expected)) == len(expected)
            assert all(isinstance(one, str) for one in expected)
            assert message["stopReason"] not in ("error", "aborted")
    assert expected == []

    # Nothing else is lost, made up or copied.
    source = convert_to_llm(messages)
    known = {id(one) for one in source}
    changed = {mend.index for mend in mends if mend.kind == "repeated-call"}
    left_out = {mend.index for mend in mends if mend.kind in ("orphan-result", "duplicate-result", "failed-attempt")}
    plain = [one for at, one in enumerate(source) if one["role"] != "toolResult" and at not in left_out | changed]
    converted = {"bashExecution", "custom", "compactionSummary"}  # made anew by every conversion
    if not any(one.get("role") in converted for one in messages):
        assert [one for one in out if id(one) in known and one["role"] != "toolResult"] == plain
        made_up = [one for one in out if id(one) not in known]
        unanswered = [mend for mend in mends if mend.kind == "unanswered-call"]
        assert len([one for one in made_up if one["role"] == "toolResult"]) == len(unanswered)
        assert len([one for one in made_up if one["role"] != "toolResult"]) == len(changed)
    results_in = [one for at, one in enumerate(source) if one["role"] == "toolResult" and at not in left_out]
    results_out = [one for one in out if one["role"] == "toolResult" and not one.get("isError")]
    assert sorted(map(id, results_in)) == sorted(map(id, results_out))


@settings(max_examples=200)
@given(lists)
def test_what_was_mended_needs_no_more_mending(messages: list[Message]) -> None:
    out, _ = mend(messages)
    again, mends = mend(out)
    assert [id(one) for one in again] == [id(one) for one in out]
    assert mends == []
