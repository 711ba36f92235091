"""Small histories and a scripted asker for the tests of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contexthost_jev.core import Answer
from contexthost_jev.messages import JevMessage, ToolResult, ToolUse
from contexthost_jev.questions import Questions
from jev.jev_server import Probability


def user(text: str) -> JevMessage:
    return JevMessage("user", text)


def says(text: str) -> JevMessage:
    return JevMessage("assistant", text)


def calls(*ids: str, text: str = "", tool: str = "read", given: Any = None) -> JevMessage:
    """An assistant message with calls; each reads the file of its own name unless an input is given."""
    uses = tuple(ToolUse(id_, tool, {"path": f"{id_}.py"} if given is None else given) for id_ in ids)
    return JevMessage("assistant", text, uses)


def results(**texts: str) -> JevMessage:
    return JevMessage("user", tool_results=tuple(ToolResult(id_, text) for id_, text in texts.items()))


def turns(count: int, *, size: int = 1000) -> list[JevMessage]:
    """A prompt, `count` calls with a result of `size` characters each, and six messages that will be pinned."""
    history = [user("Mend the parser.")]
    for number in range(1, count + 1):
        history += [calls(f"c{number}", text=f"Step {number}."), results(**{f"c{number}": "x" * size})]
    return [*history, *(says(f"Note {number}.") for number in range(1, 7))]


class Scripted:
    """Answers every question by its name; remembers what it was asked."""

    def __init__(self, probability: Probability) -> None:
        self.probability = probability
        self.states: list[Mapping[str, Any]] = []
        self.asked: list[Questions] = []

    async def ask(self, state: Mapping[str, Any], questions: Questions) -> Answer:
        self.states.append(state)
        self.asked.append(questions)
        answers = {name: self.probability(name) for name in questions}
        return Answer(answers, model="jev-scripted", input_tokens=100, output_tokens=len(questions))
