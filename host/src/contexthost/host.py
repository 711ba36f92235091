"""`Host`: a live session for Python programs: prompts, tools, plugins, compactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from contexthost.compaction import CompactionSettings
from contexthost.config import HostSettings, load_settings
from contexthost.context import AbortSignal, Command, Mode, Model, ModelInfo, NotifyLevel, Tool
from contexthost.drivers.live import Headless, LiveDriver, UserInterface
from contexthost.errors import CompactionFailed, SessionBusy, Unsupported
from contexthost.events import (
    AgentSettledEvent,
    CompactionReason,
    Handled,
    Hold,
    Image,
    InputEvent,
    ModelSelectEvent,
    SessionBeforeSwitchEvent,
    SessionShutdownEvent,
    SessionStartEvent,
    SessionTreeEvent,
)
from contexthost.inbox import Inbox, Input, give_back, hold, join, unsent_inputs
from contexthost.lifecycle import Lifecycle
from contexthost.loop import AgentRun
from contexthost.messages import Message, text_of
from contexthost.models.overflow import is_context_overflow
from contexthost.models.summarize import summarize
from contexthost.plugins import PluginFailure
from contexthost.prompting import Surroundings
from contexthost.runtime import Runtime, load_plugins
from contexthost.session import Entry, Session
from contexthost.watch import CompactionEnded, CompactionStarted, InputQueued, Notified, RunSettled, WatchEvent

__all__ = ["Host", "Prompted"]


@dataclass(frozen=True, slots=True)
class Prompted:
    """What became of a prompt.

    Attributes:
        disposition: ``started`` a run (which is over by now), ``queued`` for the run that goes on, ``held`` by a
            plugin that will release it, or ``handled`` by a plugin or as a slash command.
        text: what a slash command printed.
    """

    disposition: Literal["started", "queued", "held", "handled"]
    _answer: asyncio.Future[Message | None] | None = None
    text: str | None = None

    async def answer(self) -> Message | None:
        """Waits for the assistant message that answered the prompt; None for a handled one or one given back."""
        return await asyncio.shield(self._answer) if self._answer is not None else None


class Host:
    """A live session. Open it with `open` and use it as an asynchronous context manager.

    One thing that changes the context happens at a time: a run, a compaction, a move in the tree, a switch. What
    arrives meanwhile is queued when it says how (``streaming_behavior``), and refused with `SessionBusy` otherwise.

    Attributes:
        runtime: session, projection, plugins, settings.
        unsent: inputs that an earlier run of this session held and could neither send nor give back; see
            `resend_unsent`.
    """

    def __init__(
        self,
        runtime: Runtime,
        driver: LiveDriver,
        *,
        model: Model | None,
        tools: Sequence[Tool],
        system_prompt: str | None,
        thinking_level: str | None,
    ) -> None:
        self.runtime = runtime
        self.unsent: list[Input] = []
        self._driver = driver
        self._watchers: list[Callable[[WatchEvent], None]] = []
        self._busy: str | None = None
        self._settling = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._deferred: list[Callable[[], Awaitable[None]]] = []
        self._input_lock = asyncio.Lock()
        self._run: AgentRun | None = None
        self._run_task: asyncio.Task[None] | None = None
        self._generation = 0
        self._closed = False
        self._inbox = Inbox()
        self._own_tools = tuple(tools)
        self._surroundings = Surroundings(
            runtime, model=model, system_prompt=system_prompt, thinking_level=thinking_level
        )
        self._lifecycle = self._make_lifecycle()
        driver.bind(self)

    # Opening and closing -------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        *,
        model: Model | None = None,
        mode: Mode = "rpc",
        plugins: Sequence[object] = (),
        tools: Sequence[Tool] = (),
        system_prompt: str | None = None,
        thinking_level: str | None = None,
        cwd: str | Path | None = None,
        ui: UserInterface | None = None,
        installed_plugins: bool = True,
    ) -> Self:
        """Opens a session, or begins one.

        Args:
            path: a session file; one that does not exist yet is made with the first message; None keeps the session
                in memory.
            model: who answers; without one, prompts are refused.
            mode: how plugins see the session run.
            plugins: plugin objects besides the installed ones.
            tools: the program's own tools, besides the plugins'.
            system_prompt: recorded in the session when it differs from what the session has.
            thinking_level: Pi's level for models that think; None leaves it to the session.
            cwd: the working directory of a new session; the process's by default.
            ui: how to talk to the user, if there is one.
            installed_plugins: False loads only ``plugins``.

        Raises:
            SessionNotFound, SessionFormatError: the file cannot be used.
            PluginError: one of ``plugins`` cannot be registered.
        """
        settings = load_settings(HostSettings, "host")
        driver = LiveDriver(mode, ui or Headless())

        def report(failure: PluginFailure) -> None:
            driver.emit(Notified(failure.plugin, str(failure), "warning"))

        manager = load_plugins(settings.values, extra=plugins, report=report, installed=installed_plugins)
        session = _open_session(path, cwd)
        window = model.info.context_window if model is not None else None
        runtime = Runtime(session, plugins=manager, settings=settings, driver=driver, window=window)
        return cls(
            runtime,
            driver,
            model=model,
            tools=tools,
            system_prompt=system_prompt,
            thinking_level=thinking_level,
        )

    async def __aenter__(self) -> Self:
        await self._start("startup" if not self.session.entries else "resume", None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def _start(self, reason: Literal["startup", "new", "resume", "fork"], previous: str | None) -> None:
        self.session.hold()
        event = SessionStartEvent(reason=reason, previous_session_file=previous)
        await self.runtime.notify("session_start", event)
        self._surroundings.set_tools(self.runtime, self._own_tools)
        found = unsent_inputs(self.session)
        if found and self._driver.has_ui:
            await give_back(self.session, found, self._driver.interface)
        elif found:
            self.unsent = found
            text = f"{len(found)} held input(s) of an earlier run were never sent; resend_unsent() sends them"
            self.emit(Notified("", text, "warning"))

    async def shutdown(self) -> None:
        """Aborts what goes on, gives unsent inputs back, and closes the session; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        await self._leave("quit", None)

    async def _leave(self, reason: Literal["quit", "new", "resume", "fork"], target: str | None) -> None:
        self._generation += 1
        self.abort()
        await self._idle.wait()
        await self.runtime.notify("session_shutdown", SessionShutdownEvent(reason=reason, target_session_file=target))
        waiting = [*self._inbox.take_held(), *self._inbox.drain()]
        await give_back(self.session, waiting, self._driver.interface if self._driver.has_ui else None)
        await self.runtime.close()

    # State ---------------------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The session."""
        return self.runtime.session

    @property
    def model(self) -> Model | None:
        """Who answers."""
        return self._surroundings.chosen

    @property
    def idle(self) -> bool:
        """Whether nothing goes on: no run, compaction, move or switch. True within ``agent_settled``."""
        return self._busy is None or self._settling

    @property
    def pending(self) -> int:
        """How many inputs wait, queued or held."""
        return len(self._inbox) + len(self._inbox.held)

    @property
    def signal(self) -> AbortSignal | None:
        """Of the compaction or run that goes on."""
        if self._lifecycle.signal is not None:
            return self._lifecycle.signal
        return self._run.signal if self._run is not None else None

    def commands(self) -> dict[str, tuple[str, Command]]:
        """The slash commands of the plugins: name → (plugin, command), those that are available in this session."""
        found = self.runtime.plugins.items("register_commands", Command)
        return {c.name: (plugin, c) for plugin, c in found if c.available(self.runtime.context(plugin))}

    def watch(self, callback: Callable[[WatchEvent], None]) -> Callable[[], None]:
        """Calls back with everything that happens, until the returned function is called."""
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback) if callback in self._watchers else None

    def emit(self, event: WatchEvent) -> None:
        """Tells the watchers."""
        for watcher in list(self._watchers):
            watcher(event)

    async def wait_idle(self) -> None:
        """Waits until nothing goes on any more."""
        while self._busy is not None:
            await self._idle.wait()

    # Input ---------------------------------------------------------------------------------------------------------------

    async def prompt(
        self,
        text: str,
        *,
        images: Sequence[Image] = (),
        source: Literal["interactive", "rpc", "extension"] = "rpc",
        streaming_behavior: Literal["steer", "followUp"] | None = None,
    ) -> Prompted:
        """Sends an input as a user would, and waits until the run that it starts has settled.

        Args:
            text: a message, or a slash command of a plugin.
            images: blocks in Pi's shape.
            source: who sends it, for plugins.
            streaming_behavior: what to do while a run or a compaction goes on: ``steer`` sends it between two turns,
                ``followUp`` at the end. Needed only then.

        Raises:
            SessionBusy: something goes on and ``streaming_behavior`` is not given; nothing was sent.
            Unsupported: there is no model, or the session is closed.
        """
        self._require_open()
        command = self._command(text)
        if command is not None:
            return Prompted("handled", text=await self._run_command(*command))
        item, prompted = await self._take_input(text, tuple(images), source, streaming_behavior)
        if prompted.disposition == "started":
            await self._settled(item)
        return prompted

    def steer(self, text: str, images: Sequence[Image] = ()) -> asyncio.Task[Prompted]:
        """Sends an input between two turns of the run that goes on; starts a run when there is none."""
        return self._later(self.prompt(text, images=images, streaming_behavior="steer"))

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> asyncio.Task[Prompted]:
        """Sends an input when the run that goes on would end; starts a run when there is none."""
        return self._later(self.prompt(text, images=images, streaming_behavior="followUp"))

    async def resend_unsent(self) -> Prompted | None:
        """Sends what an earlier run held and never sent, as one input; None when there is nothing."""
        items, self.unsent = self.unsent, []
        if not items:
            return None
        self._require_free()
        joined = join(items)
        self._begin(joined)
        await self._settled(joined)
        return Prompted("started", joined.answer)

    async def _take_input(
        self, text: str, images: tuple[Image, ...], source: Any, streaming: Literal["steer", "followUp"] | None
    ) -> tuple[Input, Prompted]:
        while self._settling:  # asked for within agent_settled: after all its handlers
            await self._idle.wait()
        if self._busy is not None and streaming is None:
            self._require_free()
        async with self._input_lock:  # inputs pass the plugins one by one, so that their order stays
            generation = self._generation
            item = Input(text, images, streaming or "followUp")
            if not self._inbox.held:
                event = InputEvent(
                    text=text,
                    images=images,
                    source=source,
                    streaming_behavior=streaming if self._busy is not None else None,
                )
                chained = await self.runtime.input(event)
                item.text, item.images = chained.event.text, chained.event.images
                ended = chained.ended_by[1] if chained.ended_by is not None else None
                if isinstance(ended, Handled):
                    item.settle(None)
                    return item, Prompted("handled")
                holding = isinstance(ended, Hold) or bool(self._inbox.held)
            else:
                holding = True
            if generation != self._generation:  # the session it was meant for is gone
                await give_back(self.session, [item], self._driver.interface if self._driver.has_ui else None)
                return item, Prompted("held", item.answer)
            if holding:
                hold(self.session, item)
                self._inbox.held.append(item)
                self.emit(InputQueued(item.text, held=True))
                return item, Prompted("held", item.answer)
            if self._busy is not None:
                if streaming is None:
                    self._require_free()
                self._inbox.queue(item)
                self.emit(InputQueued(item.text, held=False))
                return item, Prompted("queued", item.answer)
            self._begin(item)
            return item, Prompted("started", item.answer)

    def release_held(self) -> None:
        """Sends everything that is held as one input, exactly once; does nothing when nothing is held."""
        items = self._inbox.take_held()
        if not items:
            return
        joined = join(items)
        if self._busy is not None or self._surroundings.chosen is None:
            self._inbox.queue(joined)
        else:
            self._begin(joined)

    # The run -------------------------------------------------------------------------------------------------------------

    def _begin(self, item: Input | None) -> None:
        """Starts a run; the busy flag is set before anything is awaited."""
        if self._surroundings.chosen is None:
            raise Unsupported("there is no model to answer: give one to Host.open or set_model")
        self._set_busy("run")
        self._run = AgentRun(
            self.runtime,
            self._lifecycle,
            self._inbox,
            self._surroundings,
            is_overflow=is_context_overflow,
            emit=self.emit,
        )
        self._run_task = asyncio.get_running_loop().create_task(self._drive(self._run, item))

    async def _drive(self, run: AgentRun, item: Input | None) -> None:
        try:
            await run.execute(item)
        finally:
            if item is not None:
                item.settle(None)
            self._run = None
            await self._settle(run.signal.aborted)

    async def _settle(self, aborted: bool) -> None:
        """Tells that the run is over, then does what was asked for meanwhile, then what is still queued."""
        self._settling = True
        try:
            await self.runtime.notify("agent_settled", AgentSettledEvent(aborted=aborted))
        finally:
            self._settling = False
            self.emit(RunSettled(aborted))
            self._set_busy(None)
        self._pump()

    def _pump(self) -> None:
        """Starts what waits, if nothing goes on: first what plugins asked for, then queued inputs."""
        if self._closed or self._busy is not None:
            return
        if self._deferred:
            work = self._deferred.pop(0)
            self.runtime.spawn("", _run_deferred(work, self._pump))
            return
        following = self._inbox.next_following()
        if following is not None:
            self._begin(following)

    async def _settled(self, item: Input) -> None:
        await asyncio.shield(item.answer)
        task = self._run_task
        if task is not None:
            await asyncio.shield(task)

    def abort(self) -> None:
        """Aborts the run and the compaction that go on; the session stays valid and open."""
        self._lifecycle.abort()
        if self._run is not None:
            self._run.signal.abort("aborted by the user")

    # Other operations ----------------------------------------------------------------------------------------------------

    async def compact(self, *, to: str | None = None, custom_instructions: str | None = None) -> Entry:
        """Compacts now; a run that goes on is aborted first. ``to`` addresses one plugin.

        Raises:
            NothingToCompact, CompactionCancelled, CompactionFailed: the session is as it was.
        """
        self._require_open()
        if self._busy == "run" and not self._settling:
            self.abort()
            await self.wait_idle()
        if self._busy is not None:
            raise CompactionFailed(f"a {self._busy} is going on; wait for it or abort it")
        self._set_busy("compaction")
        try:
            return await self._lifecycle.compact("manual", to=to, custom_instructions=custom_instructions)
        finally:
            self._set_busy(None)
            self._pump()

    def compact_for(
        self, plugin: str, *, only_if_idle: bool, to: str | None, custom_instructions: str | None
    ) -> Awaitable[Entry]:
        """A plugin's request for a compaction: see `Context.compact`."""
        if only_if_idle and not self.idle:
            raise Unsupported("not idle: a run or a compaction is going on")
        result: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        result.add_done_callback(_retrieve)

        async def work() -> None:
            try:
                entry = await self.compact(to=to, custom_instructions=custom_instructions)
            except Exception as error:  # noqa: BLE001 - handed on to whoever awaits the request
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(entry)

        if self._settling or self._deferred:
            self._deferred.append(work)
        else:
            self.runtime.spawn(plugin, work())
        return result

    async def navigate(self, entry_id: str) -> str | None:
        """Goes on from another entry of the tree. From a user message it goes on before it, and its text is given to
        the editor and returned.

        Raises:
            SessionBusy: something goes on.
            EntryNotFound: no such entry.
        """
        self._require_open()
        self._require_free()
        entry = self.session.require(entry_id)
        old = self.session.leaf_id
        if entry_id == old:
            return None
        self._set_busy("move in the tree")
        try:
            text = None
            if entry.type == "custom_message" or entry.role == "user":
                content = entry.data.get("content") if entry.message is None else entry.message.get("content")
                text = text_of(content)
                parent = self.session.parent(entry)
                self.session.move_leaf(parent.id if parent is not None else None)
            else:
                self.session.move_leaf(entry_id)
            if text and self._driver.has_ui:
                self._driver.interface.set_editor_text(text)
            event = SessionTreeEvent(new_leaf_id=self.session.leaf_id, old_leaf_id=old)
            await self.runtime.notify("session_tree", event)
            return text
        finally:
            self._set_busy(None)
            self._pump()

    async def set_model(self, model: Model) -> None:
        """Changes who answers, from the next request on; recorded in the session with it."""
        self._require_open()
        previous = self._surroundings.chosen
        self._surroundings.choose(model)
        event = ModelSelectEvent(
            model=model.info, previous_model=previous.info if previous is not None else None, source="set"
        )
        await self.runtime.notify("model_select", event)

    async def switch(self, path: str | Path | None) -> bool:
        """Leaves this session for another file (None: a new one in memory); False when a plugin prevented it.

        Inputs that were not sent go back to the editor, or are recorded and found at the session's next start.

        Raises:
            SessionNotFound, SessionFormatError: the file cannot be used; this session goes on.
        """
        self._require_open()
        target = str(path) if path is not None else None
        reason: Literal["new", "resume"] = "new" if path is None or not Path(path).exists() else "resume"
        session = _open_session(path, self.session.header.cwd)
        event = SessionBeforeSwitchEvent(reason=reason, target_session_file=target)
        if await self.runtime.ask_cancel("session_before_switch", event) is not None:
            return False
        previous = str(self.session.path) if self.session.path is not None else None
        await self._leave(reason, target)
        old = self.runtime
        self.runtime = Runtime(
            session,
            plugins=old.plugins,
            settings=load_settings(HostSettings, "host"),
            driver=self._driver,
            window=self._surroundings.window,
        )
        self._surroundings.move_to(self.runtime)
        self._inbox = Inbox()
        self._deferred = []
        self._lifecycle = self._make_lifecycle()
        await self._start(reason, previous)
        return True

    # Helpers -------------------------------------------------------------------------------------------------------------

    def _make_lifecycle(self) -> Lifecycle:
        configured = self.runtime.settings.values.compaction
        settings = CompactionSettings(
            reserve_tokens=configured.reserveTokens, keep_recent_tokens=configured.keepRecentTokens
        )
        return Lifecycle(self.runtime, settings=settings, observer=self, summarize=self._summarize)

    async def _summarize(self, preparation: Any, signal: AbortSignal, instructions: str | None) -> Any:
        model = self._surroundings.chosen
        if model is None:
            raise CompactionFailed("no plugin made a compaction and no model is configured for a summary")
        return await summarize(preparation, model, signal, custom_instructions=instructions)

    def compaction_started(self, reason: CompactionReason) -> None:
        """See `contexthost.lifecycle.Observer`."""
        self.emit(CompactionStarted(reason))

    def compaction_ended(self, reason: CompactionReason, entry: Entry | None, error: str | None) -> None:
        """See `contexthost.lifecycle.Observer`."""
        self.emit(CompactionEnded(reason, entry, error))
        if error is not None:
            self.emit(Notified("", f"compaction failed: {error}", "error"))

    def _command(self, text: str) -> tuple[str, Command, str] | None:
        if not text.startswith("/"):
            return None
        name, _, arguments = text[1:].partition(" ")
        found = self.commands().get(name)
        return (*found, arguments.strip()) if found is not None else None

    async def _run_command(self, plugin: str, command: Command, arguments: str) -> str | None:
        try:
            return await command.handler(arguments, self.runtime.context(plugin))
        except Exception as error:  # noqa: BLE001 - a command that fails is told and counts as run
            self.emit(Notified(plugin, f"/{command.name}: {error}", "error"))
            return None

    def _later(self, work: Any) -> asyncio.Task[Prompted]:
        task: asyncio.Task[Prompted] = asyncio.get_running_loop().create_task(work)
        return task

    def _set_busy(self, what: str | None) -> None:
        self._busy = what
        if what is None:
            self._idle.set()
        else:
            self._idle.clear()

    def _require_open(self) -> None:
        if self._closed:
            raise Unsupported("this session is closed")

    def _require_free(self) -> None:
        if self._busy is not None:
            raise SessionBusy(
                f"a {self._busy} is going on: wait for it, abort it, or say how to queue this (streaming_behavior)"
            )


def _retrieve(future: asyncio.Future[Entry]) -> None:
    """A request that nobody awaits must not end in a warning about its exception."""
    if not future.cancelled():
        future.exception()


async def _run_deferred(work: Callable[[], Awaitable[None]], then: Callable[[], None]) -> None:
    try:
        await work()
    finally:
        then()


def _open_session(path: str | Path | None, cwd: str | Path | None) -> Session:
    directory = str(cwd if cwd is not None else Path.cwd())
    if path is None:
        return Session.in_memory(header={"cwd": directory})
    if Path(path).exists():
        return Session.open(path, owner="a live contexthost session; use its own commands")
    return Session.new(path, cwd=directory, owner="a live contexthost session; use its own commands")
