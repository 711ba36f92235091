"""The plugin within the host: its hooks, and what a live session gets from it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any, cast

import pytest

import contexthost_masking
from contexthost.context import Context
from contexthost.events import AgentBeforeSettleEvent, Boundary, SessionStartEvent
from contexthost.plugins import PluginManager
from contexthost.projection import ContextEditDraft, ProjectionAuthority
from contexthost_masking.settings import MaskingSettings
from support.builder import SessionBuilder
from support.masking import answer, project, turn

NO_CONTEXT = cast(Context, None)  # the plugin asks nothing of it


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> PluginManager:
    for key, value in {"MINCLEARTOKENS": "0", "KEEPRECENTTURNS": "1"}.items():
        monkeypatch.setenv(f"CONTEXTHOST_MASKING__MASK__{key}", value)
    manager = PluginManager()
    manager.load(entry_points=False, extra=[contexthost_masking])
    start(manager)
    return manager


def start(manager: PluginManager) -> None:
    event = SessionStartEvent(reason="startup")
    asyncio.run(manager.notify("session_start", event, lambda name: NO_CONTEXT))


def settle(manager: PluginManager, authority: ProjectionAuthority) -> list[tuple[str, Any]]:
    """What the plugins answer when a run is about to settle."""
    event = AgentBeforeSettleEvent(outcome="completed", context=authority.snapshot())
    chained = asyncio.run(manager.chain("agent_before_settle", event, lambda name: NO_CONTEXT))
    return list(chained.answers)


def full_session() -> tuple[ProjectionAuthority, list[str]]:
    build = SessionBuilder()
    results = [turn(build) for _ in range(3)]
    answer(build, usage=60_000)
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
    start(manager)
    assert settle(manager, full_session()[0]) == []


def test_settings_are_read_when_a_session_starts(manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__MASK__EXCLUDETOOLS", '["bash"]')
    assert len(settle(manager, full_session()[0])) == 1
    start(manager)
    assert settle(manager, full_session()[0]) == []


def test_the_hooks_register_settings_and_command() -> None:
    (spec,) = contexthost_masking.register_settings()
    assert (spec.package, spec.model) == ("masking", MaskingSettings)
    (command,) = contexthost_masking.register_cli()
    assert command.name == "mask"


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    heavy = "{'click', 'msgspec', 'pydantic', 'tiktoken'}"
    code = f"import sys, contexthost_masking; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
