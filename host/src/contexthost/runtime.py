"""The runtime of one open session: its plugins, the ``ctx`` that each of them gets, and how hooks are dispatched.

What a session can do beyond being read is a driver's: the file driver for commands, the live host, the bridge for Pi.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from contexthost._dispatch import Caught
from contexthost.compaction import CompactionSettings
from contexthost.config import HostSettings, Loaded
from contexthost.context import AbortSignal, Mode, ModelInfo, Timer, Ui
from contexthost.errors import ContexthostError
from contexthost.events import (
    AgentBeforeSettleEvent,
    BeforeProviderHeadersEvent,
    Boundary,
    Cancel,
    CompactionResult,
    Continue,
    Event,
    Handled,
    Hold,
    InputEvent,
    SessionBeforeCompactEvent,
    Transform,
    TurnEndEvent,
)
from contexthost.history import History
from contexthost.plugin_context import TOO_DEEP, PluginContext, refuse
from contexthost.plugins import Chained, PluginFailure, PluginManager
from contexthost.projection import CompactionDraft, Draft, ProjectionAuthority
from contexthost.session import Entry, Session
from contexthost.session.entries import is_deep
from contexthost.shapes import headers_problem, input_problem
from contexthost.timers import WallTimer
from contexthost.tokens import default_counter

__all__ = ["BoundaryOutcome", "Driver", "PluginContext", "Runtime", "load_plugins"]

_log = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 5.0
"""How long spawned work may take to clean up when the session ends."""
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
        compaction: when the session compacts by itself, and how much that keeps; a driver may know better than
            ``host.json``.
        driver: what the surroundings can do.
        closed: whether the session has ended.
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
        configured = settings.values.compaction
        self.compaction = CompactionSettings(
            reserve_tokens=configured.reserveTokens, keep_recent_tokens=configured.keepRecentTokens
        )
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
        self.closed = False
        self.compacting: Callable[[str], None] = lambda plugin: None
        """Told when a plugin says that it makes a compaction at a boundary; for drivers that wait only so long."""
        self.find_credential: Callable[[str], Awaitable[str | None]] | None = None
        """Asked for a provider's key that neither the environment nor ``host.json`` has; for drivers that know more."""
        self.find_headers: Callable[[], Awaitable[Mapping[str, str]]] | None = None
        """Asked for the headers that go to the model in use; for drivers whose model does not hold all of them."""

    def context(self, plugin: str) -> PluginContext:
        """The plugin's ``ctx``: the same object throughout the session."""
        if plugin not in self._contexts:
            self._contexts[plugin] = PluginContext(plugin, self)
        return self._contexts[plugin]

    # Dispatch

    async def notify(self, hook: str, event: Event) -> None:
        """Tells every plugin; answers are ignored."""
        await self.plugins.notify(hook, event, self.context)

    async def ask_cancel(self, hook: str, event: Event) -> Cancel | None:
        """Asks whether something may be done: the first Cancel, or None."""
        found = await self.plugins.first(hook, event, self.context)
        return found[1] if found is not None and isinstance(found[1], Cancel) else None

    async def input(self, event: InputEvent) -> Chained[InputEvent]:
        """Lets the plugins see an input, one after the other, until one handles or holds it. An answer that would make
        an input of it that cannot be sent is told as that plugin's failure and left out."""

        def step(seen: InputEvent, answer: Continue | Transform | Handled | Hold) -> InputEvent:
            if isinstance(answer, Transform):
                refuse(input_problem(answer.text, () if answer.images is None else answer.images))
            return seen.apply(answer)

        return await self.plugins.chain("input", event, self.context, apply=step)

    async def headers(self, event: BeforeProviderHeadersEvent) -> Chained[BeforeProviderHeadersEvent]:
        """Lets the plugins set the headers of a request, one after the other. An answer with one that HTTP does not
        allow is told as that plugin's failure and left out: with it no request would be sent at all."""

        def step(seen: BeforeProviderHeadersEvent, answer: Mapping[str, str | None]) -> BeforeProviderHeadersEvent:
            refuse(headers_problem(answer))
            return seen.apply(answer)

        return await self.plugins.chain("before_provider_headers", event, self.context, apply=step)

    async def boundary(self, hook: str, event: _B, *, timeout_seconds: float | None = None) -> BoundaryOutcome:
        """Collects drafts at ``turn_end`` or ``agent_before_settle``; nothing is appended here.

        Each plugin sees what those before it proposed and the snapshot that it would give. Drafts that may not be
        appended are told as that plugin's failure and left out, with the rest of that plugin's answer.
        """
        proposers: list[str] = []

        def step(seen: _B, answer: Boundary) -> _B:
            refuse(TOO_DEEP if is_deep(answer.drafts) else None)
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
                refuse(TOO_DEEP if is_deep(answer) else None)
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

    async def draft_cancelled(self, event: SessionBeforeCompactEvent) -> tuple[str, Cancel] | None:
        """Asks about a compaction that a plugin drafted: (plugin, Cancel) of the first that objects, or None. Other
        answers do not count: the compaction is made already."""
        timeout = self.settings.values.compactionTimeoutSeconds
        chained = await self.plugins.chain(
            "session_before_compact", event, self.context, apply=lambda seen, _: seen, timeout_seconds=timeout
        )
        ended = chained.ended_by
        return (ended[0], ended[1]) if ended is not None and isinstance(ended[1], Cancel) else None

    # Work beside the session

    def spawn(self, plugin: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs work beside the session until the session ends; a failure is logged and told, and harms nothing."""
        if self.closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(self._guard(plugin, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # never begun, if the session ends right away

    async def _guard(self, plugin: str, work: Coroutine[Any, Any, None]) -> None:
        with Caught() as caught:
            await work
        if caught.error is not None:
            self._tell_failure(plugin, caught.error, "work beside the session")

    def _tell_failure(self, plugin: str, error: Exception, what: str) -> None:
        who = f"{plugin}: " if plugin else ""
        if isinstance(error, ContexthostError):
            self.driver.ui(plugin).notify(f"{who}{error}", "error")
            return
        _log.error("plugin %s: %s failed", plugin, what, exc_info=error)
        self.driver.ui(plugin).notify(f"{who}{type(error).__name__}: {error}", "error")

    def call_later(self, plugin: str, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls back after so many seconds of wall clock; not after the session has ended. A failure is told."""

        def call() -> None:
            with Caught() as caught:
                callback()
            if caught.error is not None:
                self._tell_failure(plugin, caught.error, "a timer's call")

        timer = WallTimer(seconds, call, self._timers)
        if not self.closed:
            timer.start()
        return timer

    async def drain(self) -> None:
        """Waits until spawned work is over by itself; what it spawns in turn included."""
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Ends timers and spawned work, and waits for it; what does not let itself be cancelled is left and logged."""
        self.closed = True
        for timer in list(self._timers):
            timer.cancel()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
            if left:
                _log.error("%d tasks of plugins do not end with the session", len(left))
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
