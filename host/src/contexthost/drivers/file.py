"""The file driver: a session file that a command works on, with no model and nobody to ask."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from contexthost.config import HostSettings, load_settings
from contexthost.context import AbortSignal, Mode, ModelInfo, NotifyLevel, Ui
from contexthost.errors import Unsupported
from contexthost.events import SessionShutdownEvent, SessionStartEvent
from contexthost.projection import CustomDraft, Snapshot
from contexthost.runtime import Runtime, load_plugins
from contexthost.session import Entry, Session
from contexthost.text import printable

__all__ = ["FileDriver", "FileUi", "open_file"]

_SUPPORTED: Final = frozenset({"append_entry", "spawn", "call_later", "call_plugins", "credentials", "ui.notify"})


def _refuse(what: str) -> NoReturn:
    raise Unsupported(f"{what} is not possible on a session file: it needs a live session")


class FileUi:
    """Notifications go to standard error; nobody can be asked."""

    def notify(self, message: str, level: NotifyLevel = "info") -> None:
        """Prints to standard error, without control sequences."""
        prefix = "" if level == "info" else f"{level}: "
        print(prefix + printable(message), file=sys.stderr)

    def set_status(self, text: str | None) -> None:
        """There is no status line: nothing is shown."""

    async def confirm(self, title: str, message: str, *, timeout_seconds: float | None = None) -> bool:
        """Nobody is there to say yes."""
        return False

    async def get_editor_text(self) -> str:
        """There is no editor: always empty."""
        return ""

    def set_editor_text(self, text: str) -> None:
        """Raises Unsupported: there is no editor, and the text must not get lost unseen."""
        _refuse("setting the editor's text")


class FileDriver:
    """See `contexthost.runtime.Driver`; everything that needs a running agent is refused."""

    mode: Mode = "print"
    has_ui = False
    signal: AbortSignal | None = None

    def __init__(self, model: ModelInfo | None = None) -> None:
        self._runtime: Runtime | None = None
        self._model = model

    def bind(self, runtime: Runtime) -> None:
        """Says which session it drives."""
        self._runtime = runtime

    @property
    def model(self) -> ModelInfo | None:
        """The model that the command names, else the one that the session last used, as far as the file tells."""
        if self._model is not None or self._runtime is None:
            return self._model
        snapshot = self._runtime.authority.snapshot()
        model = snapshot.model or {}
        provider, model_id = model.get("provider"), model.get("modelId")
        if not isinstance(provider, str) or not isinstance(model_id, str):
            return None
        return ModelInfo(provider=provider, id=model_id, api=_api_of(snapshot, provider, model_id))

    def ui(self, plugin: str) -> Ui:
        """Standard error."""
        return FileUi()

    def supports(self, name: str) -> bool:
        """Whether a session file is enough for it."""
        return name in _SUPPORTED

    def is_idle(self) -> bool:
        """A file is always idle."""
        return True

    def has_pending_messages(self) -> bool:
        """Nothing can be queued."""
        return False

    def compact(
        self, plugin: str, *, only_if_idle: bool, to: str | None, custom_instructions: str | None
    ) -> Awaitable[Entry]:
        """Raises Unsupported."""
        _refuse("asking for a compaction")

    def send_user_message(self, plugin: str, content: str, images: Sequence[Mapping[str, Any]]) -> None:
        """Raises Unsupported."""
        _refuse("sending a message")

    def release_held(self, plugin: str) -> None:
        """Nothing is ever held."""

    def append_entry(self, plugin: str, custom_type: str, data: Any) -> None:
        """Appends a custom entry to the file; raises what `ProjectionAuthority.commit` raises."""
        if self._runtime is None:
            _refuse("appending an entry before the session is open")
        self._runtime.authority.commit([CustomDraft(custom_type=custom_type, data=data)])

    def abort(self) -> None:
        """Nothing runs."""


def _api_of(snapshot: Snapshot, provider: str, model_id: str) -> str:
    """The protocol that the model's newest answer in the context came over; empty when it has none there."""
    for projected in reversed(snapshot.entries):
        probe = projected.source.probe if projected.source.type == "message" else None
        if probe is not None and probe.role == "assistant" and (probe.provider, probe.model) == (provider, model_id):
            api = (projected.source.message or {}).get("api")
            return api if isinstance(api, str) else ""
    return ""


@asynccontextmanager
async def open_file(
    path: str | Path,
    *,
    plugins: Sequence[object] = (),
    window: int | None = None,
    model: ModelInfo | None = None,
    owner: str = "contexthost",
) -> AsyncIterator[Runtime]:
    """Opens a session file with the installed plugins, and ``plugins`` besides; opening writes nothing.

    Plugins get ``session_start`` on entering and ``session_shutdown`` on leaving. ``window`` is the context window in
    tokens (``contextWindow`` of ``host.json`` by default), ``model`` what plugins see as the model in use (by default
    the one that the session last used), ``owner`` who locks the session when something is written.

    Raises:
        SessionNotFound, SessionFormatError: the file cannot be used.
        PluginError: one of ``plugins`` cannot be registered.
    """
    settings = load_settings(HostSettings, "host")
    driver = FileDriver(model)
    ui = FileUi()
    manager = load_plugins(settings.values, extra=plugins, report=lambda failure: ui.notify(str(failure), "warning"))
    session = Session.open(path, owner=owner)
    runtime = Runtime(session, plugins=manager, settings=settings, driver=driver, window=window)
    driver.bind(runtime)
    await runtime.notify("session_start", SessionStartEvent(reason="startup"))
    try:
        yield runtime
    finally:
        await runtime.notify("session_shutdown", SessionShutdownEvent(reason="quit"))
        await runtime.close()
