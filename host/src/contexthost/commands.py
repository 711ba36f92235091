"""The slash commands of a session: the host's own and those of the plugins that are available in it."""

from __future__ import annotations

from contexthost.context import Command, Context
from contexthost.projection import Snapshot
from contexthost.projection.breakdown import breakdown
from contexthost.runtime import Runtime
from contexthost.tokens import EffectiveUsage

__all__ = ["context_text", "session_commands", "usage_line"]


def usage_line(usage: EffectiveUsage) -> str:
    """Usage in one line, with its bounds and on whose word."""
    source = "the provider's last count and what came since" if usage.source == "provider" else "estimated"
    bounds = "" if usage.lower == usage.upper else f", between {usage.lower:,} and {usage.upper:,}"
    return f"{usage.tokens:,} of {usage.window:,} tokens, {usage.percent:.1f} % ({source}{bounds})"


def context_text(snapshot: Snapshot) -> str:
    """Where the window goes, as plain text: usage, then tokens by category."""
    lines = [usage_line(snapshot.usage)]
    for category in breakdown(snapshot).categories:
        label = category.name if category.tool is None else f"{category.name}: {category.tool or '(no name)'}"
        lines.append(f"  {label:<28} {category.tokens:>9,}  {category.tokens / snapshot.window * 100:5.1f} %")
    if snapshot.ledger.masked_results:
        saved = snapshot.ledger.reclaimed_tokens
        lines.append(f"{snapshot.ledger.masked_results} tool results are masked; that saves {saved:,} tokens")
    return "\n".join(lines)


async def _context(arguments: str, ctx: Context) -> str:
    return context_text(ctx.snapshot)


_OWN = (Command(name="context", description="Show where the context window goes.", handler=_context),)


def session_commands(runtime: Runtime) -> dict[str, tuple[str, Command]]:
    """Name → (plugin, command), plugin "" for the host's own, whose names plugins cannot take."""
    found = {
        command.name: (plugin, command)
        for plugin, command in runtime.plugins.items("register_commands", Command)
        if command.available(runtime.context(plugin))
    }
    return {**found, **{command.name: ("", command) for command in _OWN}}
