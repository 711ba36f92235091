"""Whole stretches (L3): when a summary is asked for, and when it is not.

The window is 100,000 tokens, so that 80,000 is the threshold in force; a usage of the provider says where things stand.
"""

from __future__ import annotations

import asyncio

import pytest

import contexthost_masking
from contexthost.errors import CompactionCancelled, CompactionFailed, NothingToCompact
from contexthost.events import AgentSettledEvent, SessionTreeEvent
from contexthost.projection import CompactionDraft
from contexthost_masking.plan import summary_threshold
from contexthost_masking.settings import SummarySettings
from support.builder import SessionBuilder, text_block, usage_of
from support.masking import Surroundings, project


def session(usage: int = 80_000) -> Surroundings:
    build = SessionBuilder()
    build.user("go on")
    build.assistant("done", usage=usage_of(usage))
    return Surroundings(project(build))


def settle(at: Surroundings, *, aborted: bool = False) -> int:
    """Lets a run settle, and what that brings come to its end; how often a summary has been asked for so far."""

    async def run() -> None:
        await contexthost_masking.agent_settled(AgentSettledEvent(aborted=aborted), at.ctx)
        await at.rest()

    asyncio.run(run())
    return len(at.asked)


def say(at: Surroundings, usage: int) -> None:
    """One more answer, after which so many tokens are in use."""
    reply = {"role": "assistant", "content": [text_block("ok")], "stopReason": "stop", "usage": usage_of(usage)}
    at.authority.session.append([{"type": "message", "message": reply}])


@pytest.mark.parametrize(
    ("window", "threshold"), [(1_000_000, 160_000), (200_000, 160_000), (199_999, 159_999), (100_000, 80_000), (1, 1)]
)
def test_the_smaller_of_tokens_and_share_is_in_force(window: int, threshold: int) -> None:
    assert summary_threshold(SummarySettings(), window) == threshold


@pytest.mark.parametrize(("usage", "asked"), [(79_999, 0), (80_000, 1)])
def test_a_summary_is_asked_for_when_usage_reaches_the_threshold(usage: int, asked: int) -> None:
    at = session(usage)
    assert settle(at) == asked
    assert at.asked == [{"only_if_idle": True}] * asked


def test_it_is_never_asked_for_unless_idle_or_after_an_abort() -> None:
    at = session()
    at.idle = False
    assert settle(at) == 0
    at.idle = True
    assert settle(at, aborted=True) == 0
    assert settle(at) == 1


def test_the_same_point_is_never_tried_twice() -> None:
    at = session()
    assert [settle(at), settle(at)] == [1, 1]
    say(at, 80_100)
    assert settle(at) == 2


def test_bookkeeping_entries_do_not_make_a_new_point() -> None:
    at = session()
    settle(at)
    at.authority.session.append(
        [
            {"type": "custom", "customType": "note", "data": {}},
            {"type": "label", "targetId": at.authority.session.leaf_id, "label": "here"},
            {"type": "session_info", "name": "a name"},
            {"type": "model_change", "provider": "p", "modelId": "m"},
            {"type": "thinking_level_change", "thinkingLevel": "high"},
            {"type": "usage", "kind": "cache_warm", "provider": "p", "model": "m", "usage": usage_of(90_000)},
        ]
    )
    assert settle(at) == 1


def test_a_point_that_was_tried_is_not_tried_again_after_a_move_back_to_it() -> None:
    at = session()
    settle(at)
    point = at.authority.session.leaf_id
    say(at, 80_100)
    assert settle(at) == 2
    at.authority.session.move_leaf(point)
    asyncio.run(contexthost_masking.session_tree(SessionTreeEvent(new_leaf_id=point, old_leaf_id=None), at.ctx))
    assert settle(at) == 2


@pytest.mark.parametrize("ending", [CompactionFailed, CompactionCancelled, NothingToCompact])
def test_after_an_attempt_that_came_to_nothing_usage_must_grow_by_20000(ending: type[Exception]) -> None:
    at = session(80_000)
    at.ending = ending("no")
    assert settle(at) == 1
    for usage, asked in ((81_000, 1), (99_999, 1), (100_000, 2), (119_999, 2), (120_000, 3)):
        say(at, usage)
        assert settle(at) == asked


def test_growth_is_counted_from_where_usage_fell_to() -> None:
    at = session(95_000)
    at.ending = CompactionFailed("no")
    settle(at)
    for usage, asked in ((70_000, 1), (89_999, 1), (90_000, 2)):
        say(at, usage)
        assert settle(at) == asked


def test_after_a_summary_the_next_one_waits_only_for_the_threshold() -> None:
    at = session()
    settle(at)
    say(at, 80_001)
    assert settle(at) == 2


def test_switched_off_nothing_is_summarised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__ENABLED", "false")
    assert settle(session(99_000)) == 0


def test_where_compactions_cannot_be_asked_for_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    at = session()

    def supports(name: str) -> bool:
        return name != "compact"

    monkeypatch.setattr(at, "supports", supports)
    assert settle(at) == 0


def test_the_status_line_says_effective_usage_and_masks() -> None:
    at = session(80_000)
    settle(at)
    first = at.authority.session.entries[0].id
    at.authority.commit([CompactionDraft(summary="s" * 1_500, first_kept_entry_id=first)])
    settle(at)
    assert at.statuses == ["80k/100k 80 %", "~2k/100k 2 %"]


def test_an_empty_session_has_no_status_line() -> None:
    at = Surroundings(project(SessionBuilder()))
    settle(at)
    assert at.statuses == [None]


