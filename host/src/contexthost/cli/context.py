"""``contexthost context``: where a session's context window goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from contexthost.cli.arguments import SESSION
from contexthost.cli.context_tables import print_categories, print_largest
from contexthost.cli.output import console, count, echo_json, file_name
from contexthost.commands import masks_line, usage_line
from contexthost.config import HostSettings, load_settings
from contexthost.projection import ProjectionAuthority, Snapshot
from contexthost.projection.breakdown import Breakdown, breakdown
from contexthost.session import Session
from contexthost.session.find import find_session
from contexthost.text import one_line, shorten
from contexthost.tokens import default_counter

__all__ = ["command", "open_authority", "print_context", "window_option"]

window_option = click.option(
    "--context-window", type=click.IntRange(min=1), metavar="N", help="Tokens; default: contextWindow of host.json."
)


def open_authority(reference: str, context_window: int | None, *, owner: str = "contexthost") -> ProjectionAuthority:
    """The projection of the session that a command line names, with the settings of ``host.json``.

    Raises:
        SessionNotFound, AmbiguousSession, SessionFormatError: it cannot be opened.
    """
    settings = load_settings(HostSettings, "host").values
    session = Session.open(find_session(reference), owner=owner)
    window = context_window or settings.contextWindow
    return ProjectionAuthority(session, counter=default_counter(settings.encoding), window=window)


@click.command("context")
@click.argument("session", type=SESSION)
@window_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page about it instead: its whole life as a picture, what could be done, what can be brought back.",
)
@click.option("--force", is_flag=True, help="With --html: replace FILE if it exists.")
def command(session: str, context_window: int | None, as_json: bool, html_file: Path | None, force: bool) -> None:
    """Show where SESSION's context window goes: by category, and the largest entries."""
    if html_file is not None:
        if as_json:
            raise click.UsageError("--json and --html are two different things: give one of them")
        _write_html(session, context_window, html_file, force)
        return
    if force:
        raise click.UsageError("--force is for --html")
    authority = open_authority(session, context_window)
    snapshot = authority.snapshot()
    parts = breakdown(snapshot)
    if as_json:
        echo_json(_to_json(authority.session, snapshot, parts))
    else:
        print_context(authority.session, snapshot, parts)


def _write_html(reference: str, window: int | None, target: Path, force: bool) -> None:
    import asyncio

    from contexthost.cli.report import check_target, gather, page, write_report
    from contexthost.drivers.file import open_file

    path = find_session(reference)
    check_target(target, path, force=force)

    async def make() -> str:
        async with open_file(path, window=window, owner="contexthost context") as runtime:
            return page(await gather(runtime))

    content = asyncio.run(make()).encode("utf-8", "replace")
    write_report(target, content, path, force=force)
    size = count(-(-len(content) // 1000))
    click.echo(f"Wrote {file_name(target)} ({size} kB); open it in any browser.")


def print_context(session: Session, snapshot: Snapshot, parts: Breakdown, *, largest: int = 10) -> None:
    """Prints a snapshot's breakdown for people."""
    name = session.name or session.id
    out = console()
    out.print(f"Session [bold]{_escape(shorten(one_line(name), 60))}[/bold]: {usage_line(snapshot.usage)}")
    if snapshot.ledger.masked_results:
        out.print(masks_line(snapshot.ledger))
    odd = len(session.problems)
    if odd:
        oddities = "1 oddity" if odd == 1 else f"{count(odd)} oddities"
        out.print(f"The file has {oddities}: see `contexthost doctor SESSION`.")
    out.print()
    print_categories(parts, snapshot.window)
    if largest and parts.largest:
        out.print()
        print_largest(parts.largest[:largest])


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _to_json(session: Session, snapshot: Snapshot, parts: Breakdown) -> dict[str, Any]:
    usage = snapshot.usage
    return {
        "sessionId": session.id,
        "file": str(session.path),
        "name": session.name,
        "model": snapshot.model,
        "leafId": snapshot.leaf_id,
        "usage": {
            "tokens": usage.tokens,
            "lower": usage.lower,
            "upper": usage.upper,
            "source": usage.source,
            "window": usage.window,
            "percent": usage.percent,
        },
        "tokens": parts.tokens,
        "categories": [
            {
                "name": category.name,
                "tool": category.tool,
                "count": category.count,
                "tokens": category.tokens,
                "share": category.tokens / snapshot.window,
            }
            for category in parts.categories
        ],
        "largest": [
            {
                "entryId": entry.entry_id,
                "position": entry.position,
                "what": entry.what,
                "argument": entry.argument,
                "category": entry.category,
                "tokens": entry.tokens,
            }
            for entry in parts.largest
        ],
        "maskedResults": snapshot.ledger.masked_results,
        "reclaimedTokens": snapshot.ledger.reclaimed_tokens,
        "compaction": None if snapshot.checkpoint is None else snapshot.checkpoint.id,
        "problems": len(session.problems),
    }
