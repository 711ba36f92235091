"""`compact`: its three outcomes, the requests it makes, and how it ends when one fails or the user aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from contexthost.context import AbortSignal
from contexthost_jev.core import Answer, DoesNotFit, NothingToPrune, Plan, Scored, compact, plan
from contexthost_jev.errors import JevAborted, JevFailure
from contexthost_jev.messages import JevMessage, ToolResult
from contexthost_jev.options import JevOptions
from contexthost_jev.questions import Questions
from jev.histories import Scripted, turns, user
from jev.jev_server import by_number

# Thirty calls: a state of 849 tokens at its smallest, and room for three pairs of 112 in each request.
SMALL = JevOptions(max_state_tokens=5000, max_request_tokens=1300)


def run(history: list[JevMessage], asker: Any, options: JevOptions | None = None) -> Any:
    return asyncio.run(compact(history, asker, options))


def test_each_call_gets_its_own_decision() -> None:
    # t1: kept; t2: its result is cut; t3: gone.
    asker = Scripted(by_number(call=lambda n: [0.9, 0.9, 0.1][n - 1], result=lambda n: [0.9, 0.1, 0.1][n - 1]))
    outcome = run(turns(3), asker)
    assert isinstance(outcome, Scored)
    assert [(one.call.id, one.keep_call, one.keep_result, one.action) for one in outcome.decisions] == [
        ("t1", 0.9, 0.9, "keep"),
        ("t2", 0.9, 0.1, "truncate"),
        ("t3", 0.1, 0.1, "drop"),
    ]
    note = "\n[… 700 more characters were cut here; run the tool again to have them]"
    before = 16 + 3 * (7 + 16 + 1000) + 6 * 7
    assert outcome.chars_before == before
    assert outcome.chars_after == before - (700 - len(note)) - (16 + 1000)
    assert outcome.reduction_ratio == (before - outcome.chars_after) / before
    assert outcome.model == "jev-scripted"
    assert (outcome.input_tokens, outcome.output_tokens) == (100, 6)


def test_all_ones_change_nothing() -> None:
    history = turns(4)
    outcome = run(history, Scripted(lambda name: 1.0))
    assert all(old is new for old, new in zip(history, outcome.messages, strict=True))
    assert outcome.reduction_ratio == 0.0


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_history_of_pinned_messages_is_too_short(count: int) -> None:
    asker = Scripted(lambda name: 0.0)
    assert run([user("Go.")] * count, asker) == NothingToPrune("too-short")
    assert asker.asked == []


def test_a_history_without_calls_to_ask_about_has_nothing_to_prune() -> None:
    asker = Scripted(lambda name: 0.0)
    assert run([user("Go.")] * 8, asker) == NothingToPrune("no-candidates")
    cut = turns(1)
    cut[2] = JevMessage("user", tool_results=(ToolResult("c1", "head", truncated=True),))
    assert run(cut, asker) == NothingToPrune("no-candidates")
    assert asker.asked == []


def test_a_history_that_cannot_be_shrunk_enough_does_not_fit() -> None:
    outcome = run(turns(3), Scripted(lambda name: 0.0), JevOptions(max_state_tokens=50))
    assert isinstance(outcome, DoesNotFit)
    assert outcome.tokens > outcome.budget == 50


def test_the_plan_is_what_is_asked() -> None:
    history = turns(30)
    planned = plan(history, SMALL)
    assert isinstance(planned, Plan)
    asker = Scripted(lambda name: 1.0)
    run(history, asker, SMALL)
    assert len(asker.asked) == len(planned.batches) > 4
    assert asker.asked == [batch.questions for batch in planned.batches]
    assert all(state == planned.fitted.state for state in asker.states)


class Slow:
    """Counts requests; each takes a moment. `fails` says which one (from 1) fails, and how."""

    def __init__(self, fails: Mapping[int, Exception] | None = None, *, seconds: float = 0.01) -> None:
        self.fails = fails or {}
        self.seconds = seconds
        self.started = self.finished = self.cancelled = self.at_once = self.most_at_once = 0

    async def ask(self, state: Mapping[str, Any], questions: Questions) -> Answer:
        self.started += 1
        number = self.started
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
            if number in self.fails:
                raise self.fails[number]
            if self.fails:
                await asyncio.sleep(self.seconds)
            self.finished += 1
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.at_once -= 1
        return Answer(dict.fromkeys(questions, 1.0))


def test_at_most_four_requests_are_under_way() -> None:
    asker = Slow()
    run(turns(30), asker, SMALL)
    assert asker.most_at_once == 4
    assert asker.started == asker.finished > 4


def test_after_a_failure_no_queued_request_starts_and_running_ones_are_cancelled() -> None:
    asker = Slow({2: JevFailure("busy", "no")})
    with pytest.raises(JevFailure, match="no"):
        run(turns(30), asker, SMALL)
    assert (asker.started, asker.finished, asker.cancelled, asker.at_once) == (4, 0, 3, 0)


def test_a_failure_at_the_same_moment_as_an_answer_starts_nothing_either() -> None:
    class Together(Slow):
        async def ask(self, state: Mapping[str, Any], questions: Questions) -> Answer:
            self.started += 1
            number = self.started
            await asyncio.sleep(0)
            if number == 1:
                raise JevFailure("busy", "no")
            return Answer(dict.fromkeys(questions, 1.0))

    asker = Together()
    with pytest.raises(JevFailure):
        run(turns(30), asker, SMALL)
    assert asker.started == 4


@pytest.mark.parametrize("value", [None, "0.5", True, -0.01, 1.01, float("nan"), float("inf"), [0.5], {"noul": 0.5}])
def test_an_answer_that_is_no_probability_fails_the_whole_compaction(value: Any) -> None:
    with pytest.raises(JevFailure) as caught:
        run(turns(3), Scripted(lambda name: value if name == "result_t2" else 0.1))
    assert caught.value.kind == "malformed-answer"


def test_a_missing_answer_fails_the_whole_compaction() -> None:
    class Forgetful:
        async def ask(self, state: Mapping[str, Any], questions: Questions) -> Answer:
            return Answer({name: 0.1 for name in questions if name != "call_t3"})

    with pytest.raises(JevFailure) as caught:
        run(turns(3), Forgetful())
    assert caught.value.kind == "malformed-answer"


def test_an_abort_ends_the_requests_at_once() -> None:
    asker, signal = Slow(seconds=30), AbortSignal()

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.3, signal.abort)
        await compact(turns(30), asker, SMALL, signal=signal)

    with pytest.raises(JevAborted):
        asyncio.run(main())
    assert (asker.started, asker.finished, asker.cancelled) == (4, 0, 4)


def test_nothing_is_asked_when_it_was_aborted_before() -> None:
    asker, signal = Slow(), AbortSignal()
    signal.abort()
    with pytest.raises(JevAborted):
        asyncio.run(compact(turns(3), asker, signal=signal))
    assert asker.started == 0


def test_a_cancelled_caller_takes_the_requests_with_it() -> None:
    asker = Slow(seconds=30)

    async def main() -> None:
        async with asyncio.timeout(0.3):
            await compact(turns(30), asker, SMALL, signal=AbortSignal())

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert (asker.started, asker.cancelled) == (4, 4)
