"""The writer's lock of a session: in the state directory, keyed by the file's real path."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from pathlib import Path

import filelock

from contexthost import paths
from contexthost.errors import SessionLocked, SessionWriteError

__all__ = ["SessionLock"]


class SessionLock:
    """Held by whoever writes to a session file; released by the system when its process dies.

    The lock lies in contexthost's state directory and not beside the session. Symbolic links to one file share one
    lock. Beside it a small file says who holds it, for the message that others get.

    Args:
        path: the session file; need not exist yet.
        owner: who takes it, as a phrase to put after "locked by", such as ``contexthost mask``.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path = path
        self._owner = owner
        key = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
        self._directory = paths.state_dir() / "locks"
        self._lock_file = self._directory / f"{key}.lock"
        self._owner_file = self._directory / f"{key}.json"
        self._lock: filelock.FileLock | None = None  # while it is held
        self._free: filelock.FileLock | None = None  # made once: every append may take it

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock is not None

    def acquire(self) -> None:
        """Takes the lock at once or not at all.

        Raises:
            SessionLocked: another writer holds it; the message names it.
            SessionWriteError: the state directory cannot be written.
        """
        if self._lock is not None:
            return
        try:
            if self._free is None:
                paths.private_dir(self._directory)
                self._free = filelock.FileLock(self._lock_file, timeout=0, mode=0o600, thread_local=False)
            lock = self._free
            lock.acquire()
        except filelock.Timeout:
            raise SessionLocked(f"{self._path} is locked by {self._describe_owner()}") from None
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise SessionWriteError(
                f"cannot take the lock for {self._path} in {self._directory}: {error.strerror or error}; "
                f"{'make room, or ' if full else ''}set CONTEXTHOST_HOME to a directory you can write to"
            ) from None
        self._lock = lock
        note = {"pid": os.getpid(), "owner": self._owner, "path": str(self._path), "since": time.time()}
        # Only for other people's error messages: the lock itself does not depend on it.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._owner_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, json.dumps(note).encode())
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Gives the lock back; a no-op when it is not held."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _describe_owner(self) -> str:
        try:
            note = json.loads(self._owner_file.read_text(encoding="utf-8"))
            return f"{note['owner']} (process {int(note['pid'])}); wait for it to end, or work inside it"
        except (OSError, ValueError, KeyError, TypeError):
            return "another writer; wait for it to end, or work inside it"
