"""What holds for every history and whatever Jev answers: pairs, texts, pins, budgets, the way back from a summary."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, strategies as st

from contexthost_jev.core import Answer, DoesNotFit, NothingToPrune, Scored, compact
from contexthost_jev.estimate import estimate_tokens, to_json
from contexthost_jev.messages import JevMessage, ToolResult, ToolUse
from contexthost_jev.options import JevOptions
from contexthost_jev.questions import Questions
from contexthost_jev.summary import decode_summary, encode_summary

TEXT = st.text(max_size=40) | st.builds(lambda part, times: part * times, st.text(max_size=8), st.integers(0, 200))
INPUT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
TOOL = st.sampled_from(["read", "bash", "edit"]) | st.text(max_size=12)


@st.composite
def histories(draw: st.DrawFn) -> list[JevMessage]:
    """Messages as the adapter makes them: calls answered at once, late or never; results cut before; lost results."""
    history: list[JevMessage] = []
    late: list[ToolResult] = []
    number = 0
    for _ in range(draw(st.integers(0, 14))):
        if draw(st.booleans()):
            text = draw(TEXT.filter(bool))
            history.append(JevMessage("user", text, label=draw(st.sampled_from(["", "", "bash", "branch-summary"]))))
        if draw(st.booleans()):
            uses: list[ToolUse] = []
            results: list[ToolResult] = []
            for _ in range(draw(st.integers(0, 3))):
                number += 1
                uses.append(ToolUse(f"id{number}", draw(TOOL), draw(INPUT)))
                result = ToolResult(f"id{number}", draw(TEXT), draw(st.booleans()), draw(st.integers(0, 5)) == 0)
                fate = draw(st.sampled_from(["now", "now", "now", "late", "never"]))
                if fate != "never":
                    (results if fate == "now" else late).append(result)
            message = JevMessage("assistant", draw(TEXT), tuple(uses))
            if not message.empty:
                history.append(message)
            if results:
                history.append(JevMessage("user", tool_results=tuple(results)))
            elif draw(st.booleans()) and late:
                history.append(JevMessage("user", tool_results=(late.pop(0),)))
    return history


OPTIONS = st.builds(
    JevOptions,
    keep_threshold=st.floats(0, 1),
    keep_result_threshold=st.none() | st.floats(0, 1),
    preserve_recent_messages=st.integers(0, 8),
    max_state_tokens=st.integers(100, 3000),
    max_request_tokens=st.integers(200, 3000),
    truncate_head_chars=st.integers(0, 400),
    frozen_messages=st.integers(0, 5),
)


class Random:
    """Answers from a list of probabilities, over and over; checks what it is asked against the budget."""

    def __init__(self, values: list[float], limit: int) -> None:
        self.values = values
        self.limit = limit
        self.names: list[str] = []

    async def ask(self, state: Mapping[str, Any], questions: Questions) -> Answer:
        body = to_json({"state": state, "questions": questions})
        assert json.loads(body) == {"state": state, "questions": questions}
        assert estimate_tokens(body) <= self.limit
        self.names += questions
        count = len(self.names)
        return Answer({name: self.values[(count + at) % len(self.values)] for at, name in enumerate(questions)})


VALUES = st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]) | st.floats(0, 1), min_size=1, max_size=20)


@given(histories(), OPTIONS, VALUES)
def test_whatever_the_answers_pairs_texts_pins_and_budgets_hold(
    history: list[JevMessage], options: JevOptions, values: list[float]
) -> None:
    asker = Random(values, options.max_request_tokens)
    outcome = asyncio.run(compact(history, asker, options))
    if not isinstance(outcome, Scored):
        assert isinstance(outcome, NothingToPrune | DoesNotFit)
        assert asker.names == []
        return
    after = list(outcome.messages)

    calls_before = {use.id for message in history for use in message.tool_uses}
    uses = {use.id for message in after for use in message.tool_uses}
    results = {result.id for message in after for result in message.tool_results}
    answered = {result.id for message in history for result in message.tool_results}
    assert results & calls_before <= uses, "a kept result has its call"
    assert uses & answered <= results, "a kept call keeps its result"

    def texts(messages: list[JevMessage]) -> list[tuple[str, str]]:
        return [(message.role, message.text) for message in messages if message.text]

    assert texts(after) == texts(history), "user and assistant text is untouched and in order"
    pinned = [message for index, message in enumerate(history) if options.is_pinned(index, len(history))]
    identities = {id(message) for message in after}
    assert all(id(message) in identities for message in pinned), "pinned messages are the same objects"
    assert outcome.chars_after <= outcome.chars_before
    assert len(asker.names) == len(set(asker.names)) == 2 * len(outcome.decisions)
    cut_before = {result.id for message in history for result in message.tool_results if result.truncated}
    assert not cut_before & {decision.call.use.id for decision in outcome.decisions}, "cut results are not asked about"


@given(histories(), OPTIONS)
def test_all_ones_are_the_identity(history: list[JevMessage], options: JevOptions) -> None:
    outcome = asyncio.run(compact(history, Random([1.0], options.max_request_tokens), options))
    if isinstance(outcome, Scored):
        assert len(outcome.messages) == len(history)
        assert all(old is new for old, new in zip(history, outcome.messages, strict=True))


@given(histories())
def test_a_second_round_with_the_same_answers_cuts_nothing_again(history: list[JevMessage]) -> None:
    options = JevOptions(preserve_recent_messages=2)

    def cut_all(messages: list[JevMessage]) -> list[JevMessage]:
        class CallsOnly:
            async def ask(self, state: Mapping[str, Any], questions: Questions) -> Answer:
                return Answer({name: 1.0 if name.startswith("call") else 0.0 for name in questions})

        outcome = asyncio.run(compact(messages, CallsOnly(), options))
        return list(outcome.messages) if isinstance(outcome, Scored) else messages

    once = cut_all(history)
    assert cut_all(once) == once


def renumbered(history: list[JevMessage]) -> list[Any]:
    """A history without the ids of its calls, and with each result at its call, as a summary has it."""
    results = {result.id: result for message in history for result in message.tool_results}
    called = {use.id for message in history for use in message.tool_uses}
    plain: list[Any] = []
    for message in history:
        if message.text or message.role == "assistant":
            plain.append((message.role, message.label, message.text))
        for use in message.tool_uses:
            result = results.get(use.id)
            plain.append((use.tool, use.input, None if result is None else replace(result, id="")))
        plain += [replace(result, id="") for result in message.tool_results if result.id not in called]
    return plain


@given(histories())
def test_a_summary_parses_back_to_what_it_holds(history: list[JevMessage]) -> None:
    summary = encode_summary(history)
    decoded = decode_summary(summary)
    assert decoded is not None
    assert renumbered(decoded) == renumbered(history)
    assert encode_summary(decoded) == summary, "and is not wrapped again"
