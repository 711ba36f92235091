"""Random session files, as strange as files in the wild: one seed, one file, always the same.

`random_session(seed, size=n)` takes the first n steps of `random_session(seed, size=n + 1)`: a failing seed can be cut
down by its size.
What real Pi 1.6.0 cannot read without failing is only made on request (`cycles`, `broken`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from support.builder import Json, Literal, SessionBuilder, encode, text_block
from support.strange import TOOLS, StrangeValues

__all__ = ["SessionBuilder", "entry_ids", "random_session", "sessions"]

DEFAULT_SIZE = 24  # steps; a step writes one to eight lines

NOT_ENTRIES = [
    b"", b"   ", b"\t", b"{", b"garbage", b"123", b'"text"', b"[1,2]", b"null", b"true", b"{}", b'{"type":"label"}',
    b'{"type":"message","id":null,"message":{"role":"user","content":"no id"}}',
    b'{"type":"message","id":7,"parentId":null,"message":{"role":"user","content":"a number as id"}}',
    b'{"type":"message","id":"nan","parentId":null,"message":{"role":"user","content":NaN}}',
    b'{"type":"message","id":"inf","parentId":null,"message":{"role":"user","content":[Infinity]}}',
    b'{"type":"custom","id":"tab","parentId":null,"data":"a\ttab"}',
    b'{"type":"custom","id":"zero","parentId":null,"data":01}',
    b'{"type":"custom","id":"comma","parentId":null,}',
    b'{"type":"custom","id":"two","parentId":null}{"type":"custom","id":"two"}',
    b'{"type":"session","version":1,"id":"another","timestamp":"2026-01-05T09:00:00.000Z","cwd":"/elsewhere"}',
    b"\xff\xfe\x00",
]  # fmt: skip


class _Writer(StrangeValues):
    """Takes steps at random; each writes something that Pi can read."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.random
        self.version = rng.choices([1, 2, 3], [15, 10, 75])[0]
        written: dict[int, list[Any]] = {
            1: [None, 1, Literal(b"null")],
            2: [2],
            3: [3, 3, 3, 4, Literal(b"3.0")],
        }
        self.build = SessionBuilder(
            version=rng.choice(written[self.version]), header=rng.choice([{}, {"parentSession": "/s.jsonl"}])
        )
        self.build.linear = self.version == 1
        if self.chance(0.05):
            self.build.preface = rng.choice([b"\n", b"  \r\n\n", b"not JSON\n"])
        self.messages: list[str] = []  # ids of entries that the model sees
        self.ids: list[str] = []
        self.compactions: list[str] = []
        self.repeated = False
        self.metadata = rng.choice([0.05, 0.3, 0.6])
        steps: list[tuple[int, Callable[[], object]]] = [
            (30, self.turn), (10, self.edit), (6, self.reedit), (6, self.small_entry), (5, self.compact),
            (5, self.fork), (4, self.bash), (4, self.custom_message), (3, self.branch_summary), (4, self.system),
            (3, self.odd_message), (3, self.odd_entry), (4, self.noise), (3, self.orphan), (2, self.repeat_id),
            (2, self.failed_attempt),
        ]  # fmt: skip
        self.steps = [step for _, step in steps]
        self.weights = [weight for weight, _ in steps]

    def run(self, size: int) -> None:
        rng = self.random
        crlf, ascii_only = rng.random() < 0.1, rng.random() < 0.3
        for _ in range(size):
            self.build.line_end = b"\r\n" if crlf and rng.random() < 0.7 else b"\n"
            self.build.ascii_only = ascii_only and rng.random() < 0.7
            rng.choices(self.steps, self.weights)[0]()

    # -- steps ---------------------------------------------------------------------------------------------------

    def seen(self, entry_id: str) -> str:
        self.messages.append(entry_id)
        return self.note(entry_id)

    def note(self, entry_id: str) -> str:
        self.ids.append(entry_id)
        return entry_id

    def turn(self) -> None:
        rng, build = self.random, self.build
        for _ in range(3):
            if self.chance(self.metadata):
                self.small_entry()
        if self.chance(0.9):
            self.seen(build.user(self.content()))
        for _ in range(rng.choices([0, 1, 2, 4], [4, 5, 3, 1])[0]):
            calls = [self.call() for _ in range(rng.choice([1, 1, 2, 3]))]
            self.seen(self.reply(calls))
            for call in calls:
                self.between()
                if self.chance(0.93):
                    self.seen(self.result(call))
        if self.chance(0.85):
            self.seen(self.reply([]))

    def reply(self, calls: list[Json]) -> str:
        rng = self.random
        thinking = self.text(400) if self.chance(0.2) else None
        reason = rng.choice([None, None, None, None, "length", "aborted", "error"])
        text = self.blocks() if self.chance(0.3) else rng.choice([None, self.text()])
        extra: Json = {"errorMessage": "overloaded"} if reason == "error" else {}
        who = rng.choice([("anthropic", "claude-sonnet-4-5"), ("openai", "gpt-5"), ("openai", "gpt-5")])
        usage = {"usage": self.usage_value()} if self.chance(0.6) else {}
        return self.build.assistant(
            text, thinking=thinking, calls=calls, stop_reason=reason, provider=who[0], model=who[1], **usage, **extra
        )

    def result(self, call: Json) -> str:
        extra: Json = {}
        if self.chance(0.1):
            nested = [{"name": self.random.choice(TOOLS), "arguments": self.call()["arguments"]} for _ in range(2)]
            extra["nestedCalls"] = self.random.choice([{"calls": [*nested, {"name": "read"}]}, {"calls": None}, None])
        if self.chance(0.2):
            extra["details"] = self.object()
        return self.build.tool_result(call["id"], self.content(), tool=call["name"], is_error=self.chance(0.1), **extra)

    def between(self) -> None:
        """What may come between a call and its result."""
        if self.chance(0.1):
            self.random.choice([self.small_entry, self.compact, self.system, self.edit, self.noise, self.bash])()

    def failed_attempt(self) -> None:
        """A long question, an attempt at it that was taken out of the context, and more or less behind it."""
        rng, build = self.random, self.build
        if self.chance(0.7):
            self.seen(build.user("why? " * rng.choice([10, 300])))
        attempt = [self.call()] if self.chance(0.4) else []
        failed = [build.assistant(self.text(), calls=attempt, stop_reason="error")]
        failed += [build.tool_result(call["id"], self.text()) for call in attempt]
        for entry_id in failed:
            self.seen(entry_id)
        if self.chance(0.3):
            self.small_entry()
        for entry_id in failed:
            self.note(build.edit(entry_id, None))
        if self.chance(0.2):
            self.edit()

    def small_entry(self) -> None:
        rng, build = self.random, self.build
        target = rng.choice(self.ids) if self.ids else "missing"
        kinds: list[Callable[[], str]] = [
            lambda: build.label(target, rng.choice([None, "here", "😀"])),
            lambda: build.custom("note", self.value()),
            lambda: build.model_change("openai", rng.choice(["gpt-5", "gpt-5-mini"])),
            lambda: build.thinking(rng.choice(["off", "low", "high"])),
            lambda: build.usage(),
            lambda: build.session_info(self.text(40)),
            lambda: build.entry("brand_new", payload=self.value()),
        ]
        self.note(rng.choice(kinds)())

    def edit(self) -> None:
        rng, build = self.random, self.build
        pools = [self.messages, self.messages[-6:], self.ids, self.compactions[-1:], []]
        target = rng.choice(rng.choices(pools, [40, 40, 10, 5, 5])[0] or ["missing"])
        if self.chance(0.15):  # one that is still to come, or this edit itself
            target = build.id_at(build.count + rng.randint(1, 5))
        extra = {"content": self.text(80), "note": self.value()}
        self.note(build.edit(target, rng.choice([None, None, None, self.text(), self.blocks(), extra])))

    def reedit(self) -> None:
        """An edit of an entry, then another of the same, which takes its place."""
        if self.messages:
            target = self.random.choice(self.messages[-8:])
            for _ in range(2):
                self.note(self.build.edit(target, self.random.choice([None, self.text(80), self.blocks()])))
                if self.chance(0.3):
                    self.turn()

    def compact(self) -> None:
        rng, build = self.random, self.build
        extra: Json = {}
        if self.chance(0.4):
            extra["details"] = rng.choice([self.details(), None])
        if self.chance(0.4):
            extra["fromHook"] = self.chance(0.5)
        if self.chance(0.3):
            extra["usage"] = self.usage_value()
        system = None
        if self.chance(0.5):
            content: Any = rng.choice([self.text(80), [text_block(self.text(80))]])
            system = build.system_message(content, self.sections(), rng.choice([None, self.tools()]))
        first_kept: str | int | None
        if self.version == 1:
            first_kept = rng.randrange(-1, build.count + 4)
            if self.chance(0.3):
                odd = [Literal(b"3.0"), 1.5, None, "3", Literal(b"-0")]
                extra["firstKeptEntryIndex"] = rng.choice(odd)
        else:
            recent, early = self.ids[-10:] or ["missing"], self.ids or ["missing"]
            later = build.id_at(build.count + 3)
            first_kept = rng.choice([*rng.choices(recent, k=6), *rng.choices(early, k=2), None, later, "gone"])
            if self.chance(0.05):
                extra["firstKeptEntryId"] = rng.choice([None, 5])
        self.compactions.append(build.compaction(self.text(400), first_kept, system_message=system, **extra))
        self.note(self.compactions[-1])

    def fork(self) -> None:
        if self.ids and self.version != 1:
            self.build.branch_from(self.random.choice([*self.ids[-12:], *self.random.choices(self.ids, k=3)]))

    def bash(self) -> None:
        rng = self.random
        code = rng.choice([0, 0, 1, 127, None, Literal(b"-0"), Literal(b"2.0"), -9])
        cut: Json = {"truncated": True}
        extra: Json = rng.choice([{}, {}, {"cancelled": True}, cut, {**cut, "fullOutputPath": "/out/full.txt"}])
        self.seen(self.build.bash(self.text(40), self.text(), exit_code=code, exclude=self.chance(0.3), **extra))

    def custom_message(self) -> None:
        content = None if self.chance(0.15) else self.content()
        self.seen(self.build.custom_message("note", content, display=self.chance(0.5), details=self.value()))

    def branch_summary(self) -> None:
        summary = "" if self.chance(0.3) else self.text(400)
        self.seen(self.build.branch_summary(summary, self.random.choice([*self.ids[-5:], "root"])))

    def system(self) -> None:
        rng, build = self.random, self.build
        extra: Json = {"timestamp": None} if self.chance(0.1) else {}
        sections, added = rng.choice([None, self.sections()]), rng.choice([None, None, [], self.tools()])
        removed = rng.choice([None, None, ["read"], ["unknown"]])
        content = rng.choice([None, "", self.text(), [text_block(self.text(80))]])
        self.seen(build.system(content, sections=sections, tools_added=added, tools_removed=removed, **extra))

    def odd_message(self) -> None:
        """Messages without content, with roles nobody knows, or with one that Pi makes only in passing."""
        rng = self.random
        hook = {"role": "hookMessage", "customType": "old", "content": rng.choice([self.text(80), self.blocks()])}
        self.seen(
            self.build.message(
                rng.choice([
                    {"role": "user", "content": None}, {"role": "user"}, {"role": "assistant"},
                    {"role": "assistant", "content": None, "provider": "openai", "model": "gpt-5"},
                    {"role": "toolResult", "toolCallId": "call-1", "content": None}, {"role": "system"},
                    {"role": "toolResult", "toolCallId": "call-1", "content": self.text(80)},
                    {"role": "narrator", "content": self.value()}, {"content": self.text(40)}, {}, hook, hook, hook,
                    {"role": "custom", "customType": "x", "content": rng.choice([self.text(80), self.blocks()])},
                    {"role": "branchSummary", "summary": self.text(80)},
                    {"role": "compactionSummary", "summary": self.text(80)},
                ])
            )
        )  # fmt: skip

    def odd_entry(self) -> None:
        rng, build = self.random, self.build
        more = {"timestamp": rng.choice([None, "yesterday"])} if self.chance(0.2) else {"future": self.value()}
        kind = rng.choice([5, None, "", "Message", "context_edits"])
        self.note(build.entry(kind, message={"role": "user", "content": "not a message entry"}, **more))

    def noise(self) -> None:
        self.build.raw(self.random.choice(NOT_ENTRIES))

    def orphan(self) -> None:
        if self.version != 1:
            parent = self.random.choice([None, "", "nowhere", 7])
            message = {"role": "user", "content": self.content()}
            self.seen(self.build.entry("message", parent=parent, message=message))

    def repeat_id(self) -> None:
        """A second entry with an id that is taken; its parent is chosen so that no cycle arises."""
        build = self.build
        if not self.ids or self.version == 1:
            return
        repeated = self.random.choice(self.ids)
        parent: str | None = self.random.choice([*self.ids, build.leaf])
        ancestor = parent
        while ancestor in build.parents and ancestor != repeated:
            ancestor = build.parents[ancestor]
        if ancestor == repeated:
            parent = build.parents[repeated]
        self.repeated = True
        build.entry("message", id=repeated, parent=parent, message={"role": "user", "content": self.content()})
        self.ids.append(repeated)

    # -- the end of the file -------------------------------------------------------------------------------------

    def finish(self, rng: random.Random) -> None:
        build = self.build
        if rng.random() < 0.1:
            self.failed_attempt()
        if not self.repeated and rng.random() < 0.15:  # children before their parents
            for _ in range(3):
                at = rng.randrange(max(1, len(build.lines) - 1))
                build.lines[at : at + 2] = reversed(build.lines[at : at + 2])
        last = encode({"type": "custom", "id": "ffffffff", "parentId": build.leaf, "customType": "tail 😀"})
        if rng.random() < 0.2:
            build.raw(rng.choice([last, last[: rng.randrange(1, len(last))], last[:-4], b"12", b" "]), end=b"")

    def cycle(self) -> None:
        """Two or three entries in a ring, and the leaf on it or behind it."""
        build, ring = self.build, self.random.randint(1, 3)
        first = build.count + 1
        for step in range(ring):
            build.entry("custom", parent=build.id_at(first + (step + 1) % ring), customType="ring")
        for _ in range(self.random.randrange(3)):
            build.user(self.text(40))

    def breakage(self) -> None:
        """Something that Pi 1.6.0 refuses or trips over."""
        rng, build = self.random, self.build
        kind = rng.randrange(7)
        if kind == 0:
            no_header: list[Json] = [{"type": "custom", "id": "x"}, {"type": "session"}, {"type": "session", "id": 7}]
            build.header = rng.choice(no_header)
        elif kind == 1:
            build.entry("message", message=None)
        elif kind == 2:
            build.entry("message")
        elif kind == 3:
            build.assistant([{"type": "toolCall", "id": "call-x", "name": "read"}])
        elif kind == 4:
            build.assistant([{"type": "text"}])
        elif kind == 5:
            build.entry("context_edit", targetId=build.user("question"))
        else:
            build.message({"role": "bashExecution", "command": "ls"})


def random_session(seed: int, *, size: int = DEFAULT_SIZE, cycles: bool = False, broken: bool = False) -> bytes:
    """A session file. `size` counts steps. `cycles` puts the last entry on or behind a ring of parents (not in a
    version 1 file, which has none), `broken` adds something that real Pi refuses or trips over."""
    writer = _Writer(seed)
    writer.run(size)
    if cycles and writer.version != 1:
        writer.cycle()
        return writer.build.bytes()
    if broken:
        writer.breakage()
        return writer.build.bytes()
    writer.finish(random.Random(f"end of {seed}"))
    return writer.build.bytes()


def sessions(*, max_size: int = DEFAULT_SIZE) -> st.SearchStrategy[bytes]:
    """Random session files; shrinks towards few steps."""
    sizes, seeds = st.integers(0, max_size), st.integers(0, 10**6)
    return st.builds(lambda size, seed: random_session(seed, size=size), sizes, seeds)


def entry_ids(data: bytes) -> list[str]:
    """The ids in a version 2 or 3 file, in file order; none for version 1, where reading makes them up."""
    found: list[Any] = []
    for line in data.split(b"\n"):
        try:
            found.append(json.loads(line.decode(errors="replace"), parse_constant=_no_constant))
        except ValueError:
            continue
    objects = [value for value in found if isinstance(value, dict)]
    if not objects or (objects[0].get("version") or 1) < 2:
        return []
    return [one["id"] for one in objects if one.get("type") != "session" and isinstance(one.get("id"), str)]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
