"""``contexthost run`` and ``contexthost tool``: a plugin's slash command or tool, on a session file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from contexthost._dispatch import Caught
from contexthost.cli import known_commands
from contexthost.cli.arguments import SESSION
from contexthost.cli.output import echo_json
from contexthost.commands import session_commands
from contexthost.context import Command, Tool, ToolResult
from contexthost.drivers.file import open_file
from contexthost.errors import ContexthostError, PluginError, SessionLocked, SessionWriteError, Unsupported
from contexthost.runtime import Runtime
from contexthost.session.find import find_session
from contexthost.text import printable
from contexthost.toolbox import tool_problem

__all__ = ["command", "tool_command"]


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("session", type=SESSION)
@click.argument("slash_command", metavar="/COMMAND")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(session: str, slash_command: str, arguments: tuple[str, ...]) -> None:
    """Run a plugin's slash command on SESSION, as it would be typed in a live session."""
    text = asyncio.run(_run(find_session(session), slash_command.removeprefix("/"), " ".join(arguments)))
    if text:
        click.echo(printable(text))


async def _run(path: Path, name: str, arguments: str) -> str | None:
    async with open_file(path, owner=f"contexthost run /{name}") as runtime:
        commands = session_commands(runtime)
        if name not in commands:
            known = ", ".join(f"/{known}" for known in sorted(commands))
            raise Unsupported(f"{_missing_command(runtime, name)}; there are: {known}")
        plugin, slash = commands[name]
        with Caught() as caught:
            text = await slash.handler(arguments, runtime.context(plugin))
            await runtime.drain()
            return text
        raise _told(caught.error, f"/{name}")


def _missing_command(runtime: Runtime, name: str) -> str:
    """Why a slash command cannot be run on a session file, and what to do instead where something can be done."""
    found = runtime.plugins.items("register_commands", Command)
    owner = next((plugin for plugin, command in found if command.name == name), None)
    if owner is None:
        return f"there is no command /{name} here"
    why = f"/{name} of plugin {owner} needs a live session"
    try:
        with runtime.session.writing():
            pass  # a live session is locked, and then the commands for files are refused as well
    except SessionLocked as error:
        return f"{why}, and {error}"
    except SessionWriteError:
        pass  # nobody can tell; the command for files will say what to do about it
    instead = f": use `contexthost {name} SESSION`" if name in known_commands() else ""
    return f"{why}{instead}"


@click.command("tool")
@click.argument("session", type=SESSION)
@click.argument("name")
@click.argument("arguments", metavar="JSON", default="{}")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
def tool_command(session: str, name: str, arguments: str, as_json: bool) -> int:
    """Call a plugin's tool on SESSION with a JSON object, as a model would; exits 1 on an error result."""
    try:
        given = json.loads(arguments)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="JSON") from None
    if not isinstance(given, dict):
        raise click.BadParameter("not a JSON object", param_hint="JSON")
    result = asyncio.run(_call(find_session(session), name, given))
    content = [{"type": "text", "text": result.content}] if isinstance(result.content, str) else list(result.content)
    if as_json:
        echo_json({"content": content, "isError": result.is_error, "details": result.details})
    else:
        for block in content:
            click.echo(printable(str(block.get("text", f"[{block.get('type')}]"))))
    return 1 if result.is_error else 0


async def _call(path: Path, name: str, arguments: dict[str, object]) -> ToolResult:
    async with open_file(path, owner=f"contexthost tool {name}") as runtime:
        found = runtime.plugins.items("register_tools", Tool)
        tools = {t.name: (plugin, t) for plugin, t in found if t.available(runtime.context(plugin))}
        if name not in tools:
            known = ", ".join(sorted(tools)) or "none"
            owner = next((plugin for plugin, t in found if t.name == name), None)
            why = f"no installed plugin has the tool {name}"
            if owner is not None:
                why = f"plugin {owner} does not offer its tool {name} for this session"
            raise Unsupported(f"{why}; there are: {known}")
        plugin, tool = tools[name]
        problem = tool_problem(tool, arguments)
        if problem is not None:
            raise ContexthostError(f"the arguments do not fit the tool {name}: {problem}")
        with Caught() as caught:
            result = await tool.handler(arguments, runtime.context(plugin))
            await runtime.drain()
            return result
        raise _told(caught.error, f"the tool {name}")


def _told(error: Exception | None, what: str) -> ContexthostError:
    """A plugin's failure as one line; `--debug` shows where it came from."""
    if isinstance(error, ContexthostError):
        return error
    failed = PluginError(f"{what} failed: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
