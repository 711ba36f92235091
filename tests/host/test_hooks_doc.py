"""host/docs/hooks.md is the reference of the hooks: its headings are the exact signatures, no hook is missing or too
many, every field of every event is explained, and the examples are plugins that load and run as they stand."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pluggy
import pytest

from contexthost import events as ev, hookspecs
from contexthost.context import AbortSignal, ModelInfo
from contexthost.events import EVENTS
from contexthost.plugins import PluginFailure, PluginManager
from contexthost.projection import CustomDraft

TEXT = (Path(__file__).parents[2] / "host" / "docs" / "hooks.md").read_text(encoding="utf-8")
SECTIONS = {
    match[1]: match[2] for match in re.finditer(r"^### (.+?)\n(.*?)(?=^##|\Z)", TEXT, flags=re.MULTILINE | re.DOTALL)
}
EXAMPLES = {heading: re.findall(r"^```python\n(.*?)^```", body, re.M | re.S) for heading, body in SECTIONS.items()}


def signature(name: str) -> str:
    return f"{name}({', '.join(getattr(MANAGER.hook, name).spec.argnames)})"


MANAGER = pluggy.PluginManager(hookspecs.PROJECT)
MANAGER.add_hookspecs(hookspecs)
HOOKS = [name for name, value in vars(hookspecs).items() if hasattr(value, "contexthost_spec")]


def test_the_headings_are_the_signatures_of_all_hooks_and_of_nothing_else() -> None:
    assert sorted(SECTIONS) == sorted(signature(name) for name in HOOKS)
    assert len(HOOKS) == 25


def test_every_hook_but_the_registrations_has_an_event_class() -> None:
    assert sorted(EVENTS) == sorted(name for name in HOOKS if not name.startswith("register_"))


@pytest.mark.parametrize("hook", sorted(EVENTS))
def test_the_fields_and_answers_of_an_event_are_explained(hook: str) -> None:
    section = SECTIONS[signature(hook)]
    named = set(re.findall(r"`([A-Za-z_]+)", section))
    fields = {field.name for field in dataclasses.fields(EVENTS[hook])}
    answers = {answer.__name__ for answer in EVENTS[hook].results} - {"Mapping"}
    assert fields | answers | {EVENTS[hook].__name__} <= named


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_has_a_docstring_that_says_its_pattern(hook: str) -> None:
    text = inspect.getdoc(getattr(hookspecs, hook))
    assert text
    if hook in EVENTS:
        pattern = text.split(",")[0].split(".")[0]
        assert pattern in {"Notify", "Chain", "First"}
        assert re.match(rf"\n{pattern}, `{EVENTS[hook].__name__}`", SECTIONS[signature(hook)])


def example(hook: str) -> types.ModuleType:
    (code,) = EXAMPLES[signature(hook)]
    module = types.ModuleType("example")
    exec(compile(code, f"hooks.md: {hook}", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("hook", HOOKS)
def test_the_example_is_a_plugin_that_implements_the_hook(hook: str) -> None:
    manager = PluginManager()
    manager.load(extra=[example(hook)], entry_points=False)
    assert [implementation.plugin for implementation in manager.implementations(hook)] == ["example"]
    if hook.startswith("register_"):
        ((plugin, value),) = manager.collect(hook)
        assert plugin == "example"
        assert value


MODEL = ModelInfo(provider="p", id="m", api="openai-responses")
PREPARATION = MagicMock(
    messages_to_summarize=[{"role": "user"}, {"role": "assistant"}], first_kept_entry_id="e7", tokens_before=50
)
SNAPSHOT = MagicMock(entries=[], messages=[])

# Hook → an event, and what the example answers to it (None: nothing).
SCENES: dict[str, tuple[Any, Any]] = {
    "session_start": (ev.SessionStartEvent(reason="startup"), None),
    "session_shutdown": (ev.SessionShutdownEvent(reason="quit"), None),
    "session_before_switch": (
        ev.SessionBeforeSwitchEvent(reason="new"),
        ev.Cancel("messages are still waiting to be sent"),
    ),
    "session_before_fork": (ev.SessionBeforeForkEvent(entry_id="e1", position="at"), ev.Cancel("that entry is gone")),
    "session_tree": (ev.SessionTreeEvent(new_leaf_id="e2", old_leaf_id=None), None),
    "model_select": (ev.ModelSelectEvent(model=MODEL, previous_model=None, source="set"), None),
    "session_before_compact": (
        ev.SessionBeforeCompactEvent(preparation=PREPARATION, branch_entries=(), reason="manual", signal=AbortSignal()),
        ev.CompactionResult(
            summary="1 questions were asked before this point.", first_kept_entry_id="e7", tokens_before=50
        ),
    ),
    "session_compact": (
        ev.SessionCompactEvent(compaction_entry=MagicMock(), reason="manual", from_extension=False),
        None,
    ),
    "session_compact_failed": (ev.SessionCompactFailedEvent(reason="manual", aborted=False, error_message="no"), None),
    "context_estimates": (
        ev.ContextEstimatesEvent(snapshot=SNAPSHOT, preview=lambda drafts: SNAPSHOT),
        ev.Estimate(what="keep the last 20 entries", tokens_after=0),
    ),
    "input": (ev.InputEvent(text="todo: tests"), ev.Transform("Put this on the list: tests")),
    "agent_start": (ev.AgentStartEvent(), None),
    "context": (ev.ContextEvent(snapshot=SNAPSHOT), None),
    "before_provider_headers": (ev.BeforeProviderHeadersEvent(headers={}), {"X-Session": "contexthost"}),
    "before_provider_request": (
        ev.BeforeProviderRequestEvent(payload={"model": "m"}),
        {"model": "m", "temperature": 0},
    ),
    "boundary_threshold": (ev.BoundaryThresholdEvent(boundary="turn_end"), 150_000),
    "provider_headers_wanted": (ev.ProviderHeadersWantedEvent(), False),
    "turn_end": (
        ev.TurnEndEvent(
            turn_index=3,
            message={},
            tool_results=(),
            message_entry_id="e3",
            tool_result_entry_ids=(),
            outcome="completed",
            context=SNAPSHOT,
        ),
        ev.Boundary((CustomDraft(custom_type="notes:turn", data={"turn": 3}),)),
    ),
    "agent_before_settle": (ev.AgentBeforeSettleEvent(outcome="completed", context=SNAPSHOT), ev.Boundary()),
    "agent_settled": (ev.AgentSettledEvent(aborted=False), None),
}


@pytest.mark.parametrize("hook", sorted(EVENTS))
def test_the_example_answers_what_the_page_says(hook: str) -> None:
    event, answer = SCENES[hook]
    failures: list[PluginFailure] = []
    manager = PluginManager(report=failures.append)
    manager.load(extra=[example(hook)], entry_points=False)
    ctx = MagicMock()
    ctx.usage.percent = 90
    ctx.session.entries = []
    ctx.session.get.return_value = None

    got = asyncio.run(manager.first(hook, event, lambda plugin: ctx))

    assert failures == []
    assert got == (None if answer is None else ("example", answer))
    if hook == "agent_settled":
        ctx.compact.assert_called_once_with(only_if_idle=True)
