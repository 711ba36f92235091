"""``contexthost sessions``: what Pi has on this machine."""

from __future__ import annotations

import click

from contexthost import paths
from contexthost.cli.output import count, echo_json, print_table
from contexthost.session.find import describe_time, list_sessions

__all__ = ["command"]


@click.command("sessions")
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(limit: int, as_json: bool) -> None:
    """List the sessions that Pi has on this machine, the most recently changed first."""
    found = [info for _, info in zip(range(limit), list_sessions(), strict=False)]
    if as_json:
        echo_json(
            [
                {
                    "id": info.id,
                    "path": str(info.path),
                    "cwd": info.cwd,
                    "timestamp": info.timestamp,
                    "size": info.size,
                    "modified": info.modified,
                }
                for info in found
            ]
        )
        return
    if not found:
        click.echo(f"No sessions in {paths.pi_agent_dir() / 'sessions'} (PI_CODING_AGENT_DIR moves it).")
        return
    print_table(
        [("changed", "left"), ("kB", "right"), ("id", "left"), ("directory", "left")],
        [(describe_time(info.modified), count(info.size // 1000), info.id, info.cwd) for info in found],
    )
