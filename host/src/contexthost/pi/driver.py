"""The driver over the bridge: what a plugin's ``ctx`` does in a live Pi."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, cast

from contexthost.context import AbortSignal, Mode, ModelInfo, NotifyLevel, Ui
from contexthost.errors import CompactionCancelled, CompactionFailed, ContexthostError, NothingToCompact, Unsupported
from contexthost.pi.protocol import CANCELLED, NOTHING_TO_COMPACT, UNSUPPORTED, Peer, RemoteError
from contexthost.pi.wire import headers_from_pi
from contexthost.session import Entry
from contexthost.text import printable

__all__ = ["PiDriver", "PiUi", "current_signal"]

_SUPPORTED: Final = frozenset(
    {
        "abort",
        "append_entry",
        "call_later",
        "call_plugins",
        "compact",
        "credentials",
        "release_held",
        "send_user_message",
        "spawn",
        "ui.notify",
        "ui.set_status",
    }
)
_DIALOGS: Final = frozenset({"ui.confirm", "ui.get_editor_text", "ui.set_editor_text"})
_CONFIRM_SECONDS: Final = 600.0
"""How long a question stays open when the plugin does not say."""
_FOR_EVER_SECONDS: Final = 1e9
"""Infinity is no JSON: the extension would read 0. Thirty years are as good."""

current_signal: contextvars.ContextVar[AbortSignal | None] = contextvars.ContextVar("current_signal", default=None)
"""The signal of the hook, tool call or command that the running task works for."""


class PiUi:
    """One plugin's user interface, through the extension."""

    def __init__(self, plugin: str, peer: Peer, driver: PiDriver) -> None:
        self._plugin = plugin
        self._peer = peer
        self._driver = driver

    def notify(self, message: str, level: NotifyLevel = "info") -> None:
        """Shows a message in Pi; in print and JSON mode it goes to standard error."""
        self._peer.notify("ui/notify", {"message": printable(message), "level": level})

    def set_status(self, text: str | None) -> None:
        """Sets the plugin's part of the status line."""
        self._peer.notify(
            "ui/setStatus", {"key": f"contexthost-{self._plugin}", "text": None if text is None else printable(text)}
        )

    async def confirm(self, title: str, message: str, *, timeout_seconds: float | None = None) -> bool:
        """Asks in Pi; False where nobody can answer."""
        if not self._driver.has_ui:
            return False
        seconds = _CONFIRM_SECONDS if timeout_seconds is None else min(timeout_seconds, _FOR_EVER_SECONDS)
        asked = {"title": printable(title), "message": printable(message), "seconds": seconds}
        try:
            return bool(await self._peer.request("ui/confirm", asked))
        except RemoteError:
            return False

    async def get_editor_text(self) -> str:
        """The editor's text; empty without an editor, and always over RPC."""
        if not self._driver.has_ui:
            return ""
        try:
            return str(await self._peer.request("ui/getEditorText", {}) or "")
        except RemoteError:
            return ""

    def set_editor_text(self, text: str) -> None:
        """Sets the editor's text. Raises Unsupported where there is no editor."""
        if not self._driver.supports("ui.set_editor_text"):
            raise Unsupported("setting the editor's text is not possible here: there is no editor")
        self._peer.notify("ui/setEditorText", {"text": text})


class PiDriver:
    """See `contexthost.runtime.Driver`. What it knows of Pi is as of the last message that came."""

    def __init__(self, peer: Peer, find_entry: Callable[[str], Entry | None]) -> None:
        self._peer = peer
        self._find_entry = find_entry
        self._tasks: set[asyncio.Task[Any]] = set()
        self._mode: Mode = "print"
        self._has_ui = False
        self._model: ModelInfo | None = None
        self._idle = True
        self._pending = False

    # What Pi has told -------------------------------------------------------------------------------------------------

    def take_start(self, event: Mapping[str, Any], model: ModelInfo | None) -> None:
        """Takes what ``session/start`` says about the surroundings."""
        mode = event.get("mode")
        self._mode = cast(Mode, mode) if mode in ("tui", "rpc", "json", "print") else "print"
        self._has_ui = event.get("hasUI") is True
        self._model = model

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Takes what every message says about Pi's state."""
        self._idle = state.get("idle") is True
        self._pending = state.get("pending") is True

    def take_model(self, model: ModelInfo | None) -> None:
        """Takes another model."""
        self._model = model

    # The protocol of drivers ------------------------------------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        """How Pi is run."""
        return self._mode

    @property
    def has_ui(self) -> bool:
        """Whether somebody can answer: at a terminal and over RPC."""
        return self._has_ui

    @property
    def model(self) -> ModelInfo | None:
        """The model that Pi uses."""
        return self._model

    @property
    def signal(self) -> AbortSignal | None:
        """Of what the running task works for."""
        return current_signal.get()

    def ui(self, plugin: str) -> Ui:
        """The plugin's user interface."""
        return PiUi(plugin, self._peer, self)

    def supports(self, name: str) -> bool:
        """Everything, but for dialogs where nobody is there and the editor where there is none."""
        if name == "ui.set_editor_text":
            return self._has_ui and self._mode == "tui"
        return name in _SUPPORTED or (name in _DIALOGS and self._has_ui)

    def is_idle(self) -> bool:
        """As of the last message; Pi looks again before it acts."""
        return self._idle

    def has_pending_messages(self) -> bool:
        """As of the last message."""
        return self._pending

    def compact(
        self, plugin: str, *, only_if_idle: bool, to: str | None, custom_instructions: str | None
    ) -> Awaitable[Entry]:
        """Asks Pi; idleness is looked at in Pi, in the moment in which the compaction starts."""
        asked = {"onlyIfIdle": only_if_idle, "to": to, "instructions": custom_instructions}
        return self._in_background(self._compacted(self._peer.request("session/compact", asked)))

    async def _compacted(self, asked: Coroutine[Any, Any, Any]) -> Entry:
        try:
            answer = await asked
        except RemoteError as error:
            kinds: dict[int, type[ContexthostError]] = {
                CANCELLED: CompactionCancelled,
                NOTHING_TO_COMPACT: NothingToCompact,
                UNSUPPORTED: Unsupported,
            }
            raise kinds.get(error.code, CompactionFailed)(str(error)) from None
        found = self._find_entry(str(answer.get("entryId"))) if isinstance(answer, dict) else None
        if found is None:
            raise CompactionFailed("Pi reports a compaction, but its entry did not arrive")
        return found

    def send_user_message(self, plugin: str, content: str, images: Sequence[Mapping[str, Any]]) -> None:
        """Sends it after the current run, if there is one; told to the user when Pi did not take it."""
        asked = {"text": content, "images": [dict(image) for image in images]}
        self._in_background(self._tell(plugin, self._peer.request("session/send", asked), "a message was not sent"))

    def release_held(self, plugin: str) -> None:
        """Sends what the extension holds."""
        self._peer.notify("held/release", {})

    def append_entry(self, plugin: str, custom_type: str, data: Any) -> None:
        """Appends through Pi; the entry is in the session once Pi has said so."""
        asked = {"customType": custom_type, "data": data}
        request = self._peer.request("session/appendEntry", asked)
        self._in_background(self._tell(plugin, request, "an entry was not appended"))

    def abort(self) -> None:
        """Aborts Pi's run."""
        self._peer.notify("session/abort", {})

    async def credential(self, provider: str) -> str | None:
        """The key or token that Pi itself would use for a provider; None when it has none."""
        try:
            answer = await self._peer.request("model/credential", {"provider": provider})
        except RemoteError:
            return None
        key = answer.get("key") if isinstance(answer, dict) else None
        return key.strip() or None if isinstance(key, str) else None

    async def model_headers(self) -> Mapping[str, str]:
        """The headers of the model in use as Pi resolves them now: those of ``models.json`` stand in no model."""
        known = self._model.headers if self._model is not None else {}
        try:
            answer = await self._peer.request("model/headers", {})
        except RemoteError:
            return known
        found = answer.get("headers") if isinstance(answer, dict) else None
        return {**known, **headers_from_pi(found)}

    async def _tell(self, plugin: str, asked: Coroutine[Any, Any, Any], failure: str) -> None:
        try:
            await asked
        except RemoteError as error:
            self.ui(plugin).notify(f"{plugin}: {failure}: {error}", "error")

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that nobody needs to await; its failure is not complained about at the end."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def close(self) -> None:
        """Stops waiting for answers."""
        for task in list(self._tasks):
            task.cancel()
