"""contexthost: keeps long coding-agent sessions inside their context window without losing what matters.

The names here are the public ones; plugins import nothing else. They are looked up on first use (PEP 562), so that
``import contexthost`` costs nothing by itself.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing it from `typing` would take longer than all else here
if TYPE_CHECKING:
    import typing

    from contexthost.config import (
        HostSettings as HostSettings,
        Loaded as Loaded,
        Ratio as Ratio,
        Settings as Settings,
        SettingsGroup as SettingsGroup,
        SettingsSpec as SettingsSpec,
        SettingsWarning as SettingsWarning,
        TokenCount as TokenCount,
        load_settings as load_settings,
        strip_secrets as strip_secrets,
        update_file as update_file,
    )
    from contexthost.context import (
        AbortSignal as AbortSignal,
        Command as Command,
        Context as Context,
        Mode as Mode,
        Model as Model,
        ModelInfo as ModelInfo,
        ModelRequest as ModelRequest,
        NotifyLevel as NotifyLevel,
        SessionView as SessionView,
        Timer as Timer,
        Tool as Tool,
        ToolResult as ToolResult,
        Ui as Ui,
    )
    from contexthost.errors import (
        AmbiguousSession as AmbiguousSession,
        CompactionFailed as CompactionFailed,
        ContexthostError as ContexthostError,
        EntryNotFound as EntryNotFound,
        InvalidDraft as InvalidDraft,
        NothingToCompact as NothingToCompact,
        ParentCycle as ParentCycle,
        PluginError as PluginError,
        SessionChanged as SessionChanged,
        SessionFormatError as SessionFormatError,
        SessionLocked as SessionLocked,
        SessionNotFound as SessionNotFound,
        SessionWriteError as SessionWriteError,
        SettingsError as SettingsError,
        Unsupported as Unsupported,
    )
    from contexthost.estimates import Estimate as Estimate, Prices as Prices
    from contexthost.events import (
        EVENTS as EVENTS,
        AgentBeforeSettleEvent as AgentBeforeSettleEvent,
        AgentSettledEvent as AgentSettledEvent,
        AgentStartEvent as AgentStartEvent,
        BeforeProviderHeadersEvent as BeforeProviderHeadersEvent,
        BeforeProviderRequestEvent as BeforeProviderRequestEvent,
        Boundary as Boundary,
        BoundaryThresholdEvent as BoundaryThresholdEvent,
        Cancel as Cancel,
        CompactionReason as CompactionReason,
        CompactionResult as CompactionResult,
        ContextEstimatesEvent as ContextEstimatesEvent,
        ContextEvent as ContextEvent,
        Continue as Continue,
        Event as Event,
        Handled as Handled,
        Hold as Hold,
        Image as Image,
        InputEvent as InputEvent,
        ModelSelectEvent as ModelSelectEvent,
        Outcome as Outcome,
        ProviderHeadersWantedEvent as ProviderHeadersWantedEvent,
        SessionBeforeCompactEvent as SessionBeforeCompactEvent,
        SessionBeforeForkEvent as SessionBeforeForkEvent,
        SessionBeforeSwitchEvent as SessionBeforeSwitchEvent,
        SessionCompactEvent as SessionCompactEvent,
        SessionCompactFailedEvent as SessionCompactFailedEvent,
        SessionShutdownEvent as SessionShutdownEvent,
        SessionStartEvent as SessionStartEvent,
        SessionTreeEvent as SessionTreeEvent,
        Transform as Transform,
        TurnEndEvent as TurnEndEvent,
    )
    from contexthost.hookspecs import (
        hookimpl as hookimpl,
        hookspec as hookspec,
    )
    from contexthost.plugins import (
        PluginFailure as PluginFailure,
        PluginInfo as PluginInfo,
        PluginManager as PluginManager,
    )

# Module → its public names, again: the imports above are for type checkers only. A test compares the two.
_PUBLIC = {
    "config": """
        HostSettings Loaded Ratio Settings SettingsGroup SettingsSpec SettingsWarning TokenCount load_settings
        strip_secrets update_file
    """,
    "context": """
        AbortSignal Command Context Mode Model ModelInfo ModelRequest NotifyLevel SessionView Timer Tool
        ToolResult Ui
    """,
    "errors": """
        AmbiguousSession CompactionFailed ContexthostError EntryNotFound InvalidDraft NothingToCompact
        ParentCycle PluginError SessionChanged SessionFormatError SessionLocked SessionNotFound
        SessionWriteError SettingsError Unsupported
    """,
    "estimates": "Estimate Prices",
    "events": """
        EVENTS AgentBeforeSettleEvent AgentSettledEvent AgentStartEvent BeforeProviderHeadersEvent
        BeforeProviderRequestEvent Boundary BoundaryThresholdEvent Cancel CompactionReason CompactionResult
        ContextEstimatesEvent ContextEvent Continue Event Handled Hold Image InputEvent ModelSelectEvent Outcome
        ProviderHeadersWantedEvent SessionBeforeCompactEvent SessionBeforeForkEvent SessionBeforeSwitchEvent
        SessionCompactEvent SessionCompactFailedEvent SessionShutdownEvent SessionStartEvent SessionTreeEvent Transform
        TurnEndEvent
    """,
    "hookspecs": "hookimpl hookspec",
    "plugins": "PluginFailure PluginInfo PluginManager",
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}


def __getattr__(name: str) -> typing.Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
