"""A session: its entries, its tree, the leaf where work goes on, and appending to it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from contexthost.bulk import many_objects
from contexthost.errors import ContexthostError, SessionFormatError
from contexthost.session.entries import CURRENT_VERSION, Entry, encode_json
from contexthost.session.file import SessionFile
from contexthost.session.load import EntryReader, Header, Problem
from contexthost.session.lock import SessionLock
from contexthost.session.tree import SessionTree

__all__ = ["Session", "now_iso"]


def now_iso() -> str:
    """The time as Pi writes it: UTC, milliseconds, ``Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Session:
    """One append-only session, on disk or in memory.

    The leaf is the entry where the branch in use ends; appended entries become its children and move it. Opening
    never writes. `revision` grows with every change of entries or leaf, so that a reader can tell by one comparison
    that nothing happened.
    """

    def __init__(self, file: SessionFile | None, reader: EntryReader, owner: str) -> None:
        self._file = file
        self._reader = reader
        self._tree = SessionTree()
        self._tree_problems: list[Problem] = []
        self._lock = SessionLock(file.path, owner) if file is not None else None
        self._leaf: Entry | None = None
        self._pending: Path | None = None  # where a new session will be written
        self.revision = 0
        with many_objects():
            self._take_new()
        self._leaf = reader.entries[-1] if reader.entries else None

    @classmethod
    def open(cls, path: str | Path, *, owner: str = "contexthost") -> Self:
        """Opens a session file for reading and, later, appending; writes nothing.

        Args:
            path: the file.
            owner: who locks the session when something is appended, for other people's error messages.

        Raises:
            SessionNotFound: no such file, or a directory.
            SessionFormatError: empty, unreadable, or not a Pi session.
        """
        file = SessionFile(Path(path))
        return cls(file, file.reader, owner)

    @classmethod
    def in_memory(cls, *, header: Mapping[str, Any] | None = None, entries: Iterable[Mapping[str, Any]] = ()) -> Self:
        """A session that no file holds, as Pi's ``--no-session`` has it.

        Args:
            header: the header's keys; missing ones are made up.
            entries: whole entries in file order, in the shape of the file.
        """
        reader = EntryReader("<memory>")
        made = {"type": "session", "version": CURRENT_VERSION, "id": str(uuid.uuid4()), "timestamp": now_iso()}
        reader.feed(encode_json({**made, "cwd": "", **(header or {})}))
        for entry in entries:
            reader.feed(encode_json(dict(entry)))
        return cls(None, reader, "")

    @classmethod
    def new(cls, path: str | Path, *, cwd: str, owner: str = "contexthost") -> Self:
        """A new session that will be written to ``path``, which must not exist.

        As in Pi the file is made, exclusively and with everything so far in it, when the first message of a user or
        an assistant is appended: a session that nobody spoke in leaves no file.

        Args:
            path: where; its directory is made with it.
            cwd: the working directory that the session is about.
            owner: who locks it.
        """
        made = cls.in_memory(header={"cwd": cwd})
        made._pending = Path(path)
        made._lock = SessionLock(made._pending, owner)
        return made

    @property
    def path(self) -> Path | None:
        """The session's file, which a new one may not have been written to yet; None in memory."""
        return self._file.path if self._file is not None else self._pending

    @property
    def header(self) -> Header:
        """The first line of the file."""
        header = self._reader.header
        assert header is not None  # opening refuses a file without one
        return header

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def name(self) -> str | None:
        """The session's display name, if it was given one."""
        return self._tree.name

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries in file order, of every branch."""
        return self._tree.entries

    @property
    def leaf_id(self) -> str | None:
        """Where the branch in use ends; None before the first entry."""
        return self._leaf.id if self._leaf is not None else None

    @property
    def leaf(self) -> Entry | None:
        """The entry where the branch in use ends."""
        return self._leaf

    @property
    def epoch(self) -> int:
        """Grows when what was known about the place of older entries no longer holds (see `SessionTree.epoch`)."""
        return self._tree.epoch

    @property
    def problems(self) -> list[Problem]:
        """Everything odd about the file, in the order of its lines."""
        self._tree.settle()
        found = [*self._reader.problems, *self._tree_problems]
        line_of = {id(entry): line for entry, line in zip(self._reader.entries, self._reader.lines, strict=True)}
        for entry in self._tree.missing_parents():
            text = f"its parent {entry.parent_id} is not in the file: the branch begins here"
            found.append(Problem("missing-parent", line_of.get(id(entry), 0), entry.id, text))
        for entry in self.entries:
            if entry.depth < 0:
                text = "its parents lead in a circle: Pi runs out of memory over it"
                found.append(Problem("parent-cycle", line_of.get(id(entry), 0), entry.id, text))
        if self._file is not None and self._file.torn:
            text = f"the file ends in {len(self._file.torn)} bytes of an unfinished line, skipped; it stays where it is"
            found.append(Problem("torn-line", self._reader.line_count + 1, None, text))
        return sorted(found, key=lambda problem: problem.line)

    def get(self, entry_id: str) -> Entry | None:
        """The entry with that id; None if there is none."""
        return self._tree.by_id.get(entry_id)

    def require(self, entry_id: str) -> Entry:
        """The entry with that id.

        Raises:
            EntryNotFound: there is none.
        """
        return self._tree.require(entry_id)

    def parent(self, entry: Entry) -> Entry | None:
        """The entry's parent; None for a root and where the parent is missing."""
        return self._tree.parent(entry)

    def depth(self, entry: Entry) -> int:
        """How many entries lie between this one and its root; -1 inside or behind a parent cycle."""
        self._tree.settle()
        return entry.depth

    def branch(self, leaf_id: str | None = None) -> list[Entry]:
        """The entries from the root to ``leaf_id`` (to the current leaf when None); empty for an unknown id.

        Raises:
            ParentCycle: the parents lead in a circle.
        """
        leaf = self._leaf if leaf_id is None else self.get(leaf_id)
        return self._tree.branch(leaf)

    def children(self, parent_id: str | None) -> list[Entry]:
        """The entries that follow ``parent_id``, in file order; None asks for the roots, orphans included."""
        return self._tree.children(parent_id)

    def label(self, entry_id: str) -> str | None:
        """The label on an entry, if it has one."""
        return self._tree.label(entry_id)

    def move_leaf(self, entry_id: str | None) -> None:
        """Goes on from another entry; None starts another root. In memory only: the next append records it.

        Raises:
            EntryNotFound: no such entry.
        """
        leaf = self._tree.require(entry_id) if entry_id is not None else None
        if leaf is not self._leaf:
            self._leaf = leaf
            self.revision += 1

    def new_id(self, taken: Container[str] = ()) -> str:
        """An entry id that the session does not have: 8 hex digits, as in Pi; a whole UUID if those run out."""
        for _ in range(100):
            made = uuid.uuid4().hex[:8]
            if made not in self._tree.by_id and made not in taken:
                return made
        return str(uuid.uuid4())

    def append(self, payloads: Sequence[Mapping[str, Any]], *, create: bool = False) -> list[Entry]:
        """Appends entries behind the leaf: all of them or none.

        On disk it is one write, flushed with fsync, under the writer's lock, after the file's tail was read again. A
        version 1 or 2 file is migrated first (see `SessionFile.migrate`).

        Args:
            payloads: ``type`` and the type's own keys, as the file has them; ``id`` (one that is not taken) and
                ``timestamp`` may be given, ``parentId`` is always the leaf.
            create: makes a new session's file even if nobody has spoken in it yet.

        Raises:
            SessionLocked: another writer holds the session.
            SessionWriteError: not everything reached the disk; memory is as before.
            SessionChanged: the file was replaced or shortened by another program.
            SessionFormatError: a payload without a type, with a taken id, or that is not JSON.
        """
        if not payloads:
            return []
        with self.writing():
            self.refresh()
            ids, lines = self._encode(payloads)
            if self.header.version < CURRENT_VERSION:
                self._migrate()
                ids, lines = self._encode(payloads)
            if self._file is None:
                if self._pending is not None and (create or any(map(_begins_conversation, payloads))):
                    header = encode_json(self.header.data)
                    self._file = SessionFile.create(self._pending, [header, *(e.raw for e in self.entries), *lines])
                    self._reader = self._file.reader
                else:
                    for line in lines:
                        self._reader.feed(line)
            else:
                try:
                    self._file.append(lines)
                except ContexthostError:
                    self._take_new()  # what others wrote meanwhile was read all the same
                    raise
            self._take_new()
            appended = [self._tree.require(made) for made in ids]
            self._leaf = appended[-1]
            self.revision += 1
            return appended

    def refresh(self) -> bool:
        """Reads what another program appended to the file; whether there was anything.

        The leaf follows when the new entries go on from it; otherwise they are another branch and it stays.

        Raises:
            SessionChanged: the file was replaced or shortened.
        """
        if self._file is None:
            return False
        self._file.read_tail()
        added = self._take_new()
        if not added:
            return False
        last = added[-1]
        fresh = {entry.id for entry in added}
        at: Entry | None = last
        seen = 0
        while at is not None and at.id in fresh and seen <= len(added):
            at = self._tree.parent(at)
            seen += 1
        if at is self._leaf:
            self._leaf = last
        return True

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the writer's lock; nested uses share it.

        Raises:
            SessionLocked: another writer holds it.
        """
        if self._lock is None or self._lock.held:
            yield
            return
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def hold(self) -> None:
        """Takes the writer's lock until `close`, as a live session does.

        Raises:
            SessionLocked: another writer holds it.
        """
        if self._lock is not None:
            self._lock.acquire()

    def close(self) -> None:
        """Gives the lock back, if it is held; the session can still be read."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take_new(self) -> list[Entry]:
        """Puts what the reader has read into the tree; the new entries."""
        added = self._reader.entries[len(self._tree.entries) :]
        for entry in added:
            problem = self._tree.add(entry)
            if problem is not None:
                line = self._reader.lines[entry.position]
                self._tree_problems.append(Problem(problem.kind, line, problem.entry_id, problem.text))
        if added:
            self.revision += 1
            if self._leaf is not None:
                self._leaf = self._tree.require(self._leaf.id)  # a later entry with its id hides it
        return added

    def _encode(self, payloads: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[bytes]]:
        lines: list[bytes] = []
        parent = self.leaf_id
        stamp = now_iso()
        made: dict[str, None] = {}  # in order; a batch may hold very many
        for payload in payloads:
            kind = payload.get("type")
            if not isinstance(kind, str) or kind == "session":
                raise SessionFormatError(f"an entry needs a type, and not {kind!r}")
            given = payload.get("id")
            if given is None:
                given = self.new_id(made)
            elif not isinstance(given, str) or not given or given in self._tree.by_id or given in made:
                raise SessionFormatError(f"the entry id {given!r} is taken or not an id")
            envelope = {"type": kind, "id": given, "parentId": parent, "timestamp": payload.get("timestamp", stamp)}
            lines.append(encode_json({**envelope, **{k: v for k, v in payload.items() if k not in envelope}}))
            made[given] = None
            parent = given
        return list(made), lines

    def _migrate(self) -> None:
        """Brings the file to version 3 and reads it again; ids, and so the leaf, stay."""
        if self._file is None:
            self._reader.migrate_header()
            return
        leaf_id = self.leaf_id
        self._file.migrate()
        self._file = SessionFile(self._file.path)
        self._reader = self._file.reader
        epoch = self._tree.epoch
        self._tree = SessionTree()
        self._tree_problems = []
        self._take_new()
        self._tree.epoch += epoch + 1
        self._leaf = self._tree.require(leaf_id) if leaf_id is not None else None
        self._file.sync_directory()


def _begins_conversation(payload: Mapping[str, Any]) -> bool:
    message = payload.get("message") if payload.get("type") == "message" else None
    return isinstance(message, Mapping) and message.get("role") in ("user", "assistant")
