"""However a session is divided into parts, mending them one by one gives what mending it as a whole gives.

Random message lists, with calls answered late, twice or in another part, are cut at random places. And in a long
session whose entries fill several chunks, the view that a snapshot makes from remembered parts is that of a projection
that sees the session for the first time, after appends, edits anywhere, compactions and moves.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from contexthost.projection import ContextEditDraft, ProjectionAuthority
from contexthost.projection.provider import Pieces, ProviderView, mend, part_of
from contexthost.session import Session
from host.test_provider_pairs import lists
from support.large import large_entries

Message = dict[str, Any]


@settings(max_examples=500)
@given(lists, st.lists(st.integers(0, 12), max_size=4), st.integers(0, 5))
def test_parts_give_what_the_whole_gives(messages: list[Message], cuts: list[int], known: int) -> None:
    edges = sorted({0, len(messages), *(cut for cut in cuts if cut < len(messages))})
    pieces = [messages[start:end] for start, end in itertools.pairwise(edges)] or [[]]
    parts = [part_of(piece) for piece in pieces]
    out, mends = mend(messages)
    first = ProviderView(parts[:known])
    shown = list(first.messages)
    for view in (ProviderView(parts), ProviderView(parts[known:], first)):
        assert list(view.messages) == out
        assert sorted(map(repr, view.mends)) == sorted(map(repr, mends))
    assert list(first.messages) == shown  # whoever has it sees nothing of what came behind


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=5))
def test_pieces_are_the_sequence_of_what_is_in_them(pieces: list[list[int]]) -> None:
    made = Pieces([[{"n": number} for number in piece] for piece in pieces])
    flat = [{"n": number} for piece in pieces for number in piece]
    assert list(made) == flat
    assert [made[at] for at in range(len(made))] == flat
    assert [made[-at - 1] for at in range(len(made))] == flat[::-1]
    assert made[1:4] == flat[1:4]
    for beyond in (len(flat), -len(flat) - 1):
        with pytest.raises(IndexError):
            made[beyond]


def fresh(session: Session) -> ProjectionAuthority:
    copy = Session.in_memory(header={"id": session.id}, entries=[entry.data for entry in session.entries])
    copy.move_leaf(session.leaf_id)
    return ProjectionAuthority(copy)


@pytest.mark.parametrize("seed", range(6))
def test_a_long_session_that_changes_anywhere(seed: int) -> None:
    rng = random.Random(seed)
    session = Session.in_memory(entries=large_entries(1100, result_chars=10))
    authority = ProjectionAuthority(session)
    for _ in range(25):
        entries = authority.snapshot().entries
        some = entries[rng.randrange(len(entries))].source
        match rng.randrange(8):
            case 0 | 1:  # an edit of anything, pairs or not: as another program may have written it
                replacement = rng.choice([None, {"content": "short"}])
                session.append([{"type": "context_edit", "targetId": some.id, "replacement": replacement}])
            case 2:
                results = [item.source.id for item in entries if item.source.role == "toolResult" and not item.omitted]
                drafts = [ContextEditDraft(target_id=one, replacement={"content": "masked"}) for one in results[:40]]
                authority.commit(drafts)
            case 3:  # a result of an old call
                message = {"role": "toolResult", "toolCallId": f"call_{4 * rng.randrange(270):08x}", "content": []}
                session.append([{"type": "message", "message": message}])
            case 4:
                session.append([{"type": "compaction", "summary": "s", "firstKeptEntryId": some.id, "tokensBefore": 1}])
            case 5:
                session.move_leaf(some.id)
            case 6:
                calls = [{"type": "toolCall", "id": f"call_{4 * rng.randrange(270):08x}", "name": "x", "arguments": {}}]
                answer = {"role": "assistant", "content": calls, "stopReason": rng.choice(["toolUse", "aborted"])}
                session.append([{"type": "message", "message": answer}])
            case 7:
                text = {"role": rng.choice(["user", "system"]), "content": "text"}
                session.append([{"type": "message", "message": text} for _ in range(rng.randrange(1, 9))])
        seen, expected = authority.snapshot(), fresh(session).snapshot()
        whole, mends = mend(expected.messages)
        assert list(seen.provider_messages) == whole
        assert sorted(map(repr, seen.mended)) == sorted(map(repr, mends))
