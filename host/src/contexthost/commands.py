"""The slash commands of a session: the host's own and those of the plugins that are available in it."""

from __future__ import annotations

from contexthost.context import Command, Context
from contexthost.projection import MaskLedger, Snapshot
from contexthost.projection.breakdown import breakdown
from contexthost.runtime import Runtime
from contexthost.text import one_line, shorten
from contexthost.tokens import EffectiveUsage

__all__ = ["OWN_COMMANDS", "context_text", "masks_line", "session_commands", "usage_line"]

_LARGEST = 5


def usage_line(usage: EffectiveUsage) -> str:
    """Usage in one line, with its bounds and on whose word."""
    source = "the provider's last count and what came since" if usage.source == "provider" else "estimated"
    bounds = "" if usage.lower == usage.upper else f", between {usage.lower:,} and {usage.upper:,}"
    return f"{usage.tokens:,} of {usage.window:,} tokens, {usage.percent:.1f} % ({source}{bounds})"


def masks_line(ledger: MaskLedger) -> str:
    """What masks save, in one line."""
    masked = "1 tool result is" if ledger.masked_results == 1 else f"{ledger.masked_results:,} tool results are"
    return f"{masked} masked; that saves {ledger.reclaimed_tokens:,} tokens."


def context_text(snapshot: Snapshot) -> str:
    """Where the window goes, as plain text: usage, tokens by category, what masks save, the largest entries."""
    parts = breakdown(snapshot)
    lines = [usage_line(snapshot.usage)]
    for category in parts.categories:
        label = category.name if category.tool is None else f"{category.name}: {category.tool or '(no name)'}"
        share = category.tokens / snapshot.window * 100
        lines.append(f"  {label:<28} {category.count:>6} {category.tokens:>10,} tokens {share:>5.1f} %")
    lines.append(f"  {'all, as counted here':<28} {'':>6} {parts.tokens:>10,} tokens")
    if snapshot.ledger.masked_results:
        lines.append(masks_line(snapshot.ledger))
    for entry in parts.largest[:_LARGEST]:
        lines.append(f"  {entry.entry_id} {entry.tokens:>8,} tokens  {shorten(one_line(entry.argument), 60)}")
    return "\n".join(lines)


async def _context(arguments: str, ctx: Context) -> str:
    return context_text(ctx.snapshot)


OWN_COMMANDS = (Command(name="context", description="Show where the context window goes.", handler=_context),)
"""The host's own."""


def session_commands(runtime: Runtime) -> dict[str, tuple[str, Command]]:
    """Name → (plugin, command), plugin "" for the host's own, whose names plugins cannot take."""
    found = {
        command.name: (plugin, command)
        for plugin, command in runtime.plugins.items("register_commands", Command)
        if command.available(runtime.context(plugin))
    }
    return {**found, **{command.name: ("", command) for command in OWN_COMMANDS}}
