"""Values that are hard to read, count and print alike in JavaScript and Python: strings, numbers, objects, content."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from support.builder import USAGE_ZERO, Json, Literal, image_block, text_block, tool_call, usage_of

WORDS = "the file says that a test fails because of nothing we changed, so read it again and fix the cause".split()  # noqa: SIM905
STRANGE = [
    "😀", "𝕏𝕐", "é", "ﬀ", "\u2028", "\u2029", "\x85", "\x1c", "\u00a0", "\ufeff", "\uffff", "\0", "\t", "\n", "\r\n",
    "\\", '"', "</summary>", "\ud83d", "\ude00", "\ud800", "\x7f", "\u202e", "e\u0301",
]  # fmt: skip
NUMBERS = [
    b"1.0", b"-0", b"0.0", b"1e21", b"1E5", b"1e-7", b"0.000001", b"123456789.125", b"1e400", b"5e-324", b"-1.5e300",
    b"1152921504606846976", b"9007199254740993", b"12345678901234567890", b"100000000000000000000", b"0.1", b"1e2",
    b'{"a":1,"b":2,"a":3}',
]  # fmt: skip
KEYS = ["path", "10", "2", "007", "-1", "4294967294", "4294967295", "b", "a", "ﬀ", "😀", "é", "__proto__", "", "text"]
PATHS = ["src/a.py", "src/b.py", "README.md", "ﬀ.txt", "😀.txt", "a b.txt", "zé.md", ""]
TOOLS = ["read", "write", "edit", "bash", "Read", "grep"]
BAD_UTF8 = [b'"\xff"', b'"a\xf0\x9f\x98"', b'"\xed\xa0\x80b"', b'"\xc0\xaf"', b'"\xe2\x80 \xe2"']


class StrangeValues:
    """Draws values from `random`; `strangeness` is the share of words that are not plain ASCII."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.strangeness = self.random.choice([0.0, 0.05, 0.2])
        self.calls = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def text(self, longest: int | None = None) -> str:
        rng = self.random
        length = rng.choices([0, 12, 80, 400, 1300, 3000], [6, 25, 30, 25, 10, 4])[0]
        length = length if longest is None else min(length, longest)
        if length == 3000:  # about where a serialised result is cut, inside and beside a pair of surrogates
            filler = "a" * rng.choice([1997, 1998, 1999, 2000])
            return filler + rng.choice(["😀", "é", "\ud83d", "\ude00\ud83d", "\ud83d\ud83d"]) + "b" * rng.randrange(900)
        words: list[str] = []
        left = rng.randint(length // 2, length)
        while left > 0:
            word = rng.choice(STRANGE if self.chance(self.strangeness) else WORDS)
            words.append(word)
            left -= len(word) + 1
        return rng.choice([" ", ""]).join(words)

    def value(self, depth: int = 0) -> Any:
        rng = self.random
        kind = rng.randrange(8 if depth < 3 else 6)
        if kind == 6:
            return [self.value(depth + 1) for _ in range(rng.randrange(4))]
        if kind == 7:
            return self.object(depth + 1)
        plain = [None, rng.random() < 0.5, rng.randrange(-5, 1000), self.text(40), rng.uniform(-1, 1e6)]
        return plain[kind] if kind < len(plain) else Literal(rng.choice(NUMBERS))

    def object(self, depth: int = 0) -> Json:
        return {key: self.value(depth) for key in self.random.sample(KEYS, self.random.randrange(5))}

    def call(self) -> Json:
        self.calls += 1
        arguments = self.object()
        if self.chance(0.7):
            arguments = {"path": self.random.choice([*PATHS, None, 7]), **arguments}
        return tool_call(f"call-{self.calls}", self.random.choice(TOOLS), arguments)

    def blocks(self) -> list[Any]:
        """Content blocks that may stand in a message of any role."""
        rng = self.random
        kinds: list[Callable[[], Json]] = [
            lambda: text_block(self.text()),
            lambda: text_block(self.text(80)),
            lambda: image_block(),
            lambda: {"type": rng.choice(["video", "thought", "Text", ""]), "text": self.text(80)},
            lambda: {"text": "no type"},
        ]
        return [rng.choices(kinds, [50, 20, 8, 4, 1])[0]() for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]

    def content(self) -> Any:
        if self.chance(0.01):
            return Literal(self.random.choice(BAD_UTF8))
        return self.text() if self.chance(0.4) else self.blocks()

    def usage_value(self) -> Any:
        total = self.random.randrange(1, 200_000)
        parts = {"input": total, "output": 7, "cacheRead": 30, "cacheWrite": 0}
        return self.random.choice([
            usage_of(total + 10), usage_of(total + 10), usage_of(total + 10), parts, {**parts, "totalTokens": 0},
            USAGE_ZERO, None, {}, {"input": total}, {**parts, "totalTokens": Literal(b"1500.0")},
        ])  # fmt: skip

    def details(self) -> Json:
        rng = self.random

        def files() -> list[str]:
            return rng.sample(PATHS[:-1], rng.randrange(4))

        return rng.choice([
            {"readFiles": files(), "modifiedFiles": files()}, {"readFiles": files()}, {"modifiedFiles": files()},
            {"readFiles": "src/a.py", "modifiedFiles": None}, self.object(),
        ])  # fmt: skip

    def sections(self) -> dict[str, str | None]:
        rng = self.random
        return {name: rng.choice([None, "", self.text(80)]) for name in rng.sample(["skills", "files", "1", "0"], 2)}

    def tools(self) -> list[Json]:
        return [{"name": name, "description": self.text(40), "parameters": self.object()} for name in TOOLS[:2]]
