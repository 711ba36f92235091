"""Masking: old tool results become one-line placeholders that can be brought back.

This module is the plugin; everything heavy is imported when a hook first needs it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from contexthost.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from contexthost.config import SettingsSpec
    from contexthost.context import Command, Context, Tool, ToolResult
    from contexthost.estimates import Estimate
    from contexthost.events import (
        AgentBeforeSettleEvent,
        AgentSettledEvent,
        Boundary,
        BoundaryThresholdEvent,
        ContextEstimatesEvent,
        SessionCompactEvent,
        SessionStartEvent,
        SessionTreeEvent,
        TurnEndEvent,
    )
    from contexthost_masking.live import Live

__all__ = [
    "agent_before_settle",
    "agent_settled",
    "boundary_threshold",
    "context_estimates",
    "register_cli",
    "register_commands",
    "register_settings",
    "register_tools",
    "session_compact",
    "session_start",
    "session_tree",
    "turn_end",
]

_live: weakref.WeakKeyDictionary[Context, Live] = weakref.WeakKeyDictionary()  # a context lives as long as its session


# Registrations -------------------------------------------------------------------------------------------------------


@hookimpl
def register_settings() -> Sequence[SettingsSpec]:
    """``masking.json``."""
    from contexthost.config import SettingsSpec
    from contexthost_masking.settings import PACKAGE, MaskingSettings

    return [SettingsSpec(PACKAGE, MaskingSettings)]


@hookimpl
def register_cli() -> Sequence[click.Command]:
    """``contexthost mask``, ``status`` and ``tree-query``."""
    from contexthost_masking.cli import mask
    from contexthost_masking.cli_query import status, tree_query

    return [mask, status, tree_query]


@hookimpl
def register_commands() -> Sequence[Command]:
    """``/compaction-status``."""
    from contexthost.context import Command

    return [
        Command(
            name="compaction-status",
            description="Show usage, thresholds, masks and compactions of this session.",
            handler=_status,
        )
    ]


@hookimpl
def register_tools() -> Sequence[Tool]:
    """``context_tree_query``."""
    from contexthost.context import Tool
    from contexthost_masking.query import DESCRIPTION, PARAMETERS, TOOL

    return [Tool(name=TOOL, description=DESCRIPTION, parameters=PARAMETERS, handler=_query)]


async def _status(arguments: str, ctx: Context) -> str:
    return _of(ctx).status(ctx).text()


async def _query(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    from contexthost.context import ToolResult
    from contexthost_masking.query import QueryError, Request, answer

    try:
        request = Request.of(arguments)
    except QueryError as error:
        return ToolResult(str(error), is_error=True)
    return ToolResult(answer(request, ctx.history, ctx.session).text)


# Hooks ---------------------------------------------------------------------------------------------------------------


@hookimpl
def session_start(event: SessionStartEvent, ctx: Context) -> None:
    """Reads the settings and shows the status."""
    live = _begin(ctx)
    if ctx.supports("ui.set_status"):
        ctx.spawn(live.show(ctx))


@hookimpl
def boundary_threshold(event: BoundaryThresholdEvent, ctx: Context) -> int:
    """Below the trigger no batch is due."""
    return _of(ctx).due_from(event.boundary, ctx)


@hookimpl
async def turn_end(event: TurnEndEvent, ctx: Context) -> Boundary | None:
    """Masks at once when the window is nearly full: the end of the run may be too late."""
    live = _of(ctx)
    if event.outcome != "completed" or not live.is_urgent(event.context, ctx):
        return None
    return await live.batch(event.context, ctx)


@hookimpl
async def agent_before_settle(event: AgentBeforeSettleEvent, ctx: Context) -> Boundary | None:
    """Masks old tool results when the run ends with usage at the trigger or above."""
    return await _of(ctx).batch(event.context, ctx)


@hookimpl
async def agent_settled(event: AgentSettledEvent, ctx: Context) -> None:
    """Asks for a summary when masks are not enough any more, and shows the status."""
    live = _of(ctx)
    live.summarise_if_due(event, ctx)
    await live.show(ctx)


@hookimpl
async def session_tree(event: SessionTreeEvent, ctx: Context) -> None:
    """Shows the status of the branch that the session is on now."""
    live = _of(ctx)
    live.context_changed()
    await live.show(ctx)


@hookimpl
async def session_compact(event: SessionCompactEvent, ctx: Context) -> None:
    """Remembers who made the compaction, and shows the status."""
    live = _of(ctx)
    live.context_changed()
    if event.plugin is not None:
        live.compacted_by[event.compaction_entry.id] = event.plugin
    await live.show(ctx)


@hookimpl
async def context_estimates(event: ContextEstimatesEvent) -> Estimate:
    """What a batch of masks would leave; async because it may take seconds."""
    from contexthost_masking.estimate import estimate

    return estimate(event.snapshot)


def _begin(ctx: Context) -> Live:
    from contexthost_masking.live import Live

    live = _live[ctx] = Live.begin()
    return live


def _of(ctx: Context) -> Live:
    live = _live.get(ctx)
    return live if live is not None else _begin(ctx)
