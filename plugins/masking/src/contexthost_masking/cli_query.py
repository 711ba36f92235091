"""``contexthost status`` and ``contexthost tree-query``: the slash command and the tool, on a session file."""

from __future__ import annotations

import time
from typing import Literal

import click

from contexthost.cli.arguments import SESSION

__all__ = ["status", "tree_query"]


@click.command()
@click.argument("session", type=SESSION)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--context-window",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="The model's context window; by default contextWindow in host.json (200,000).",
)
def status(session: str, as_json: bool, context_window: int | None) -> None:
    """Show usage, thresholds, masks and compactions of SESSION.

    SESSION is a path, an id or its unique beginning, or "latest". Nothing is written.
    """
    # Here and not above: the host imports this module to list its commands.
    from contexthost.cli.context import open_authority
    from contexthost.cli.output import echo_json
    from contexthost.cli.warnings import tell_warnings
    from contexthost.config import HostSettings, load_settings
    from contexthost.text import printable
    from contexthost_masking.settings import PACKAGE, MaskingSettings
    from contexthost_masking.status import status_of

    settings = load_settings(MaskingSettings, PACKAGE)
    reserve = load_settings(HostSettings, "host").values.compaction.reserveTokens
    snapshot = open_authority(session, context_window).snapshot()
    found = status_of(snapshot, settings.values, reserve=reserve, now=time.time())
    tell_warnings(settings.warnings)
    if as_json:
        echo_json(found.data())
    else:
        click.echo(printable(found.text()))


@click.command("tree-query", short_help="Find and read what SESSION's context no longer shows.")
@click.argument("session", type=SESSION)
@click.argument("words", nargs=-1)
@click.option("--entry", metavar="ID", help="Read this entry.")
@click.option("--call", metavar="ID", help="Read the result of this tool call.")
@click.option("--tool", metavar="NAME", help="Results of this tool.")
@click.option("--path", metavar="FILE", help="Calls about this file and their results; its end will do.")
@click.option("--text", metavar="WORDS", help="The same as WORDS.")
@click.option("--turns", metavar="RANGE", help='Turns of the branch: "7", "3-12" or "40-".')
@click.option("--scope", type=click.Choice(["branch", "all"]), default="branch", help="all: other branches too.")
@click.option("--continue", "token", metavar="TOKEN", help="The next page; TOKEN is from an earlier answer.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; its texts are exactly the session's.")
def tree_query(
    session: str,
    words: tuple[str, ...],
    entry: str | None,
    call: str | None,
    tool: str | None,
    path: str | None,
    text: str | None,
    turns: str | None,
    scope: Literal["branch", "all"],
    token: str | None,
    as_json: bool,
) -> None:
    """Find and read what SESSION's context no longer shows: masked, replaced or compacted-away entries.

    SESSION is a path, an id or its unique beginning, or "latest". WORDS must all occur, case aside. Nothing is written.
    Exits 1 when nothing is found.
    """
    from contexthost.cli.context import open_authority
    from contexthost.cli.output import echo_json
    from contexthost.history import History
    from contexthost.text import printable
    from contexthost_masking.query import QueryError, Request, answer

    text = " ".join([*words, *([text] if text else [])]) or text
    given = {
        "entry": entry, "call": call, "tool": tool, "path": path, "text": text, "turns": turns, "scope": scope,
        "continue": token,
    }  # fmt: skip
    try:
        request = Request.of(given)
    except QueryError as error:
        raise click.UsageError(str(error)) from None
    authority = open_authority(session, None)
    found = answer(request, History(authority.session, authority.snapshot), authority.session)
    if as_json:
        echo_json({"found": found.found, **found.data})
    else:
        click.echo(printable(found.text))
    if not found.found:
        raise click.exceptions.Exit(1)
