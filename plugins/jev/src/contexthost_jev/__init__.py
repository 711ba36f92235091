"""Jev: compaction by decision. Tool calls stay, lose their output or go; what users and the assistant wrote stays.

This module is the plugin; everything heavy is imported when a hook first needs it. As a library, start with
`contexthost_jev.adapter.compact_session` for sessions and `contexthost_jev.core.compact` for any history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from contexthost.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from contexthost.config import Loaded, SettingsSpec
    from contexthost.context import Command, Context
    from contexthost.estimates import Estimate
    from contexthost.events import (
        Cancel,
        CompactionResult,
        ContextEstimatesEvent,
        SessionBeforeCompactEvent,
        SessionCompactEvent,
        SessionCompactFailedEvent,
        SessionShutdownEvent,
        SessionStartEvent,
    )
    from contexthost_jev.compactor import Attempt
    from contexthost_jev.settings import JevSettings

__all__ = [
    "context_estimates",
    "register_cli",
    "register_commands",
    "register_settings",
    "session_before_compact",
    "session_compact",
    "session_compact_failed",
    "session_shutdown",
    "session_start",
]


@dataclass
class _Process:
    """What the plugin remembers while the process lives; settings and key are per user, hence shared by sessions."""

    greeted: bool = False
    loaded: Loaded[JevSettings] | None = None
    running: dict[str, Attempt] = field(default_factory=dict)  # session id → its compaction that is under way
    last: dict[str, Attempt] = field(default_factory=dict)  # session id → the last one

    def settings(self) -> Loaded[JevSettings]:
        if self.loaded is None:
            from contexthost_jev.settings import load

            self.loaded = load()
        return self.loaded


_process = _Process()


@hookimpl
def register_settings() -> Sequence[SettingsSpec]:
    """``jev.json``."""
    from contexthost.config import SettingsSpec
    from contexthost_jev.settings import ENVIRONMENT, PACKAGE, JevSettings

    return [SettingsSpec(PACKAGE, JevSettings, ENVIRONMENT)]


@hookimpl
def register_cli() -> Sequence[click.Command]:
    """``contexthost jev``."""
    from contexthost_jev.cli import jev

    return [jev]


@hookimpl
def register_commands() -> Sequence[Command]:
    """``/jev-status`` and ``/jev-setup``."""
    from contexthost.context import Command

    return [
        Command(name="jev-status", description="Jev: key, options, last compaction", handler=_status),
        Command(name="jev-setup", description="Jev: how to set it up; defaults or JSON writes", handler=_setup),
    ]


@hookimpl
def session_start(event: SessionStartEvent, ctx: Context) -> None:
    """Reads the settings; says once per process whether there is a key."""
    _process.loaded = None
    _process.settings()
    # Pi starts a process for each session, and anew after a reload: only the first is news to the user. A command has
    # nobody to tell.
    goes_on = event.reason in ("reload", "new", "fork") or event.previous_session_file is not None
    if _process.greeted or goes_on or ctx.mode == "print":
        return
    _process.greeted = True

    from contexthost.config import HostSettings, load_settings
    from contexthost_jev.commands import ready_text
    from contexthost_jev.keys import key_source

    ctx.ui.notify(ready_text(key_source(load_settings(HostSettings, "host").values)))


@hookimpl
def session_shutdown(event: SessionShutdownEvent, ctx: Context) -> None:
    """Forgets the session, unless it comes back at once."""
    _process.running.pop(ctx.session.id, None)
    if event.reason != "reload":
        _process.last.pop(ctx.session.id, None)


@hookimpl
async def session_before_compact(event: SessionBeforeCompactEvent, ctx: Context) -> Cancel | CompactionResult | None:
    """Makes the compaction, or leaves it to others and says why; one that is addressed to jev is cancelled then."""
    from contexthost.events import Cancel
    from contexthost_jev.compactor import aborted, attempt

    if event.draft is not None:  # another plugin has made it already
        return None
    session = ctx.session.id
    # Until it has ended it counts as aborted: an abort may cancel this very call.
    _process.running[session] = aborted(event.reason)
    made = await attempt(event, ctx, _process.settings())
    _process.running[session] = _process.last[session] = made
    if made.outcome == "aborted":
        return Cancel()
    if made.result is None and event.addressed_to is not None:
        return Cancel(made.what)  # the host says who cancelled it
    ctx.ui.notify(made.text, made.level)
    return made.result


@hookimpl
def session_compact(event: SessionCompactEvent, ctx: Context) -> None:
    """Confirms whose summary was saved, when jev had been asked."""
    if _process.running.pop(ctx.session.id, None) is None:
        return
    details = event.compaction_entry.data.get("details")
    if event.plugin == "jev" or (isinstance(details, dict) and details.get("plugin") == "jev"):
        ctx.ui.notify("jev: its verbatim summary was saved.")
    elif event.plugin is None and not event.from_extension:
        ctx.ui.notify("jev: the built-in summary was saved.")


@hookimpl
def session_compact_failed(event: SessionCompactFailedEvent, ctx: Context) -> None:
    """Tells of an abort in a few words."""
    made = _process.running.pop(ctx.session.id, None)
    if event.aborted and made is not None and made.outcome == "aborted":
        ctx.ui.notify(made.text)


@hookimpl
async def context_estimates(event: ContextEstimatesEvent) -> Estimate:
    """The most that a compaction could save; async because it may take seconds."""
    from contexthost_jev.report import estimate

    return estimate(event.snapshot)


async def _status(arguments: str, ctx: Context) -> str:
    from contexthost_jev.commands import last_details, status

    last = _process.last.get(ctx.session.id)
    return status(last.text if last is not None else last_details(ctx.session.branch())).text()


async def _setup(arguments: str, ctx: Context) -> str:
    from contexthost_jev.commands import guide, parse_setup, status, write

    if not arguments:
        return guide(status(None))
    change = parse_setup(arguments)
    if not ctx.has_ui:
        return "Nothing was written: nobody can confirm it here; `contexthost jev setup` can."
    if not await ctx.ui.confirm("Write jev.json?", change.text()):
        return "Nothing was written."
    written = write(change)
    _process.loaded = None
    return written
