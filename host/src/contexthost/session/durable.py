"""Making files so that they are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from contexthost.paths import naming, temporary_beside

__all__ = ["sync_directory", "write_new_file"]


def write_new_file(path: Path, data: bytes) -> None:
    """Makes a file with mode 0600 that is on the disk when this returns; otherwise nothing of it is left.

    It is written under another name beside it first, so that nobody ever sees half of it, not even after a crash.

    Raises:
        FileExistsError: there is something at ``path``, even if it came there meanwhile.
        OSError: it could not be written; ``path`` is what the error names.
    """
    with naming(path):
        _write_new_file(path, data)


def _write_new_file(path: Path, data: bytes) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "exists already")
    descriptor, temporary = temporary_beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _name_exclusively(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
    try:
        sync_directory(path)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _name_exclusively(temporary: str, path: Path) -> None:
    """Gives the file its name unless that is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: the name is taken first, and then the file put there
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            Path(temporary).replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def sync_directory(path: Path) -> None:
    """Makes the name of a new or replaced file last, where the file system can say so.

    Raises:
        OSError: the disk did not confirm it.
    """
    descriptor = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
