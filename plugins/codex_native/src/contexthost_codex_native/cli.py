"""``contexthost codex``: what a session file tells of native compaction."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from contexthost.cli.arguments import SESSION

__all__ = ["codex"]


@click.group()
def codex() -> None:
    """Native compaction by Codex and SubAPI."""


@codex.command()
@click.argument("session", type=SESSION)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(session: str, as_json: bool) -> None:
    """Show whether SESSION's model can compact natively, and the checkpoint in force.

    SESSION is a path, an id or its unique beginning, or "latest". Nothing is sent or written, and of a credential only
    its kind is shown.
    """
    from contexthost.session.find import find_session
    from contexthost_codex_native.status import text_of_report

    told = asyncio.run(_report(str(find_session(session))))
    click.echo(json.dumps(told, indent=2) if as_json else text_of_report(told))


async def _report(path: str) -> dict[str, Any]:
    from contexthost.cli.warnings import tell_warnings
    from contexthost.config import load_settings
    from contexthost.drivers.file import open_file
    from contexthost_codex_native.memory import Memory
    from contexthost_codex_native.settings import PACKAGE, CodexNativeSettings
    from contexthost_codex_native.status import report

    async with open_file(path, owner="contexthost codex status") as runtime:
        loaded = load_settings(CodexNativeSettings, PACKAGE)
        tell_warnings(loaded.warnings)
        ctx = runtime.context("codex_native")
        return await report(ctx, loaded.values, Memory.of(ctx))
