"""Relay: a long conversation is handed over to a short note, without a model; ``recall`` brings back the rest.

This module is the plugin; everything heavy is imported when a hook first needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contexthost.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from contexthost.config import SettingsSpec
    from contexthost.context import Command, Context, Tool, ToolResult
    from contexthost.estimates import Estimate
    from contexthost.events import (
        Cancel,
        CompactionResult,
        ContextEstimatesEvent,
        Hold,
        InputEvent,
        SessionBeforeCompactEvent,
        SessionCompactEvent,
        SessionCompactFailedEvent,
    )
    from contexthost_relay.hookspecs import RelayNoteEvent as RelayNoteEvent
    from contexthost_relay.note import NoteSection as NoteSection
    from contexthost_relay.relays import Relays

__all__ = ["NoteSection", "RelayNoteEvent"]

_sessions: dict[Context, Relays] = {}  # from the start of a session to its end


def __getattr__(name: str) -> Any:
    if name == "NoteSection":
        from contexthost_relay.note import NoteSection

        return NoteSection
    if name == "RelayNoteEvent":
        from contexthost_relay.hookspecs import RelayNoteEvent

        return RelayNoteEvent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Registrations -------------------------------------------------------------------------------------------------------


@hookimpl
def register_settings() -> Sequence[SettingsSpec]:
    """``relay.json``."""
    from contexthost.config import SettingsSpec
    from contexthost_relay.settings import PACKAGE, RelaySettings

    return [SettingsSpec(PACKAGE, RelaySettings)]


@hookimpl
def register_cli() -> Sequence[click.Command]:
    """``contexthost relay`` and ``contexthost recall``."""
    from contexthost_relay.cli import recall, relay

    return [relay, recall]


@hookimpl
def register_hookspecs() -> object:
    """``relay_note_sections``."""
    from contexthost_relay.hookspecs import RelayNoteHooks

    return RelayNoteHooks


@hookimpl
def register_commands() -> Sequence[Command]:
    """``/relay``."""
    from contexthost.context import Command

    return [
        Command(
            name="relay",
            description="Replace the conversation so far by a note, without a model; recall brings back the rest",
            handler=_relay_command,
            available=_is_active,
        )
    ]


@hookimpl
def register_tools() -> Sequence[Tool]:
    """``recall``."""
    from contexthost.context import Tool
    from contexthost_relay.recall import DESCRIPTION, PARAMETERS

    return [
        Tool(
            name="recall",
            description=DESCRIPTION,
            parameters=PARAMETERS,
            handler=_recall_tool,
            available=_can_recall,
        )
    ]


async def _relay_command(arguments: str, ctx: Context) -> str | None:
    return await _relays(ctx).by_hand()


async def _recall_tool(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    from contexthost.context import ToolResult
    from contexthost_relay.recall import recall

    return ToolResult(recall(arguments, ctx.history, ctx.data_dir).text)


def _is_active(ctx: Context) -> bool:
    return _relays(ctx).active


def _can_recall(ctx: Context) -> bool:
    """Where relays are made, and on session files, of which whoever asks has chosen one."""
    return _is_active(ctx) or _relays(ctx).on_file


# The session ---------------------------------------------------------------------------------------------------------


def _relays(ctx: Context) -> Relays:
    """The relays of a session; settings are read when it starts."""
    found = _sessions.get(ctx)
    if found is None:
        from contexthost.config import load_settings
        from contexthost_relay.relays import Relays
        from contexthost_relay.settings import PACKAGE, RelaySettings

        found = _sessions[ctx] = Relays(ctx, load_settings(RelaySettings, PACKAGE).values)
    return found


@hookimpl
def session_start(ctx: Context) -> None:
    """Reads the settings anew."""
    from contexthost.config import load_settings
    from contexthost_relay.settings import PACKAGE, RelaySettings

    _relays(ctx).settings = load_settings(RelaySettings, PACKAGE).values


@hookimpl(tryfirst=True)
def session_shutdown(ctx: Context) -> None:
    """Ends timers; nothing is sent any more."""
    relays = _sessions.pop(ctx, None)
    if relays is not None:
        relays.on_shutdown()


@hookimpl
async def context_estimates(event: ContextEstimatesEvent, ctx: Context) -> Estimate:
    """What a relay would leave."""
    from contexthost_relay.estimate import estimate

    return await estimate(event, ctx, _relays(ctx).settings)


@hookimpl
async def session_before_compact(
    event: SessionBeforeCompactEvent, ctx: Context
) -> CompactionResult | Cancel | None:
    """Makes the compactions that are meant for this plugin."""
    return await _relays(ctx).before_compact(event)


@hookimpl
def session_compact(event: SessionCompactEvent, ctx: Context) -> None:
    """Logs relays."""
    _relays(ctx).on_compacted(event)


@hookimpl
def session_compact_failed(event: SessionCompactFailedEvent, ctx: Context) -> None:
    """Removes the note of a relay that came to nothing."""
    _relays(ctx).on_failed(event)


@hookimpl
def input(event: InputEvent, ctx: Context) -> Hold | None:  # the name is Pi's
    """Relays before a new message when the context is large. Not async: nothing may happen between this answer and
    the host's taking note of it."""
    return _relays(ctx).on_input(event)


@hookimpl
def agent_start(ctx: Context) -> None:
    """The cache is used again: no relay before its expiry."""
    _relays(ctx).cancel_timer()


@hookimpl
def agent_settled(ctx: Context) -> None:
    """Sets the timer for a relay before the prompt cache expires."""
    _relays(ctx).on_settled()
