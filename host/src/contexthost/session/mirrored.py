"""A session that another program writes, such as a live Pi: its entries come in from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from contexthost.errors import Unsupported
from contexthost.session.entries import CURRENT_VERSION, Entry, encode_json
from contexthost.session.file import SessionFile
from contexthost.session.load import EntryReader
from contexthost.session.lock import SessionLock
from contexthost.session.session import Session

__all__ = ["MirroredSession"]


class MirroredSession(Session):
    """A session whose entries come in through `adopt`; `append` refuses, and nothing here writes."""

    _path: Path | None = None

    @classmethod
    def mirror(
        cls, path: Path | None, *, owner: str, header: Mapping[str, Any], lines: Iterable[bytes] | None = None
    ) -> Self:
        """The session as it is now.

        Args:
            path: the other program's file, which need not exist yet; None when there is none.
            owner: who holds the writer's lock, once `hold` was called.
            header: the header's keys.
            lines: the entries so far; None reads them from the file.

        Raises:
            SessionNotFound, SessionFormatError: the file was to be read and cannot be used.
        """
        if lines is None and path is not None:
            reader = SessionFile(path).reader
        else:
            reader = EntryReader(str(path or "<memory>"))
            first = {"type": "session", "version": CURRENT_VERSION, "timestamp": "", "cwd": "", **header}
            reader.feed(encode_json(first))
            for line in lines or ():
                reader.feed(line)
        made = cls(None, reader, owner)
        made._path = path
        made._lock = SessionLock(path, owner) if path is not None else None
        return made

    @property
    def path(self) -> Path | None:
        """The other program's file; None when there is none."""
        return self._path

    def adopt(self, lines: Iterable[bytes], leaf_id: str | None) -> list[Entry]:
        """Takes entries that the other program has appended, and where its branch ends.

        Args:
            lines: whole entries as the file has them; what cannot be read is a problem, as in a file.
            leaf_id: the leaf now; one that is not known leaves it at the last entry.
        """
        for line in lines:
            self._reader.feed(line)
        added = self._take_new()
        leaf = self.get(leaf_id) if leaf_id is not None else None
        if leaf is None and leaf_id is not None:
            leaf = added[-1] if added else self._leaf
        if added or leaf is not self._leaf:
            self._leaf = leaf
            self.revision += 1
        return added

    def append(self, payloads: Sequence[Mapping[str, Any]], *, create: bool = False) -> list[Entry]:
        """Raises Unsupported: entries go through the other program."""
        raise Unsupported(f"session {self.id} is written by another program; entries go through it")
