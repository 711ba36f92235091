"""Puts a report where the user wants it: as a whole or not at all, and never over a file unasked."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from contexthost.errors import ContexthostError
from contexthost.paths import naming, temporary_beside

__all__ = ["check_target", "write_report"]

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EMLINK})
"""How file systems say that they have no hard links."""


def check_target(path: Path, session: Path | None, *, force: bool) -> None:
    """Tells before the work is done what `write_report` would refuse.

    Raises:
        ContexthostError: the file exists and may not be replaced, or there is no directory for it.
    """
    if not path.parent.is_dir():
        raise ContexthostError(f"{path}: there is no directory {path.parent}; nothing was written")
    if not os.path.lexists(path):
        return
    if session is not None and path.exists() and path.samefile(session):
        raise ContexthostError(f"{path}: that is the session itself; name another file for the report")
    if not force:
        raise ContexthostError(f"{path}: exists already; --force replaces it")
    if path.is_symlink() or not path.is_file():
        raise ContexthostError(f"{path}: is no regular file, and --force replaces only those")


def write_report(path: Path, content: bytes, session: Path | None, *, force: bool) -> None:
    """Writes the file, mode 0600 (it shows what the session says): to a neighbour first, then under its name.

    Without ``force`` the name is taken only if it is free at that moment.

    Raises:
        ContexthostError: see `check_target`.
        OSError: it cannot be written (it is what the error names); nothing is left behind.
    """
    check_target(path, session, force=force)
    with naming(path):
        _write(path, content, force)


def _write(path: Path, content: bytes, force: bool) -> None:
    descriptor, neighbour = temporary_beside(path)
    temporary = Path(neighbour)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if force:
            temporary.replace(path)
        else:
            _claim(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _claim(temporary: Path, path: Path) -> None:
    """Gives a finished file its name, unless somebody has taken it meanwhile."""
    try:
        try:
            path.hardlink_to(temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # the name is ours from here on
            temporary.replace(path)
    except FileExistsError:
        raise ContexthostError(f"{path}: exists already; --force replaces it") from None
