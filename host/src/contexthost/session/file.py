"""The session file on disk: reading it, re-reading its tail, appending whole lines durably, migrating it once."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

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
            SessionChanged: the file was replaced or has become shorter, or its last line, which was whole without a
                line feed, goes on.
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
                raise self._replaced()
            if status.st_size == self._offset + len(self.torn):
                return []
            file.seek(self._offset)
            first = len(self.reader.entries)
            if self._offset and not self._ends_with_newline and not self.torn:
                # The last line was read as whole. What follows must be the line feed that it lacked: another writer
                # that does not put one there makes one malformed line of both.
                if file.read(1) != b"\n":
                    raise SessionChanged(
                        f"{self.path}: another program wrote into its last line since it was read: open it again"
                    )
                self._offset += 1
                self._ends_with_newline = True
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

        Returns:
            Every entry that was read or written since the call began, in file order; other writers' among them.

        Raises:
            SessionWriteError: not all of it reached the disk; what had been read before stays as it was.
        """
        first = len(self.reader.entries)
        # Another program may leave half a line at the end between our reading and our write, and our first line is
        # glued to it: lost to every reader. The file then ends in our line feed, and the same lines are written again.
        # (The others of the batch are then there twice, word for word; for us as for Pi the later one counts.)
        if not (self._append_once(lines) or self._append_once(lines)):
            raise SessionWriteError(f"{self.path}: another program keeps writing to it; not everything was recorded")
        return self.reader.entries[first:]

    def _append_once(self, lines: Sequence[bytes]) -> bool:
        """One write; False when another writer's torn line swallowed the first of ours."""
        block = b"".join(line + b"\n" for line in lines)
        if not self._ends_with_newline:
            block = b"\n" + block
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise self._write_error(error) from None
        written = 0
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != self._identity:
                raise self._replaced()
            written = os.write(descriptor, block)
            if written != len(block):
                # No second try: whatever stopped the first half would leave a line that another writer may split.
                raise self._cut_short(lines, block, written)
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        except OSError as error:
            if written:
                raise SessionWriteError(
                    f"{self.path}: written, but the disk did not confirm it: {error.strerror or error}; open the "
                    "session again to see what is there"
                ) from None
            raise self._write_error(error) from None
        finally:
            os.close(descriptor)
        start = self._offset + len(self.torn)
        if size != start + len(block):  # somebody else wrote too: the file itself says what stands where
            return {entry.raw for entry in self.read_tail()} >= set(lines)
        if self.torn:
            self.reader.feed(self.torn)
        self._offset, self.torn, self._ends_with_newline = start + len(block), b"", True
        for line in lines:
            self.reader.feed(line)
        return True

    def migrate(self) -> None:
        """Rewrites a version 1 or 2 file as version 3 by an atomic replace; the original stays as ``*.v1.bak``.

        Entries, malformed lines and order stay; ids are those that reading gave. What an interrupted migration left
        behind is removed. A symbolic link stays one. The caller holds the lock.

        Raises:
            SessionChanged: another program wrote to the file meanwhile; it is as that program left it.
            SessionWriteError: the copy could not be made; the session file is as it was.
        """
        header = self.reader.header
        assert header is not None
        path = self.path.resolve()
        mine = _Neighbours(path)
        replaced = False
        try:
            # A rename does not ask whether the file itself may be written: ask, before anything is made.
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
            mine.remove_stale()
            status = path.stat()
            copy, out = mine.create()
            with out:
                self._write_migrated(out.write)
                out.flush()
                with contextlib.suppress(PermissionError):  # root must not take the file from its owner
                    os.fchown(out.fileno(), status.st_uid, status.st_gid)
                os.fchmod(out.fileno(), status.st_mode & 0o7777)
                os.fsync(out.fileno())
            _keep_original(path, path.with_name(f"{path.name}.v{header.version}.bak"), mine)
            status = path.stat()
            if (status.st_dev, status.st_ino) != self._identity or status.st_size != self._offset + len(self.torn):
                raise self._replaced()
            copy.replace(path)
            replaced = True
            _sync_directory(path.parent)
        except OSError as error:
            state = "it is version 3 now, but the disk did not confirm it" if replaced else "the file is as it was"
            raise SessionWriteError(
                f"{self.path}: this version {header.version} session could not be brought to version 3 "
                f"({error.strerror or error}); {state}"
            ) from None
        finally:
            mine.remove()

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

    def _cut_short(self, lines: Sequence[bytes], block: bytes, written: int) -> SessionWriteError:
        """What a write that the disk or a limit stopped has left. A last line is whole without its line feed, too."""
        there = set(block[:written].split(b"\n"))
        whole = sum(line in there for line in lines)
        return SessionWriteError(
            f"{self.path}: only {written} of {len(block)} bytes could be written (is the disk full?): {whole} of "
            f"{len(lines)} {'entry' if len(lines) == 1 else 'entries'} are in the file, and what else was written "
            "will be skipped by every reader"
        )

    def _replaced(self) -> SessionChanged:
        return SessionChanged(
            f"{self.path} was replaced or shortened by another program since it was read; nothing was written: open "
            "it again"
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
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "your disk quota is used up",
            errno.EFBIG: "it has reached the size limit for files",
            errno.ENOENT: "it was moved or deleted since it was read",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        return SessionWriteError(f"{self.path}: nothing was recorded: {reason}")


class _Neighbours:
    """The temporary files of one migration, beside the session file and named after it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._prefix = f".{path.name}.contexthost-"
        self._made: list[Path] = []

    def create(self) -> tuple[Path, IO[bytes]]:
        """A new file, open for writing; mode 0600."""
        descriptor, name = tempfile.mkstemp(prefix=self._prefix, suffix=".tmp", dir=self._path.parent)
        self._made.append(Path(name))
        return Path(name), os.fdopen(descriptor, "wb")

    def remove(self) -> None:
        """Removes what was made and not renamed."""
        for path in self._made:
            with contextlib.suppress(OSError):  # renamed, or a neighbour that the next migration removes
                path.unlink()

    def remove_stale(self) -> None:
        """Removes what killed migrations of this file left: nobody else migrates it, for we hold the lock."""
        for path in self._path.parent.iterdir():
            if path.name.startswith(self._prefix) and path.name.endswith(".tmp"):
                with contextlib.suppress(OSError):  # only litter
                    path.unlink()


def _keep_original(path: Path, backup: Path, mine: _Neighbours) -> None:
    """Gives the original's bytes a second name; one left by an interrupted migration is the same file or bytes."""
    try:
        os.link(path, backup)
    except FileExistsError:
        if backup.read_bytes() != path.read_bytes():
            raise OSError(errno.EEXIST, f"{backup} exists and is something else; move it away") from None
    except OSError:  # a file system without hard links
        copy, out = mine.create()
        with out:
            out.write(path.read_bytes())
            out.flush()
            os.fsync(out.fileno())
        copy.rename(backup)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
