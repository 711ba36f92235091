"""``contexthost demo``: the bundled session, what the installed plugins make of it, the proof that nothing is lost."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections import Counter
from importlib.resources import files
from pathlib import Path

import click

from contexthost.cli.context import print_context
from contexthost.cli.output import console, count, in_shell
from contexthost.commands import usage_line
from contexthost.drivers.file import open_file
from contexthost.errors import SessionWriteError
from contexthost.events import AgentBeforeSettleEvent
from contexthost.projection.breakdown import breakdown
from contexthost.session.durable import write_new_file

__all__ = ["command"]


@click.command("demo")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to put the copy; a new temporary directory by default.",
)
def command(directory: Path | None) -> None:
    """Take a bundled session through every installed plugin: before, after, what to try next."""
    original = (files("contexthost.data") / "demo.jsonl").read_bytes()
    try:
        where = directory or Path(tempfile.mkdtemp(prefix="contexthost-demo-"))
        where.mkdir(parents=True, exist_ok=True)
        path = where / "demo.jsonl"
        write_new_file(path, original)  # never over a file that is there
    except OSError as error:
        name = error.filename or directory or "a temporary directory"
        raise SessionWriteError(
            f"the demo's copy cannot be made: {name}: {error.strerror}; choose another --directory"
        ) from None
    asyncio.run(_show(path, original))


async def _show(path: Path, original: bytes) -> None:
    out = console()
    async with open_file(path, owner="contexthost demo") as runtime:
        before = runtime.authority.snapshot()
        out.rule("before", align="left")
        print_context(runtime.session, before, breakdown(before), largest=5)
        # What plugins do by themselves at the end of every run of a live agent.
        event = AgentBeforeSettleEvent(outcome="completed", context=before)
        outcome = await runtime.boundary("agent_before_settle", event)
        out.print()
        for plugin, number in Counter(outcome.proposers).items():
            out.print(f"Plugin [bold]{plugin}[/bold] appends {number} entries.")
        if not outcome.drafts:
            out.print("No installed plugin has anything to do here: pip install contexthost-masking")
            return
        after = runtime.authority.commit(outcome.drafts)
        out.print()
        out.rule("after", align="left")
        print_context(runtime.session, after, breakdown(after), largest=0)
        out.print()
        saved = before.tokens - after.tokens
        out.print(f"Before: {usage_line(before.usage)}")
        out.print(f"After:  {usage_line(after.usage)}")
        out.print(f"{count(saved)} tokens ({saved / before.tokens * 100:.0f} %) left the context, counted alike.")
    _prove(path, original)
    out.print("\nTry next:")
    for line in (
        f"contexthost context {in_shell(path)}",
        f"contexthost inspect {in_shell(path)} | head -c 2000",
        "contexthost sessions          # then the same on a session of yours; --dry-run writes nothing",
        "contexthost mask latest --dry-run",
    ):
        out.print(f"  {line}", soft_wrap=True, markup=False)


def _prove(path: Path, original: bytes) -> None:
    """Shows that the file only grew: its beginning is the original, byte for byte."""
    grown = path.read_bytes()
    if grown[: len(original)] != original:
        raise click.ClickException(f"{path}: the old bytes are not the beginning of the new file; please report this")
    digest = hashlib.sha256(original).hexdigest()[:16]
    click.echo(
        f"Nothing is lost: the first {count(len(original))} bytes of the new file are the old file "
        f"(SHA-256 {digest}…), {count(len(grown) - len(original))} bytes were added behind them."
    )
