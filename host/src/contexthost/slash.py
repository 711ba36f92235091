"""Slash commands of the plugins, as a live session runs them."""

from __future__ import annotations

from collections.abc import Callable

from contexthost._dispatch import Caught
from contexthost.commands import session_commands
from contexthost.context import Command
from contexthost.errors import ContexthostError
from contexthost.runtime import Runtime
from contexthost.watch import Notified, WatchEvent

__all__ = ["find_command", "run_command"]


def find_command(runtime: Runtime, text: str) -> tuple[str, Command, str] | None:
    """The command that an input calls: (plugin, command, arguments); None for what is no command."""
    if not text.startswith("/"):
        return None
    name, _, arguments = text[1:].partition(" ")
    found = session_commands(runtime).get(name)
    return (*found, arguments.strip()) if found is not None else None


async def run_command(
    runtime: Runtime, plugin: str, command: Command, arguments: str, emit: Callable[[WatchEvent], None]
) -> str | None:
    """What the command prints. One that fails is told and counts as run, as in Pi."""
    with Caught() as caught:
        return await command.handler(arguments, runtime.context(plugin))
    error = caught.error
    what = str(error) if isinstance(error, ContexthostError) else f"{type(error).__name__}: {error}"
    emit(Notified(plugin, f"/{command.name}: {what}", "error"))
    return None
