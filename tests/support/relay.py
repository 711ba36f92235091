"""Sessions and surroundings for the tests of the relay plugin."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from contexthost.compaction import CompactionSettings, Preparation, prepare_compaction
from contexthost.drivers.file import open_file
from contexthost.history import History
from contexthost.projection import ProjectionAuthority, Snapshot, context_messages
from contexthost.runtime import Runtime
from contexthost.session import Session
from contexthost_relay.relay import Relay, make_relay
from contexthost_relay.settings import RelaySettings
from support.builder import SessionBuilder

__all__ = [
    "SUBAGENT",
    "commit",
    "git",
    "of_runtime",
    "open_built",
    "prepared",
    "relayed",
    "repository",
    "with_repository",
]

SUBAGENT = "worker#0123abcd"
"""A session name as pi-subagents gives it."""


def open_built(build: SessionBuilder) -> tuple[Session, ProjectionAuthority, History]:
    """What was built, in memory, with its projection and its history."""
    lines = build.bytes().splitlines()
    session = Session.in_memory(header=json.loads(lines[0]), entries=[json.loads(line) for line in lines[1:]])
    authority = ProjectionAuthority(session)
    return session, authority, History(session, authority.snapshot)


def prepared(snapshot: Snapshot, keep: int = 20_000) -> Preparation:
    """Pi's preparation; there must be something to compact."""
    settings = CompactionSettings(keep_recent_tokens=keep)
    found = prepare_compaction(snapshot, snapshot.branch, settings, context_messages=context_messages)
    assert found is not None
    return found


async def relayed(path: Path, settings: RelaySettings | None = None, *, keep: int = 0, plugins: Any = ()) -> Relay:
    """The relay that would be made of a file; nothing is written."""
    async with open_file(path, plugins=plugins) as runtime:
        return await of_runtime(runtime, settings, keep=keep)


async def of_runtime(runtime: Runtime, settings: RelaySettings | None = None, *, keep: int = 0) -> Relay:
    snapshot = runtime.authority.snapshot()
    return await make_relay(runtime.context("relay"), prepared(snapshot, keep), settings or RelaySettings())


def git(directory: Path, *arguments: str, **environment: str) -> str:
    """Runs git with nobody's configuration; what it prints."""
    clean = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        **environment,
    }
    run = subprocess.run(
        ["git", *arguments], cwd=directory, env=clean, check=True, capture_output=True, text=True, timeout=30
    )
    return run.stdout.strip()


def repository(path: Path) -> Path:
    """An empty repository on branch ``main``."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    return path


def commit(path: Path, subject: str, time: str = "2026-01-05T10:00:00+00:00") -> str:
    """An empty commit; its short hash."""
    when = {"GIT_AUTHOR_DATE": time, "GIT_COMMITTER_DATE": time}
    git(path, "commit", "-q", "--allow-empty", "-m", subject, **when)
    return git(path, "rev-parse", "--short", "HEAD")


def with_repository(session: Path, path: Path) -> Path:
    """A copy of a recorded session; its working directory is a real repository with commits since it began."""
    repo = repository(path / "repo")
    for number in range(30):
        commit(repo, f"commit {number}", f"2025-12-10T10:00:{number:02d}+00:00")
    text = session.read_text("utf-8")
    first, rest = text.split("\n", 1)
    copy = path / session.name
    copy.write_text(re.sub(r'"cwd":"[^"]*"', f'"cwd":"{repo}"', first) + "\n" + rest, "utf-8")
    return copy
