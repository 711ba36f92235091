"""The ``contexthost`` command. Importing it is cheap: a command's own module is imported when the command runs."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from contexthost import _interrupt

if TYPE_CHECKING:
    from contexthost.plugins import PluginManager

__all__ = ["known_commands", "main", "root"]

_COMMANDS: Final = {
    "chat": ("contexthost.cli.chat", "Talk to a model in a session, with the installed plugins."),
    "compact": ("contexthost.cli.compact", "Compact a session: a plugin's way, or by a model's summary."),
    "config": ("contexthost.cli.config", "Show and write settings."),
    "context": ("contexthost.cli.context", "Show where a session's context window goes."),
    "demo": ("contexthost.cli.demo", "A bundled session through the installed plugins: before and after."),
    "doctor": ("contexthost.cli.doctor", "Check a session for damage and mend it; or the installation."),
    "inspect": ("contexthost.cli.inspect", "Print the exact projection of sessions as JSON."),
    "pi": ("contexthost.cli.pi", "Run the installed plugins inside Pi."),
    "plugins": ("contexthost.cli.plugins", "List the plugins and what became of them."),
    "run": ("contexthost.cli.run", "Run a plugin's slash command on a session."),
    "sessions": ("contexthost.cli.sessions", "List the sessions that Pi has on this machine."),
    "tool": ("contexthost.cli.run:tool_command", "Call a plugin's tool on a session, with JSON arguments."),
}
"""Name → module with a ``command`` (or what is named), and the line for ``--help``: help imports nothing."""

_PLUGIN_COMMANDS: Final = {
    "codex": "contexthost-codex-native",
    "jev": "contexthost-jev",
    "mask": "contexthost-masking",
    "recall": "contexthost-relay",
    "relay": "contexthost-relay",
    "status": "contexthost-masking",
    "tree-query": "contexthost-masking",
}
"""Commands of the known plugins → the package to install when one is missing."""


_TELL_THEMSELVES: Final = frozenset({"config", "doctor", "pi"})
"""Commands that say what is wrong with the settings of every package, or tell it in Pi."""


def known_commands() -> set[str]:
    """The names of all commands, those of known plugins that are not installed included."""
    return {*_COMMANDS, *_PLUGIN_COMMANDS, *(command.name or "" for command in _plugin_commands())}


class _Commands(click.Group):
    """The host's commands by name, then those that installed plugins register."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_COMMANDS, *(command.name or "" for command in _plugin_commands())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            module, _, name = _COMMANDS[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(module), name or "command")
            return command
        for found in _plugin_commands():
            if found.name == cmd_name:
                return found
        if cmd_name in _PLUGIN_COMMANDS:
            raise click.ClickException(_why_missing(cmd_name, _PLUGIN_COMMANDS[cmd_name]))
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, text) for name, (_, text) in sorted(_COMMANDS.items())]
        extra = sorted((command.name or "", command.get_short_help_str(80)) for command in _plugin_commands())
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        if extra:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(extra)


def _plugin_commands() -> list[click.Command]:
    found = _plugins().items("register_cli", click.Command)
    return [command for _, command in found if command.name not in _COMMANDS]


def _plugins() -> PluginManager:
    from contexthost.config import HostSettings, load_settings
    from contexthost.runtime import load_plugins

    return load_plugins(load_settings(HostSettings, "host").values)


def _why_missing(command: str, package: str) -> str:
    """Why a known plugin's command is not there: another thing to do when the package is installed all the same."""
    of = f"`contexthost {command}` is a command of"
    plugin = next((info for info in _plugins().plugins if info.dist == package), None)
    if plugin is None:
        return f"{of} a plugin that is not installed: pip install {package}"
    if plugin.state == "disabled":
        return f"{of} plugin {plugin.name}, which `disabled` in host.json turns off: `contexthost config show host`"
    return f"{of} plugin {plugin.name}, which is installed but brings none: `contexthost plugins` shows what is wrong"


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        import importlib.metadata

        click.echo(f"contexthost {importlib.metadata.version('contexthost')}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
def root(debug: bool) -> None:
    """Keeps long coding-agent sessions inside their context window without losing what matters.

    SESSION is a path, a session id or its unique beginning, or "latest".
    """
    if click.get_current_context().invoked_subcommand not in _TELL_THEMSELVES:
        from contexthost.cli.warnings import tell_warnings
        from contexthost.config import HostSettings, load_settings

        tell_warnings(load_settings(HostSettings, "host").warnings)
    _interrupt.raises()  # the command begins


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits: 0, 1 with one line of what went wrong, 2 for wrong arguments."""
    from contexthost.errors import ContexthostError

    given = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # bars and arrows become "?" where the encoding has none
    from contexthost.cli.progress import show_on_terminal

    show_on_terminal()
    color = False if os.environ.get("NO_COLOR") else None  # as no-color.org has it; None: where there is a terminal
    try:
        status: Any = root.main(args=given, prog_name="contexthost", standalone_mode=False, color=color)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.exceptions.Abort:
        click.echo("Aborted.", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error, and the interpreter must not write again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except ContexthostError as error:
        if "--debug" in given:
            raise
        from contexthost.text import one_line

        click.echo(f"Error: {one_line(str(error))}", err=True)
        sys.exit(1)
    except OSError as error:
        if "--debug" in given:
            raise
        where = f"{error.filename}: " if error.filename else ""  # none when our own output cannot be written
        advice = "`contexthost --debug …` shows where"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "make room and run it again"
        click.echo(f"Error: {where}{error.strerror or error}; {advice}", err=True)
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)
