"""``contexthost compact``: a compaction of a session file, by a plugin or by a model's summary."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from contexthost.cli.arguments import SESSION
from contexthost.cli.models import Client, client, model_options
from contexthost.cli.output import console, count, echo_json
from contexthost.compaction import Preparation
from contexthost.context import AbortSignal
from contexthost.drivers.file import open_file
from contexthost.errors import CompactionFailed, NothingToCompact
from contexthost.events import CompactionReason, CompactionResult
from contexthost.lifecycle import Lifecycle
from contexthost.runtime import Runtime
from contexthost.session import Entry
from contexthost.session.find import find_session

__all__ = ["command"]


@click.command("compact")
@click.argument("session", type=SESSION)
@click.option("--with", "plugin", metavar="NAME", help="The only plugin that may do it.")
@click.option("--instructions", metavar="TEXT", help="What the summary should heed.")
@click.option("--dry-run", is_flag=True, help="Show what would be summarised and kept; write nothing, ask nobody.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@model_options
def command(
    session: str,
    plugin: str | None,
    instructions: str | None,
    dry_run: bool,
    as_json: bool,
    base_url: str | None,
    model: str | None,
    api: str,
    provider: str,
    context_window: int | None,
) -> None:
    """Compact SESSION: replace its history by a summary and keep the recent entries.

    The first installed plugin that answers makes it; else the model of --base-url and --model writes a summary.
    Everything stays in the file.
    """
    path = find_session(session)
    asker = None if dry_run else client(base_url, model, api, provider, context_window)
    shown = asyncio.run(_compact(path, plugin, instructions, dry_run, asker, context_window))
    if as_json:
        echo_json(shown)
        return
    out = console()
    if shown["dryRun"]:
        out.print(
            f"Would summarise {shown['messagesToSummarize']} messages and keep everything from entry "
            f"{shown['firstKeptEntryId']} on, {count(shown['keptEntries'])} entries. Context now: "
            f"{count(shown['tokensBefore'])} tokens."
        )
        if plugin is not None:
            out.print(f"That is the host's cut; {plugin} may keep more or less.")
    else:
        by = shown["plugin"] or "a model's summary"
        out.print(
            f"Compacted by {by}: {count(shown['tokensBefore'])} → {count(shown['tokensAfter'])} tokens "
            f"(entry {shown['entryId']}; everything stays in the file)."
        )


class _Quiet:
    """Nobody watches: the command prints what came of it, be it the result or the error."""

    def compaction_started(self, reason: CompactionReason) -> None:
        """See `contexthost.lifecycle.Observer`."""

    def compaction_ended(self, reason: CompactionReason, entry: Entry | None, error: str | None) -> None:
        """See `contexthost.lifecycle.Observer`."""

    def compaction_cancelled(self, plugin: str, why: str) -> None:
        """See `contexthost.lifecycle.Observer`."""


async def _compact(
    path: Path,
    plugin: str | None,
    instructions: str | None,
    dry_run: bool,
    asker: Client | None,
    window: int | None,
) -> dict[str, Any]:
    try:
        info = asker.info if asker is not None else None
        async with open_file(path, window=window, model=info, owner="contexthost compact") as runtime:
            if not dry_run:
                with runtime.session.writing():
                    pass  # a session that is live is refused before a model is asked, and paid for
            lifecycle = _lifecycle(runtime, asker)
            before = runtime.authority.snapshot()
            _check_plugin(runtime, plugin)
            if dry_run:
                return _plan(runtime, lifecycle)
            entry = await lifecycle.compact("manual", to=plugin, custom_instructions=instructions)
            after = runtime.authority.snapshot()
            return {
                "dryRun": False,
                "entryId": entry.id,
                "plugin": lifecycle.last_plugin,
                "tokensBefore": before.usage.tokens,
                "tokensAfter": after.usage.tokens,
                "firstKeptEntryId": entry.data["firstKeptEntryId"],
            }
    finally:
        if asker is not None:
            await asker.aclose()


def _lifecycle(runtime: Runtime, asker: Client | None) -> Lifecycle:
    async def ask(preparation: Preparation, signal: AbortSignal, instructions: str | None) -> CompactionResult:
        from contexthost.models.summarizer import summarize

        assert asker is not None
        return await summarize(preparation, asker, signal, custom_instructions=instructions)

    summarizer = ask if asker is not None else None
    return Lifecycle(runtime, settings=runtime.compaction, observer=_Quiet(), summarize=summarizer)


def _check_plugin(runtime: Runtime, plugin: str | None) -> None:
    """A compaction for a plugin that cannot answer must say so, rather than that it gave nothing."""
    able = [found.plugin for found in runtime.plugins.implementations("session_before_compact")]
    if plugin is not None and plugin not in able:
        known = f"these can: {', '.join(able)}" if able else "none that is installed can"
        raise CompactionFailed(f"no installed plugin named {plugin!r} makes compactions; {known}")


def _plan(runtime: Runtime, lifecycle: Lifecycle) -> dict[str, Any]:
    prepared = lifecycle.prepare()
    if prepared is None:
        raise NothingToCompact("nothing to compact: everything is recent enough to be kept")
    snapshot = runtime.authority.snapshot()
    first = snapshot.position(prepared.first_kept_entry_id) or 0
    return {
        "dryRun": True,
        "messagesToSummarize": len(prepared.messages_to_summarize) + len(prepared.turn_prefix_messages),
        "isSplitTurn": prepared.is_split_turn,
        "firstKeptEntryId": prepared.first_kept_entry_id,
        "keptEntries": len(snapshot.entries) - first,
        "tokensBefore": snapshot.usage.tokens,
    }
