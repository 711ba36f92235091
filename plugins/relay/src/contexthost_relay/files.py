"""Where relays leave their traces: notes and the log, in the plugin's own data directory, for their owner only."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from contexthost.paths import private_dir, write_private

__all__ = ["append_log", "note_path", "remove_note", "write_note_file"]

_SESSION_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
"""What Pi accepts as a session id, at a sane length."""


def note_path(data_dir: Path, session_id: str, number: int) -> Path:
    """``<data directory>/<session id>/<number>.md``. An id that is no file name is replaced by its digest."""
    if not _SESSION_ID.fullmatch(session_id):
        session_id = "id-" + hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return data_dir / session_id / f"{number}.md"


def write_note_file(path: Path, text: str) -> None:
    """Writes a note as a whole: mode 0600, in directories of mode 0700. Raises OSError, and then leaves nothing."""
    private_dir(path.parent)
    write_private(path, text.encode("utf-8", "replace"))


def remove_note(path: Path) -> None:
    """Removes the note of a relay that did not come about, and its directory if nothing else is in it.

    One that cannot be removed stays: the next relay of the session writes over it. What is to be told is why the relay
    did not come about.
    """
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()  # refused when there is something in it


def append_log(data_dir: Path, record: Mapping[str, Any]) -> None:
    """Appends one line to ``log.jsonl`` (mode 0600) by one write; raises OSError.

    Half a line that a full disk left at the end stays a line of its own.
    """
    line = (json.dumps(record, ensure_ascii=True, separators=(",", ":")) + "\n").encode()
    descriptor = os.open(data_dir / "log.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)
