"""``contexthost plugins``: which plugins there are and what became of them."""

from __future__ import annotations

import click

from contexthost.cli.output import echo_json, print_table
from contexthost.cli.warnings import tell_warnings
from contexthost.config import HostSettings, load_settings
from contexthost.runtime import load_plugins

__all__ = ["command"]


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List the plugins in the order in which they are asked, with what could not be loaded and why."""
    manager = load_plugins(load_settings(HostSettings, "host").values)
    if as_json:
        echo_json(
            {
                "plugins": [
                    {
                        "name": info.name,
                        "state": info.state,
                        "dist": info.dist,
                        "version": info.version,
                        "error": info.error,
                        "hooks": list(info.hooks),
                    }
                    for info in manager.plugins
                ],
                "warnings": manager.warnings,
            }
        )
        return
    if not manager.plugins:
        click.echo("No plugins are installed: `pip install contexthost-masking` gets one.")
        return
    print_table(
        [("plugin", "left"), ("state", "left"), ("package", "left"), ("hooks", "left")],
        [
            (info.name, info.state, f"{info.dist or ''} {info.version or ''}".strip(), ", ".join(info.hooks))
            for info in manager.plugins
        ],
    )
    tell_warnings(manager.warnings)
