"""The session file on disk: reading it, re-reading its tail, appending whole lines durably, migrating it once."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Self

from contexthost import progress
from contexthost.bulk import many_objects
from contexthost.errors import SessionChanged, SessionFormatError, SessionNotFound, SessionWriteError
from contexthost.session.durable import sync_directory, write_new_file
from contexthost.session.entries import CURRENT_VERSION, Entry, encode_json
from contexthost.session.load import EntryReader

__all__ = ["SessionFile"]

_BUFFER: Final = 1 << 20
"""Bytes read at a time: lines of many kilobytes are common."""

_GUARD: Final = 256
"""Bytes that are compared before a file's tail is read on. Pi migrates files in place: same inode, more bytes."""


class SessionFile:
    """One session file and how far it has been read.

    Reading never writes. Appending opens, writes and closes the file: nothing is held open between appends, so that
    a file which was moved away is noticed rather than written to unseen.

    Raises (on construction):
        SessionNotFound: there is no such file, or it is a directory.
        SessionFormatError: it is empty, or not a Pi session, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reader = EntryReader(str(path))
        self.torn = b""
        self._offset = 0  # where the next unread line begins
        self._guard = b""  # the bytes before that place: other bytes there mean that the file was rewritten
        self._identity: tuple[int, int] | None = None
        self._ends_with_newline = True
        self.read_tail()
        if self.reader.header is None:
            size = self._offset + len(self.torn)
            what = "is empty" if size == 0 else "has no session header in it"
            raise SessionFormatError(f"{path}: not a Pi session: the file {what}; it was left untouched")

    @classmethod
    def create(cls, path: Path, lines: Sequence[bytes]) -> Self:
        """Makes a session file with these lines, header first; flushed to the disk. The caller holds the lock.

        Raises:
            SessionWriteError: it exists already, or could not be written as a whole; then nothing is left of it.
                A process that is killed leaves no half of it either.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_new_file(path, b"".join(line + b"\n" for line in lines))
        except FileExistsError:
            raise SessionWriteError(f"{path} exists already; it was left untouched") from None
        except OSError as error:
            why = error.strerror or error
            raise SessionWriteError(f"{path} cannot be made: {why}; nothing is left of it") from None
        return cls(path)

    def read_tail(self) -> list[Entry]:
        """Reads what was added since the last call; the new entries.

        Raises:
            SessionChanged: the file was replaced, rewritten or has become shorter.
        """
        try:
            # Not blocking, so that a named pipe is refused instead of waited for.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self._gone() from None
        except OSError as error:
            raise SessionFormatError(f"{self.path} cannot be read: {error.strerror or error}") from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a device or a pipe"
            raise SessionNotFound(f"{self.path} is {kind}, not a session file")
        with os.fdopen(descriptor, "rb", buffering=_BUFFER) as file, many_objects():
            identity = (status.st_dev, status.st_ino)
            if self._identity is None:
                self._identity = identity
            if identity != self._identity or status.st_size < self._end:
                raise self._changed("replaced or shortened")
            if status.st_size == self._end:
                return []
            file.seek(self._offset - len(self._guard))
            if file.read(len(self._guard)) != self._guard:
                raise self._changed("rewritten")
            if not self._ends_with_newline and not self.torn:
                # The last line was whole without its line feed; this must be the line feed, and nothing glued to it.
                if file.read(1) != b"\n":
                    raise self._changed("rewritten (its last line went on)")
                self._offset += 1
                self._ends_with_newline = True
            first = len(self.reader.entries)
            self.torn = b""
            with progress.stage("reading the session", lambda: self._offset, status.st_size):
                self._feed(file)
            self._guard = os.pread(file.fileno(), min(_GUARD, self._offset), max(0, self._offset - _GUARD))
        return self.reader.entries[first:]

    def _feed(self, file: BinaryIO) -> None:
        """Takes the lines from here to the end."""
        for line in file:
            if line.endswith(b"\n"):
                self.reader.feed(line[:-1])
            elif self.reader.accepts(line):
                self.reader.feed(line)
            else:
                self.torn = line
                self._ends_with_newline = False
                break
            self._offset += len(line)
            self._ends_with_newline = line.endswith(b"\n")

    @property
    def _end(self) -> int:
        """The size up to which the file is known."""
        return self._offset + len(self.torn)

    def append(self, lines: Sequence[bytes]) -> None:
        """Appends whole lines (without line feeds) by one write, flushed to the disk, and reads them into `reader`.

        The caller holds the lock and has just called `read_tail`. A torn tail stays where it is: another writer may
        have appended behind it, so the write begins with a line feed and the fragment becomes a line that readers
        skip. What other programs wrote meanwhile is read too.

        Raises:
            SessionWriteError: not all of it reached the disk; what had been read before stays as it was.
            SessionChanged: the file was replaced, rewritten or has become shorter.
        """
        # When another program leaves half a line at the end between our reading and our write, our first line is
        # glued to it and lost to every reader. Then the file ends in a line feed, and all is written once more: lines
        # that stand twice hide each other, and the last line of the file is ours.
        for _ in range(3):
            if self._append_once(lines):
                return
        raise SessionWriteError(f"{self.path}: another program keeps writing to it; not everything was recorded")

    def _append_once(self, lines: Sequence[bytes]) -> bool:
        """One write; whether all of it can be read back, rather than being glued to another writer's torn line."""
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise self._write_error(error) from None
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != self._identity:
                raise self._changed("replaced or shortened")
            if status.st_size != self._end:
                self.read_tail()
            start = self._end
            block = b"".join(line + b"\n" for line in lines)
            if not self._ends_with_newline:
                block = b"\n" + block
            try:
                written = os.write(descriptor, block)
            except OSError as error:
                raise self._write_error(error) from None
            if written != len(block):
                # No second try: whatever stopped the first half would leave a line that another writer may split.
                raise SessionWriteError(self._explain_short_write(written, block, lines))
            try:
                os.fsync(descriptor)
            except OSError as error:
                raise SessionWriteError(
                    f"{self.path}: written, but the disk did not confirm it ({error.strerror or error}): open the "
                    "session again to see whether it is there"
                ) from None
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size != start + len(block):  # somebody else wrote too: the file itself says what stands where
            return set(lines) <= {entry.raw for entry in self.read_tail()}
        if self.torn:
            self.reader.feed(self.torn)
        self._guard = (self._guard + self.torn + block[-_GUARD:])[-_GUARD:]
        self._offset, self.torn, self._ends_with_newline = size, b"", True
        for line in lines:
            self.reader.feed(line)
        return True

    def _explain_short_write(self, written: int, block: bytes, lines: Sequence[bytes]) -> str:
        left = written - block.startswith(b"\n")
        whole = 0
        for line in lines:
            left -= len(line)
            if left < 0:
                break
            whole += 1
            left -= 1
        recorded = (
            "nothing was recorded, and the fragment will be skipped by every reader"
            if whole == 0
            else f"only the first {whole} of {len(lines)} entries stand in the file"
        )
        return f"{self.path}: {written} of {len(block)} bytes could be written (is the disk full?): {recorded}"

    def migrate(self) -> None:
        """Rewrites a version 1 or 2 file as version 3 by an atomic replace; the original stays as ``*.v1.bak``.

        Entries, malformed lines and order stay; ids are those that reading gave. Of a symbolic link the file that it
        leads to is migrated, and the backup lies beside that. Temporary files that killed migrations left are removed.
        The caller holds the lock, and reads the file anew.

        Raises:
            SessionWriteError: the copy could not be made; the session file is as it was and nothing lies beside it.
        """
        header = self.reader.header
        assert header is not None
        real = Path(os.path.realpath(self.path))
        backup = real.with_name(f"{real.name}.v{header.version}.bak")
        temporary: str | None = None
        backup_is_new = False
        try:
            # A rename does not ask whether the file itself may be written to: ask, before anything is made.
            os.close(os.open(real, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
            _remove_stale(real)
            status = real.stat()
            descriptor, temporary = _new_neighbour(real)
            with os.fdopen(descriptor, "wb") as out:
                self._write_migrated(out.write)
                out.flush()
                _take_over_owner_and_mode(out.fileno(), status)
                os.fsync(out.fileno())
            backup_is_new = _keep_original(real, backup, status)
            if real.stat().st_size != self._end:
                raise OSError(errno.EAGAIN, "another program wrote to it meanwhile")
            Path(temporary).replace(real)
        except OSError as error:
            raise SessionWriteError(
                f"{self.path}: this version {header.version} session could not be brought to version 3 "
                f"({error.strerror or error}); the file is as it was"
            ) from None
        finally:
            with contextlib.suppress(OSError):
                if temporary is not None:
                    Path(temporary).unlink(missing_ok=True)
                # The original is still in its place, so a second name for it (or a copy) is not needed.
                if backup_is_new and real.stat().st_ino == status.st_ino:
                    backup.unlink()

    def sync_directory(self) -> None:
        """Makes a replaced file's name last.

        Raises:
            SessionWriteError: the disk did not confirm it.
        """
        try:
            sync_directory(self.path)
        except OSError as error:
            raise SessionWriteError(
                f"{self.path}: brought to version 3, but the disk did not confirm it ({error.strerror or error}); "
                "nothing was appended"
            ) from None

    def _write_migrated(self, write: Callable[[bytes], object]) -> None:
        by_line = dict(zip(self.reader.lines, self.reader.entries, strict=True))
        header = self.reader.header
        assert header is not None
        with self.path.open("rb") as source:
            for number, line in enumerate(source, 1):
                entry = by_line.get(number)
                if entry is not None:
                    write(entry.migrated_line() + b"\n")
                elif self.reader.header_line == number:
                    write(encode_json({**header.data, "version": CURRENT_VERSION}) + b"\n")
                else:
                    write(line if line.endswith(b"\n") else line + b"\n")

    def _changed(self, how: str) -> SessionChanged:
        return SessionChanged(
            f"{self.path} was {how} by another program since it was read; nothing was written: open it again"
        )

    def _gone(self) -> Exception:
        if self._identity is None:
            return SessionNotFound(f"{self.path}: no such file")
        return SessionChanged(f"{self.path} was moved or deleted since it was read; nothing was written")

    def _write_error(self, error: OSError) -> SessionWriteError:
        reasons = {
            errno.EACCES: "you may not write to it (is it read-only?)",
            errno.EPERM: "you may not write to it (is it read-only or append-protected?)",
            errno.EROFS: "it lies on a read-only file system",
            errno.ENOSPC: "the disk is full: make room",
            errno.EDQUOT: "your disk quota is used up: make room",
            errno.EFBIG: "it has reached the size limit for files",
            errno.ENOENT: "it was moved or deleted since it was read",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        return SessionWriteError(f"{self.path}: nothing was recorded: {reason}")


def _keep_original(path: Path, backup: Path, status: os.stat_result) -> bool:
    """Gives the original's bytes a second name; False when one left by an interrupted migration has them already."""
    try:
        os.link(path, backup)
    except FileExistsError:
        if backup.read_bytes() != path.read_bytes():
            raise OSError(errno.EEXIST, f"{backup} exists and is something else; move it away") from None
        return False
    except OSError:  # a file system without hard links, or somebody else's file
        descriptor, temporary = _new_neighbour(path)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(path.read_bytes())
                out.flush()
                _take_over_owner_and_mode(out.fileno(), status)
                os.fsync(out.fileno())
            Path(temporary).rename(backup)  # whole or not there: half of it would stop every later migration
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    return True


def _temporary_prefix(path: Path) -> str:
    return f".{path.name}.contexthost-"


def _new_neighbour(path: Path) -> tuple[int, str]:
    return tempfile.mkstemp(prefix=_temporary_prefix(path), suffix=".tmp", dir=path.parent)


def _remove_stale(path: Path) -> None:
    """Removes the temporary files of killed migrations; no other is under way, for we hold the lock."""
    for found in path.parent.iterdir():
        if found.name.startswith(_temporary_prefix(path)) and found.name.endswith(".tmp"):
            with contextlib.suppress(OSError):  # litter only
                found.unlink()


def _take_over_owner_and_mode(descriptor: int, status: os.stat_result) -> None:
    with contextlib.suppress(OSError):  # only the superuser may give files away
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, status.st_mode & 0o7777)
