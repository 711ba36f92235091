"""The file driver: what a plugin gets as ``ctx`` when a command works on a session file, with nobody talking to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from contexthost import paths
from contexthost.config import HostSettings
from contexthost.context import AbortSignal, Mode, ModelInfo, NotifyLevel, Timer
from contexthost.credentials import resolve_credential
from contexthost.errors import Unsupported
from contexthost.projection import CustomDraft, ProjectionAuthority, Snapshot
from contexthost.session import Session
from contexthost.text import printable
from contexthost.tokens import EffectiveUsage

__all__ = ["FileContext", "FileUi"]

CallPlugins = Callable[[str, object], Coroutine[Any, Any, list[tuple[str, Any]]]]

_SUPPORTED: Final = frozenset({"append_entry", "spawn", "call_plugins", "credentials", "ui.notify"})


def _refuse(what: str) -> NoReturn:
    raise Unsupported(f"{what} is not possible on a session file: it needs a live session")


class FileUi:
    """Notifications go to standard error; nobody can be asked."""

    def notify(self, message: str, level: NotifyLevel = "info") -> None:
        """Prints one line to standard error, without control sequences."""
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
        """Raises Unsupported: there is no editor to put text into, and it must not get lost unseen."""
        _refuse("setting the editor's text")


class FileContext:
    """One plugin's ``ctx`` over a session file.

    Args:
        plugin: the plugin's name.
        session, authority: the session and its projection, shared by all plugins.
        settings: the host's.
        tasks: where spawned work is kept, for the host to await at the end.
        call_plugins: dispatches a plugin's own hooks.
    """

    def __init__(
        self,
        plugin: str,
        session: Session,
        authority: ProjectionAuthority,
        settings: HostSettings,
        tasks: set[asyncio.Task[None]],
        call_plugins: CallPlugins,
    ) -> None:
        self._plugin = plugin
        self._session = session
        self._authority = authority
        self._settings = settings
        self._tasks = tasks
        self._call_plugins = call_plugins
        self.ui = FileUi()

    @property
    def snapshot(self) -> Snapshot:
        """What the model would see now."""
        return self._authority.snapshot()

    @property
    def usage(self) -> EffectiveUsage:
        """How full the window is."""
        return self.snapshot.usage

    @property
    def session(self) -> Session:
        """The session."""
        return self._session

    @property
    def model(self) -> ModelInfo | None:
        """The model that the session last used, as far as the file names it."""
        model = self.snapshot.model or {}
        provider, model_id = model.get("provider"), model.get("modelId")
        if not isinstance(provider, str) or not isinstance(model_id, str):
            return None
        return ModelInfo(provider=provider, id=model_id, api="")

    @property
    def mode(self) -> Mode:
        """Always ``print``: one command, nobody to ask."""
        return "print"

    @property
    def cwd(self) -> Path:
        """The session's working directory; it may no longer exist."""
        return Path(self._session.header.cwd or ".")

    @property
    def has_ui(self) -> bool:
        """Nobody can answer."""
        return False

    @property
    def signal(self) -> AbortSignal | None:
        """Nothing runs."""
        return None

    @property
    def data_dir(self) -> Path:
        """The plugin's own directory, made when it is missing."""
        return paths.plugin_data_dir(self._plugin)

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
        self, *, only_if_idle: bool = False, to: str | None = None, custom_instructions: str | None = None
    ) -> NoReturn:
        """Raises Unsupported."""
        _refuse("asking for a compaction")

    def send_user_message(self, content: str, images: Sequence[Mapping[str, Any]] = ()) -> None:
        """Raises Unsupported."""
        _refuse("sending a message")

    def release_held(self) -> None:
        """Nothing is ever held."""

    def append_entry(self, custom_type: str, data: Any = None) -> None:
        """Appends a custom entry to the file; raises what `Session.append` raises."""
        self._authority.commit([CustomDraft(custom_type=custom_type, data=data)])

    def abort(self) -> None:
        """Nothing runs."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs beside the command; the host waits for it or cancels it at the end."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Raises Unsupported: a command ends before any timer."""
        _refuse("a timer")

    async def call_plugins(self, hook: str, event: object) -> list[tuple[str, Any]]:
        """(plugin, answer) of all plugins that answered."""
        return await self._call_plugins(hook, event)

    async def credentials(self, provider: str) -> str | None:
        """The provider's key, or None."""
        return await asyncio.to_thread(resolve_credential, provider, self._settings)
