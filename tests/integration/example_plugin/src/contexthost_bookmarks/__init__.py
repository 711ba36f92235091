"""Bookmarks: places in a session that the user names, and that the model finds again after any compaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from contexthost import (
    AgentBeforeSettleEvent,
    Boundary,
    Command,
    Context,
    Settings,
    SettingsSpec,
    Tool,
    ToolResult,
    hookimpl,
    load_settings,
)
from contexthost.projection.drafts import CustomDraft

KIND = "bookmarks:bookmark"  # the type of our entries


class BookmarkSettings(Settings):
    """``bookmarks.json``."""

    prefix: str = "remember:"
    """A message that begins like this is bookmarked by itself; empty: none is."""
    excerptCharacters: Annotated[int, Field(ge=10, le=10_000)] = 200
    """How much of a marked message the model is shown."""


def settings() -> BookmarkSettings:
    return load_settings(BookmarkSettings, "bookmarks").values


@hookimpl
def register_settings() -> list[SettingsSpec]:
    return [SettingsSpec("bookmarks", BookmarkSettings)]


def bookmarks(ctx: Context) -> list[tuple[str, str]]:
    """(name, entry id) of each bookmark on the branch, oldest first."""
    found = []
    for entry in ctx.session.branch():
        if entry.type == "custom" and entry.data.get("customType") == KIND:
            match entry.data.get("data"):
                case {"name": str(name), "entryId": str(entry_id)}:  # a file may hold anything
                    found.append((name, entry_id))
    return found


async def bookmark(arguments: str, ctx: Context) -> str:
    """``/bookmark NAME`` marks the newest message; ``/bookmark`` lists what is marked."""
    if not arguments:
        return "\n".join(f"{entry_id} {name}" for name, entry_id in bookmarks(ctx)) or "no bookmarks yet"
    messages = [entry for entry in ctx.session.branch() if entry.role in ("user", "assistant")]
    if not messages:
        return "there is no message yet to put a bookmark on"
    ctx.append_entry(KIND, {"name": arguments, "entryId": messages[-1].id})
    return f"{messages[-1].id} is bookmarked as {arguments}"


@hookimpl
def register_commands() -> list[Command]:
    return [Command(name="bookmark", description="Bookmark the newest message: /bookmark NAME", handler=bookmark)]


async def list_bookmarks(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    """What the user marked, in the user's words and the entry's own, wherever that entry is by now."""
    length = settings().excerptCharacters
    lines = []
    for name, entry_id in bookmarks(ctx):
        item = ctx.history.get(entry_id)
        what = f"{item.state}: {item.text[:length]}" if item is not None else "not in this session"
        lines.append(f"- {name} [{entry_id}], {what}")
    return ToolResult("\n".join(lines) or "The user has set no bookmarks.")


@hookimpl
def register_tools() -> list[Tool]:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    what = "What the user bookmarked in this session, with the beginning of each message."
    return [Tool(name="list_bookmarks", description=what, parameters=schema, handler=list_bookmarks)]


@hookimpl
def agent_before_settle(event: AgentBeforeSettleEvent, ctx: Context) -> Boundary | None:
    """Marks the messages that begin with the prefix, once each."""
    prefix = settings().prefix
    if not prefix:
        return None
    known = {entry_id for _, entry_id in bookmarks(ctx)}
    drafts = []
    for projected in event.context.entries:
        entry = projected.source
        item = ctx.history.get(entry.id) if entry.role == "user" and entry.id not in known else None
        if item is not None and item.text.startswith(prefix):
            name = " ".join(item.text.removeprefix(prefix).split()[:6])
            drafts.append(CustomDraft(custom_type=KIND, data={"name": name, "entryId": entry.id}))
    return Boundary(tuple(drafts))


@hookimpl
def agent_settled(ctx: Context) -> None:
    ctx.ui.set_status(f"bookmarks: {len(bookmarks(ctx))}")
