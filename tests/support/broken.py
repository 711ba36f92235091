"""Broken sessions: one kind of damage each, at a random place of an otherwise healthy conversation.

`broken_session(kind, seed)` is always the same file for the same arguments. The conversation around the damage varies
in length, parallel calls, thinking, side branches, metadata, an earlier healthy compaction, and the file's version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.builder import USAGE_ZERO, Json, SessionBuilder, encode, text_block, tool_call
from support.talk import Talk

__all__ = [
    "KINDS",
    "MENDED_BY_APPENDING",
    "MENDED_BY_RESCUE",
    "VARIANTS",
    "Broken",
    "broken_session",
    "deep_call",
]

VARIANTS = 20  # of each kind in the tests


@dataclass(frozen=True)
class Broken:
    """A broken session file.

    `positions` are the places among the session's entries of those that findings of the kind must name, `lines` the
    lines where an entry cannot be named. `messages` is how many messages the file holds that a rescue must save.
    """

    kind: str
    seed: int
    data: bytes
    version: int
    positions: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()
    messages: int = 0


# -- calls and results ------------------------------------------------------------------------------------------------


def _orphan_result(talk: Talk) -> None:
    how = talk.random.choice(["unknown", "no id", "failed attempt", "omitted call"])
    talk.ask()
    if how == "unknown":
        talk.batch()
        talk.build.tool_result(f"gone-{talk.random.randrange(99)}", "left over")
        talk.expect()
    elif how == "no id":
        talk.build.message({"role": "toolResult", "toolName": "read", "content": [text_block("x")], "isError": False})
        talk.expect()
    else:
        failed = how == "failed attempt"
        calls = [talk.call() for _ in range(talk.random.randint(1, 3))]
        reply = talk.say(calls, stop_reason=talk.random.choice(["error", "aborted"]) if failed else None)
        for call in calls:
            talk.answer(call)
            talk.expect()
        if not failed and talk.version != 1:
            talk.build.edit(reply, None)
        elif not failed:
            talk.expected = []
            talk.build.tool_result("gone", "left over")
            talk.expect()
    talk.say([])


def _duplicate_result(talk: Talk) -> None:
    talk.ask()
    calls = talk.batch()
    repeated = talk.random.choice(calls)
    if talk.random.random() < 0.4:
        talk.say([])
        talk.ask()
    talk.answer(repeated)
    talk.expect()
    talk.say([])


def _late_result(talk: Talk) -> None:
    rng, build = talk.random, talk.build
    talk.ask()
    calls = [talk.call() for _ in range(rng.randint(1, 3))]
    talk.say(calls)
    late = rng.randint(1, len(calls))
    for call in calls[:-late]:
        talk.answer(call)
    between: list[Callable[[], object]] = [
        lambda: build.user("Stop, this instead."), lambda: build.custom_message("note", "by an extension"),
        lambda: build.bash("ls", "a"), lambda: talk.say([], stop_reason="error"), lambda: talk.say([]),
    ]  # fmt: skip
    rng.choice(between)()
    for call in calls[-late:]:
        talk.answer(call)
        talk.expect()
    talk.say([])


def _unanswered_call(talk: Talk) -> None:
    rng = talk.random
    talk.ask()
    calls = [talk.call() for _ in range(rng.randint(1, 4))]
    talk.say(calls)
    talk.expect()
    answered = rng.sample(calls, rng.randrange(len(calls)))
    for call in answered:
        talk.answer(call)
    if rng.random() < 0.3:
        talk.ask()


def _repeated_call(talk: Talk) -> None:
    talk.ask()
    call = talk.call()
    again = {**call, "arguments": {"path": "b"}}
    if talk.random.random() < 0.3:
        del again["id"]
    calls = [call, *([talk.call()] if talk.random.random() < 0.5 else []), again]
    talk.say(calls)
    talk.expect()
    for one in calls[:-1]:
        talk.answer(one)
    talk.say([])


def _bad_content(talk: Talk) -> None:
    rng, build = talk.random, talk.build
    talk.ask()
    how = rng.randrange(6)
    if how == 4:
        talk.say([{"type": "toolCall", "id": "bare", "name": "read"}])
        build.tool_result("bare", "x")
        talk.expected.append(talk.last - 1)
        return
    if how == 5:
        talk.say([], text=[text_block("a"), {"type": "thinking"}])
    elif how == 0:
        build.message({"role": "assistant", "content": "plain text", "stopReason": "stop", "usage": USAGE_ZERO})
    elif how == 1:
        call = talk.call()
        talk.say([call])
        build.message({"role": "toolResult", "toolCallId": call["id"], "toolName": "read", "content": "plain"})
    elif how == 2:
        talk.say([], text=[text_block("a"), rng.choice([None, "b", 3, {"text": "no type"}])])
    else:
        build.user([text_block("a"), rng.choice([None, {"type": "text"}, {"type": "text", "text": 5}])])
    talk.expect()
    talk.say([])


def _bad_edit(talk: Talk) -> None:
    talk.ask()
    target = talk.say([])
    replacement: Json = talk.random.choice([{}, {"replacement": "text"}, {"replacement": 5}, {"replacement": [1]}])
    talk.build.entry("context_edit", targetId=target, **replacement)
    talk.expect()


def _bad_usage(talk: Talk) -> None:
    rng, build = talk.random, talk.build
    talk.ask()
    missing: list[Any] = [None, {}, {"input": 1}, 5, {"input": 1, "cost": {"total": "y"}}, {"cost": None}]
    usage = rng.choice(missing[2:])  # of an entry of which Pi looks only at usage that is there
    how = rng.randrange(5)
    if how == 0:
        talk.say([], usage=rng.choice(missing))
    elif how == 1:
        build.entry("usage", kind="cache_warm", provider="anthropic", model="m", usage=rng.choice(missing))
    elif how == 2:
        build.branch_summary("What was tried.", usage=usage)
    elif how == 3:
        kept = 1 if talk.version == 1 else talk.users[-1]
        build.compaction("What was before.", kept, usage=usage)
    else:
        call = talk.call()
        talk.say([call])
        build.tool_result(call["id"], "found", tool=call["name"], usage=usage)
    talk.expect()
    talk.say([])


# -- compactions ------------------------------------------------------------------------------------------------------


def _unknown_kept(talk: Talk) -> None:
    build, rng = talk.build, talk.random
    if talk.version == 1:
        build.compaction("What was before.", rng.choice([-1, 0, 10_000]))
    else:
        later = build.id_at(build.count + 3)
        build.compaction("What was before.", "x", firstKeptEntryId=rng.choice(["gone", later, None, 7]))
    talk.expect()


def _empty_summary(talk: Talk) -> None:
    build, rng = talk.build, talk.random
    kept: Any = rng.choice([talk.users[-1], talk.users[0], None]) if talk.version != 1 else rng.randint(1, build.count)
    if talk.version == 1:
        kept = 1
    build.compaction(rng.choice(["", " \n"]), kept)
    talk.expect()


def _compaction_inside_pair(talk: Talk) -> None:
    build, rng = talk.build, talk.random
    talk.ask()
    calls = [talk.call() for _ in range(rng.randint(1, 3))]
    talk.say(calls)
    if rng.random() < 0.5:  # what is kept begins at a result
        first: Any = None
        cut = rng.randrange(len(calls))
        for index, call in enumerate(calls):
            result = talk.answer(call)
            if index == cut:
                first = result if talk.version != 1 else build.count
        if rng.random() < 0.5:
            talk.say([])
        build.compaction("What was before.", first)
        talk.expect()
    else:  # the compaction came while the tools ran, and kept nothing
        done = rng.randrange(len(calls))
        for call in calls[:done]:
            talk.answer(call)
        if talk.version == 1:
            build.compaction("What was before.", build.count + 1)
        else:
            build.compaction("What was before.", None)
        talk.expect()
        for call in calls[done:]:
            talk.answer(call)
    talk.say([])


# -- lines and tree ---------------------------------------------------------------------------------------------------


def _malformed_line(talk: Talk) -> None:
    line = talk.build.lines[-1].rstrip(b"\n")
    talk.lines.append(talk.next_line)
    talk.build.raw(
        talk.random.choice([b"garbage", line[: len(line) // 2], b'{"type":"label",}', b"\xff\xfe", b'{"a":NaN}'])
    )


def _torn_line(talk: Talk) -> None:
    talk.turns(1, 2)
    whole = encode({"type": "message", "id": "fffffff0", "parentId": talk.build.leaf, "message": {"role": "user"}})
    talk.lines.append(talk.next_line)
    talk.build.raw(whole[: talk.random.randrange(1, len(whole) - 1)], end=b"")


def _not_an_object(talk: Talk) -> None:
    talk.lines.append(talk.next_line)
    talk.build.raw(talk.random.choice([b"123", b'"text"', b"[1,2]", b"true", b"-1.5"]))


def _missing_id(talk: Talk) -> None:
    talk.lines.append(talk.next_line)
    message = {"role": "user", "content": "without an id"}
    ids: Json = talk.random.choice([{}, {"id": None}, {"id": 7}, {"id": ["x"]}])
    talk.build.raw(encode({"type": "message", **ids, "parentId": talk.build.leaf, "message": message}))


def _second_header(talk: Talk) -> None:
    talk.lines.append(talk.next_line)
    talk.build.raw(encode({**talk.build.header, "id": "another"}))


def _duplicate_id(talk: Talk) -> None:
    talk.turn()
    back = talk.random.randint(1, 6)
    taken = talk.build.id_at(max(1, talk.build.count - back))
    parent = talk.build.parents[taken] if talk.random.random() < 0.5 else talk.build.leaf
    message = {"role": "user", "content": "the same id, a second time"}
    talk.build.message(message, id=taken, parent=parent)
    talk.expect()


def _missing_parent(talk: Talk) -> None:
    message = {"role": "user", "content": "after a line that was lost"}
    if talk.random.random() < 0.6:
        talk.build.entry("message", parent=talk.random.choice(["gone", "00ffff00", 7, ["x"]]), message=message)
    else:
        talk.build.count += 1
        entry_id = talk.build.id_at(talk.build.count)
        talk.build.raw(encode({"type": "message", "id": entry_id, "timestamp": "2026-01-05T09:00:00.000Z",
                               "message": message}))  # fmt: skip
        talk.build.branch_from(entry_id)
    talk.expect()


def _parent_cycle(talk: Talk) -> None:
    build, size = talk.build, talk.random.randint(1, 3)
    first = build.count + 1
    for index in range(size):
        parent = build.id_at(first + (index - 1) % size)
        build.message({"role": "user", "content": f"in a circle {index}"}, parent=parent)
    talk.expected.append(first - 1)


def _no_message(talk: Talk) -> None:
    fields: Json = talk.random.choice([{}, {"message": None}, {"message": "text"}, {"message": 5}])
    talk.build.entry("message", **fields)
    talk.expect()


def _unknown_role(talk: Talk) -> None:
    talk.build.message(talk.random.choice([{"role": "narrator", "content": "x"}, {"content": "x"}, {"role": 7}]))
    talk.expect()


def _dead_sibling(talk: Talk) -> None:
    build, rng = talk.build, talk.random
    fork = build.leaf
    ours = theirs = fork
    for at in range(rng.randint(2, 5)):
        build.branch_from(theirs)
        theirs = build.user(f"from the other process {at}")
        tip = talk.last
        build.branch_from(ours)
        ours = talk.say([]) if at % 2 else build.user(f"from here {at}")
    if rng.random() < 0.5:
        build.branch_from(theirs)
        build.user("the other process once more")
        tip = talk.last
        build.branch_from(ours)
        build.user("from here at last")
    talk.expected.append(tip)


def _no_header(talk: Talk) -> None:
    if talk.random.random() < 0.5:
        talk.build.preface = b"\xef\xbb\xbf"
    else:
        talk.build.preface = talk.build.lines.pop(0)  # an entry got in front of the header


_PAIRS = [1, 2, 3, 3, 3]
_TREE = [2, 3, 3, 3]
_BREAK: dict[str, tuple[Callable[[Talk], None], list[int]]] = {
    "orphan-result": (_orphan_result, _PAIRS),
    "duplicate-result": (_duplicate_result, _PAIRS),
    "late-result": (_late_result, _PAIRS),
    "unanswered-call": (_unanswered_call, _PAIRS),
    "repeated-call": (_repeated_call, _PAIRS),
    "bad-content": (_bad_content, _PAIRS),
    "bad-edit": (_bad_edit, _TREE),
    "unknown-kept-id": (_unknown_kept, _PAIRS),
    "empty-summary": (_empty_summary, _PAIRS),
    "compaction-inside-pair": (_compaction_inside_pair, _PAIRS),
    "malformed-line": (_malformed_line, _PAIRS),
    "torn-line": (_torn_line, _PAIRS),
    "not-an-object": (_not_an_object, _PAIRS),
    "missing-id": (_missing_id, _TREE),
    "second-header": (_second_header, _PAIRS),
    "duplicate-id": (_duplicate_id, _TREE),
    "missing-parent": (_missing_parent, _TREE),
    "parent-cycle": (_parent_cycle, _TREE),
    "no-message": (_no_message, _PAIRS),
    "unknown-role": (_unknown_role, _PAIRS),
    "dead-sibling": (_dead_sibling, _TREE),
    "no-header": (_no_header, _TREE),
    "bad-usage": (_bad_usage, _PAIRS),
}
KINDS = tuple(_BREAK)
MENDED_BY_APPENDING = (
    "orphan-result", "duplicate-result", "late-result", "unanswered-call", "repeated-call", "bad-content",
    "bad-edit", "unknown-kept-id", "empty-summary", "compaction-inside-pair",
)  # fmt: skip
MENDED_BY_RESCUE = (
    "missing-id", "duplicate-id", "missing-parent", "parent-cycle", "no-message", "no-header", "bad-usage",
)  # fmt: skip


def broken_session(kind: str, seed: int) -> Broken:
    """The file with damage of that kind; every other one ends with it, the others go on after it."""
    damage, versions = _BREAK[kind]
    talk = Talk(f"{kind} {seed}", versions)
    talk.start()
    damage(talk)
    if seed % 2 and kind not in ("torn-line", "no-header"):
        talk.turns(1, 4)
    data = talk.build.bytes()
    messages = data.count(b'"type":"message"')
    return Broken(kind, seed, data, talk.version, tuple(talk.expected), tuple(talk.lines), messages)


def deep_call(depth: int) -> bytes:
    """A session whose one call has arguments that are nested that deep, besides a few levels around them."""
    build = SessionBuilder()
    build.user("go")
    build.assistant("look", calls=[tool_call("c", "read", {"a": "DEEP"})])
    build.tool_result("c", "ok")
    return build.bytes().replace(b'"DEEP"', b"[" * depth + b"]" * depth)
