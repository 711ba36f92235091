"""Finding sessions on this machine: by path, id, unique id prefix, or the latest."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from contexthost import paths
from contexthost.errors import AmbiguousSession, SessionNotFound
from contexthost.session.entries import MalformedLine, decode_json

__all__ = ["SessionInfo", "find_session", "list_sessions"]

_HEADER_LIMIT: Final = 1024 * 1024
"""Bytes within which a header must be found, as in Pi's own listing."""

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What Pi accepts as a session id, or the beginning of one."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session file in Pi's sessions directory; ``modified`` is the file's time, in seconds since the epoch."""

    path: Path
    id: str
    cwd: str
    timestamp: str
    size: int
    modified: float


def _sessions_dir() -> Path:
    return paths.pi_agent_dir() / "sessions"


def list_sessions() -> Iterator[SessionInfo]:
    """The sessions that Pi has on this machine, the most recently changed first; other files are passed over."""
    found: list[tuple[float, int, Path]] = []
    for path in _sessions_dir().glob("*/*.jsonl"):
        try:
            status = path.stat()
        except OSError:  # deleted while we looked
            continue
        if not stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for a writer
            continue
        found.append((status.st_mtime, status.st_size, path))
    for modified, size, path in sorted(found, key=lambda item: (-item[0], str(item[2]))):
        header = _read_header(path)
        if header is not None:
            yield SessionInfo(path=path, size=size, modified=modified, **header)


def _read_header(path: Path) -> dict[str, str] | None:
    """Id, cwd and time of a session file; None when it is not one or cannot be read."""
    try:
        with path.open("rb") as file:
            return _first_header(file)
    except OSError:
        return None


def _first_header(file: BinaryIO) -> dict[str, str] | None:
    left = _HEADER_LIMIT
    while left > 0 and (line := file.readline(left)):
        left -= len(line)
        if not line.strip():
            continue
        try:
            value = decode_json(line)
        except MalformedLine:
            continue
        if not isinstance(value, dict) or value.get("type") != "session" or not isinstance(value.get("id"), str):
            return None
        return {key: value[key] if isinstance(value.get(key), str) else "" for key in ("id", "cwd", "timestamp")}
    return None


def find_session(reference: str) -> Path:
    """The file that a command line's SESSION means.

    A path (anything with a slash, or that exists), a session id, the unique beginning of one, or ``latest``.

    Raises:
        SessionNotFound: nothing fits.
        AmbiguousSession: the beginning fits several; the message lists them.
    """
    path, exists = _as_path(reference)
    if exists or "/" in reference or reference.endswith(".jsonl"):
        if not exists:
            raise SessionNotFound(f"{reference}: no such file; `contexthost sessions` lists what Pi has here")
        return path
    hint = f"in {_sessions_dir()}; give a path, or see `contexthost sessions`"
    if reference == "latest":
        newest = next(list_sessions(), None)
        if newest is None:
            raise SessionNotFound(f"there are no sessions {hint}")
        return newest.path
    if not _ID.fullmatch(reference):
        raise SessionNotFound(f"{reference!r} is neither a file nor a session id")
    fitting = [info for info in list_sessions() if info.id.startswith(reference)]
    exact = [info for info in fitting if info.id == reference]
    if len(exact) == 1 or len(fitting) == 1:
        return (exact or fitting)[0].path
    if not fitting:
        raise SessionNotFound(f"no session id begins with {reference!r} {hint}")
    shown = "; ".join(f"{info.id} ({describe_time(info.modified)}, {info.path})" for info in fitting[:5])
    more = f" and {len(fitting) - 5} more" if len(fitting) > 5 else ""
    raise AmbiguousSession(f"{reference!r} fits {len(fitting)} sessions, give more of the id or a path: {shown}{more}")


def _as_path(reference: str) -> tuple[Path, bool]:
    """The reference as a path, and whether something is there."""
    try:
        path = Path(reference).expanduser()
        return path, path.exists()
    except (OSError, RuntimeError, ValueError):  # too long for a file name; "~" of nobody; a null character
        return Path(reference), False


def describe_time(seconds: float) -> str:
    """A file time for people: local, to the minute."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
