"""``contexthost relay`` and ``contexthost recall``: the plugin on session files."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contexthost.cli.arguments import SESSION

if TYPE_CHECKING:
    from contexthost.runtime import Runtime
    from contexthost_relay.relay import Relay

__all__ = ["recall", "relay"]


@click.command()
@click.argument("session", type=SESSION)
@click.option("--dry-run", is_flag=True, help="Show the note and what would be kept; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--context-window",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="The model's context window; by default contextWindow in host.json (200,000).",
)
def relay(session: str, dry_run: bool, as_json: bool, context_window: int | None) -> None:
    """Replace the conversation of SESSION by a note and its latest part.

    SESSION is a path, an id or its unique beginning, or "latest". Nothing in the file is changed or removed: one
    compaction is appended. No model is asked.
    """
    from contexthost.session.find import find_session

    report = asyncio.run(_relay(find_session(session), dry_run, context_window))
    click.echo(json.dumps(report.data, indent=2) if as_json else report.text)


@dataclass(frozen=True, slots=True)
class _Report:
    data: dict[str, Any]
    text: str


async def _relay(path: Path, dry_run: bool, window: int | None) -> _Report:
    from contexthost.drivers.file import open_file
    from contexthost_relay.settings import PACKAGE

    async with open_file(path, window=window, owner="contexthost relay") as runtime:
        if PACKAGE in {plugin.name for plugin in runtime.plugins.plugins if plugin.state == "active"}:
            return await _on_runtime(runtime, dry_run)
    raise click.ClickException("the relay plugin is disabled in host.json")


async def _on_runtime(runtime: Runtime, dry_run: bool) -> _Report:
    from contexthost.cli.warnings import tell_warnings
    from contexthost.config import load_settings
    from contexthost.errors import ContexthostError, Unsupported
    from contexthost.runtime import compaction_draft
    from contexthost.text import one_line, printable
    from contexthost_relay.files import remove_note, write_note_file
    from contexthost_relay.relays import log_relay
    from contexthost_relay.settings import PACKAGE, RelaySettings
    from contexthost_relay.triggers import is_main

    session, authority, ctx = runtime.session, runtime.authority, runtime.context(PACKAGE)
    if not is_main(session.name, "tui"):
        raise Unsupported(f"{session.path}: a subagent's session ({session.name}); relays are for main sessions only")
    loaded = load_settings(RelaySettings, PACKAGE)
    tell_warnings(loaded.warnings)
    settings = loaded.values
    if dry_run:
        made = await _make(runtime, settings)
        after = authority.preview([compaction_draft(made.result)])
    else:
        with session.writing():
            session.refresh()
            made = await _make(runtime, settings)
            try:
                write_note_file(made.path, made.note)
                after = authority.commit([compaction_draft(made.result)])
            except BaseException as error:
                remove_note(made.path)
                if isinstance(error, ContexthostError):
                    log_relay(ctx, "manual", ok=False, error=str(error))
                raise
            log_relay(ctx, "manual", ok=True, entry=session.leaf)
    before_tokens = made.result.tokens_before
    after_tokens = after.tokens
    kept = len(after.entries) - 1
    data = {
        "session": str(session.path),
        "sessionId": session.id,
        "dryRun": dry_run,
        "applied": not dry_run,
        "contextWindow": after.window,
        "tokensBefore": before_tokens,
        "tokensAfter": after_tokens,
        "firstKeptEntryId": made.result.first_kept_entry_id,
        "keptEntries": kept,
        "notePath": str(made.path),
        "note": made.note,
    }
    lines = [
        one_line(str(session.path)),
        "",
        *(f"  {line}".rstrip() for line in printable(made.note).splitlines()),
        "",
        f"{'before':<8} ~{before_tokens:,} tokens",
        f"{'after':<8} ~{after_tokens:,} tokens: the note ({len(made.note):,} characters) and {kept:,} entries",
        f"{'kept':<8} from {one_line(made.result.first_kept_entry_id)} on",
        "",
        "Dry run: nothing was written. Run it again without --dry-run to relay."
        if dry_run
        else f"One compaction was appended; the note is also in {one_line(str(made.path))}",
    ]
    return _Report(data, "\n".join(lines))


async def _make(runtime: Runtime, settings: Any) -> Relay:
    from contexthost.compaction import prepare_compaction
    from contexthost.errors import NothingToCompact
    from contexthost.projection import context_messages
    from contexthost_relay.relay import make_relay
    from contexthost_relay.settings import PACKAGE

    snapshot = runtime.authority.snapshot()
    preparation = prepare_compaction(snapshot, snapshot.branch, runtime.compaction, context_messages=context_messages)
    if preparation is None:
        raise NothingToCompact(
            f"{runtime.session.path}: nothing to relay: everything is recent enough to be kept, or the last entry is a "
            "compaction; nothing was changed"
        )
    return await make_relay(runtime.context(PACKAGE), preparation, settings)


@click.command()
@click.argument("session", type=SESSION)
@click.argument("query", nargs=-1)
@click.option("--entry", "entry_id", metavar="ID", help="Read this entry whole; note:1, note:2, … read relay notes.")
@click.option("--offset", type=int, default=0, help="Where to read on, as the page before said.")
@click.option("--limit", type=int, default=8, show_default=True, help="Hits at most, 1 to 30.")
@click.option("--lineage", is_flag=True, help="Search the sessions that this one was forked from too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; texts are as the session has them.")
def recall(
    session: str,
    query: tuple[str, ...],
    entry_id: str | None,
    offset: int,
    limit: int,
    lineage: bool,
    as_json: bool,
) -> None:
    """Search SESSION for entries with all words of QUERY, or read one with --entry."""
    from contexthost.errors import EntryNotFound
    from contexthost.history import History
    from contexthost.paths import plugin_data_dir
    from contexthost.projection import ProjectionAuthority
    from contexthost.session import Session
    from contexthost.session.find import find_session
    from contexthost.text import printable
    from contexthost_relay.recall import recall as answer
    from contexthost_relay.settings import PACKAGE

    if not query and not entry_id:
        raise click.UsageError("give words to search for, or --entry ID")
    opened = Session.open(find_session(session))
    history = History(opened, ProjectionAuthority(opened).snapshot)
    arguments = {"query": " ".join(query), "entryId": entry_id, "offset": offset, "limit": limit}
    notes = plugin_data_dir(PACKAGE, make=False)
    found = answer({**arguments, "scope": "lineage" if lineage else None}, history, notes)
    if as_json:
        click.echo(json.dumps({"found": found.found, **found.data}, indent=2))
    elif found.found or not entry_id:
        click.echo(printable(found.text))
    else:
        raise EntryNotFound(found.text)
