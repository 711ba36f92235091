"""`Host`: a live session for Python programs: prompts, tools, plugins, compactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from contexthost.activity import START, Activity
from contexthost.commands import session_commands
from contexthost.config import HostSettings, load_settings
from contexthost.context import AbortSignal, Command, Mode, Model, ModelInfo, Tool
from contexthost.drivers.live import LiveDriver, UserInterface, open_live_session
from contexthost.errors import ContexthostError, SessionBusy, Unsupported
from contexthost.events import (
    Image,
    ModelSelectEvent,
    SessionBeforeSwitchEvent,
    SessionShutdownEvent,
    SessionStartEvent,
    SessionTreeEvent,
)
from contexthost.inbox import Inbox, Input, give_back, unsent_inputs
from contexthost.intake import Intake, Prompted, Source, Streaming
from contexthost.messages import text_of
from contexthost.plugins import PluginFailure
from contexthost.projection import CustomDraft, Snapshot
from contexthost.runtime import Runtime, load_plugins
from contexthost.session import Entry, Session
from contexthost.slash import find_command, run_command
from contexthost.surroundings import Surroundings
from contexthost.watch import Notified, Watchers, WatchEvent

__all__ = ["Host", "Prompted"]

_Reason: TypeAlias = Literal["new", "resume"]


class Host:
    """A live session, made with `open` and used as an asynchronous context manager.

    One thing that changes the context happens at a time: a run, a compaction, a move in the tree, a switch. What
    arrives meanwhile is queued when it says how (``streaming_behavior``), and refused with `SessionBusy` otherwise.

    Attributes:
        runtime: session, projection, plugins, settings.
        unsent: inputs that an earlier run of this session held or queued and could neither send nor give back.
    """

    def __init__(
        self,
        runtime: Runtime,
        driver: LiveDriver,
        surroundings: Surroundings,
        tools: Sequence[Tool],
        watchers: Watchers,
    ) -> None:
        self.runtime = runtime
        self.unsent: list[Input] = []
        self._driver = driver
        self._surroundings = surroundings
        self._tools = tuple(tools)
        self._watchers = watchers
        self._closing: asyncio.Task[None] | None = None
        self._switching = False

    # Opening and closing ---------------------------------------------------------------------------------------------

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
            ui: how to ask the user and reach the editor, if there is one.
            installed_plugins: False loads only ``plugins``.

        Raises:
            SessionNotFound, SessionFormatError: the file cannot be used.
            PluginError: one of ``plugins`` cannot be registered.
        """
        watchers = Watchers()

        def report(failure: PluginFailure) -> None:
            watchers.tell(Notified(failure.plugin, str(failure), "warning"))

        settings = load_settings(HostSettings, "host")
        driver = LiveDriver(mode, ui, watchers.tell)
        manager = load_plugins(settings.values, extra=plugins, report=report, installed=installed_plugins)
        window = model.info.context_window if model is not None else None
        session = open_live_session(path, str(cwd if cwd is not None else Path.cwd()))
        runtime = Runtime(session, plugins=manager, settings=settings, driver=driver, window=window)
        surroundings = Surroundings(runtime, model=model, system_prompt=system_prompt, thinking_level=thinking_level)
        host = cls(runtime, driver, surroundings, tools, watchers)
        driver.bind(host)
        return host

    async def __aenter__(self) -> Self:
        await self._start("resume" if self.session.entries else "startup", None)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shutdown()

    async def _start(self, reason: Literal["startup", "new", "resume"], previous: str | None) -> None:
        self.session.hold()
        self._inbox = Inbox()
        self._activity = Activity(self.runtime, self._surroundings, self._inbox, self._watchers.tell)
        self._intake = Intake(self.runtime, self._activity, self._inbox, self._driver, self._watchers.tell)
        self._activity.try_turn(START)  # what plugins send now comes after all of them have started
        try:
            await self.runtime.notify(
                "session_start", SessionStartEvent(reason=reason, previous_session_file=previous)
            )
            self._surroundings.set_tools(self._tools)
            await self._find_unsent()
        finally:
            self._activity.release()

    async def _find_unsent(self) -> None:
        found = unsent_inputs(self.session)
        if self._driver.editor is not None:
            await give_back(self.session, found, self._driver.editor)
            found = [item for item in found if item.images]
        if found:
            self.unsent = found
            text = f"{len(found)} input(s) of an earlier run were never sent; Host.resend_unsent sends them"
            self._watchers.tell(Notified("", text, "warning"))

    async def shutdown(self) -> None:
        """Aborts what goes on, gives unsent inputs back, and closes the session; a second call waits for the first.

        Raises:
            SessionWriteError, SessionLocked: inputs that were not sent could not be recorded; the message has them.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._leave("quit", None))
        await asyncio.shield(self._closing)

    async def _leave(self, reason: Literal["quit", "new", "resume"], target: str | None) -> None:
        self._activity.ended = True
        self.abort()
        await self._activity.wait_idle()
        try:
            await self.runtime.notify(
                "session_shutdown", SessionShutdownEvent(reason=reason, target_session_file=target)
            )
            await self._intake.end()
        finally:
            await self.runtime.close()

    # State -----------------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The session."""
        return self.runtime.session

    @property
    def snapshot(self) -> Snapshot:
        """What the model sees now."""
        return self.runtime.authority.snapshot()

    @property
    def model(self) -> Model | None:
        """Who answers."""
        return self._surroundings.chosen

    @property
    def model_info(self) -> ModelInfo | None:
        """Who answers, as plugins see it."""
        return self._surroundings.chosen.info if self._surroundings.chosen is not None else None

    @property
    def idle(self) -> bool:
        """Whether nothing goes on: no run, compaction, move or switch. True within ``agent_settled``."""
        return self._activity.idle

    @property
    def pending(self) -> int:
        """How many inputs wait, queued or held."""
        return len(self._inbox) + len(self._inbox.held)

    @property
    def signal(self) -> AbortSignal | None:
        """Of the compaction or run that goes on."""
        return self._activity.signal

    def commands(self) -> dict[str, tuple[str, Command]]:
        """The slash commands that are available in this session: name → (plugin, command)."""
        return session_commands(self.runtime)

    def watch(self, callback: Callable[[WatchEvent], None]) -> Callable[[], None]:
        """Calls back with everything that happens, until the returned function is called."""
        return self._watchers.add(callback)

    async def wait_idle(self) -> None:
        """Waits until nothing goes on any more."""
        await self._activity.wait_idle()

    # Input -----------------------------------------------------------------------------------------------------------

    async def prompt(
        self,
        text: str,
        *,
        images: Sequence[Image] = (),
        source: Source = "rpc",
        streaming_behavior: Streaming = None,
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
        command = find_command(self.runtime, text) if source != "extension" else None
        if command is not None:
            return Prompted("handled", text=await run_command(self.runtime, *command, self._watchers.tell))
        item, prompted = await self._intake.take(text, tuple(images), source, streaming_behavior)
        if prompted.disposition == "started":
            await self._activity.settled(item)
        return prompted

    async def steer(self, text: str, images: Sequence[Image] = ()) -> Prompted:
        """Sends an input between two turns of the run that goes on; starts a run when there is none."""
        return await self.prompt(text, images=images, streaming_behavior="steer")

    async def follow_up(self, text: str, images: Sequence[Image] = ()) -> Prompted:
        """Sends an input when the run that goes on would end; starts a run when there is none."""
        return await self.prompt(text, images=images, streaming_behavior="followUp")

    async def resend_unsent(self) -> Prompted | None:
        """Sends what an earlier run of the session never sent, as one input; None when there is nothing."""
        self._require_open()
        joined = self._intake.send(self.unsent)
        if joined is None:
            return None
        self.unsent = []
        await self._activity.settled(joined)
        return Prompted("started", joined.answer)

    def abort(self) -> None:
        """Aborts the run and the compaction that go on; the session stays valid and open."""
        self._activity.abort()

    def release_held(self) -> None:
        """Sends everything that is held as one input, exactly once."""
        self._intake.release_held()

    def send_for(self, plugin: str, content: str, images: Sequence[Mapping[str, Any]]) -> None:
        """A plugin's message: see `Context.send_user_message`."""
        if self._activity.deferring:
            self._intake.take_later(Input(content, tuple(images)), "extension", "followUp")
            return
        self.runtime.spawn(plugin, self._send(content, images))

    async def _send(self, content: str, images: Sequence[Mapping[str, Any]]) -> None:
        await self._intake.take(content, tuple(images), "extension", "followUp")

    def append_custom(self, custom_type: str, data: Any) -> None:
        """Appends a custom entry: see `Context.append_entry`."""
        self.runtime.authority.commit([CustomDraft(custom_type=custom_type, data=data)])

    # Other operations ------------------------------------------------------------------------------------------------

    async def compact(self, *, to: str | None = None, custom_instructions: str | None = None) -> Entry:
        """Compacts now; a run that goes on is aborted first. ``to`` addresses one plugin.

        Raises:
            NothingToCompact, CompactionCancelled, CompactionFailed: the session is as it was.
        """
        self._require_open()
        return await self._activity.compact(to=to, custom_instructions=custom_instructions)

    def compact_for(self, plugin: str, **options: Any) -> Awaitable[Entry]:
        """A plugin's request for a compaction: see `Context.compact`."""
        return self._activity.compact_for(plugin, **options)

    async def navigate(self, entry_id: str) -> str | None:
        """Goes on from another entry of the tree. From a user message it goes on before it, and its text is returned
        and put into the editor, where there is one.

        Raises:
            SessionBusy: something goes on.
            EntryNotFound: no such entry.
        """
        self._require_open()
        self._activity.require_free()
        entry = self.session.require(entry_id)
        old = self.session.leaf_id
        if entry_id == old:
            return None
        self._activity.try_turn("move in the tree")
        try:
            text = None
            target: str | None = entry_id
            if entry.type == "custom_message" or entry.role == "user":
                content = entry.data.get("content") if entry.message is None else entry.message.get("content")
                text = text_of(content)
                parent = self.session.parent(entry)
                target = parent.id if parent is not None else None
            self.session.move_leaf(target)
            if text and self._driver.editor is not None:
                self._driver.editor.set_editor_text(text)
            await self.runtime.notify("session_tree", SessionTreeEvent(new_leaf_id=target, old_leaf_id=old))
            return text
        finally:
            self._activity.release()

    async def set_model(self, model: Model) -> None:
        """Changes who answers, from the next request on; it is recorded in the session with that request."""
        self._require_open()
        previous = self.model_info
        self._surroundings.choose(model)
        await self.runtime.notify(
            "model_select", ModelSelectEvent(model=model.info, previous_model=previous, source="set")
        )
        self._activity.pump()

    async def switch(self, path: str | Path | None) -> bool:
        """Leaves this session for another file (None: a new one in memory); False when a plugin prevented it.

        Inputs that were not sent go back to the editor, or are recorded and found at the session's next start.

        Raises:
            SessionNotFound, SessionFormatError, SessionLocked: the other file cannot be used; this session goes on.
            SessionBusy: another switch is going on.
        """
        self._require_open()
        if self._switching:
            raise SessionBusy("a switch to another session is going on already")
        self._switching = True
        try:
            return await self._switch(path)
        finally:
            self._switching = False

    async def _switch(self, path: str | Path | None) -> bool:
        target = str(path) if path is not None else None
        reason: _Reason = "resume" if path is not None and Path(path).exists() else "new"
        session = open_live_session(path, self.session.header.cwd)
        event = SessionBeforeSwitchEvent(reason=reason, target_session_file=target)
        if await self.runtime.ask_cancel("session_before_switch", event) is not None:
            return False
        session.hold()
        previous = str(self.session.path) if self.session.path is not None else None
        try:
            await self._leave(reason, target)
        except ContexthostError as error:  # unsent inputs could not be recorded: told, for there is no way back
            self._watchers.tell(Notified("", str(error), "error"))
        self.runtime = Runtime(
            session,
            plugins=self.runtime.plugins,
            settings=load_settings(HostSettings, "host"),
            driver=self._driver,
            window=self._surroundings.window,
        )
        self._surroundings.move_to(self.runtime)
        self.unsent = []
        await self._start(reason, previous)
        return True

    # Helpers ---------------------------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._closing is not None:
            raise Unsupported("this session is closed")
