"""One plugin's ``ctx``, over the runtime and the driver of its session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contexthost import paths
from contexthost.context import AbortSignal, Mode, ModelInfo, Timer, Ui
from contexthost.credentials import resolve_credential
from contexthost.errors import PluginError, Unsupported
from contexthost.history import History
from contexthost.projection import Snapshot
from contexthost.session import Entry, Session
from contexthost.session.entries import is_deep
from contexthost.shapes import input_problem
from contexthost.tokens import EffectiveUsage

if TYPE_CHECKING:
    from contexthost.compaction import CompactionSettings
    from contexthost.runtime import Driver, Runtime

__all__ = ["TOO_DEEP", "PluginContext", "refuse"]

TOO_DEEP: Final = "it is nested more than a thousand deep"


def refuse(problem: str | None, what: str = "") -> None:
    """Refuses what a plugin gave, if something is wrong with it.

    Raises:
        PluginError: something is.
    """
    if problem is not None:
        raise PluginError(f"{what}: {problem}" if what else problem)


class PluginContext:
    """One plugin's ``ctx``: see `contexthost.context.Context`, which it implements."""

    def __init__(self, plugin: str, runtime: Runtime) -> None:
        self._plugin = plugin
        self._runtime = runtime
        self._ui: Ui | None = None

    @property
    def _driver(self) -> Driver:
        """For what changes something; a plugin that kept its ``ctx`` must not reach the next session with it."""
        if self._runtime.closed:
            raise Unsupported("this session has ended; a ctx is of use only in its own session")
        return self._runtime.driver

    @property
    def snapshot(self) -> Snapshot:
        return self._runtime.authority.snapshot()

    @property
    def usage(self) -> EffectiveUsage:
        return self.snapshot.usage

    @property
    def session(self) -> Session:
        return self._runtime.session

    @property
    def history(self) -> History:
        return self._runtime.history

    @property
    def model(self) -> ModelInfo | None:
        return self._runtime.driver.model

    @property
    def compaction_settings(self) -> CompactionSettings:
        return self._runtime.compaction

    @property
    def mode(self) -> Mode:
        return self._runtime.driver.mode

    @property
    def cwd(self) -> Path:
        return Path(self._runtime.session.header.cwd or ".")

    @property
    def has_ui(self) -> bool:
        return self._runtime.driver.has_ui

    @property
    def ui(self) -> Ui:
        if self._ui is None:
            self._ui = self._runtime.driver.ui(self._plugin)
        return self._ui

    @property
    def signal(self) -> AbortSignal | None:
        return self._runtime.driver.signal

    @property
    def data_dir(self) -> Path:
        with contextlib.suppress(OSError):  # whoever only reads goes on; whoever writes into it is told what is wrong
            return paths.plugin_data_dir(self._plugin)
        return paths.plugin_data_dir(self._plugin, make=False)

    def supports(self, name: str) -> bool:
        return self._runtime.driver.supports(name)

    def is_idle(self) -> bool:
        return self._runtime.driver.is_idle()

    def has_pending_messages(self) -> bool:
        return self._runtime.driver.has_pending_messages()

    def compact(
        self, *, only_if_idle: bool = False, to: str | None = None, custom_instructions: str | None = None
    ) -> Awaitable[Entry]:
        return self._driver.compact(
            self._plugin, only_if_idle=only_if_idle, to=to, custom_instructions=custom_instructions
        )

    def compacting(self) -> None:
        self._runtime.compacting(self._plugin)

    def send_user_message(self, content: str, images: Sequence[Mapping[str, Any]] = ()) -> None:
        refuse(input_problem(content, images), f"{self._plugin}: this message cannot be sent")
        self._driver.send_user_message(self._plugin, content, images)

    def release_held(self) -> None:
        self._driver.release_held(self._plugin)

    def append_entry(self, custom_type: str, data: Any = None) -> None:
        if not isinstance(custom_type, str) or not custom_type:
            refuse("it has no type", f"{self._plugin}: this entry cannot be appended")
        refuse(TOO_DEEP if is_deep(data) else None, f"{self._plugin}: this entry cannot be appended")
        self._driver.append_entry(self._plugin, custom_type, data)

    def abort(self) -> None:
        self._driver.abort()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._runtime.spawn(self._plugin, work)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._runtime.call_later(self._plugin, seconds, callback)

    async def call_plugins(self, hook: str, event: object) -> list[tuple[str, Any]]:
        chained = await self._runtime.plugins.chain(hook, event, self._runtime.context)
        return list(chained.answers)

    async def credentials(self, provider: str) -> str | None:
        found = await asyncio.to_thread(resolve_credential, provider, self._runtime.settings.values)
        if found is None and self._runtime.find_credential is not None:
            found = await self._runtime.find_credential(provider)
        return found

    async def model_headers(self) -> Mapping[str, str]:
        if self._runtime.find_headers is not None:
            return await self._runtime.find_headers()
        model = self._driver.model
        return model.headers if model is not None else {}
