"""``contexthost pi``: putting contexthost into Pi, and what Pi then starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from contexthost.cli.output import echo_json, file_name
from contexthost.cli.warnings import tell_warnings
from contexthost.text import one_line

if TYPE_CHECKING:
    from contexthost.pi.install import Status

__all__ = ["command"]

_MANIFEST: Final = {
    True: "the tools and commands of the plugins installed now",
    False: "out of date: run `contexthost pi install` again",
    None: "not known: the Python side does not answer",
}


class _Directory(click.Path):
    """A directory; an empty name is a mistake (an unset variable in a script), not where the command runs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType`."""
        if value == "":
            self.fail("it is empty: name Pi's directory, or leave the option out", param, ctx)
        return super().convert(value, param, ctx)


_agent_dir = click.option(
    "--agent-dir",
    type=_Directory(file_okay=False, path_type=Path),
    metavar="D",
    help="Pi's directory; default: PI_CODING_AGENT_DIR, else ~/.pi/agent.",
)
_force = click.option("--force", is_flag=True, help="Even if the file there was not written by this command.")


@click.group("pi")
def command() -> None:
    """Run the installed plugins inside Pi."""


@command.command("install", short_help="Write the extension into Pi's extensions directory.")
@_agent_dir
@_force
def install_command(agent_dir: Path | None, force: bool) -> None:
    """Write the extension into Pi's extensions directory; run it again after installing or removing plugins."""
    from contexthost.pi import install

    path = install.install(agent_dir, force=force)
    installed = install.read_installed(agent_dir)
    assert installed is not None
    click.echo(f"Wrote {path}: every Pi session from now on runs the plugins of {installed.command[0]}.")
    tell_warnings(install.plugin_warnings())
    rivals = install.rivals(agent_dir)
    for rival in rivals.paths:
        name = file_name(rival)
        click.echo(f"Note: {name} takes part in compactions too; Pi takes the answer of the last extension.")
    for unknown in rivals.unknown:
        click.echo(f"Note: {one_line(unknown)}.")


@command.command("uninstall")
@_agent_dir
@_force
def uninstall_command(agent_dir: Path | None, force: bool) -> None:
    """Remove the extension from Pi's extensions directory."""
    from contexthost.pi import install

    path = install.uninstall(agent_dir, force=force)
    click.echo(f"Removed {path}." if path is not None else "It is not installed; nothing to remove.")


@command.command("status", short_help="Say whether it is installed, current, and answers.")
@_agent_dir
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status_command(agent_dir: Path | None, as_json: bool) -> int:
    """Say whether the extension is installed, current, and answered; exits 1 if something is wrong with it."""
    from contexthost.pi import install

    found = install.status(agent_dir)
    installed, problem = found.installed, found.problem
    others = {
        "otherCompactors": [str(path) for path in found.rivals.paths],
        "otherCompactorsUnknown": list(found.rivals.unknown),
    }
    if installed is None:
        if as_json:
            echo_json({"installed": False, "path": str(install.extension_path(agent_dir)), **others})
        else:
            click.echo("Not installed: `contexthost pi install` puts it into Pi.")
        return 1
    if as_json:
        echo_json(
            {
                "installed": True,
                "path": str(installed.path),
                "version": installed.version,
                "command": list(installed.command),
                "intact": installed.intact,
                "current": found.current,
                "answers": problem is None,
                "problem": problem,
                "told": list(found.told),
                **others,
            }
        )
    else:
        click.echo(f"installed    {installed.path}, version {installed.version}")
        click.echo(f"file         {'as it was written' if installed.intact else 'edited since it was written'}")
        click.echo(f"interpreter  {_interpreter(found)}")
        click.echo(f"manifest     {_MANIFEST[found.current]}")
        click.echo(f"Python side  {'answers' if problem is None else f'does not answer: {problem}'}")
        for told in found.told:
            click.echo(f"it tells     {one_line(told)}")
        for rival in found.rivals.paths:
            name = file_name(rival)
            click.echo(f"also there   {name} takes part in compactions; Pi takes the answer of the last extension")
        for unknown in found.rivals.unknown:
            click.echo(f"not known    {one_line(unknown)}")
    return 0 if problem is None and found.current and installed.intact else 1


def _interpreter(found: Status) -> str:
    """Which Python Pi starts, and what an installation from here would do to that."""
    assert found.installed is not None
    name = one_line("".join(found.installed.command[:1])) or "none is named"  # the file may have been edited
    if found.own:
        return name
    return f"{name}; `contexthost pi install` from here moves Pi to {file_name(Path(sys.executable))}"


@command.command("serve", hidden=True)
def serve_command() -> None:
    """Serve one Pi session over standard input and output; Pi's extension starts this."""
    from contexthost.pi.server import serve

    serve()
