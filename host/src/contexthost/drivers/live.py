"""The live driver: what plugins can do in a session that `Host` runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from contexthost.context import AbortSignal, Mode, ModelInfo, NotifyLevel, Ui
from contexthost.errors import Unsupported
from contexthost.session import Entry, Session
from contexthost.watch import Notified, StatusSet, WatchEvent

__all__ = ["LiveDriver", "LiveSession", "UserInterface", "open_live_session"]

_OWNER = "a live contexthost session; use its own commands there"


def open_live_session(path: str | Path | None, cwd: str) -> Session:
    """The session of a file; a new one for a file that does not exist yet, and one in memory without a path.

    Raises:
        SessionNotFound, SessionFormatError: the file cannot be used.
    """
    if path is None:
        return Session.in_memory(header={"cwd": cwd})
    if Path(path).exists():
        return Session.open(path, owner=_OWNER)
    return Session.new(path, cwd=cwd, owner=_OWNER)


class UserInterface(Protocol):
    """How a program lets its user be asked; notifications and status lines arrive as watch events."""

    async def confirm(self, title: str, message: str, timeout_seconds: float | None) -> bool:
        """Asks yes or no; False without an answer."""
        ...

    async def get_editor_text(self) -> str:
        """What the user has typed so far."""
        ...

    def set_editor_text(self, text: str) -> None:
        """Replaces what the user has typed so far."""
        ...


class LiveSession(Protocol):
    """What the driver needs of `Host`."""

    @property
    def idle(self) -> bool: ...

    @property
    def pending(self) -> int: ...

    @property
    def signal(self) -> AbortSignal | None: ...

    @property
    def model_info(self) -> ModelInfo | None: ...

    def abort(self) -> None: ...

    def release_held(self) -> None: ...

    def append_custom(self, custom_type: str, data: Any) -> None: ...

    def send_for(self, plugin: str, content: str, images: Sequence[Mapping[str, Any]]) -> None: ...

    def compact_for(
        self, plugin: str, *, only_if_idle: bool, to: str | None, custom_instructions: str | None
    ) -> Awaitable[Entry]: ...


class LiveDriver:
    """See `contexthost.runtime.Driver`. ``interface`` is None where nobody can be asked."""

    def __init__(
        self, mode: Mode, interface: UserInterface | None, emit: Callable[[WatchEvent], None]
    ) -> None:
        self.mode: Mode = mode
        self.editor = interface
        self.emit = emit
        self._session: LiveSession | None = None

    def bind(self, session: LiveSession) -> None:
        """Says which host it serves."""
        self._session = session

    @property
    def _live(self) -> LiveSession:
        if self._session is None:
            raise Unsupported("the session is not open yet")
        return self._session

    @property
    def has_ui(self) -> bool:
        """Whether somebody can answer."""
        return self.editor is not None

    @property
    def model(self) -> ModelInfo | None:
        """The model in use."""
        return self._live.model_info

    @property
    def signal(self) -> AbortSignal | None:
        """Of what goes on."""
        return self._live.signal

    def ui(self, plugin: str) -> Ui:
        """The user, as one plugin talks to them."""
        return _PluginUi(plugin, self)

    def supports(self, name: str) -> bool:
        """Everything is possible here, but for the editor and questions where there is no user."""
        return self.has_ui or name not in ("ui.confirm", "ui.get_editor_text", "ui.set_editor_text")

    def is_idle(self) -> bool:
        """Whether no run and no compaction is going on."""
        return self._live.idle

    def has_pending_messages(self) -> bool:
        """Whether inputs are queued or held."""
        return self._live.pending > 0

    def compact(
        self, plugin: str, *, only_if_idle: bool, to: str | None, custom_instructions: str | None
    ) -> Awaitable[Entry]:
        """See `Context.compact`."""
        return self._live.compact_for(
            plugin, only_if_idle=only_if_idle, to=to, custom_instructions=custom_instructions
        )

    def send_user_message(self, plugin: str, content: str, images: Sequence[Mapping[str, Any]]) -> None:
        """See `Context.send_user_message`."""
        self._live.send_for(plugin, content, images)

    def release_held(self, plugin: str) -> None:
        """See `Context.release_held`."""
        self._live.release_held()

    def append_entry(self, plugin: str, custom_type: str, data: Any) -> None:
        """See `Context.append_entry`."""
        self._live.append_custom(custom_type, data)

    def abort(self) -> None:
        """See `Context.abort`."""
        self._live.abort()


class _PluginUi:
    """One plugin's `Ui`."""

    def __init__(self, plugin: str, driver: LiveDriver) -> None:
        self._plugin = plugin
        self._driver = driver

    def notify(self, message: str, level: NotifyLevel = "info") -> None:
        self._driver.emit(Notified(self._plugin, message, level))

    def set_status(self, text: str | None) -> None:
        self._driver.emit(StatusSet(self._plugin, text))

    async def confirm(self, title: str, message: str, *, timeout_seconds: float | None = None) -> bool:
        editor = self._driver.editor
        return await editor.confirm(title, message, timeout_seconds) if editor is not None else False

    async def get_editor_text(self) -> str:
        editor = self._driver.editor
        return await editor.get_editor_text() if editor is not None else ""

    def set_editor_text(self, text: str) -> None:
        if self._driver.editor is None:
            raise Unsupported("there is no editor to put the text into")
        self._driver.editor.set_editor_text(text)
