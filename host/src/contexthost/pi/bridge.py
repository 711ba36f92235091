"""Between the protocol and the runtime: messages from Pi become hooks, tools and commands; their answers go back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.metadata
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Final

from contexthost._budget import TimeBudget, time_budget
from contexthost.config import HostSettings, load_settings
from contexthost.context import AbortSignal, Command, Tool
from contexthost.errors import ContexthostError
from contexthost.events import EVENTS, SessionShutdownEvent, SessionStartEvent
from contexthost.pi.commands import HostCommands
from contexthost.pi.driver import PiDriver, current_signal
from contexthost.pi.hooks import Hooks
from contexthost.pi.lanes import Lane
from contexthost.pi.manifest import manifest_digest, manifest_of, settings_warnings
from contexthost.pi.mirror import Gap, Mirror, NotWhole
from contexthost.pi.protocol import (
    CANCELLED,
    FAILED,
    INTERNAL,
    INVALID,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION,
    VERSION_MISMATCH,
    Message,
    Peer,
)
from contexthost.pi.requests import Refused, Requests, current_request
from contexthost.pi.wire import failure_to_pi, model_from_pi, text_or_none, text_to_pi, tool_result_to_pi
from contexthost.plugins import PluginFailure
from contexthost.runtime import Runtime, load_plugins
from contexthost.session import Entry

__all__ = ["Bridge"]

_START_SHARE: Final = 0.4
"""What all plugins have for `session_start`, of the time that is also there for this process to start in."""

_SHUTDOWN_SECONDS: Final = 2.0
_LOCK_RETRY_SECONDS: Final = 2.0
_LOCK_TOLD: Final = 3
"""The attempt after which the user is told: a short write by a command is none of their business."""

_log = logging.getLogger(__name__)


class Bridge:
    """One connection to Pi, which is one session: `receive` takes each message in order and never blocks."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._settings = load_settings(HostSettings, "host")
        self._plugins = load_plugins(self._settings.values, extra=[HostCommands()], report=self._report)
        self._manifest = manifest_of(self._plugins)
        self._tools = {tool.name: (plugin, tool) for plugin, tool in self._plugins.items("register_tools", Tool)}
        self._commands = {
            command.name: (plugin, command) for plugin, command in self._plugins.items("register_commands", Command)
        }
        self._wanted = [hook for hook in EVENTS if self._plugins.implementations(hook)]
        self._driver = PiDriver(peer, self._find_entry)
        self._mirror: Mirror | None = None
        self._runtime: Runtime | None = None
        self._hooks: Hooks | None = None
        self._ended = False
        self._ending: asyncio.Task[Any] | None = None
        self._requests = Requests()
        self._notices: set[asyncio.Task[Any]] = set()
        self._watching: tuple[bool, bool] = (False, False)
        # Inputs are asked for while a boundary may still be going on, and compactions while a hook may be waiting for
        # one: each kind is in order for itself, and all come after the session's start.
        self._lanes = {"run": Lane(), "input": Lane(), "compaction": Lane()}

    # Messages --------------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """Takes one request or notification; whatever goes wrong with it, a request is answered."""
        try:
            self._take(message)
        except Exception as error:  # noqa: BLE001 - Pi is waiting for an answer, and would until its deadline
            _log.exception("%s failed", message.method)
            self._refuse(message, INTERNAL, f"{type(error).__name__}: {error}")

    def _take(self, message: Message) -> None:
        method = message.method or ""
        if message.state is not None:
            self._driver.take_state(message.state)
            if self._hooks is not None:
                self._hooks.take_model(message.state)
        if self._hooks is not None and "compaction" in message.event:
            self._hooks.take_compaction_settings(message.event)  # now: a command may come next, and waits for no hook
        if method == "session/start":
            self._start(message)
        elif self._mirror is not None and not self._sync(message, self._mirror):
            return
        elif method == "cancel":
            self._requests.cancel(message.event)
        elif method.startswith("hook/"):
            self._hook(method.removeprefix("hook/"), message)
        elif method in self.METHODS:
            self._serve(message, self.METHODS[method](self, message))
        elif message.id is not None:
            self._peer.refuse(message.id, METHOD_NOT_FOUND, f"there is no method {method}")

    def _sync(self, message: Message, mirror: Mirror) -> bool:
        """Whether the session is as Pi has it, or does not matter to the message, which is put off otherwise."""
        try:
            if message.sync is not None and mirror.apply(message.sync):
                self._watch_requests()
        except Gap as gap:
            _log.error("the session is asked for anew: %s", gap)
            self._peer.notify("session/resync", {})
        if mirror.lost and (message.method or "").startswith(("hook/", "tool/", "command/")):
            mirror.put_off(message)
            return False
        for one in mirror.due():
            self.receive(one)
        return True

    def _serve(self, message: Message, work: Coroutine[Any, Any, Any], lane: str | None = None) -> None:
        """Runs what a message asks for, and answers if it is a request."""
        signal = AbortSignal()
        budget = self._budget(message)
        answering = self._answering(message, signal, budget, work)
        if lane is None:
            task = asyncio.create_task(answering)
        else:
            if message.id is not None:
                self._lanes[lane].hurry(self._settings.values.pi.answerSeconds / 2)
            task = self._lanes[lane].enter(answering, notice=budget if message.id is None else None)
        task.add_done_callback(lambda _: work.close())  # it has not begun, when the task was cancelled before that
        if message.id is not None:
            self._requests.add(message, task, signal, budget)
            task.add_done_callback(lambda _: self._answered(message.id, task))
        else:
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)

    def _answered(self, number: int | str | None, task: asyncio.Task[Any]) -> None:
        if number is not None:
            self._requests.forget(number)
            if task.cancelled():
                self._peer.refuse(number, CANCELLED, "cancelled")

    def _budget(self, message: Message) -> TimeBudget | None:
        """Less than Pi waits, so that one plugin that hangs is found out here and costs the others nothing."""
        method = message.method or ""
        if method == "session/start":
            return TimeBudget(_START_SHARE * self._settings.values.pi.startSeconds)
        if not method.startswith("hook/"):
            return None
        if message.id is None:
            return TimeBudget()  # until a request waits behind it
        values = self._settings.values
        late = method == "hook/session_before_compact"
        return TimeBudget(values.compactionTimeoutSeconds if late else values.pi.answerSeconds)

    async def _answering(
        self, message: Message, signal: AbortSignal, budget: TimeBudget | None, work: Coroutine[Any, Any, Any]
    ) -> None:
        time_budget.set(budget)
        current_signal.set(signal)
        current_request.set(message.id)
        try:
            result = await work
            if message.id is not None:
                self._peer.answer(message.id, result)
        except (Refused, ContexthostError) as error:
            self._refuse(message, error.code if isinstance(error, Refused) else FAILED, failure_to_pi(str(error)))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever went wrong, sys.exit too: Pi is waiting for an answer
            _log.exception("%s failed", message.method)
            self._refuse(message, INTERNAL, failure_to_pi(f"{type(error).__name__}: {error}"))

    def _refuse(self, message: Message, code: int, text: str) -> None:
        if message.id is not None:
            self._peer.refuse(message.id, code, text)
        else:
            _log.error("%s: %s", message.method, text)

    # The session -----------------------------------------------------------------------------------------------------

    async def _initialize(self, message: Message) -> Any:
        theirs = message.event.get("protocol")
        if theirs != PROTOCOL_VERSION:
            raise Refused(
                VERSION_MISMATCH,
                f"Pi's extension speaks protocol {theirs}, contexthost {_version()} speaks {PROTOCOL_VERSION}: "
                "run `contexthost pi install` again, then /reload",
            )
        values = self._settings.values
        return {
            "protocol": PROTOCOL_VERSION,
            "version": _version(),
            "manifest": manifest_digest(self._manifest),
            "startSeconds": values.pi.startSeconds,
            "answerSeconds": values.pi.answerSeconds,
            "compactionSeconds": values.compactionTimeoutSeconds,
            "toolSeconds": values.pi.toolSeconds,
            "heartbeatSeconds": values.pi.heartbeatSeconds,
            "warnings": [*self._plugins.warnings, *settings_warnings(self._settings, self._plugins)],
        }

    async def _ping(self, message: Message) -> Any:
        return {}

    def _start(self, message: Message) -> None:
        """Hydrates at once, before the next message is taken: what comes next goes on from here."""
        if self._mirror is not None and self._runtime is not None:
            self._refuse(message, INVALID, "the session has started already")
            return
        try:
            self._mirror = Mirror.hydrate(message.event, message.sync)
        except NotWhole:
            self._serve(message, _value({"need": "entries"}))
            return
        model = model_from_pi(message.event.get("model"))
        self._driver.take_start(message.event, model)
        self._runtime = Runtime(
            self._mirror.session,
            plugins=self._plugins,
            settings=self._settings,
            driver=self._driver,
            window=model.context_window if model is not None else None,
        )
        self._runtime.compacting = self._extend
        self._runtime.find_credential = self._driver.credential
        self._runtime.find_headers = self._driver.model_headers
        self._hooks = Hooks(self._runtime, self._driver, self._peer)
        self._hooks.take_compaction_settings(message.event)
        self._keep_lock()
        self._serve(message, self._started(message.event), "run")
        for lane in ("input", "compaction"):
            self._lanes[lane] = self._lanes["run"].fork()

    async def _started(self, event: Mapping[str, Any]) -> Any:
        assert self._runtime is not None
        reason = event.get("reason")
        await self._runtime.notify(
            "session_start",
            SessionStartEvent(
                reason=reason if reason in ("startup", "reload", "new", "resume", "fork") else "startup",
                previous_session_file=text_or_none(event.get("previousSessionFile")),
            ),
        )
        self._watch_requests()
        if self._hooks is not None:
            self._hooks.watch_boundaries(event)
        gc.freeze()  # the session so far stays as long as this process: no need to look for garbage in it ever again
        return {
            "wants": self._wanted,
            "unavailableTools": self._unavailable(self._tools),
            "unavailableCommands": self._unavailable(self._commands),
        }

    def _unavailable(self, items: Mapping[str, tuple[str, Tool | Command]]) -> list[str]:
        return [name for name, (plugin, item) in items.items() if not self._available(plugin, item)]

    def _available(self, plugin: str, item: Tool | Command) -> bool:
        assert self._runtime is not None
        try:
            return bool(item.available(self._runtime.context(plugin)))
        except Exception:  # noqa: BLE001 - a plugin's code
            _log.exception("plugin %s: whether %s is available could not be found out", plugin, item.name)
            return False

    def _keep_lock(self, attempt: int = 1) -> None:
        """Takes the session's lock; while another writer has it, asks again now and then, and tells it once."""
        if self._mirror is None or self._ended:
            return
        problem = self._mirror.hold()
        if problem is None:
            return
        if attempt <= _LOCK_TOLD:  # two Pis with one session, for a day, would leave nothing else in the log
            _log.warning("%s", problem)
        if attempt == _LOCK_TOLD:
            text = f"contexthost: {problem}. Until then others can write to this session too."
            self._peer.notify("ui/notify", {"message": text, "level": "warning"})
        asyncio.get_running_loop().call_later(_LOCK_RETRY_SECONDS, self._keep_lock, attempt + 1)

    async def _end(self, message: Message) -> Any:
        self._ending = asyncio.current_task()
        await self._shut_down(message.event.get("reason"), text_or_none(message.event.get("targetSessionFile")))
        return {}

    async def _shut_down(self, reason: Any, target: str | None) -> None:
        if self._ended or self._runtime is None:
            return
        self._ended = True
        event = SessionShutdownEvent(
            reason=reason if reason in ("quit", "reload", "new", "resume", "fork") else "quit",
            target_session_file=target,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                time_budget.set(TimeBudget(_SHUTDOWN_SECONDS))
                await self._runtime.notify("session_shutdown", event)
        self._driver.close()
        await self._runtime.close()

    async def close(self) -> None:
        """Pi has gone: ends the session, if Pi did not say so itself; plugins have their time in any case."""
        self._requests.end(asyncio.current_task(), self._ending)
        if self._ending is not None:
            await asyncio.wait([self._ending])
        await self._shut_down("quit", None)

    def _find_entry(self, entry_id: str) -> Entry | None:
        return self._mirror.session.get(entry_id) if self._mirror is not None else None

    def _report(self, failure: PluginFailure) -> None:
        self._peer.notify("ui/notify", {"message": failure_to_pi(f"contexthost: {failure}"), "level": "warning"})

    def _watch_requests(self) -> None:
        """Tells Pi whether provider headers and bodies are wanted; they stay inside Pi otherwise."""
        if self._runtime is None:
            return
        headers = "before_provider_headers" in self._wanted
        bodies = "before_provider_request" in self._wanted and _is_native(self._runtime.authority.snapshot().checkpoint)
        if (headers, bodies) != self._watching:
            self._watching = (headers, bodies)
            self._peer.notify("provider/watch", {"headers": headers, "requests": bodies})

    def _extend(self, plugin: str) -> None:
        number, seconds = current_request.get(), self._settings.values.compactionTimeoutSeconds
        if self._requests.extend(number, seconds):
            self._peer.notify("deadline/extend", {"id": number, "seconds": seconds})

    # Hooks, tools, commands ------------------------------------------------------------------------------------------

    def _hook(self, name: str, message: Message) -> None:
        if self._hooks is None or self._ended:
            if message.id is not None:
                self._peer.refuse(message.id, INVALID, "no session has started")
            return
        handler = self._hooks.handlers.get(name)
        if handler is None:
            if message.id is not None:
                self._peer.refuse(message.id, METHOD_NOT_FOUND, f"there is no hook {name}")
            return
        lane = "input" if name == "input" else "compaction" if "compact" in name else "run"
        self._serve(message, handler(message.event), lane)

    async def _call_tool(self, message: Message) -> Any:
        plugin, tool = self._named(self._tools, message, "tool")
        arguments = message.event.get("arguments")
        assert self._runtime is not None
        answer = tool.handler(arguments if isinstance(arguments, dict) else {}, self._runtime.context(plugin))
        return tool_result_to_pi(plugin, tool.name, await answer)

    async def _run_command(self, message: Message) -> Any:
        plugin, command = self._named(self._commands, message, "command")
        assert self._runtime is not None
        context = self._runtime.context(plugin)
        if not self._available(plugin, command):
            raise Refused(FAILED, "not available in this session")
        answer = command.handler(str(message.event.get("arguments") or "").strip(), context)
        return {"text": text_to_pi(await answer if inspect.isawaitable(answer) else answer)}

    def _named(self, items: Mapping[str, tuple[str, Any]], message: Message, what: str) -> tuple[str, Any]:
        name = message.event.get("name")
        if self._runtime is None or self._ended:
            raise Refused(INVALID, "no session has started")
        if not isinstance(name, str) or name not in items:
            raise Refused(
                METHOD_NOT_FOUND,
                f"no installed plugin has a {what} {name}: run `contexthost pi install` again, then /reload",
            )
        return items[name]

    METHODS: ClassVar[Mapping[str, Callable[[Bridge, Message], Coroutine[Any, Any, Any]]]] = {
        "initialize": _initialize,
        "ping": _ping,
        "session/end": _end,
        "tool/call": _call_tool,
        "command/run": _run_command,
    }
    """What Pi asks for besides hooks, by its name in the protocol."""


async def _value(value: Any) -> Any:
    return value


def _version() -> str:
    return importlib.metadata.version("contexthost")


def _is_native(checkpoint: Entry | None) -> bool:
    """Whether the compaction in force holds provider items that stand for the history in requests."""
    details = checkpoint.data.get("details") if checkpoint is not None else None
    return isinstance(details, dict) and isinstance(details.get("replacementHistory"), list)
