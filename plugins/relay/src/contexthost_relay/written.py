"""The written section: open questions and decisions, by a model; off unless ``auto.writtenSection`` says so."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from contexthost.context import AbortSignal, Context, Model, ModelInfo, ModelRequest, Tool, ToolResult
from contexthost.errors import ContexthostError
from contexthost.messages import Message, text_of
from contexthost.projection import Snapshot
from contexthost_relay.note import NoteSection
from contexthost_relay.settings import RelaySettings
from contexthost_relay.triggers import cache_deadline

__all__ = ["Opener", "Written", "opener", "written_section"]

_log = logging.getLogger(__name__)

TITLE: Final = "Open questions and decisions (written by a model)"
TIMEOUT_SECONDS: Final = 45.0
MAX_TOKENS: Final = 400
_LIGHT_CHARS: Final = 60_000
"""What a light model gets to read, in characters: the newest of the conversation."""

_ASK: Final = (
    "This conversation is about to be replaced by a short note. Write what that note must say besides what the user "
    "asked for and which files changed: the questions that are open, and the decisions that were made with their "
    "reasons. At most eight short lines, each beginning with '- '. Facts only, no introduction, and call no tool."
)


class ClosableModel(Model, Protocol):
    """A model whose connections are to be closed."""

    async def aclose(self) -> None:
        """Closes them."""


class Opener(Protocol):
    """Gives the client of a model."""

    def __call__(self, info: ModelInfo, *, api_key: str | None) -> ClosableModel:
        """Raises a ContexthostError where there is none."""


@dataclass(frozen=True, slots=True)
class Written:
    """The section, and what it cost in Pi's usage shape."""

    section: NoteSection
    usage: Mapping[str, Any] | None


def opener() -> Opener:
    """How models are opened; looked up at each call, so that a program can put its own in its place."""
    from contexthost.models import open_model

    return open_model


async def written_section(ctx: Context, settings: RelaySettings, *, open_model: Opener | None = None) -> Written | None:
    """Asks for the section: with a warm prompt cache the session's own model, behind the conversation as it was sent
    last; with a cold one ``auto.lightModel``, with the end of the conversation as text. None after any failure."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await _write(ctx, settings, open_model or opener())
    except (ContexthostError, OSError, TimeoutError, ValueError) as error:
        _log.warning("the note goes without its written section: %s", error)
    except Exception:  # noqa: BLE001 - whatever a model does, the note is made
        _log.exception("the note goes without its written section")
    return None


async def _write(ctx: Context, settings: RelaySettings, open_model: Callable[..., ClosableModel]) -> Written | None:
    snapshot = ctx.snapshot
    deadline = cache_deadline(snapshot, ctx.model)
    warm = deadline is not None and deadline.is_warm(time.time())
    info = ctx.model if warm else _light(settings)
    if info is None:
        return None
    request = _warm_request(snapshot, ctx.session.id) if warm else _light_request(snapshot)
    model = open_model(info, api_key=await ctx.credentials(info.provider))
    try:
        answer = await model.respond(request, ctx.signal or AbortSignal())
    finally:
        await model.aclose()
    text = text_of(answer.get("content")).strip()
    if answer.get("stopReason") not in ("stop", "length") or not text:
        _log.warning("the note goes without its written section: %s", answer.get("errorMessage") or "no text came")
        return None
    usage = answer.get("usage")
    return Written(NoteSection(TITLE, text), usage if isinstance(usage, dict) else None)


def _light(settings: RelaySettings) -> ModelInfo | None:
    light = settings.auto.lightModel
    if light is None:
        return None
    return ModelInfo(provider=light.provider, id=light.id, api=light.api, base_url=light.baseUrl)


def _ask() -> Message:
    return {"role": "user", "content": [{"type": "text", "text": _ASK}], "timestamp": time.time_ns() // 1_000_000}


def _warm_request(snapshot: Snapshot, session_id: str) -> ModelRequest:
    """The request as the session makes it, with one message more: prompt, tools and thinking level must be the same
    for the cache to be hit."""
    level = snapshot.thinking_level
    return ModelRequest(
        messages=[*snapshot.provider_messages, _ask()],
        tools=_declared_tools(snapshot),
        max_tokens=MAX_TOKENS if level in (None, "off") else None,
        thinking_level=level if isinstance(level, str) and level != "off" else None,
        session_id=session_id,
    )


def _declared_tools(snapshot: Snapshot) -> list[Tool]:
    declared = (snapshot.system_message or {}).get("toolsAdded") or []
    return [
        Tool(
            name=tool["name"],
            description=tool.get("description") or "",
            parameters=tool["parameters"],
            handler=_never,
        )
        for tool in declared
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and isinstance(tool.get("parameters"), dict)
    ]


async def _never(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    return ToolResult("This tool is declared and not run.", is_error=True)


def _light_request(snapshot: Snapshot) -> ModelRequest:
    from contexthost.compaction import serialize_conversation

    messages = [message for message in snapshot.provider_messages if message.get("role") != "system"]
    text = serialize_conversation(messages)[-_LIGHT_CHARS:]
    prompt = f"<conversation>\n{text}\n</conversation>\n\n{_ASK}"
    message = {"role": "user", "content": [{"type": "text", "text": prompt}], "timestamp": _ask()["timestamp"]}
    return ModelRequest(messages=[message], max_tokens=MAX_TOKENS)
