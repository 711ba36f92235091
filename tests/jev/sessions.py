"""Sessions on disk for the tests of the adapter and the hooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contexthost.compaction import CompactionSettings, Preparation, prepare_compaction
from contexthost.events import CompactionResult
from contexthost.projection import ProjectionAuthority, Snapshot, context_messages
from contexthost.runtime import compaction_draft
from contexthost.session import Session
from contexthost.tokens import default_counter
from support.builder import SessionBuilder, tool_call

KEEP = CompactionSettings(keep_recent_tokens=200)
"""Few tokens, so that small sessions have something to compact."""


def add_turns(builder: SessionBuilder, first: int, count: int, *, size: int = 3000) -> None:
    """A prompt, then `count` calls with a result of `size` characters each, then an answer."""
    builder.user(f"Task {first}: look at the files.")
    for number in range(first, first + count):
        call = tool_call(f"c{number}", "read", {"path": f"src/{number}.py"})
        builder.assistant(f"Reading {number}.", calls=[call])
        builder.tool_result(f"c{number}", f"<{number}>" + "x" * (size - 2 - len(str(number))))
    builder.assistant(f"Task {first} is done.")


def chatter(builder: SessionBuilder, count: int = 8) -> None:
    """Messages without calls: enough that all before them may be asked about, and room for the cut."""
    for number in range(count):
        builder.user(f"Question {number}? " + "why " * 15)
        builder.assistant(f"Answer {number}. " + "so " * 15)


def small_session(path: Path, *, calls: int = 3, size: int = 3000) -> Path:
    builder = SessionBuilder()
    add_turns(builder, 1, calls, size=size)
    chatter(builder)
    return builder.write(path)


@dataclass
class Open:
    """A session with what is compacted next."""

    session: Session
    authority: ProjectionAuthority

    @classmethod
    def at(cls, path: Path) -> Open:
        session = Session.open(path)
        return cls(session, ProjectionAuthority(session, counter=default_counter("cl100k_base"), window=200_000))

    @property
    def snapshot(self) -> Snapshot:
        return self.authority.snapshot()

    def preparation(self, settings: CompactionSettings = KEEP) -> Preparation:
        made = prepare_compaction(self.snapshot, self.snapshot.branch, settings, context_messages=context_messages)
        assert made is not None
        return made

    def append(self, result: CompactionResult) -> Any:
        return self.authority.commit([compaction_draft(result)])
