"""The host's own slash commands in Pi."""

from __future__ import annotations

from collections.abc import Sequence

from contexthost.context import Command, Context
from contexthost.hookspecs import hookimpl
from contexthost.projection.breakdown import breakdown
from contexthost.text import one_line, shorten

__all__ = ["HostCommands"]


class HostCommands:
    """A plugin of the host's own: ``/context``."""

    plugin_name = "contexthost"

    @hookimpl
    def register_commands(self) -> Sequence[Command]:
        """``/context``."""
        return [Command(name="context", description="Show where the context window goes", handler=_context)]


async def _context(arguments: str, ctx: Context) -> str:
    snapshot = ctx.snapshot
    usage = snapshot.usage
    parts = breakdown(snapshot)
    source = "the provider's last count and what came since" if usage.source == "provider" else "estimated"
    lines = [f"{usage.tokens:,} of {usage.window:,} tokens, {usage.percent:.1f} % ({source})"]
    for category in parts.categories:
        label = category.name if category.tool is None else f"{category.name}: {category.tool or '(no name)'}"
        share = category.tokens / snapshot.window * 100
        lines.append(f"  {label:<28} {category.count:>6} {category.tokens:>10,} tokens {share:>5.1f} %")
    lines.append(f"  {'all, as counted here':<28} {'':>6} {parts.tokens:>10,} tokens")
    if snapshot.ledger.masked_results:
        saved = snapshot.ledger.reclaimed_tokens
        lines.append(f"{snapshot.ledger.masked_results} tool results are masked; that saves {saved:,} tokens.")
    for entry in parts.largest[:5]:
        lines.append(f"  {entry.entry_id} {entry.tokens:>8,} tokens  {shorten(one_line(entry.argument), 60)}")
    return "\n".join(lines)
