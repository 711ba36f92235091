"""``contexthost jev``: status, setup, and a look at what a compaction would ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from contexthost.cli.arguments import SESSION
from contexthost.cli.warnings import tell_warnings

if TYPE_CHECKING:
    from contexthost_jev.planning import SessionPlan

__all__ = ["jev"]


@click.group()
def jev() -> None:
    """Compaction by decision: Jev says call by call what stays."""


@jev.command("status", short_help="Show key (never its value), options, and the last compaction.")
@click.argument("session", type=SESSION, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status_command(session: str | None, as_json: bool) -> None:
    """Show whether a key is there (never the key), the options in force, and SESSION's last compaction by jev."""
    # Here and not above: the host imports this module to list its commands.
    from contexthost.session import Session
    from contexthost.session.find import find_session
    from contexthost.text import printable
    from contexthost_jev.commands import last_details, status

    last = None
    if session is not None:
        with Session.open(find_session(session)) as opened:
            last = last_details(opened.branch())
    now = status(last)
    click.echo(json.dumps(now.to_json(), indent=2) if as_json else printable(now.text()))


@jev.command("setup", short_help="Guide through the setup.")
@click.argument("values", required=False)
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
def setup_command(values: str | None, yes: bool) -> None:
    """Guide through the setup; VALUES is `defaults` or a JSON object with settings to write."""
    from contexthost_jev.commands import guide, parse_setup, status, write

    if values is None:
        click.echo(guide(status(None)))
        return
    change = parse_setup(values.strip())
    click.echo(change.text())
    if not yes and not click.confirm("Write this to jev.json?"):
        click.echo("Nothing was written.")
        return
    click.echo(write(change))


@jev.command("plan", short_help="Show what a compaction would ask Jev; asks and writes nothing.")
@click.argument("session", type=SESSION)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan_command(session: str, as_json: bool) -> None:
    """Show what a compaction of SESSION would ask Jev; no request is made and nothing is written."""
    from contexthost.config import HostSettings, load_settings
    from contexthost.projection import ProjectionAuthority
    from contexthost.session import Session
    from contexthost.session.find import find_session
    from contexthost.tokens import default_counter
    from contexthost_jev.planning import plan_session
    from contexthost_jev.settings import load, options_of

    host, loaded = load_settings(HostSettings, "host").values, load()
    counter = default_counter(host.encoding)
    with Session.open(find_session(session)) as opened:
        snapshot = ProjectionAuthority(opened, counter=counter, window=host.contextWindow).snapshot()
        planned = plan_session(snapshot, host.compaction, options_of(loaded.values), counter)
        report: dict[str, Any] = {"session": str(opened.path), "sessionId": opened.id, **planned.to_json()}
    tell_warnings(loaded.warnings)
    click.echo(json.dumps(report, indent=2) if as_json else _text(planned))


def _text(planned: SessionPlan) -> str:
    from contexthost.text import one_line, shorten

    if planned.outcome != "planned":
        return f"Nothing would be asked: {planned.detail}."
    asked = f"{len(planned.asked)} of {planned.calls} tool calls would be asked about"
    could_go = f"at most {planned.reclaimable_tokens:,} of them ({planned.best_reduction:.0%} of the characters)"
    lines = [
        f"{asked}, in {len(planned.requests)} requests; no request was made.",
        f"The requests take {sum(planned.requests):,} tokens; the state in each takes {planned.state_tokens:,}.",
        f"Stage of fitting: {planned.stage}.",
        f"What the compaction replaces has {planned.replaced_tokens:,} tokens; {could_go} could go.",
        "",
        f"{'characters':>10}  call",
    ]
    largest = sorted(planned.asked, key=lambda call: -call.chars)[:10]
    lines += [f"{call.chars:>10,}  {call.id} {shorten(one_line(call.tool), 40)}" for call in largest]
    return "\n".join(lines)
