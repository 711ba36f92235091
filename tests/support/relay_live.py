"""Live sessions for the tests of the relay plugin: a scripted model, a watcher, a gate inside the relay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import contexthost_relay
from contexthost.context import ModelInfo
from contexthost.hookspecs import hookimpl
from contexthost.host import Host
from contexthost.models import Reply, ScriptedModel
from contexthost.session import Entry
from contexthost.watch import Notified, WatchEvent
from support.builder import SessionBuilder, usage_of

__all__ = ["LONG", "MODEL", "Editor", "Gate", "Live", "history_file", "log_lines", "user_texts"]

LONG = "word " * 2_000
MODEL = ModelInfo(
    provider="anthropic", id="claude-sonnet-4-5", api="scripted", context_window=200_000, max_tokens=32_000
)


def history_file(path: Path, tokens: int = 150_000, *, name: str | None = None, cached: int = 0) -> Path:
    """A session with two long turns; the provider says that so many tokens are in use."""
    build = SessionBuilder(cwd=str(path.parent))
    if name is not None:
        build.session_info(name)
    build.user("the first request")
    build.assistant("the first answer " + LONG)
    build.user("the second request")
    build.assistant("the second answer", usage={**usage_of(tokens), "cacheWrite": cached})
    return build.write(path)


class Editor:
    """A user's editor with a draft in it."""

    def __init__(self, draft: str = "") -> None:
        self.text = draft

    async def confirm(self, title: str, message: str, timeout_seconds: float | None) -> bool:
        return True

    async def get_editor_text(self) -> str:
        return self.text

    def set_editor_text(self, text: str) -> None:
        self.text = text


class Gate:
    """A plugin that holds every relay up until it is opened; ``error`` makes it fail then."""

    plugin_name = "gate"

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    @hookimpl(optionalhook=True)
    async def relay_note_sections(self, event: Any, ctx: Any) -> None:
        self.reached.set()
        await self.open.wait()


class Live:
    """A live session with the relay plugin alone, and all that it told."""

    def __init__(
        self,
        path: Path,
        script: Sequence[Any] = (),
        *,
        plugins: Sequence[object] = (),
        info: ModelInfo = MODEL,
        **options: Any,
    ) -> None:
        self.model = ScriptedModel(script, info=info)
        self.host = Host.open(
            path, model=self.model, plugins=[contexthost_relay, *plugins], installed_plugins=False, **options
        )
        self.told: list[Notified] = []
        self.host.watch(self._watch)

    def _watch(self, event: WatchEvent) -> None:
        if isinstance(event, Notified):
            self.told.append(event)

    async def __aenter__(self) -> Live:
        await self.host.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.host.shutdown()

    @property
    def texts(self) -> list[str]:
        """What was told, in order."""
        return [event.message for event in self.told]

    async def until(self, condition: Any, seconds: float = 20) -> None:
        """Waits until something holds."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)


def big(text: str = "ok", tokens: int = 150_000, **usage: Any) -> Reply:
    """An answer after which so many tokens are in use."""
    return Reply(text=text, usage={**usage_of(tokens), **usage})


def user_texts(entries: Sequence[Entry]) -> list[str]:
    """The texts of the user messages."""
    found = []
    for entry in entries:
        if entry.role == "user" and entry.message is not None:
            content = entry.message["content"]
            texts = [content] if isinstance(content, str) else [b["text"] for b in content if b["type"] == "text"]
            found.append("".join(texts))
    return found


def log_lines(home: Path) -> list[dict[str, Any]]:
    """The log of relays."""
    path = home / "data" / "plugins" / "relay" / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
