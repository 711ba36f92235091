"""``contexthost mask``: masks the old tool results of a session file."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from contexthost.cli.arguments import SESSION

if TYPE_CHECKING:
    from contexthost.config import SettingsWarning
    from contexthost.projection import ProjectionAuthority, Snapshot
    from contexthost.session import Session
    from contexthost_masking.plan import MaskPlan
    from contexthost_masking.pricing import Costs
    from contexthost_masking.settings import MaskingSettings

__all__ = ["mask"]


@click.command()
@click.argument("session", type=SESSION)
@click.option("--dry-run", is_flag=True, help="Show what would be masked and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--context-window",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="The model's context window; by default contextWindow in host.json (200,000).",
)
def mask(session: str, dry_run: bool, as_json: bool, context_window: int | None) -> None:
    """Replace old tool results of SESSION by one-line placeholders.

    SESSION is a path, an id or its unique beginning, or "latest". Nothing in the file is changed or removed: the
    placeholders are appended as context edits, all of them or none.
    """
    # Here and not above: the host imports this module to list its commands.
    from contexthost.cli.warnings import tell_warnings
    from contexthost.config import HostSettings, load_settings
    from contexthost.projection import ProjectionAuthority
    from contexthost.session import Session
    from contexthost.session.find import find_session
    from contexthost.tokens import default_counter
    from contexthost_masking.settings import PACKAGE, MaskingSettings

    host = load_settings(HostSettings, "host")
    settings = load_settings(MaskingSettings, PACKAGE)
    reserve = host.values.compaction.reserveTokens
    window = context_window if context_window is not None else host.values.contextWindow
    with Session.open(find_session(session), owner="contexthost mask") as opened:
        authority = ProjectionAuthority(opened, counter=default_counter(host.values.encoding), window=window)
        before = authority.snapshot()
        plan, costs = _plan(before, settings.values, reserve)
        version = opened.header.version
        applied = bool(plan.drafts) and not dry_run
        if applied:
            before, plan, costs = _apply(opened, authority, settings.values, reserve)
            applied = bool(plan.drafts)
        report = _report(opened, before, plan, costs, dry_run=dry_run, applied=applied, version=version)
    if as_json:
        warnings = _warnings(plan, (*host.warnings, *settings.warnings))
        click.echo(json.dumps({**report, "warnings": warnings}, indent=2))
        return
    tell_warnings(_warnings(plan, settings.warnings))
    click.echo(_text(report, plan, costs))


def _plan(snapshot: Snapshot, settings: MaskingSettings, reserve: int) -> tuple[MaskPlan, Costs]:
    from contexthost_masking.plan import plan_mask, urgent_threshold
    from contexthost_masking.pricing import costs_of

    costs = costs_of(snapshot, settings.pricing, now=time.time())
    forced = snapshot.usage.tokens >= urgent_threshold(settings.mask, snapshot.window, reserve)
    return plan_mask(snapshot, settings.mask, costs=costs, forced=forced), costs


def _apply(
    session: Session, authority: ProjectionAuthority, settings: MaskingSettings, reserve: int
) -> tuple[Snapshot, MaskPlan, Costs]:
    """Plans again under the lock, on the file as it is by then, and appends that batch."""
    with session.writing():
        session.refresh()
        before = authority.snapshot()
        plan, costs = _plan(before, settings, reserve)
        authority.commit(plan.drafts)
    return before, plan, costs


def _report(
    session: Session, before: Snapshot, plan: MaskPlan, costs: Costs, *, dry_run: bool, applied: bool, version: int
) -> dict[str, Any]:
    """What ``--json`` prints; its keys stay as they are. Texts are as the session has them."""
    from contexthost_masking.status import costs_data

    usage = plan.usage
    # Beside the file itself, where SESSION is a symbolic link.
    backup = f"{os.path.realpath(str(session.path))}.v{version}.bak" if applied and version < 3 else None
    return {
        "session": str(session.path),
        "sessionId": session.id,
        "dryRun": dry_run,
        "applied": applied,
        "contextWindow": before.window,
        "thresholds": {
            "triggerTokens": plan.thresholds.trigger,
            "targetTokens": plan.thresholds.target,
            "minClearTokens": plan.thresholds.min_clear,
        },
        "usage": asdict(usage) | {"percent": usage.percent},
        "tokensBefore": before.tokens,
        "tokensAfter": before.tokens - plan.reclaimed_tokens,
        "reclaimedTokens": plan.reclaimed_tokens,
        "rewrittenTokens": plan.rewritten_tokens,
        "costs": costs_data(plan, costs),
        "reason": plan.reason,
        "explanation": plan.explanation,
        "results": [
            {
                "entryId": one.entry_id,
                "tool": one.tool,
                "argument": one.argument,
                "tokens": one.tokens,
                "placeholderTokens": one.placeholder_tokens,
                "placeholder": one.placeholder,
                "overtakenBy": one.overtaken_by,
            }
            for one in (plan.candidates if plan.drafts else ())
        ],
        "backup": backup,
    }


def _warnings(plan: MaskPlan, found: tuple[SettingsWarning, ...]) -> list[str]:
    own = [plan.thresholds.warning] if plan.thresholds.warning is not None else []
    return [str(warning) for warning in found] + own


def _text(report: dict[str, Any], plan: MaskPlan, costs: Costs) -> str:
    from contexthost.text import one_line, shorten
    from contexthost_masking.placeholder import shown_argument
    from contexthost_masking.status import pays_back

    usage = plan.usage
    source = "the provider's last figure and what came since" if usage.source == "provider" else "estimated"
    reach = f"{plan.thresholds.trigger:,}, down to {plan.thresholds.target:,}"
    lines = [
        one_line(report["session"]),
        f"Usage {usage.tokens:,} of {usage.window:,} tokens ({source}); masking starts at {reach}.",
    ]
    if not plan.drafts:
        return "\n".join([*lines, f"Nothing to mask: {plan.explanation}."])
    lines += ["", f"{'tokens':>8}  {'entry':<10}  result"]
    for one in plan.candidates:
        later = f" (overtaken by {shorten(one_line(one.overtaken_by), 40)})" if one.overtaken_by is not None else ""
        what = f"{shorten(one_line(one.tool), 40)} {shown_argument(one.argument)}{later}"
        lines.append(f"{one.tokens:>8,}  {shorten(one_line(one.entry_id), 40):<10}  {what}")
    masked = sum(one.tokens for one in plan.candidates)
    lines += [
        "",
        f"{'masked' if report['applied'] else 'to mask':<10} {len(plan.candidates):,} results, {masked:,} tokens",
        f"{'before':<10} {report['tokensBefore']:,} tokens of messages",
        f"{'after':<10} {report['tokensAfter']:,} tokens of messages",
        f"{'reclaimed':<10} {plan.reclaimed_tokens:,} tokens, net of placeholders",
        f"{'rewritten':<10} {plan.rewritten_tokens:,} tokens behind the first mask go into the prompt cache anew, once",
        f"{'cost':<10} {pays_back(plan, costs)}",
        "",
    ]
    if not report["applied"]:
        return "\n".join([*lines, "Dry run: nothing was written. Run it again without --dry-run to mask them."])
    if report["backup"] is not None:
        lines.append(f"The file was brought to version 3; the original is {one_line(report['backup'])}.")
    lines.append(
        f"{len(plan.drafts):,} context edits were appended; every original is still in the file. "
        "See what the model sees now: contexthost context SESSION"
    )
    return "\n".join(lines)
