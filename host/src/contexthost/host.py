"""`Host`: one open session with its projection, its settings and its plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from contexthost.config import HostSettings, Loaded, load_settings
from contexthost.context import Context
from contexthost.drivers.file import FileContext
from contexthost.events import SessionShutdownEvent, SessionStartEvent
from contexthost.plugins import PluginFailure, PluginManager
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost.tokens import default_counter

__all__ = ["Host", "load_plugins"]


def load_plugins(
    settings: HostSettings, *, extra: Sequence[object] = (), report: Callable[[PluginFailure], None] | None = None
) -> PluginManager:
    """The installed plugins, in the order of the settings; those that fail are left out with a warning."""
    manager = PluginManager(order=settings.order, timeout_seconds=settings.hookTimeoutSeconds, report=report)
    manager.load(disabled=settings.disabled, extra=extra)
    return manager


class Host:
    """One session and everything around it. Use it as an asynchronous context manager: plugins get ``session_start``
    on entering and ``session_shutdown`` on leaving.

    Attributes:
        session: the session.
        authority: says what the model sees.
        plugins: the plugin manager.
        settings: ``host.json`` with its warnings.
    """

    def __init__(self, session: Session, plugins: PluginManager, settings: Loaded[HostSettings], window: int) -> None:
        self.session = session
        self.plugins = plugins
        self.settings = settings
        self.authority = ProjectionAuthority(
            session, counter=default_counter(settings.values.encoding), window=window
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._contexts: dict[str, Context] = {}

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        plugins: Sequence[object] = (),
        window: int | None = None,
        owner: str = "contexthost",
    ) -> Self:
        """Opens a session file with the installed plugins; writes nothing.

        Args:
            path: the session file.
            plugins: plugin objects to load besides the installed ones.
            window: the context window in tokens; ``contextWindow`` of ``host.json`` by default.
            owner: who locks the session when something is written.

        Raises:
            SessionNotFound, SessionFormatError: the file cannot be used.
            PluginError: one of ``plugins`` cannot be registered.
        """
        settings = load_settings(HostSettings, "host")
        session = Session.open(path, owner=owner)
        manager = load_plugins(settings.values, extra=plugins)
        return cls(session, manager, settings, window or settings.values.contextWindow)

    def context(self, plugin: str) -> Context:
        """The plugin's ``ctx``: the same object throughout the session."""
        if plugin not in self._contexts:

            async def call(hook: str, event: object) -> list[tuple[str, Any]]:
                return list((await self.plugins.chain(hook, event, self.context)).answers)

            self._contexts[plugin] = FileContext(
                plugin, self.session, self.authority, self.settings.values, self._tasks, call
            )
        return self._contexts[plugin]

    async def __aenter__(self) -> Self:
        await self.plugins.notify("session_start", SessionStartEvent(reason="startup"), self.context)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.plugins.notify("session_shutdown", SessionShutdownEvent(reason="quit"), self.context)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.session.close()
