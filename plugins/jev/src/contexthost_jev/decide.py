"""From probabilities to a shorter history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from contexthost_jev.collect import ToolCall
from contexthost_jev.messages import JevMessage, ToolResult
from contexthost_jev.options import JevOptions

__all__ = [
    "NOTE_CHARS",
    "Action",
    "Decision",
    "apply_decisions",
    "decide_call",
    "reduction_ratio",
    "truncate_result",
]

Action = Literal["keep", "truncate", "drop"]

NOTE_CHARS: Final = 120
"""A result that is no longer than the head and this stays whole: the note would take up what was saved."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one call, and why: the probabilities that Jev gave."""

    call: ToolCall
    keep_call: float
    keep_result: float
    action: Action


def decide_call(call: ToolCall, keep_call: float, keep_result: float, options: JevOptions) -> Decision:
    """Keep the whole call, truncate its result, or drop both.

    A result of at most ``truncate_head_chars`` + `NOTE_CHARS` characters is kept where it would be truncated.
    """
    action: Action
    if keep_result >= options.result_threshold:
        action = "keep"
    elif keep_call < options.keep_threshold:
        action = "drop"
    else:
        whole = len(call.result.text) <= options.truncate_head_chars + NOTE_CHARS
        action = "keep" if whole else "truncate"
    return Decision(call, keep_call, keep_result, action)


def truncate_result(result: ToolResult, head_chars: int) -> ToolResult:
    """The first ``head_chars`` characters and one line that says how much went; always shorter than before when the
    result is longer than ``head_chars`` + `NOTE_CHARS`."""
    gone = len(result.text) - head_chars
    failed = " of an error" if result.is_error else ""
    note = f"[… {gone:,} more characters{failed} were cut here; run the tool again to have them]"
    head = result.text[:head_chars]
    return replace(result, text=f"{head}\n{note}" if head else note, truncated=True)


def apply_decisions(
    messages: Sequence[JevMessage], decisions: Iterable[Decision], options: JevOptions
) -> list[JevMessage]:
    """The history after the decisions: a message that loses everything goes, untouched ones stay the same objects."""
    actions: dict[str, Action] = {}
    touched: set[int] = set()
    for decision in decisions:
        if decision.action != "keep":
            call = decision.call
            actions[call.use.id] = decision.action
            touched.add(call.result_index)
            if decision.action == "drop":
                touched.add(call.use_index)
    after: list[JevMessage] = []
    for index, message in enumerate(messages):
        if index in touched:
            message = _changed(message, actions, options.truncate_head_chars)
            if message.empty:
                continue
        after.append(message)
    return after


def _changed(message: JevMessage, actions: Mapping[str, Action], head_chars: int) -> JevMessage:
    uses = tuple(use for use in message.tool_uses if actions.get(use.id) != "drop")
    results = tuple(
        truncate_result(result, head_chars) if actions.get(result.id) == "truncate" else result
        for result in message.tool_results
        if actions.get(result.id) != "drop"
    )
    return replace(message, tool_uses=uses, tool_results=results)


def reduction_ratio(chars_before: int, chars_after: int) -> float:
    """The share of characters that went, 0 for an empty history."""
    return (chars_before - chars_after) / chars_before if chars_before else 0.0
