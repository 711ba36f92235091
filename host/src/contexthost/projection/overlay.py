"""A session with a few entries more than it has: what previews of drafts are made over."""

from __future__ import annotations

from typing import Protocol

from contexthost.errors import EntryNotFound
from contexthost.session import Entry

__all__ = ["EntrySource", "Overlay"]


class EntrySource(Protocol):
    """Where a projection finds entries: a `Session`, or an `Overlay` of one."""

    @property
    def id(self) -> str:
        """The session's id."""
        ...

    @property
    def epoch(self) -> int:
        """Grows when places of entries known before changed."""
        ...

    def get(self, entry_id: str, /) -> Entry | None:
        """The entry with that id."""
        ...

    def require(self, entry_id: str, /) -> Entry:
        """The entry with that id, or `EntryNotFound`."""
        ...

    def parent(self, entry: Entry, /) -> Entry | None:
        """The entry's parent."""
        ...

    def branch(self, leaf_id: str, /) -> list[Entry]:
        """The entries from the root to ``leaf_id``."""
        ...

    def depth(self, entry: Entry, /) -> int:
        """The entry's distance from its root."""
        ...


class Overlay:
    """``base`` with drafted entries behind one of its leaves; the base does not change."""

    def __init__(self, base: EntrySource) -> None:
        self._base = base
        self._drafted: dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Takes a drafted entry."""
        self._drafted[entry.id] = entry

    @property
    def id(self) -> str:
        """The session's id."""
        return self._base.id

    @property
    def epoch(self) -> int:
        """The base's."""
        return self._base.epoch

    def get(self, entry_id: str) -> Entry | None:
        """The entry with that id, drafted ones included."""
        return self._drafted.get(entry_id) or self._base.get(entry_id)

    def require(self, entry_id: str) -> Entry:
        """The entry with that id.

        Raises:
            EntryNotFound: there is none.
        """
        entry = self.get(entry_id)
        if entry is None:
            raise EntryNotFound(f"entry {entry_id!r} not found in this session")
        return entry

    def parent(self, entry: Entry) -> Entry | None:
        """The entry's parent, drafted ones included."""
        return self.get(entry.parent_id) if entry.parent_id is not None else None

    def branch(self, leaf_id: str) -> list[Entry]:
        """The entries from the root to ``leaf_id``.

        Raises:
            ParentCycle: the base's parents lead in a circle.
        """
        drafted: list[Entry] = []
        at = self._drafted.get(leaf_id)
        while at is not None:
            drafted.append(at)
            leaf_id = at.parent_id or ""
            at = self._drafted.get(leaf_id)
        return [*(self._base.branch(leaf_id) if leaf_id else []), *reversed(drafted)]

    def depth(self, entry: Entry) -> int:
        """The entry's distance from its root."""
        return entry.depth if entry.id in self._drafted else self._base.depth(entry)
