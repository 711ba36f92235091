"""The session file on disk: reading it, re-reading its tail, appending whole lines durably, migrating it once."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from contexthost.errors import SessionChanged, SessionFormatError, SessionNotFound, SessionWriteError
from contexthost.session.entries import Entry, encode_json
from contexthost.session.load import EntryReader

__all__ = ["SessionFile"]


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
        self._identity: tuple[int, int] | None = None
        self._ends_with_newline = True
        self.read_tail()
        if self.reader.header is None:
            size = self._offset + len(self.torn)
            what = "is empty" if size == 0 else "has no session header in it"
            raise SessionFormatError(f"{path}: not a Pi session: the file {what}; it was left untouched")

    def read_tail(self) -> list[Entry]:
        """Reads what was added since the last call; the new entries.

        Raises:
            SessionChanged: the file was replaced or has become shorter.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            raise self._gone() from None
        except IsADirectoryError:
            raise SessionNotFound(f"{self.path} is a directory, not a session file") from None
        except OSError as error:
            raise SessionFormatError(f"{self.path} cannot be read: {error.strerror or error}") from None
        with file:
            status = os.fstat(file.fileno())
            identity = (status.st_dev, status.st_ino)
            if self._identity is None:
                self._identity = identity
            elif identity != self._identity or status.st_size < self._offset + len(self.torn):
                raise SessionChanged(
                    f"{self.path} was replaced or shortened by another program since it was read; "
                    "nothing was written: open it again"
                )
            if status.st_size == self._offset + len(self.torn):
                return []
            file.seek(self._offset)
            first = len(self.reader.entries)
            self.torn = b""
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
        return self.reader.entries[first:]

    def append(self, lines: Sequence[bytes]) -> list[Entry]:
        """Appends whole lines (without line feeds) by one write, flushed to the disk; their entries.

        The caller holds the lock and has just called `read_tail`. A torn tail stays where it is: another writer may
        have appended behind it, so the write begins with a line feed and the fragment becomes a line that readers
        skip.

        Raises:
            SessionWriteError: not all of it reached the disk; what had been read before stays as it was.
        """
        entries = self._append_once(lines)
        if entries is None:
            # Another program left half a line at the end between our reading and our write, and our first line was
            # glued to it. That line is lost to every reader; now that the file ends in a line feed, write again.
            entries = self._append_once(lines)
        if entries is None:
            raise SessionWriteError(f"{self.path}: another program keeps writing to it; nothing was recorded")
        return entries

    def _append_once(self, lines: Sequence[bytes]) -> list[Entry] | None:
        """One write; the new entries, or None when another writer's torn line swallowed the first of ours."""
        block = b"".join(line + b"\n" for line in lines)
        if not self._ends_with_newline:
            block = b"\n" + block
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise self._write_error(error) from None
        try:
            written = os.write(descriptor, block)
            if written != len(block):
                # No second try: whatever stopped the first half would leave a line that another writer may split.
                raise SessionWriteError(
                    f"{self.path}: only {written} of {len(block)} bytes could be written (is the disk full?); nothing "
                    "was recorded, and the fragment will be skipped by every reader"
                )
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        except OSError as error:
            raise self._write_error(error) from None
        finally:
            os.close(descriptor)
        start = self._offset + len(self.torn)
        if size != start + len(block):  # somebody else wrote too: the file itself says what stands where
            added = self.read_tail()
            ours = set(lines)
            return added if ours <= {entry.raw for entry in added} else None
        if self.torn:
            self.reader.feed(self.torn)
        self._offset, self.torn, self._ends_with_newline = start + len(block), b"", True
        entries = [self.reader.feed(line) for line in lines]
        return [entry for entry in entries if entry is not None]

    def migrate(self) -> None:
        """Rewrites a version 1 or 2 file as version 3 by an atomic replace; the original stays as ``*.v1.bak``.

        Entries, malformed lines and order stay; ids are those that reading gave. The caller holds the lock.

        Raises:
            SessionWriteError: the copy could not be made; the session file is as it was.
        """
        header = self.reader.header
        assert header is not None
        backup = self.path.with_name(f"{self.path.name}.v{header.version}.bak")
        temporary: str | None = None
        try:
            status = self.path.stat()
            descriptor, temporary = tempfile.mkstemp(prefix=f".{self.path.name}.", suffix=".tmp", dir=self.path.parent)
            with os.fdopen(descriptor, "wb") as out:
                self._write_migrated(out.write)
                out.flush()
                os.fchmod(out.fileno(), status.st_mode & 0o7777)
                os.fsync(out.fileno())
            self._keep_original(backup)
            Path(temporary).replace(self.path)
            temporary = None
            _sync_directory(self.path.parent)
        except OSError as error:
            raise SessionWriteError(
                f"{self.path}: this version {header.version} session could not be brought to version 3 "
                f"({error.strerror or error}); the file is as it was"
            ) from None
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()

    def _keep_original(self, backup: Path) -> None:
        """Gives the original's bytes a second name; one left by an interrupted migration is the same file or bytes."""
        try:
            os.link(self.path, backup)
        except FileExistsError:
            if backup.read_bytes() != self.path.read_bytes():
                raise OSError(errno.EEXIST, f"{backup} exists and is something else; move it away") from None
        except OSError:  # a file system without hard links
            with backup.open("xb") as out:
                out.write(self.path.read_bytes())
                out.flush()
                os.fsync(out.fileno())

    def _write_migrated(self, write: Callable[[bytes], object]) -> None:
        by_line = dict(zip(self.reader.lines, self.reader.entries, strict=True))
        header_done = False
        with self.path.open("rb") as source:
            for number, line in enumerate(source, 1):
                entry = by_line.get(number)
                if entry is not None:
                    write(encode_json(entry.data) + b"\n")
                elif not header_done and self.reader.header_line == number:
                    assert self.reader.header is not None
                    write(encode_json({**self.reader.header.data, "version": 3}) + b"\n")
                    header_done = True
                else:
                    write(line if line.endswith(b"\n") else line + b"\n")

    def _gone(self) -> Exception:
        if self._identity is None:
            return SessionNotFound(f"{self.path}: no such file")
        return SessionChanged(f"{self.path} was moved or deleted since it was read; nothing was written")

    def _write_error(self, error: OSError) -> SessionWriteError:
        reasons = {
            errno.EACCES: "you may not write to it (is it read-only?)",
            errno.EPERM: "you may not write to it (is it read-only or append-protected?)",
            errno.EROFS: "it lies on a read-only file system",
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "your disk quota is used up",
            errno.EFBIG: "it has reached the size limit for files",
            errno.ENOENT: "it was moved or deleted since it was read",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        return SessionWriteError(f"{self.path}: nothing was recorded: {reason}")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
