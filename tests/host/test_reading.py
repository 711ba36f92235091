"""Shows that the messages of a compaction's history are a sequence like any other, and that looking through them keeps
nothing decoded, neither in the sequence nor in the projection that they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import given, strategies as st

from contexthost.compaction import CompactionSettings, prepare_compaction
from contexthost.compaction.reading import ConversationMessages
from contexthost.messages import Message
from contexthost.projection import ProjectionAuthority, context_messages
from contexthost.session import Session
from support.compaction_fakes import (
    FakeEntry,
    assistant,
    call,
    compaction,
    label,
    project,
    result,
    system,
    user,
)
from support.large import write_large

KINDS: list[Callable[[str], FakeEntry]] = [user, assistant, system, call, result, label, compaction]
ENTRIES = st.lists(st.sampled_from(KINDS), max_size=12).map(
    lambda kinds: [kind(f"e{at}") for at, kind in enumerate(kinds)]
)


def expected(entries: Sequence[FakeEntry]) -> tuple[Message, ...]:
    shown = (entry for entry in entries if entry.type == "message")
    return tuple(entry.data["message"] for entry in shown if entry.data["message"]["role"] != "system")


@given(ENTRIES, st.slices(12))
def test_it_is_always_equal_to_the_messages_themselves(entries: list[FakeEntry], part: slice) -> None:
    messages, wanted = ConversationMessages(project(entries).entries), expected(entries)
    assert messages == wanted
    assert wanted == messages
    assert messages == list(wanted)
    assert len(messages) == len(wanted)
    assert bool(messages) == bool(wanted)
    assert tuple(messages) == wanted
    assert tuple(reversed(messages)) == wanted[::-1]
    assert [messages[at] for at in range(-len(wanted), len(wanted))] == [*wanted, *wanted]
    assert messages[part] == wanted[part]


def test_another_message_a_shorter_sequence_or_a_text_is_not_equal() -> None:
    messages = ConversationMessages(project([user("u1"), assistant("a1")]).entries)
    asked, answered = messages
    assert messages != (asked, asked)
    assert messages != (asked,)
    assert messages != "ua"
    assert messages == (asked, answered)
    assert repr(messages) == "<2 messages>"


def test_an_entry_with_several_messages_gives_each_of_them() -> None:
    """No entry of Pi's format has two, compactions aside; whoever projects otherwise is not read wrongly."""
    (projected,) = project([user("u1")]).entries
    own = {"role": "user", "content": "one"}, {"role": "system", "content": "s"}, {"role": "user", "content": "two"}
    several = type(projected)(projected.source, own)
    assert ConversationMessages([several]) == (own[0], own[2])


def test_a_preparation_leaves_nothing_decoded_behind(tmp_path: Path) -> None:
    session = Session.open(write_large(tmp_path / "session.jsonl", 2_000))
    snapshot = ProjectionAuthority(session).snapshot()
    prepared = prepare_compaction(snapshot, snapshot.branch, CompactionSettings(), context_messages=context_messages)
    assert prepared is not None
    gone = prepared.messages_to_summarize
    assert len(gone) > 500
    assert gone == tuple(gone)
    assert all(first is not second for first, second in zip(gone, gone, strict=True))
    assert all(item.read() is not item.read() for item in snapshot.entries if item.source.type == "message")
