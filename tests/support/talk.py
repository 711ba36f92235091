"""Healthy conversations as Pi records them, turn by turn, and a judge of calls and results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from support.builder import Json, SessionBuilder, tool_call

__all__ = ["Talk", "healthy_session", "unpaired"]


class Talk:
    """Writes healthy turns, and remembers where things stand: entries by position, lines by number from 1."""

    def __init__(self, seed: str, versions: list[int]) -> None:
        self.random = random.Random(seed)
        self.version = self.random.choice(versions)
        self.build = SessionBuilder(version=self.version)
        self.calls = 0
        self.users: list[str] = []
        self.expected: list[int] = []
        self.lines: list[int] = []

    @property
    def last(self) -> int:
        """The position of the entry written last."""
        return self.build.count - 1

    @property
    def next_line(self) -> int:
        return len(self.build.lines) + 2

    def expect(self) -> None:
        self.expected.append(self.last)

    def call(self) -> Json:
        self.calls += 1
        tool = self.random.choice(["read", "bash", "grep"])
        return tool_call(f"call-{self.calls}", tool, {"path": f"src/{self.calls}.py"})

    def ask(self) -> None:
        self.noise()
        self.users.append(self.build.user(f"question {self.build.count} " + "why " * self.random.randrange(40)))

    def say(self, calls: list[Json], **fields: Any) -> str:
        rng = self.random
        text = fields.pop("text", rng.choice([None, "Let me look. " * rng.randint(1, 9)]) if calls else "Done. " * 5)
        thinking = fields.pop("thinking", rng.choice([None, None, "I think. " * 5]))
        return self.build.assistant(text, calls=calls, thinking=thinking, **fields)

    def answer(self, call: Json) -> str:
        return self.build.tool_result(call["id"], "found " * self.random.randrange(200), tool=call["name"])

    def batch(self, size: int | None = None) -> list[Json]:
        """An answer with calls and the results of all of them."""
        calls = [self.call() for _ in range(size or self.random.choice([1, 1, 2, 3]))]
        self.say(calls)
        for call in calls:
            if self.random.random() < 0.1:
                self.build.system("A section.") if self.random.random() < 0.5 else self.build.custom("note", 1)
            self.answer(call)
        return calls

    def turn(self) -> None:
        self.ask()
        for _ in range(self.random.choice([0, 1, 2])):
            self.batch()
        if self.random.random() < 0.1:
            self.say([], stop_reason="aborted")
            self.ask()
        self.say([])

    def turns(self, least: int = 0, most: int = 5) -> None:
        for _ in range(self.random.randint(least, most)):
            self.turn()

    def noise(self) -> None:
        """Metadata, and a side branch that was left again."""
        rng, build = self.random, self.build
        if rng.random() < 0.3:
            kinds: list[Callable[[], str]] = [
                lambda: build.model_change("openai", "gpt-5"), lambda: build.thinking("high"), build.usage,
                lambda: build.session_info("a name"), lambda: build.custom("state", {"a": 1}),
            ]  # fmt: skip
            rng.choice(kinds)()
        if rng.random() < 0.15 and self.version != 1 and self.users:
            back = build.leaf
            build.user("something else")
            self.say([])
            build.branch_from(back)

    def start(self, least: int = 1) -> None:
        if self.random.random() < 0.5:
            self.build.system("Be brief.", tools_added=[{"name": "read"}])
        self.turns(least, 4)
        if self.version != 1 and self.random.random() < 0.3 and self.users:
            self.build.compaction("What was before. " * 5, self.random.choice([self.users[-1], None]))
            self.turns(1, 2)


def healthy_session(seed: int) -> bytes:
    """A session of the same making without any damage."""
    talk = Talk(f"healthy {seed}", [1, 2, 3, 3])
    talk.start()
    talk.turns(1, 6)
    return talk.build.bytes()


def unpaired(messages: list[Json], *, failed_too: bool = False) -> list[str]:
    """What is wrong with the calls and results of messages in the roles of a request; empty when all is whole.

    Written without a look at the product: behind a message with calls stand its results, each once, before anything
    else but system messages; no other result exists. Failed attempts are not sent; `failed_too` judges them as well.
    """
    found: list[str] = []
    waiting: list[Any] = []
    answered: list[Any] = []
    for message in messages:
        role = message["role"]
        if role == "assistant" and message.get("stopReason") in ("aborted", "error") and not failed_too:
            # Pi's own builder closes the results before it passes over the attempt.
            found += [f"{call} is not answered" for call in waiting]
            waiting, answered = [], []
        elif role in ("assistant", "user"):
            found += [f"{call} is not answered" for call in waiting]
            waiting = [block.get("id") for block in _calls(message)]
            answered = []
            found += [f"{call} is called twice" for call in {*waiting} if waiting.count(call) > 1]
        elif role == "toolResult":
            call = message.get("toolCallId")
            if call in waiting:
                waiting.remove(call)
                answered.append(call)
            else:
                found.append(f"{call} is answered twice" if call in answered else f"{call} is nobody's result")
    return found + [f"{call} is not answered" for call in waiting]


def _calls(message: Json) -> list[Json]:
    content = message["content"] if message["role"] == "assistant" and isinstance(message["content"], list) else []
    return [block for block in content if isinstance(block, dict) and block.get("type") == "toolCall"]
