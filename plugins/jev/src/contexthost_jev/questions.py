"""What Jev is asked: two questions per call, and the few sentences that explain the task to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from contexthost.text import one_line, shorten
from contexthost_jev.collect import ToolCall
from contexthost_jev.estimate import estimate_tenths, to_json, tokens_of_tenths

__all__ = ["CONTEXT", "QuestionPair", "Questions", "call_name", "question_pair", "result_name"]

Questions = dict[str, dict[str, Any]]
"""Name → ``{"type": "noul", "instructions": …}``, as the protocol has it."""

CONTEXT: Final = (
    "This is the history of a coding agent's session, oldest first, shortened. The output of its tools is not shown, "
    "only its size and whether the tool failed. The history is about to be cut down to what the agent still needs to "
    "reach its goal; what users and the agent wrote stays in any case. For some tool calls you are asked whether the "
    "call stays and whether its whole output stays. A call that does not stay goes together with its output. Output "
    "that later calls made out of date, that later messages already sum up, or that can be had again by running a "
    "harmless tool once more is not needed word for word."
)

_TOOL_CHARS: Final = 64
"""Of a tool's name in a question: names come from models and may be anything."""


@dataclass(frozen=True, slots=True)
class QuestionPair:
    """The two questions about one call; ``tokens`` is their estimate, with the commas around them."""

    call: ToolCall
    questions: Questions
    tokens: int


def call_name(call: ToolCall) -> str:
    """The name of the question whether the call stays."""
    return f"call_{call.id}"


def result_name(call: ToolCall) -> str:
    """The name of the question whether the whole result stays."""
    return f"result_{call.id}"


def question_pair(call: ToolCall) -> QuestionPair:
    """The questions about one call."""
    tool = shorten(one_line(call.use.tool), _TOOL_CHARS)
    questions = {
        call_name(call): _noul(
            f"Should call {call.id} ({tool}) stay? Yes if knowing that it was made, and with which input, still "
            "matters for what comes next."
        ),
        result_name(call): _noul(
            f"Should the whole output of {call.id} ({len(call.result.text)} characters) stay word for word? Yes if it "
            "is still needed as it is and running the tool again would not do."
        ),
    }
    # Without the braces around the two, with one comma to the next pair.
    return QuestionPair(call, questions, tokens_of_tenths(estimate_tenths(to_json(questions)[1:-1] + ",")))


def _noul(instructions: str) -> dict[str, Any]:
    return {"type": "noul", "instructions": instructions}
