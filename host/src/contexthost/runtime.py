"""The runtime of one open session: its plugins, the ``ctx`` that each of them gets, and how hooks are dispatched.

What a session can do beyond being read (sending messages, asking for compactions, talking to a user) is a driver's:
the file driver for commands, the live host for Python agents, the bridge for Pi. The runtime is the same for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from contexthost import paths
from contexthost.config import HostSettings, Loaded
from contexthost.context import AbortSignal, Mode, ModelInfo, Timer, Ui
from contexthost.credentials import resolve_credential
from contexthost.errors import ContexthostError
from contexthost.events import (
    AgentBeforeSettleEvent,
    Boundary,
    Cancel,
    CompactionResult,
    Event,
    InputEvent,
    SessionBeforeCompactEvent,
    TurnEndEvent,
)
from contexthost.history import History
from contexthost.plugins import Chained, PluginFailure, PluginManager
from contexthost.projection import CompactionDraft, Draft, ProjectionAuthority, Snapshot
from contexthost.session import Entry, Session
from contexthost.timers import WallTimer
from contexthost.tokens import EffectiveUsage, default_counter

__all__ = ["BoundaryOutcome", "Driver", "PluginContext", "Runtime", "load_plugins"]

_log = logging.getLogger(__name__)
_B = TypeVar("_B", TurnEndEvent, AgentBeforeSettleEvent)


def load_plugins(
    settings: HostSettings,
    *,
    extra: Sequence[object] = (),
    report: Callable[[PluginFailure], None] | None = None,
    installed: bool = True,
) -> PluginManager:
    """The installed plugins, in the order of the settings; those that fail are left out with a warning.

    ``extra`` are plugin objects to load besides; ``installed`` False loads only those.
    """
    manager = PluginManager(order=settings.order, timeout_seconds=settings.hookTimeoutSeconds, report=report)
    manager.load(disabled=settings.disabled, extra=extra, entry_points=installed)
    return manager


class Driver(Protocol):
    """What the surroundings of a session can do; the rest of `Context` is the runtime's.

    A method that is not possible raises Unsupported, and `supports` says so beforehand.
    """

    @property
    def mode(self) -> Mode:
        """How the session is run."""
        ...

    @property
    def has_ui(self) -> bool:
        """Whether somebody can answer."""
        ...

    @property
    def model(self) -> ModelInfo | None:
        """The model in use."""
        ...

    @property
    def signal(self) -> AbortSignal | None:
        """Of the run, tool call or compaction that is going on."""
        ...

    def ui(self, plugin: str) -> Ui:
        """The user, as one plugin talks to them."""
        ...

    def supports(self, name: str) -> bool:
        """Whether a method of `Context` (or ``ui.`` and one of `Ui`) is possible."""
        ...

    def is_idle(self) -> bool:
        """Whether no run and no compaction is going on."""
        ...

    def has_pending_messages(self) -> bool:
        """Whether messages are queued."""
        ...

    def compact(
        self, plugin: str, *, only_if_idle: bool, to: str | None, custom_instructions: str | None
    ) -> Awaitable[Entry]:
        """See `Context.compact`."""
        ...

    def send_user_message(self, plugin: str, content: str, images: Sequence[Mapping[str, Any]]) -> None:
        """See `Context.send_user_message`."""
        ...

    def release_held(self, plugin: str) -> None:
        """See `Context.release_held`."""
        ...

    def append_entry(self, plugin: str, custom_type: str, data: Any) -> None:
        """See `Context.append_entry`."""
        ...

    def abort(self) -> None:
        """See `Context.abort`."""
        ...


@dataclass(frozen=True, slots=True)
class BoundaryOutcome:
    """What the plugins want appended at a boundary, valid as a whole.

    ``proposers`` names the plugin of each draft, in the order of ``drafts``.
    """

    drafts: tuple[Draft, ...]
    proposers: tuple[str, ...]
    continue_run: bool


class Runtime:
    """One session with its projection, settings, plugins and driver.

    Attributes:
        session, authority: the session and what the model sees of it.
        history: all that the session has recorded.
        plugins: the plugin manager.
        settings: ``host.json``, with its warnings.
        driver: what the surroundings can do.
    """

    def __init__(
        self,
        session: Session,
        *,
        plugins: PluginManager,
        settings: Loaded[HostSettings],
        driver: Driver,
        window: int | None = None,
    ) -> None:
        self.session = session
        self.plugins = plugins
        self.settings = settings
        self.driver = driver
        self.authority = ProjectionAuthority(
            session,
            counter=default_counter(settings.values.encoding),
            window=window or settings.values.contextWindow,
        )
        self.history = History(session, self.authority.snapshot)
        self._contexts: dict[str, PluginContext] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[WallTimer] = set()
        self._closed = False

    def context(self, plugin: str) -> PluginContext:
        """The plugin's ``ctx``: the same object throughout the session."""
        made = self._contexts.get(plugin)
        if made is None:
            made = self._contexts[plugin] = PluginContext(plugin, self)
        return made

    # Dispatch --------------------------------------------------------------------------------------------------------

    async def notify(self, hook: str, event: Event) -> None:
        """Tells every plugin; answers are ignored."""
        await self.plugins.notify(hook, event, self.context)

    async def ask_cancel(self, hook: str, event: Event) -> Cancel | None:
        """Asks whether something may be done: the first Cancel, or None."""
        found = await self.plugins.first(hook, event, self.context)
        return found[1] if found is not None and isinstance(found[1], Cancel) else None

    async def input(self, event: InputEvent) -> Chained[InputEvent]:
        """Lets the plugins see an input, one after the other, until one handles or holds it."""
        return await self.plugins.chain("input", event, self.context)

    async def boundary(self, hook: str, event: _B, *, timeout_seconds: float | None = None) -> BoundaryOutcome:
        """Collects drafts at ``turn_end`` or ``agent_before_settle``; nothing is appended here.

        Each plugin sees what those before it proposed and the snapshot that it would give. Drafts that may not be
        appended are told as that plugin's failure and left out, with the rest of that plugin's answer.
        """
        proposers: list[str] = []

        def step(seen: _B, answer: Boundary) -> _B:
            preview = self.authority.preview([*seen.entries, *answer.drafts])  # InvalidDraft: this answer is dropped
            return replace(seen.apply(answer), context=preview)

        chained = await self.plugins.chain(hook, event, self.context, apply=step, timeout_seconds=timeout_seconds)
        for plugin, answer in chained.answers:
            proposers.extend(plugin for _ in answer.drafts)
        return BoundaryOutcome(chained.event.entries, tuple(proposers), chained.event.continue_run)

    async def before_compact(
        self, event: SessionBeforeCompactEvent, *, failures: list[PluginFailure] | None = None
    ) -> tuple[str, Cancel | CompactionResult] | None:
        """Asks who makes a compaction: (plugin, answer), or None when nobody does. Results are checked: one that
        could not be appended counts as a failure, and the next plugin is asked."""

        def check(plugin: str, answer: Cancel | CompactionResult) -> None:
            if isinstance(answer, CompactionResult):
                self.authority.validate([compaction_draft(answer)])

        return await self.plugins.first(
            "session_before_compact",
            event,
            self.context,
            only=event.addressed_to,
            check=check,
            failures=failures,
            timeout_seconds=self.settings.values.compactionTimeoutSeconds,
        )

    # Work beside the session -----------------------------------------------------------------------------------------

    def spawn(self, plugin: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs work beside the session until the session ends; a failure is logged and told, and harms nothing."""
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(self._guard(plugin, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # never begun, if the session ends right away

    async def _guard(self, plugin: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ContexthostError as error:
            self.driver.ui(plugin).notify(f"{plugin}: {error}", "error")
        except Exception as error:  # noqa: BLE001 - a plugin's background work must never take the session down
            _log.exception("plugin %s: work beside the session failed", plugin)
            self.driver.ui(plugin).notify(f"{plugin}: {type(error).__name__}: {error}", "error")

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls back after so many seconds of wall clock; not after the session has ended."""
        timer = WallTimer(seconds, callback, self._timers)
        if not self._closed:
            timer.start()
        return timer

    async def drain(self) -> None:
        """Waits until spawned work is over by itself; what it spawns in turn included."""
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Ends timers and spawned work, and waits for it to be over."""
        self._closed = True
        for timer in list(self._timers):
            timer.cancel()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.session.close()


def compaction_draft(result: CompactionResult) -> CompactionDraft:
    """The draft of a plugin's compaction."""
    return CompactionDraft(
        summary=result.summary,
        first_kept_entry_id=result.first_kept_entry_id,
        tokens_before=result.tokens_before,
        details=result.details,
        usage=result.usage,
    )


class PluginContext:
    """One plugin's ``ctx``: see `contexthost.context.Context`, which it implements."""

    def __init__(self, plugin: str, runtime: Runtime) -> None:
        self._plugin = plugin
        self._runtime = runtime
        self._ui: Ui | None = None

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
        return paths.plugin_data_dir(self._plugin)

    def supports(self, name: str) -> bool:
        return self._runtime.driver.supports(name)

    def is_idle(self) -> bool:
        return self._runtime.driver.is_idle()

    def has_pending_messages(self) -> bool:
        return self._runtime.driver.has_pending_messages()

    def compact(
        self, *, only_if_idle: bool = False, to: str | None = None, custom_instructions: str | None = None
    ) -> Awaitable[Entry]:
        return self._runtime.driver.compact(
            self._plugin, only_if_idle=only_if_idle, to=to, custom_instructions=custom_instructions
        )

    def send_user_message(self, content: str, images: Sequence[Mapping[str, Any]] = ()) -> None:
        self._runtime.driver.send_user_message(self._plugin, content, images)

    def release_held(self) -> None:
        self._runtime.driver.release_held(self._plugin)

    def append_entry(self, custom_type: str, data: Any = None) -> None:
        self._runtime.driver.append_entry(self._plugin, custom_type, data)

    def abort(self) -> None:
        self._runtime.driver.abort()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._runtime.spawn(self._plugin, work)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._runtime.call_later(seconds, callback)

    async def call_plugins(self, hook: str, event: object) -> list[tuple[str, Any]]:
        chained = await self._runtime.plugins.chain(hook, event, self._runtime.context)
        return list(chained.answers)

    async def credentials(self, provider: str) -> str | None:
        return await asyncio.to_thread(resolve_credential, provider, self._runtime.settings.values)
