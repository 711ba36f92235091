"""Every hook of contexthost.

A plugin is a module (or object) with functions named like these and marked ``@hookimpl``; it takes the arguments it
needs, by name. Except for the registrations a hook may be ``def`` (must be quick) or ``async def``; each
implementation has a deadline (``hookTimeoutSeconds`` in host.json, 10 s; ``compactionTimeoutSeconds``, 120 s, where
noted), after which the next plugin runs. An exception is logged and told once, then the next plugin runs.

Order: ``tryfirst``, then the rank in host.json, then ``trylast``. The patterns: *notify* (all run, answers are
ignored), *chain* (each sees what those before it answered), *first* (the first answer wins, the rest do not run).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

    from contexthost import events
    from contexthost.config import SettingsSpec
    from contexthost.context import Command, Context, Tool

__all__ = ["hookimpl", "hookspec"]

PROJECT = "contexthost"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


# Registrations: once, at loading; plain functions -------------------------------------------------------------------


@hookspec
def register_commands() -> Sequence[Command] | None:
    """Slash commands. A name that another plugin has taken is left out with a warning."""


@hookspec
def register_tools() -> Sequence[Tool] | None:
    """Tools for the model. A name that another plugin has taken is left out with a warning."""


@hookspec
def register_cli() -> Sequence[click.Command] | None:
    """Commands of ``contexthost`` on the command line."""


@hookspec
def register_settings() -> Sequence[SettingsSpec] | None:
    """The settings files of the plugin, for ``contexthost config`` and ``doctor``."""


@hookspec
def register_hookspecs() -> object:
    """A module or class with hooks of the plugin's own, marked ``@hookspec``, each with the arguments (event, ctx).

    Other plugins implement them with ``@hookimpl(optionalhook=True)``; ``ctx.call_plugins`` calls them.
    """


# The session ---------------------------------------------------------------------------------------------------------


@hookspec
def session_start(event: events.SessionStartEvent, ctx: Context) -> None:
    """Notify. A session is open and hydrated: after start-up, a reload, a switch or a fork. Settings are read here."""


@hookspec
def session_shutdown(event: events.SessionShutdownEvent, ctx: Context) -> None:
    """Notify. The session is about to end, after its run was aborted; ``spawn`` and timers end right after."""


@hookspec
def session_before_switch(event: events.SessionBeforeSwitchEvent, ctx: Context) -> events.Cancel | None:
    """First. Another session is about to take this one's place. May return Cancel."""


@hookspec
def session_before_fork(event: events.SessionBeforeForkEvent, ctx: Context) -> events.Cancel | None:
    """First. A fork is about to be made. May return Cancel."""


@hookspec
def session_tree(event: events.SessionTreeEvent, ctx: Context) -> None:
    """Notify. The leaf has moved to another place in the tree."""


@hookspec
def model_select(event: events.ModelSelectEvent, ctx: Context) -> None:
    """Notify. Another model was chosen."""


# Compaction ----------------------------------------------------------------------------------------------------------


@hookspec
def session_before_compact(
    event: events.SessionBeforeCompactEvent, ctx: Context
) -> events.Cancel | events.CompactionResult | None:
    """First, 120 s. A compaction is about to be made, by hand, at the threshold or after an overflow.

    May return Cancel or CompactionResult. A result that is not valid counts as no answer, and the next plugin is
    asked; with no answer at all the built-in summary is made. Addressed compactions ask one plugin alone.
    """


@hookspec
def session_compact(event: events.SessionCompactEvent, ctx: Context) -> None:
    """Notify. A compaction was appended."""


@hookspec
def session_compact_failed(event: events.SessionCompactFailedEvent, ctx: Context) -> None:
    """Notify. A compaction failed, was cancelled or aborted; the session is as it was."""


@hookspec
def context_estimates(event: events.ContextEstimatesEvent, ctx: Context) -> events.Estimate | None:
    """Chain, 120 s. Somebody asks what could be done about the context. May return Estimate; nothing is done."""


# The run, in its order -----------------------------------------------------------------------------------------------


@hookspec
def input(  # the name is Pi's
    event: events.InputEvent, ctx: Context
) -> events.Continue | events.Transform | events.Handled | events.Hold | None:
    """Chain. Somebody has entered something that is no slash command; templates are not expanded yet.

    May return Continue, Transform (the next plugin sees the new text), Handled or Hold (both end the chain).
    """


@hookspec
def agent_start(event: events.AgentStartEvent, ctx: Context) -> None:
    """Notify. A run begins, or begins again after a compaction, a retry or a continuation."""


@hookspec
def context(event: events.ContextEvent, ctx: Context) -> None:
    """Notify. A request is about to be built. It observes; lasting changes are drafts at ``turn_end``."""


@hookspec
def before_provider_headers(event: events.BeforeProviderHeadersEvent, ctx: Context) -> Mapping[str, str | None] | None:
    """Chain. The headers of a request. May return headers to set; None as a value takes one away."""


@hookspec
def before_provider_request(event: events.BeforeProviderRequestEvent, ctx: Context) -> Mapping[str, Any] | None:
    """Chain. The body of a request, after its headers. May return another body, as a whole."""


@hookspec
def boundary_threshold(event: events.BoundaryThresholdEvent, ctx: Context) -> int | None:
    """Chain. From how many tokens of context on has this plugin something to do at ``turn_end`` or before settling?

    May return an int: below it the plugin's hook of that boundary need not be called. Asked when a session starts, when
    the model changes and when a run begins.
    """


@hookspec
def provider_headers_wanted(event: events.ProviderHeadersWantedEvent, ctx: Context) -> bool | None:
    """Chain. Has this plugin something to do at ``before_provider_headers``, with the model in use?

    May return False: then the hook need not be called. Asked when ``boundary_threshold`` is.
    """


@hookspec
def turn_end(event: events.TurnEndEvent, ctx: Context) -> events.Boundary | None:
    """Chain, 120 s. An assistant message and all its tool results are in the session. May return Boundary."""


@hookspec
def agent_before_settle(event: events.AgentBeforeSettleEvent, ctx: Context) -> events.Boundary | None:
    """Chain. A run that was not aborted is about to settle. May return Boundary."""


@hookspec
def agent_settled(event: events.AgentSettledEvent, ctx: Context) -> None:
    """Notify. The run is over and the session idle; the place to ask for a compaction."""
