"""The core: a history in, a shorter history out, whatever agent it came from. No files, no network, no settings."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from contexthost.context import AbortSignal
from contexthost_jev.batch import Batch, batch_calls
from contexthost_jev.collect import ToolCall, ToolCalls, collect_tool_calls
from contexthost_jev.decide import Decision, apply_decisions, decide_call, reduction_ratio
from contexthost_jev.errors import JevAborted, JevFailure
from contexthost_jev.messages import JevMessage, history_chars
from contexthost_jev.options import JevOptions
from contexthost_jev.questions import Questions, call_name, question_pair, result_name
from contexthost_jev.state import FittedState, StateDoesNotFit, fit_state, state_budget

__all__ = [
    "PARALLEL_REQUESTS",
    "Answer",
    "DoesNotFit",
    "JevAsker",
    "NothingToPrune",
    "Plan",
    "Scored",
    "compact",
    "plan",
]

PARALLEL_REQUESTS: Final = 4
"""Requests under way at once."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answers to one request: question name → probability, which model gave them, what it counted."""

    probabilities: Mapping[str, Any]
    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class JevAsker(Protocol):
    """Whoever answers questions: `contexthost_jev.client.JevClient`, or a fake in tests."""

    async def ask(self, state: Mapping[str, Any], questions: Questions) -> Answer:
        """Answer one request. Raises JevFailure; may be cancelled at any moment."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be asked: the calls, the fitted state, the requests."""

    calls: ToolCalls
    fitted: FittedState
    batches: Sequence[Batch]

    @property
    def candidates(self) -> tuple[ToolCall, ...]:
        """The calls that are asked about."""
        return self.calls.candidates


@dataclass(frozen=True, slots=True)
class NothingToPrune:
    """There is nothing to ask. ``too-short``: every message is pinned. ``no-candidates``: no call may be asked about,
    because there is none, or its messages are pinned, or an earlier compaction has cut its result."""

    reason: Literal["too-short", "no-candidates"]


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """Even fully shrunk the state takes more than the budget; both in estimated tokens."""

    tokens: int
    budget: int


@dataclass(frozen=True, slots=True)
class Scored:
    """Every call was decided on. ``milliseconds`` is the time that the requests took together."""

    messages: Sequence[JevMessage]
    decisions: Sequence[Decision]
    plan: Plan
    chars_before: int
    chars_after: int
    model: str | None
    input_tokens: int
    output_tokens: int
    milliseconds: int

    @property
    def reduction_ratio(self) -> float:
        """The share of the history's characters that went."""
        return reduction_ratio(self.chars_before, self.chars_after)


def plan(messages: Sequence[JevMessage], options: JevOptions) -> Plan | NothingToPrune | DoesNotFit:
    """What `compact` would ask, without asking it. Raises JevFailure (``malformed-history``)."""
    calls = collect_tool_calls(messages, options)
    if all(options.is_pinned(index, len(messages)) for index in range(len(messages))):
        return NothingToPrune("too-short")
    pairs = [question_pair(call) for call in calls.candidates]
    if not pairs:
        return NothingToPrune("no-candidates")
    budget = state_budget(options, max(pair.tokens for pair in pairs))
    try:
        fitted = fit_state(messages, calls, options, budget)
    except StateDoesNotFit as error:
        return DoesNotFit(error.tokens, error.budget)
    return Plan(calls, fitted, batch_calls(pairs, fitted.tokens, options.max_request_tokens))


async def compact(
    messages: Sequence[JevMessage],
    asker: JevAsker,
    options: JevOptions | None = None,
    *,
    signal: AbortSignal | None = None,
) -> Scored | NothingToPrune | DoesNotFit:
    """Ask about every call that may go, and apply the answers.

    User and assistant text stays word for word and in order; the first message and the newest ones stay the same
    objects; a call and its result stay or go together. Raises JevFailure when anything is wrong with an answer (none
    of them counts then) or with the history, JevAborted at the signal.
    """
    options = options or JevOptions()
    planned = plan(messages, options)
    if not isinstance(planned, Plan):
        return planned
    started = time.perf_counter()
    answers = await _ask_all(asker, planned, signal)
    milliseconds = round((time.perf_counter() - started) * 1000)
    decisions = [
        decide_call(pair.call, *_probabilities(answer, pair.call), options)
        for batch, answer in zip(planned.batches, answers, strict=True)
        for pair in batch.pairs
    ]
    after = apply_decisions(messages, decisions, options)
    return Scored(
        messages=after,
        decisions=decisions,
        plan=planned,
        chars_before=history_chars(messages),
        chars_after=history_chars(after),
        model=answers[0].model,
        input_tokens=sum(answer.input_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        milliseconds=milliseconds,
    )


def _probabilities(answer: Answer, call: ToolCall) -> tuple[float, float]:
    keep_call, keep_result = (
        _probability(answer.probabilities.get(name)) for name in (call_name(call), result_name(call))
    )
    return keep_call, keep_result


def _probability(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= 1:
        raise JevFailure("malformed-answer", "an answer is missing or is no probability from 0 to 1")
    return float(value)


async def _ask_all(asker: JevAsker, planned: Plan, signal: AbortSignal | None) -> list[Answer]:
    """The answers to all requests, in order; a few at once. The first failure ends all of them."""
    if signal is not None and signal.aborted:
        raise JevAborted("aborted")
    work = asyncio.create_task(_Queue(asker, planned).run())
    remove = None if signal is None else signal.on_abort(lambda: _cancel(work))
    try:
        return await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if signal is None or not signal.aborted or (task is not None and task.cancelling()):
            raise
    finally:
        if remove is not None:
            remove()
    raise JevAborted("aborted")


def _cancel(work: asyncio.Task[list[Answer]]) -> None:
    work.cancel()


class _Queue:
    """Requests taken by a few workers, one after the other; none is taken after one has failed."""

    def __init__(self, asker: JevAsker, planned: Plan) -> None:
        self._asker = asker
        self._state = planned.fitted.state
        self._batches = planned.batches
        self._waiting: Iterator[tuple[int, Batch]] = iter(list(enumerate(planned.batches)))
        self._answers: dict[int, Answer] = {}
        self._failure: Exception | None = None

    async def run(self) -> list[Answer]:
        workers = [asyncio.create_task(self._work()) for _ in range(min(PARALLEL_REQUESTS, len(self._batches)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return [self._answers[index] for index in range(len(self._batches))]

    async def _work(self) -> None:
        for index, batch in self._waiting:
            try:
                answer = await self._asker.ask(self._state, batch.questions)
                for pair in batch.pairs:
                    _probabilities(answer, pair.call)
            except Exception as error:
                self._failure = error
                raise
            self._answers[index] = answer
            # Another worker's failure cancels this one only at its next wait, which would be the next request.
            if self._failure is not None:
                return
