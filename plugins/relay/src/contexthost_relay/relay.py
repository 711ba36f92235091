"""One relay: from a preparation to the compaction that it makes. Reads the session, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from contexthost.compaction import Preparation
from contexthost.context import Context
from contexthost.events import CompactionResult
from contexthost_relay.files import note_path
from contexthost_relay.gitlog import RepositoryLog, read_commits
from contexthost_relay.hookspecs import RelayNoteEvent
from contexthost_relay.material import (
    Cut,
    changed_files,
    earlier_instructions,
    find_cut,
    instructions,
    is_relay,
    last_answer,
    note_number,
)
from contexthost_relay.note import NoteSection, NoteSource, write_note
from contexthost_relay.settings import RelaySettings
from contexthost_relay.subagents import Subagent, find_subagents, worktree_paths
from contexthost_relay.written import written_section

__all__ = ["MARKER", "VERSION", "Relay", "is_addressed", "make_relay"]

MARKER: Final = "<<context-relay:6d1f0c52-3b7e-4a08-9a44-0e2f5b1c7d93>>"
"""Stands in the instructions of a compaction that is meant for this plugin; nobody types it."""

VERSION: Final = 1
"""Of the note and of ``details``."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A relay that is ready to be appended: the compaction, the note's number and file (not written yet)."""

    result: CompactionResult
    number: int
    path: Path

    @property
    def note(self) -> str:
        """The note."""
        return self.result.summary


def is_addressed(addressed_to: str | None, custom_instructions: str | None, name: str) -> bool:
    """Whether a compaction is meant for this plugin."""
    return addressed_to == name or (custom_instructions or "").startswith(MARKER)


async def make_relay(ctx: Context, preparation: Preparation, settings: RelaySettings) -> Relay:
    """Makes the note and decides what is kept. A failure of git, of another plugin or of a model leaves their
    section out."""
    snapshot, history = ctx.snapshot, ctx.history
    branch = snapshot.branch
    cut = find_cut(snapshot, preparation, settings.tailMaxChars)
    agents = find_subagents(branch, history)
    number = 1 + max((note_number(entry) for entry in ctx.session.entries if is_relay(entry)), default=0)
    path = note_path(ctx.data_dir, ctx.session.id, number)
    extra, usage = await _extra_sections(ctx, branch, cut, settings)
    checkpoint = snapshot.checkpoint
    source = NoteSource(
        number=number,
        path=str(path),
        made=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        instructions=instructions(snapshot, history, cut),
        earlier=earlier_instructions(snapshot, branch, history),
        summary_id=checkpoint.id if checkpoint is not None and not is_relay(checkpoint) else None,
        answer=last_answer(snapshot, history, cut),
        agents=agents,
        files=changed_files(branch, history, str(ctx.cwd)),
        repositories=await _commits(ctx, agents, settings),
        extra=extra,
    )
    result = CompactionResult(
        summary=write_note(source, settings.limits),
        first_kept_entry_id=cut.entry_id,
        tokens_before=preparation.tokens_before,
        details={"relay": True, "version": VERSION, "notePath": str(path)},
        usage=usage,
    )
    return Relay(result, number, path)


async def _commits(ctx: Context, agents: Sequence[Subagent], settings: RelaySettings) -> tuple[RepositoryLog, ...]:
    session = ctx.history.session
    stamps = [session.header.timestamp, *(entry.timestamp for entry in session.entries[:1])]
    since = min((stamp for stamp in stamps if stamp[:2].isdigit()), default="")
    if not since:
        return ()
    trees = [agent.worktree for agent in agents if agent.worktree]
    trees += [path for agent in agents for path in worktree_paths(agent.result)]
    return await read_commits(
        ctx.cwd, dict.fromkeys(trees), since=since, timeout_seconds=settings.gitTimeoutMs / 1000
    )


async def _extra_sections(
    ctx: Context, branch: Sequence[Any], cut: Cut, settings: RelaySettings
) -> tuple[list[NoteSection], Mapping[str, Any] | None]:
    if settings.limits.extra <= 0:
        return [], None
    event = RelayNoteEvent(branch_entries=branch, first_kept_entry_id=cut.entry_id, room=settings.limits.extra)
    sections: list[NoteSection] = []
    for _, answer in await ctx.call_plugins("relay_note_sections", event):
        given: Iterable[Any] = answer if isinstance(answer, (list, tuple)) else [answer]
        sections.extend(section for section in given if isinstance(section, NoteSection))
    if not settings.auto.writtenSection:
        return sections, None
    written = await written_section(ctx, settings)
    return ([*sections, written.section], written.usage) if written is not None else (sections, None)
