"""``contexthost inspect``: the exact projection of a session, value by value, to be compared with the real Pi's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from contexthost.cli.arguments import SESSION
from contexthost.cli.output import echo_json
from contexthost.compaction import (
    CompactionSettings,
    compute_file_lists,
    find_cut_point,
    prepare_compaction,
    serialize_conversation,
)
from contexthost.config import HostSettings, load_settings
from contexthost.errors import ContexthostError
from contexthost.messages import canonical_digest, convert_to_llm, digest_message, utf16_key
from contexthost.projection import DEFAULT_WINDOW, ProjectionAuthority, Snapshot, context_messages
from contexthost.session import Session
from contexthost.session.find import find_session
from contexthost.tokens import TokenCounter, default_counter
from contexthost.tokens.pi import pi_estimate

__all__ = ["command", "describe"]


def describe(
    path: Path,
    *,
    leaf: str | None = None,
    keep_recent: int = 20_000,
    counter: TokenCounter | None = None,
    window: int = DEFAULT_WINDOW,
) -> dict[str, Any]:
    """What the model sees of a session file, in the contract of ``inspect --json``; writes nothing.

    Positions count the session's entries in file order from 0, without the header and without skipped lines.

    Args:
        path: the session file.
        leaf: the entry to look from; the last one in the file by default.
        keep_recent: Pi's ``keepRecentTokens``, for the cut point and the preparation.
        counter, window: as for `ProjectionAuthority`; they concern only the keys that Pi does not have.

    Raises:
        SessionNotFound, SessionFormatError, ParentCycle, EntryNotFound.
    """
    session = Session.open(path)
    authority = ProjectionAuthority(session, counter=counter, window=window)
    snapshot = authority.snapshot() if leaf is None else authority.at(leaf)
    context = [entry.source for entry in snapshot.entries]
    cut = find_cut_point(context, 0, len(context), keep_recent, context_messages=context_messages)
    positions = [entry.position for entry in context]
    shown = [entry for entry in snapshot.entries if entry.messages]
    return {
        "entries": len(session.entries),
        "contextPositions": positions,
        "model": snapshot.model,
        "thinkingLevel": snapshot.thinking_level,
        "projected": [
            {
                "position": entry.source.position,
                "roles": [message.get("role") for message in entry.messages],
                "contentDigests": [digest_message(message) for message in entry.messages],
                "estimatedTokens": sum(map(pi_estimate, entry.messages)),
                "tokens": entry.tokens,
                "masked": entry.masked,
            }
            for entry in shown
        ],
        "estimatedTokens": sum(map(pi_estimate, snapshot.messages)),
        "cutPoint": {
            "firstKeptPosition": positions[cut.first_kept] if cut.first_kept < len(positions) else None,
            "turnStartPosition": positions[cut.turn_start] if cut.turn_start is not None else None,
            "isSplitTurn": cut.is_split_turn,
        },
        "preparation": _preparation(session, snapshot, keep_recent),
        "serializedDigest": canonical_digest(serialize_conversation(convert_to_llm(snapshot.messages))),
        "tokens": snapshot.tokens,
        "usage": {
            "tokens": snapshot.usage.tokens,
            "lower": snapshot.usage.lower,
            "upper": snapshot.usage.upper,
            "source": snapshot.usage.source,
            "window": snapshot.usage.window,
            "percent": snapshot.usage.percent,
        },
        "ledger": {
            "maskedResults": snapshot.ledger.masked_results,
            "reclaimedTokens": snapshot.ledger.reclaimed_tokens,
        },
        "providerMessages": [
            {"role": message["role"], "contentDigest": digest_message(message)}
            for message in snapshot.provider_messages
        ],
        "mended": [
            {"kind": mend.kind, "toolCallId": mend.tool_call_id, "message": mend.index} for mend in snapshot.mended
        ],
        "problems": [
            {"kind": problem.kind, "line": problem.line, "entryId": problem.entry_id, "text": problem.text}
            for problem in session.problems
        ],
    }


def _preparation(session: Session, snapshot: Snapshot, keep_recent: int) -> dict[str, Any] | None:
    settings = CompactionSettings(keep_recent_tokens=keep_recent)
    prepared = prepare_compaction(snapshot, snapshot.branch, settings, context_messages=context_messages)
    if prepared is None:
        return None
    first_kept = session.require(prepared.first_kept_entry_id)
    return {
        "firstKeptPosition": first_kept.position,
        "messagesToSummarize": [digest_message(message) for message in prepared.messages_to_summarize],
        "turnPrefixMessages": [digest_message(message) for message in prepared.turn_prefix_messages],
        "isSplitTurn": prepared.is_split_turn,
        "tokensBefore": prepared.tokens_before,
        "previousSummary": prepared.previous_summary,
        "readFiles": sorted(prepared.file_ops.read, key=utf16_key),
        "changedFiles": compute_file_lists(prepared.file_ops).modified_files,
    }


@click.command("inspect")
@click.argument("sessions", nargs=-1, required=True, type=SESSION, metavar="SESSION...")
@click.option("--leaf", metavar="ID", help="Look from this entry instead of the last one.")
@click.option(
    "--keep-recent", type=click.IntRange(min=0), default=20_000, show_default=True, help="Pi's keepRecentTokens."
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON per session; otherwise it is indented.")
@click.option("--context-window", type=click.IntRange(min=1), metavar="N", help="Tokens; default: host.json's.")
def command(
    sessions: tuple[str, ...], leaf: str | None, keep_recent: int, as_json: bool, context_window: int | None
) -> None:
    """Print the exact projection of each SESSION: what the model would see, entry by entry.

    A session that cannot be read gives {"error": …} in its place, and exit status 1.
    """
    settings = load_settings(HostSettings, "host").values
    counter = default_counter(settings.encoding)
    window = context_window or settings.contextWindow
    failed: ContexthostError | None = None
    for reference in sessions:
        try:
            shown = describe(
                find_session(reference), leaf=leaf, keep_recent=keep_recent, counter=counter, window=window
            )
        except ContexthostError as error:
            if len(sessions) == 1:
                raise
            failed, shown = error, {"error": str(error)}
        echo_json(shown, indent=None if as_json else 2)
    if failed is not None:
        raise failed
