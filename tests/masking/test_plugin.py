"""The plugin within the host: its hooks, and what a live session gets from it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest

import contexthost_masking
from contexthost.context import Context
from contexthost.events import (
    AgentBeforeSettleEvent,
    Boundary,
    BoundaryThresholdEvent,
    Outcome,
    SessionStartEvent,
    TurnEndEvent,
)
from contexthost.plugins import PluginManager
from contexthost.projection import ContextEditDraft, ProjectionAuthority
from contexthost_masking.settings import MaskingSettings
from support.builder import SessionBuilder
from support.masking import Surroundings, answer, project, turn


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> PluginManager:
    for key, value in {"MINCLEARTOKENS": "0", "KEEPRECENTTURNS": "1"}.items():
        monkeypatch.setenv(f"CONTEXTHOST_MASKING__MASK__{key}", value)
    manager = PluginManager()
    manager.load(entry_points=False, extra=[contexthost_masking])
    return manager


def start(manager: PluginManager, ctx: Context) -> None:
    asyncio.run(manager.notify("session_start", SessionStartEvent(reason="startup"), lambda name: ctx))


def settle(manager: PluginManager, authority: ProjectionAuthority, ctx: Context | None = None) -> list[tuple[str, Any]]:
    """What the plugins answer when a run is about to settle."""
    event = AgentBeforeSettleEvent(outcome="completed", context=authority.snapshot())
    known = ctx if ctx is not None else Surroundings(authority).ctx
    chained = asyncio.run(manager.chain("agent_before_settle", event, lambda name: known))
    return list(chained.answers)


def end_turn(
    manager: PluginManager, authority: ProjectionAuthority, outcome: Outcome = "completed", *, reserve: int = 16_384
) -> list[Any]:
    """What the plugins answer when a turn has ended."""
    event = TurnEndEvent(
        turn_index=0,
        message={},
        tool_results=[],
        message_entry_id="",
        tool_result_entry_ids=[],
        outcome=outcome,
        context=authority.snapshot(),
    )
    known = Surroundings(authority, reserve=reserve).ctx
    return list(asyncio.run(manager.chain("turn_end", event, lambda name: known)).answers)


def numbers(manager: PluginManager, reserve: int) -> dict[str, Any]:
    """From how many tokens on it wants which boundary."""
    known = Surroundings(full_session()[0], reserve=reserve).ctx
    named = {}
    for boundary in ("turn_end", "agent_before_settle"):
        asked = BoundaryThresholdEvent(boundary=boundary)
        ((_, named[boundary]),) = asyncio.run(manager.chain("boundary_threshold", asked, lambda name: known)).answers
    return named


def full_session(usage: int = 60_000) -> tuple[ProjectionAuthority, list[str]]:
    build = SessionBuilder()
    results = [turn(build) for _ in range(3)]
    answer(build, usage=usage)
    return project(build), results  # the window is 100,000: masking starts at 50,000


def test_the_plugin_is_installed_under_its_name() -> None:
    manager = PluginManager()
    manager.load()
    assert [info.state for info in manager.plugins if info.name == "masking"] == ["active"]


def test_a_run_that_ends_above_the_trigger_is_masked(manager: PluginManager, caplog: pytest.LogCaptureFixture) -> None:
    authority, results = full_session()
    with caplog.at_level(logging.INFO, logger="contexthost_masking"):
        ((_, boundary),) = settle(manager, authority)
    assert isinstance(boundary, Boundary)
    assert [draft.target_id for draft in boundary.drafts if isinstance(draft, ContextEditDraft)] == results
    assert not boundary.continue_run
    assert "masking 3 results frees 2," in caplog.text
    assert "tokens of prompt cache are rewritten once" in caplog.text
    authority.commit(boundary.drafts)
    assert authority.snapshot().ledger.masked_results == 3


def test_settling_again_masks_nothing_more(manager: PluginManager) -> None:
    authority, _ = full_session()
    ((_, boundary),) = settle(manager, authority)
    authority.commit(boundary.drafts)
    assert settle(manager, authority) == []


def test_below_the_trigger_it_says_nothing(manager: PluginManager) -> None:
    build = SessionBuilder()
    turn(build)
    answer(build, usage=49_999)
    assert settle(manager, project(build)) == []


def test_switched_off_it_says_nothing(manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__ENABLED", "false")
    assert settle(manager, full_session()[0]) == []
    assert end_turn(manager, full_session(usage=95_000)[0]) == []


def test_settings_are_read_when_a_session_starts(manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = full_session()[0]
    surroundings = Surroundings(authority)
    start(manager, surroundings.ctx)
    monkeypatch.setenv("CONTEXTHOST_MASKING__MASK__EXCLUDETOOLS", '["bash"]')
    assert len(settle(manager, authority, surroundings.ctx)) == 1
    start(manager, surroundings.ctx)
    assert settle(manager, authority, surroundings.ctx) == []
    asyncio.run(surroundings.rest())


def test_a_turn_that_ends_with_the_window_nearly_full_is_masked_at_once(manager: PluginManager) -> None:
    authority, results = full_session(usage=90_001)  # the window is 100,000
    ((_, boundary),) = end_turn(manager, authority)
    assert [draft.target_id for draft in boundary.drafts] == results


@pytest.mark.parametrize(
    ("usage", "reserve", "masked"),
    [
        (90_000, 0, False),  # exactly at urgentRatio, 0.9 of the window, is not above it
        (90_001, 0, True),
        (79_616, 16_384, True),  # the host's limit is 83,616: 4,000 tokens to go
        (79_615, 16_384, False),
    ],
)
def test_urgent_is_above_its_share_or_within_4000_tokens_of_the_hosts_limit(
    manager: PluginManager, usage: int, reserve: int, masked: bool
) -> None:
    assert bool(end_turn(manager, full_session(usage=usage)[0], reserve=reserve)) is masked


@pytest.mark.parametrize(
    ("reserve", "turn_end"),
    [
        (16_384, 79_616),  # urgent within 4,000 tokens of 83,616
        (50_000, 50_000),  # urgent from 46,000 on, but nothing is masked below the trigger
    ],
)
def test_the_numbers_that_it_names_are_those_from_which_it_masks(
    manager: PluginManager, reserve: int, turn_end: int
) -> None:
    assert numbers(manager, reserve) == {"turn_end": turn_end, "agent_before_settle": 50_000}
    for usage in (turn_end - 1, turn_end):
        authority, _ = full_session(usage)
        assert bool(end_turn(manager, authority, reserve=reserve)) is (usage == turn_end)
    for usage in (49_999, 50_000):
        authority, _ = full_session(usage)
        assert bool(settle(manager, authority)) is (usage == 50_000)


def test_switched_off_it_wants_no_boundary(manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__ENABLED", "false")
    assert numbers(manager, 16_384) == {"turn_end": sys.maxsize, "agent_before_settle": sys.maxsize}


@pytest.mark.parametrize("outcome", ["error", "aborted"])
def test_a_turn_that_failed_is_left_to_the_host(manager: PluginManager, outcome: Outcome) -> None:
    assert end_turn(manager, full_session(usage=95_000)[0], outcome) == []


def test_it_does_not_listen_to_context_and_never_cancels_a_compaction() -> None:
    assert not hasattr(contexthost_masking, "context")
    assert not hasattr(contexthost_masking, "session_before_compact")


def test_the_plugin_registers_settings_commands_and_a_tool() -> None:
    (spec,) = contexthost_masking.register_settings()
    assert (spec.package, spec.model) == ("masking", MaskingSettings)
    assert [command.name for command in contexthost_masking.register_cli()] == ["mask", "status", "tree-query"]
    assert [command.name for command in contexthost_masking.register_commands()] == ["compaction-status"]
    assert [tool.name for tool in contexthost_masking.register_tools()] == ["context_tree_query"]


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    heavy = "{'click', 'msgspec', 'pydantic', 'tiktoken'}"
    code = f"import sys, contexthost_masking; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
