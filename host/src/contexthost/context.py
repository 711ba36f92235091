"""What plugins are typed with: the context of a hook, models, tools, commands.

Drivers implement `Context` (the file driver for the command line, the bridge for Pi, the loop for Python agents), one
object per plugin and session. What a driver cannot do raises `Unsupported` with a plain sentence;
``ctx.supports("compact")`` asks first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from contexthost.compaction import CompactionSettings
    from contexthost.history import History
    from contexthost.messages import Message
    from contexthost.projection import Snapshot
    from contexthost.session import Entry
    from contexthost.tokens import EffectiveUsage

__all__ = [
    "AbortSignal",
    "BodyRewrite",
    "Command",
    "Context",
    "HeaderRewrite",
    "Mode",
    "Model",
    "ModelInfo",
    "ModelRequest",
    "NotifyLevel",
    "SessionView",
    "Timer",
    "Tool",
    "ToolResult",
    "Ui",
]

Mode = Literal["tui", "rpc", "json", "print"]
"""How the session is run: at a terminal, by a program over RPC, or once without anybody to ask."""

NotifyLevel = Literal["info", "warning", "error"]


class AbortSignal:
    """Says that an operation should end, once; it only advises, whoever works looks at it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []
        self.reason = ""

    @property
    def aborted(self) -> bool:
        """Whether the operation should end."""
        return self._event.is_set()

    def abort(self, reason: str = "") -> None:
        """Say so; only the first call counts. For the owner of the operation, from the event loop's thread."""
        if self.aborted:
            return
        self.reason = reason
        self._event.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_abort(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once, at the abort (at once when it has been); returns what takes the callback off again."""
        if self.aborted:
            callback()
        else:
            self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    async def wait(self) -> None:
        """Wait for the abort."""
        await self._event.wait()


# Models ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What is known of a model, from Pi or from the settings; ``api`` is Pi's name for the protocol."""

    provider: str
    id: str
    api: str
    context_window: int | None = None
    """Tokens."""
    max_tokens: int | None = None
    """The longest answer, in tokens."""
    prompt_cache_short_seconds: float | None = None
    """How long a prompt cache lives; None when the model does not declare it."""
    prompt_cache_long_seconds: float | None = None
    cost: Mapping[str, float] = field(default_factory=dict)
    """Dollars per million tokens: ``input``, ``output``, ``cacheRead``, ``cacheWrite``, as far as known."""
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers that the user set up for this model; they may hold credentials."""
    reasoning: bool = False
    """Whether the model thinks before it answers, and so takes a thinking level."""
    thinking_levels: Mapping[str, str | None] = field(default_factory=dict)
    """What the provider calls Pi's thinking levels, where the names differ; None for one that the model lacks."""
    images: bool = True
    """Whether the model takes images; if not, a note stands in for them."""


HeaderRewrite: TypeAlias = "Callable[[Mapping[str, str]], Awaitable[Mapping[str, str | None]]]"
"""Gets the headers of a request (credentials included), gives those to send; None takes one away."""

BodyRewrite: TypeAlias = "Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]"
"""Gets the decoded JSON body of a request, gives the one to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a model: provider-safe messages in Pi's shape, the tools on offer.

    The system messages among them are replayed into the prompt in force (``current_system_message``); tools are
    taken from ``tools`` only.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    max_tokens: int | None = None
    """The longest answer, in tokens; None: the model's own limit. Lowered to what the window leaves."""
    thinking_level: str | None = None
    """Pi's level: ``off``, ``minimal``, ``low``, ``medium``, ``high``, ``xhigh`` or ``max``; None says nothing."""
    session_id: str | None = None
    """Lets a provider find the prompt cache of earlier requests; None for a request that is not to be cached."""
    on_text: Callable[[str], None] | None = None
    """Called with each piece of text as it arrives. What it raises, ``respond`` raises."""
    on_retry: Callable[[str], None] | None = None
    """Called with a sentence for the user before each wait for another attempt."""
    prepare_headers: HeaderRewrite | None = None
    """Called once per request, not per attempt; before ``prepare_body``, as in Pi."""
    prepare_body: BodyRewrite | None = None


class Model(Protocol):
    """A model that can be asked."""

    @property
    def info(self) -> ModelInfo:
        """Which model it is."""

    async def respond(self, request: ModelRequest, signal: AbortSignal) -> Message:
        """The assistant message, with usage and stop reason as Pi records them.

        An abort gives what has arrived, with stop reason ``aborted``; a failure the same with ``error`` and an
        ``errorMessage``. Neither is raised. A tool call whose arguments were not a JSON object has none, and an
        ``argumentsError`` to answer it with.
        """


# Tools and commands ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives back: a text, or content blocks in Pi's shape; ``details`` is JSON that the model does not
    see."""

    content: str | Sequence[Mapping[str, Any]]
    is_error: bool = False
    details: Mapping[str, Any] | None = None


def _always(ctx: Context) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool for the model, as ``register_tools`` returns it.

    ``name`` is what providers take: 1 to 64 letters (a to z), digits, ``_`` and ``-``. ``parameters`` is a JSON Schema
    of an object; arguments arrive as the model sent them, decoded and not checked. A tool that is otherwise is left
    out, with a warning. An exception of the handler becomes an error result. ``available`` is asked once per session,
    after its start: a tool that is not available there is as if it had not been registered.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Callable[[Mapping[str, Any], Context], Awaitable[ToolResult]]
    available: Callable[[Context], bool] = _always


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A slash command, as ``register_commands`` returns it; ``name`` without the slash and without spaces.

    The handler gets what follows the name, stripped; the text it returns is shown to the user. An exception is
    told and the command counts as run. ``available`` as in `Tool`.
    """

    name: str
    description: str
    handler: Callable[[str, Context], Awaitable[str | None]]
    available: Callable[[Context], bool] = _always


# The context -------------------------------------------------------------------------------------------------------


class Ui(Protocol):
    """What can be said to the user. Without a user interface notifications go where the driver logs."""

    def notify(self, message: str, level: NotifyLevel = "info") -> None:
        """Show one message."""

    def set_status(self, text: str | None) -> None:
        """Set the plugin's own entry in the status line; None takes it away."""

    async def confirm(self, title: str, message: str, *, timeout_seconds: float | None = None) -> bool:
        """Ask yes or no; False without an answer. Not in ``session_start``: Pi cannot deliver the answer there."""

    async def get_editor_text(self) -> str:
        """What the user has typed so far; always empty where Pi is run over RPC."""

    def set_editor_text(self, text: str) -> None:
        """Replace what the user has typed so far."""


class SessionView(Protocol):
    """The session, read-only."""

    @property
    def id(self) -> str:
        """The id of the header."""

    @property
    def path(self) -> Path | None:
        """The file; None when the session is not on disk."""

    @property
    def name(self) -> str | None:
        """The name that the user or a parent gave it."""

    @property
    def leaf_id(self) -> str | None:
        """The entry that the next one is appended to."""

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries of all branches, in file order."""

    def get(self, entry_id: str) -> Entry | None:
        """The entry with that id."""

    def branch(self, leaf_id: str | None = None) -> list[Entry]:
        """The entries from the root to a leaf (the current one by default); O(n)."""

    def children(self, entry_id: str | None) -> Sequence[Entry]:
        """The entries whose parent that is; None gives the roots."""

    def label(self, entry_id: str) -> str | None:
        """The label that the user put on an entry."""


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Do not make it."""


class Context(Protocol):
    """What a hook, a tool or a command gets as ``ctx``: one per plugin and session."""

    @property
    def snapshot(self) -> Snapshot:
        """What the model sees now; immutable."""

    @property
    def usage(self) -> EffectiveUsage:
        """How full the window is now."""

    @property
    def session(self) -> SessionView:
        """The session, read-only."""

    @property
    def history(self) -> History:
        """All that the session has recorded, whether the model still sees it or not."""

    @property
    def model(self) -> ModelInfo | None:
        """The model in use, if one is known."""

    @property
    def compaction_settings(self) -> CompactionSettings:
        """When the session compacts by itself, and how much that keeps: in Pi its own settings for the model in use, as
        they are now, elsewhere those of ``host.json``."""

    @property
    def mode(self) -> Mode:
        """How the session is run."""

    @property
    def cwd(self) -> Path:
        """The session's working directory; it may no longer exist."""

    @property
    def has_ui(self) -> bool:
        """Whether somebody can answer."""

    @property
    def ui(self) -> Ui:
        """The user."""

    @property
    def signal(self) -> AbortSignal | None:
        """Tells when the current run, tool call or compaction is aborted; None when nothing runs."""

    @property
    def data_dir(self) -> Path:
        """The plugin's own data directory (0700), made when missing; where that fails, the place it would have."""

    def supports(self, name: str) -> bool:
        """Whether the driver can do this (the name of a method here, or ``ui.`` and one of `Ui`)."""

    def is_idle(self) -> bool:
        """Whether no run and no compaction is going on."""

    def has_pending_messages(self) -> bool:
        """Whether messages are queued for the model."""

    def compact(
        self, *, only_if_idle: bool = False, to: str | None = None, custom_instructions: str | None = None
    ) -> Awaitable[Entry]:
        """Ask for a compaction; it starts after the hooks that are running, and aborts a run that is going on.

        ``to`` addresses one plugin. The result need not be awaited, and must not be within a hook (``spawn`` what
        waits for it). It gives the compaction entry, or raises CompactionFailed, NothingToCompact, or Unsupported
        (not idle although ``only_if_idle``).
        """

    def compacting(self) -> None:
        """In ``turn_end`` or ``agent_before_settle``: the hook that is running makes a compaction there, and has the
        time of one (``compactionTimeoutSeconds``) from now on. Elsewhere it does nothing."""

    def send_user_message(self, content: str, images: Sequence[Mapping[str, Any]] = ()) -> None:
        """Send a message as the user would, after the current run if there is one; ``input`` sees it with source
        ``extension``. Raises PluginError for images that are no whole blocks, which nobody could send."""

    def release_held(self) -> None:
        """Send the input that was held, joined with what arrived meanwhile, exactly once; nothing held: nothing."""

    def append_entry(self, custom_type: str, data: Any = None) -> None:
        """Append a custom entry, which the model does not see. Raises PluginError without a type, and for
        data that is nested more than a thousand deep."""

    def abort(self) -> None:
        """Abort the current run."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this beside the session; it is cancelled with it, and a failure is told as a hook's would be."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back after so many seconds of wall clock, unless the session ends before."""

    async def call_plugins(self, hook: str, event: object) -> list[tuple[str, Any]]:
        """Call a hook that the plugin declared with ``register_hookspecs``: (plugin, answer) of all that answered."""

    async def credentials(self, provider: str) -> str | None:
        """The provider's key, or None. Never log it, never put it into an entry."""

    async def model_headers(self) -> Mapping[str, str]:
        """The headers that the user set up for the model in use, as they are sent now; ``model.headers`` holds those
        that need no looking up. They may hold credentials: never log them, never put them into an entry."""
