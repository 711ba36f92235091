"""contexthost: keeps long coding-agent sessions inside their context window without losing what matters.

The names here are the public ones; plugins import nothing else. They are looked up on first use (PEP 562), so that
``import contexthost`` costs nothing by itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contexthost.config import (
        HostSettings as HostSettings,
    )
    from contexthost.config import (
        Loaded as Loaded,
    )
    from contexthost.config import (
        Ratio as Ratio,
    )
    from contexthost.config import (
        Settings as Settings,
    )
    from contexthost.config import (
        SettingsGroup as SettingsGroup,
    )
    from contexthost.config import (
        SettingsSpec as SettingsSpec,
    )
    from contexthost.config import (
        SettingsWarning as SettingsWarning,
    )
    from contexthost.config import (
        TokenCount as TokenCount,
    )
    from contexthost.config import (
        load_settings as load_settings,
    )
    from contexthost.config import (
        strip_secrets as strip_secrets,
    )
    from contexthost.config import (
        update_file as update_file,
    )
    from contexthost.context import (
        AbortSignal as AbortSignal,
    )
    from contexthost.context import (
        Command as Command,
    )
    from contexthost.context import (
        Context as Context,
    )
    from contexthost.context import (
        Mode as Mode,
    )
    from contexthost.context import (
        Model as Model,
    )
    from contexthost.context import (
        ModelInfo as ModelInfo,
    )
    from contexthost.context import (
        ModelRequest as ModelRequest,
    )
    from contexthost.context import (
        NotifyLevel as NotifyLevel,
    )
    from contexthost.context import (
        SessionView as SessionView,
    )
    from contexthost.context import (
        Timer as Timer,
    )
    from contexthost.context import (
        Tool as Tool,
    )
    from contexthost.context import (
        ToolResult as ToolResult,
    )
    from contexthost.context import (
        Ui as Ui,
    )
    from contexthost.errors import (
        AmbiguousSession as AmbiguousSession,
    )
    from contexthost.errors import (
        CompactionFailed as CompactionFailed,
    )
    from contexthost.errors import (
        ContexthostError as ContexthostError,
    )
    from contexthost.errors import (
        EntryNotFound as EntryNotFound,
    )
    from contexthost.errors import (
        InvalidDraft as InvalidDraft,
    )
    from contexthost.errors import (
        NothingToCompact as NothingToCompact,
    )
    from contexthost.errors import (
        ParentCycle as ParentCycle,
    )
    from contexthost.errors import (
        PluginError as PluginError,
    )
    from contexthost.errors import (
        SessionChanged as SessionChanged,
    )
    from contexthost.errors import (
        SessionFormatError as SessionFormatError,
    )
    from contexthost.errors import (
        SessionLocked as SessionLocked,
    )
    from contexthost.errors import (
        SessionNotFound as SessionNotFound,
    )
    from contexthost.errors import (
        SessionWriteError as SessionWriteError,
    )
    from contexthost.errors import (
        SettingsError as SettingsError,
    )
    from contexthost.errors import (
        Unsupported as Unsupported,
    )
    from contexthost.events import (
        EVENTS as EVENTS,
    )
    from contexthost.events import (
        AgentBeforeSettleEvent as AgentBeforeSettleEvent,
    )
    from contexthost.events import (
        AgentSettledEvent as AgentSettledEvent,
    )
    from contexthost.events import (
        AgentStartEvent as AgentStartEvent,
    )
    from contexthost.events import (
        BeforeProviderHeadersEvent as BeforeProviderHeadersEvent,
    )
    from contexthost.events import (
        BeforeProviderRequestEvent as BeforeProviderRequestEvent,
    )
    from contexthost.events import (
        Boundary as Boundary,
    )
    from contexthost.events import (
        Cancel as Cancel,
    )
    from contexthost.events import (
        CompactionReason as CompactionReason,
    )
    from contexthost.events import (
        CompactionResult as CompactionResult,
    )
    from contexthost.events import (
        ContextEvent as ContextEvent,
    )
    from contexthost.events import (
        Continue as Continue,
    )
    from contexthost.events import (
        Event as Event,
    )
    from contexthost.events import (
        Handled as Handled,
    )
    from contexthost.events import (
        Hold as Hold,
    )
    from contexthost.events import (
        Image as Image,
    )
    from contexthost.events import (
        InputEvent as InputEvent,
    )
    from contexthost.events import (
        ModelSelectEvent as ModelSelectEvent,
    )
    from contexthost.events import (
        Outcome as Outcome,
    )
    from contexthost.events import (
        SessionBeforeCompactEvent as SessionBeforeCompactEvent,
    )
    from contexthost.events import (
        SessionBeforeForkEvent as SessionBeforeForkEvent,
    )
    from contexthost.events import (
        SessionBeforeSwitchEvent as SessionBeforeSwitchEvent,
    )
    from contexthost.events import (
        SessionCompactEvent as SessionCompactEvent,
    )
    from contexthost.events import (
        SessionCompactFailedEvent as SessionCompactFailedEvent,
    )
    from contexthost.events import (
        SessionShutdownEvent as SessionShutdownEvent,
    )
    from contexthost.events import (
        SessionStartEvent as SessionStartEvent,
    )
    from contexthost.events import (
        SessionTreeEvent as SessionTreeEvent,
    )
    from contexthost.events import (
        Transform as Transform,
    )
    from contexthost.events import (
        TurnEndEvent as TurnEndEvent,
    )
    from contexthost.hookspecs import (
        hookimpl as hookimpl,
    )
    from contexthost.hookspecs import (
        hookspec as hookspec,
    )
    from contexthost.plugins import (
        PluginFailure as PluginFailure,
    )
    from contexthost.plugins import (
        PluginInfo as PluginInfo,
    )
    from contexthost.plugins import (
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
    "events": """
        EVENTS AgentBeforeSettleEvent AgentSettledEvent AgentStartEvent BeforeProviderHeadersEvent
        BeforeProviderRequestEvent Boundary Cancel CompactionReason CompactionResult ContextEvent Continue Event
        Handled Hold Image InputEvent ModelSelectEvent Outcome SessionBeforeCompactEvent SessionBeforeForkEvent
        SessionBeforeSwitchEvent SessionCompactEvent SessionCompactFailedEvent SessionShutdownEvent
        SessionStartEvent SessionTreeEvent Transform TurnEndEvent
    """,
    "hookspecs": "hookimpl hookspec",
    "plugins": "PluginFailure PluginInfo PluginManager",
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
