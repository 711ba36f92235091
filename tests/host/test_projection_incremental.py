"""Each snapshot is made from the one before, and equals one made from scratch.

Random steps (messages, edits of anything, compactions that keep anything, labels, leaf moves, foreign entries that come
with known ids or before their parents) are taken in one session; after each, the authority's snapshot is compared value
by value with a fresh authority's over the same entries, and snapshots taken earlier must read as they did. The visits
counted show that a step costs what was added, not what is there.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from contexthost.errors import ParentCycle
from contexthost.projection import (
    MASK_PREFIX,
    CompactionDraft,
    ContextEditDraft,
    CustomMessageDraft,
    ProjectionAuthority,
    Snapshot,
)
from contexthost.session import Session
from contexthost.session.entries import encode_json
from support.builder import text_block, tool_call, usage_of

Step = tuple[Any, ...]


class Characters:
    """One token a character: quick, and no two texts of these tests count alike by accident."""

    def count(self, text: str) -> int:
        return len(text)


COUNTER = Characters()


def view(snapshot: Snapshot, ids: list[str]) -> dict[str, Any]:
    """Everything that a snapshot says."""
    return {
        "leaf": snapshot.leaf_id,
        "entries": [
            (
                entry.source.id,
                entry.source.raw,
                entry.messages,
                entry.tokens,
                entry.omitted,
                entry.replaced,
                entry.masked,
                entry.edit.id if entry.edit is not None else None,
                entry.base.messages,
            )
            for entry in snapshot.entries
        ],
        "messages": list(snapshot.messages),
        "provider": (list(snapshot.provider_messages), list(snapshot.mended)),
        "model": snapshot.model,
        "thinking": snapshot.thinking_level,
        "checkpoint": snapshot.checkpoint.id if snapshot.checkpoint is not None else None,
        "ledger": snapshot.ledger,
        "usage": snapshot.usage,
        "tokens": snapshot.tokens,
        "positions": {one: snapshot.position(one) for one in ids},
        "found": {one: found.source.id for one in ids if (found := snapshot.find(one)) is not None},
    }


def fresh(session: Session) -> Snapshot:
    """The snapshot of a session that was never seen before, with the same entries and the same leaf."""
    copy = Session.in_memory(header={"id": session.id}, entries=[entry.data for entry in session.entries])
    copy.move_leaf(session.leaf_id)
    return ProjectionAuthority(copy, counter=COUNTER, window=1000).snapshot()


def payload(step: Step, ids: list[str]) -> dict[str, Any]:
    """The entry of a step; numbers choose among the ids so far, and the last choice is an id that there is not."""

    def pick(number: int) -> str:
        choices = [*ids[-12:], "missing"]
        return choices[number % len(choices)]

    match step:
        case ("user", text):
            return {"type": "message", "message": {"role": "user", "content": text}}
        case ("system", text):
            return {"type": "message", "message": {"role": "system", "content": text}}
        case ("result", call_id, text):
            message = {"role": "toolResult", "toolCallId": call_id, "content": [text_block(text)], "isError": False}
            return {"type": "message", "message": message}
        case ("assistant", calls, total, stop):
            reply: dict[str, Any] = {"role": "assistant", "provider": "p", "model": f"m{total}", "stopReason": stop}
            reply["content"] = [text_block("t"), *(tool_call(one, "read", {"path": one}) for one in calls)]
            if total:
                reply["usage"] = usage_of(100 + total)
            return {"type": "message", "message": reply}
        case ("custom_message", text):
            return {"type": "custom_message", "customType": "c", "content": text, "display": True}
        case ("edit", number, replacement):
            return {"type": "context_edit", "targetId": pick(number), "replacement": replacement}
        case ("early edit", replacement):  # of an entry that is still to come
            return {"type": "context_edit", "targetId": "later", "replacement": replacement}
        case ("later", text):
            return {"type": "message", "id": "later", "message": {"role": "user", "content": text}}
        case ("edit itself",):
            return {"type": "context_edit", "id": "itself", "targetId": "itself", "replacement": None}
        case ("compaction", number, system):
            kept = {"systemMessage": {"role": "system", "content": "sys"}} if system else {}
            return {"type": "compaction", "summary": "sum", "firstKeptEntryId": pick(number), "tokensBefore": 1, **kept}
        case ("own compaction",):
            return {"type": "compaction", "id": f"own{len(ids)}", "summary": "", "firstKeptEntryId": f"own{len(ids)}"}
        case ("label", number):
            return {"type": "label", "targetId": pick(number), "label": "l"}
        case ("model", name):
            return {"type": "model_change", "provider": "p", "modelId": name}
        case ("thinking", level):
            return {"type": "thinking_level_change", "thinkingLevel": level}
        case ("summary", text):
            return {"type": "branch_summary", "fromId": "root", "summary": text}
        case _:
            return {"type": "from-the-future", "x": 1}


numbers = st.integers(0, 12)
texts = st.sampled_from(["", "a", "bcd", "efghi"])
replacements = st.sampled_from([
    None, None, {"content": "new"}, {"content": [text_block("block")]}, {"content": MASK_PREFIX + "x"},
    {"content": [text_block(MASK_PREFIX + "result, kept elsewhere")]},
])  # fmt: skip
call_ids = st.sampled_from(["c1", "c2", "c3"])
additions = st.one_of(
    st.tuples(st.just("user"), texts),
    st.tuples(
        st.just("assistant"), st.lists(call_ids, max_size=2), st.integers(0, 3), st.sampled_from(["stop", "error"])
    ),
    st.tuples(st.just("result"), call_ids, texts),
    st.tuples(st.just("edit"), numbers, replacements),
    st.tuples(st.just("edit"), numbers, replacements),
    st.tuples(st.just("early edit"), replacements),
    st.tuples(st.just("later"), texts),
    st.tuples(st.just("compaction"), numbers, st.booleans()),
    st.tuples(st.just("system"), texts),
    st.tuples(st.just("custom_message"), texts),
    st.tuples(st.just("label"), numbers),
    st.tuples(st.just("model"), texts),
    st.tuples(st.just("thinking"), st.sampled_from(["low", "high"])),
    st.tuples(st.just("summary"), texts),
    st.sampled_from([("own compaction",), ("edit itself",), ("unknown",)]),
)
moves = st.one_of(st.tuples(st.just("back"), st.integers(1, 8)), st.tuples(st.just("to"), numbers))
step = st.one_of(additions, additions, additions, moves, st.tuples(st.just("batch"), st.lists(additions)))
steps = st.one_of(st.lists(step), st.lists(step, min_size=20, max_size=60))


def take(session: Session, step: Step) -> None:
    ids = [entry.id for entry in session.entries]
    match step:
        case ("back", count):
            branch = session.branch()
            session.move_leaf(branch[-1 - count].id if count < len(branch) else None)
        case ("to", number):
            if ids:
                session.move_leaf(ids[number % len(ids)])
        case ("batch", batch):
            given: dict[str, dict[str, Any]] = {}  # an id may be given once
            for number, one in enumerate(batch):
                made = payload(one, ids)
                if made.get("id") not in ids:
                    given.setdefault(made.get("id", str(number)), made)
            session.append(list(given.values()))
        case _:
            made_one = payload(step, ids)
            if made_one.get("id") not in ids:
                session.append([made_one])


@settings(max_examples=100)
@given(steps)
def test_after_every_step_the_snapshot_equals_one_made_from_scratch(taken: list[Step]) -> None:
    session = Session.in_memory()
    authority = ProjectionAuthority(session, counter=COUNTER, window=1000)
    past: list[tuple[Snapshot, dict[str, Any], list[str]]] = []
    for step in taken:
        take(session, step)
        ids = [*(entry.id for entry in session.entries), "missing"]
        snapshot = authority.snapshot()
        seen = view(snapshot, ids)
        assert seen == view(fresh(session), ids)
        assert authority.snapshot() is snapshot
        past.append((snapshot, seen, ids))
    for snapshot, seen, ids in past:
        assert view(snapshot, ids) == seen
    assert [one.revision for one, _, _ in past] == sorted(one.revision for one, _, _ in past)


foreign = st.lists(
    st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 6)), st.sampled_from(["a", "b", None])),
    max_size=12,
)


@settings(max_examples=200)
@given(foreign, st.integers(1, 4))
def test_entries_that_hide_others_or_come_before_their_parents_change_no_older_snapshot(
    lines: list[tuple[int, int | None, str | None]], at_once: int
) -> None:
    """Each line is (its id, its parent's id, a text or an edit of entry 0); ids may repeat, parents may come later."""
    session = Session.in_memory(entries=[user_line("0", None, "zero"), user_line("leaf", "0", "leaf")])
    authority = ProjectionAuthority(session, counter=COUNTER, window=1000)
    ids = [*"0123456", "leaf"]
    first = authority.snapshot()
    past = [(first, view(first, ids))]
    for start in range(0, len(lines), at_once):
        for name, parent, text in lines[start : start + at_once]:
            session._reader.feed(encode_json(user_line(str(name), None if parent is None else str(parent), text)))
        session._take_new()  # what `refresh` does after it read a file's tail
        try:
            snapshot = authority.snapshot()
        except ParentCycle:
            with pytest.raises(ParentCycle):
                fresh(session)
            continue
        seen = view(snapshot, ids)
        assert seen == view(fresh(session), ids)
        past.append((snapshot, seen))
    for snapshot, seen in past:
        assert view(snapshot, ids) == seen


def user_line(name: str, parent: str | None, text: str | None) -> dict[str, Any]:
    envelope = {"id": name, "parentId": parent, "timestamp": "t"}
    if text is None:
        return {"type": "context_edit", **envelope, "targetId": "0", "replacement": {"content": "edited"}}
    return {"type": "message", **envelope, "message": {"role": "user", "content": text}}


@settings(max_examples=150)
@given(steps, st.lists(st.tuples(st.integers(0, 12), replacements), max_size=4), st.booleans(), texts)
def test_a_preview_equals_the_commit_and_changes_nothing(
    taken: list[Step], edits: list[tuple[int, Any]], compact: bool, text: str
) -> None:
    session = Session.in_memory()
    for step in taken:
        take(session, step)
    authority = ProjectionAuthority(session, counter=COUNTER, window=1000)
    before = authority.snapshot()
    users = [entry.source.id for entry in before.entries if entry.source.role == "user"]
    drafts: list[Any] = [ContextEditDraft(target_id=users[n % len(users)], replacement=r) for n, r in edits if users]
    drafts.append(CustomMessageDraft(custom_type="c", content=text))
    if compact:
        drafts.append(CompactionDraft(summary="s", first_kept_entry_id=None))
    known = [entry.id for entry in session.entries]
    seen = view(before, known)
    preview = authority.preview(drafts)
    assert authority.snapshot() is before
    assert view(before, known) == seen
    assert [entry.id for entry in session.entries] == known
    committed = authority.commit(drafts)
    assert authority.snapshot() is committed
    expected = view(committed, known)
    shown = view(preview, known)
    for made_up in ("leaf", "checkpoint"):  # ids of drafted entries are new each time
        del expected[made_up], shown[made_up]
    expected["entries"] = [nameless(one, known) for one in expected["entries"]]
    shown["entries"] = [nameless(one, known) for one in shown["entries"]]
    for one in ("messages", "provider"):
        expected[one], shown[one] = str(timeless(expected[one])), str(timeless(shown[one]))
    assert shown["found"] == expected["found"]
    assert shown == expected


def nameless(entry: tuple[Any, ...], known: list[str]) -> tuple[Any, ...]:
    name, _, messages, *flags, edit, base = entry
    return (
        name if name in known else None,
        timeless(messages),
        *flags,
        edit if edit in known else edit is not None,
        timeless(base),
    )


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "timestamp"}
    return [timeless(item) for item in value] if isinstance(value, list | tuple) else value


# -- what a step costs ----------------------------------------------------------------------------------------------


def long_session(count: int) -> Session:
    entries: list[dict[str, Any]] = []
    for number in range(count):
        message: dict[str, Any] = {"role": "user", "content": "x"}
        if number % 3 == 1:
            message = {"role": "assistant", "content": [tool_call(f"c{number}", "read")], "provider": "p", "model": "m"}
            message |= {"stopReason": "toolUse", "usage": usage_of(1000)}
        if number % 3 == 2:
            message = {"role": "toolResult", "toolCallId": f"c{number - 1}", "content": [text_block("r")]}
        parent = f"e{number - 1}" if number else None
        entries.append(
            {"type": "message", "id": f"e{number}", "parentId": parent, "timestamp": "t", "message": message}
        )
    return Session.in_memory(entries=entries)


def visits(authority: ProjectionAuthority) -> int:
    before = authority.visits
    authority.snapshot()
    return authority.visits - before


@pytest.mark.parametrize("count", [999, 20_001])
def test_the_cost_of_a_step_does_not_depend_on_the_length_of_the_session(count: int) -> None:
    session = long_session(count)
    authority = ProjectionAuthority(session, counter=COUNTER)
    assert visits(authority) >= count  # hydration looks at all of them, once
    assert authority.visits <= count + 10
    assert visits(authority) == 0

    session.append([{"type": "message", "message": {"role": "user", "content": "more"}}])
    assert visits(authority) == 1
    assert visits(authority) == 0

    session.append([{"type": "context_edit", "targetId": "e2", "replacement": {"content": MASK_PREFIX + "y"}}])
    assert visits(authority) == 1

    session.append([{"type": "label", "targetId": "e5", "label": "l"}] * 5)
    assert visits(authority) == 5

    before = authority.visits
    authority.preview([ContextEditDraft(target_id=f"e{n}", replacement={"content": "z"}) for n in range(5, 155, 3)])
    assert authority.visits - before == 50
    assert authority.snapshot().usage.source == "estimate"

    session.move_leaf(f"e{count - 1}")  # seven entries back; then the newest usage and the model, two entries away
    assert visits(authority) <= 7 + 2 + 2

    session.append([{"type": "compaction", "summary": "s", "firstKeptEntryId": f"e{count - 30}", "tokensBefore": 1}])
    assert visits(authority) == 1 + 30
    assert len(authority.snapshot().entries) == 31


def test_a_foreign_entry_on_another_branch_leaves_the_snapshot_as_it_is() -> None:
    session = long_session(9)
    authority = ProjectionAuthority(session, counter=COUNTER)
    before = authority.snapshot()
    session._reader.feed(encode_json(user_line("side", "e3", "x")))
    session._take_new()
    assert authority.snapshot() is before
    assert before.find("side") is None
