"""Commits since a session began, read from repositories that nobody vouches for.

A repository's own configuration can name programs for git to run. Nothing here lets it: the two commands used touch
neither index nor working tree, every setting that they could start something through is overridden, signatures are
not checked, missing objects are not fetched, and neither the user's nor the system's configuration is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Commit", "RepositoryLog", "find_git", "read_commits"]

MAX_COMMITS: Final = 40
"""Commits read of one working tree: more than a note can hold."""

MAX_TREES: Final = 8
"""Working trees looked at in one session."""

_MAX_OUTPUT: Final = 256 * 1024

_SAFE_CONFIG: Final = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.askPass=",
    "credential.helper=",
    "protocol.allow=never",
    "log.showSignature=false",
    "gpg.program=false",
    "diff.external=",
    "core.attributesFile=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
)

_LOG_OPTIONS: Final = (
    "--no-show-signature",
    "--no-ext-diff",
    "--no-textconv",
    "--no-patch",
    "--no-color",
    "--no-decorate",
    "--no-notes",
    "--no-mailmap",
    f"--max-count={MAX_COMMITS}",
    "--format=%h%x1f%cI%x1f%s%x1e",
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit; ``time`` is ISO 8601 as git prints it."""

    hash: str
    time: str
    subject: str


@dataclass(frozen=True, slots=True)
class RepositoryLog:
    """The commits of one working tree, newest first; ``branch`` None when it is detached."""

    path: str
    branch: str | None
    commits: tuple[Commit, ...]


def find_git() -> str | None:
    """The git on the search path, by absolute entries only: a project must not bring its own."""
    absolute = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(entry).is_absolute()]
    return shutil.which("git", path=os.pathsep.join(absolute)) if absolute else None


async def read_commits(
    cwd: Path, candidates: Iterable[str], *, since: str, timeout_seconds: float
) -> tuple[RepositoryLog, ...]:
    """The commits since a time in the working tree at ``cwd``, and in those of the candidates that git confirms to
    be working trees of the same repository. A commit that several have is listed once.

    Args:
        cwd: the session's working directory; anything but an absolute path that exists gives nothing.
        candidates: paths that subagents mentioned.
        since: ISO 8601.
        timeout_seconds: for everything together; past it nothing is given. So it is for any other failure: no git,
            no repository, one that belongs to somebody else.
    """
    git = find_git()
    if git is None or not cwd.is_absolute() or not cwd.is_dir() or timeout_seconds <= 0:
        return ()
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _read(git, cwd, candidates, since)
    except (TimeoutError, OSError):
        return ()


async def _read(git: str, cwd: Path, candidates: Iterable[str], since: str) -> tuple[RepositoryLog, ...]:
    listing = await _run(git, cwd, "worktree", "list", "--porcelain")
    if listing is None:
        return ()
    trees = _parse_worktrees(listing)
    here = max((path for path in trees if _within(str(cwd.resolve()), path)), key=len, default=str(cwd))
    wanted = list(dict.fromkeys([here, *(path for path in map(_real, candidates) if path in trees)]))[:MAX_TREES]
    found: list[RepositoryLog] = []
    seen: set[str] = set()
    for path in wanted:
        output = await _run(git, Path(path), "log", f"--since={since}", *_LOG_OPTIONS)
        commits = [commit for commit in _parse_log(output or b"") if commit.hash not in seen]
        seen.update(commit.hash for commit in commits)
        if commits:
            found.append(RepositoryLog(path, trees.get(path), tuple(commits)))
    return tuple(found)


def _within(path: str, tree: str) -> bool:
    return path == tree or path.startswith(tree.rstrip("/") + "/")


def _real(path: str) -> str:
    try:
        return str(Path(path).resolve())
    except (OSError, RuntimeError, ValueError):
        return ""


def _parse_worktrees(listing: bytes) -> dict[str, str | None]:
    """Path → branch of every working tree in ``git worktree list --porcelain``."""
    trees: dict[str, str | None] = {}
    path: str | None = None
    for line in listing.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        if key == "worktree":
            path = _real(value)
            trees[path] = None
        elif key == "branch" and path is not None:
            trees[path] = value.removeprefix("refs/heads/")
    return trees


def _parse_log(output: bytes) -> list[Commit]:
    commits = []
    for record in output.decode("utf-8", "replace").split("\x1e"):
        parts = record.strip("\n").split("\x1f")
        if len(parts) == 3:
            commits.append(Commit(*parts))
    return commits


def _environment() -> dict[str, str]:
    """Only what git needs; no ``GIT_…`` of the caller's gets through."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "SYSTEMROOT") if name in os.environ}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "GIT_PAGER": "cat",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "XDG_CONFIG_HOME": os.devnull,
    }


async def _run(git: str, directory: Path, command: str, *arguments: str) -> bytes | None:
    """What a git command prints, cut at a sane length; None when it fails."""
    options = [part for setting in _SAFE_CONFIG for part in ("-c", setting)]
    line: Sequence[str] = (git, "--no-pager", "--no-optional-locks", *options, "-C", str(directory), command)
    process = await asyncio.create_subprocess_exec(
        *line,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(),
        cwd="/",
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        output = b""
        while len(output) < _MAX_OUTPUT and (piece := await process.stdout.read(_MAX_OUTPUT - len(output))):
            output += piece
        if len(output) >= _MAX_OUTPUT:
            return output
        return output if await process.wait() == 0 else None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
