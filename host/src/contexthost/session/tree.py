"""The tree of a session's entries: ids, parents, depths, children, labels, branches; kept as entries arrive."""

from __future__ import annotations

from contexthost.errors import EntryNotFound, ParentCycle
from contexthost.session.entries import Entry
from contexthost.session.load import Problem

__all__ = ["SessionTree"]


class SessionTree:
    """Index of entries by id and parent. Adding an entry costs the same however many there are.

    As in Pi, a later entry with an id seen before replaces the earlier one, and an entry whose parent is missing
    begins a branch of its own.

    Attributes:
        epoch: grows when an arriving entry changed the place of entries already there (a duplicate id, a parent that
            came after its child); whoever remembers depths or branches must look again.
        tangled: whether that ever happened; only then may parents form a cycle.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_id: dict[str, Entry] = {}
        self.epoch = 0
        self.tangled = False
        self._missing: dict[str, list[Entry]] = {}  # parents named but not (yet) there
        self._children: dict[str | None, list[Entry]] | None = None
        self._labels: dict[str, str] = {}
        self.name: str | None = None
        self._dirty = False

    def add(self, entry: Entry) -> Problem | None:
        """Takes the next entry; what is odd about its place, if anything."""
        problem = None
        if entry.id in self.by_id:
            problem = Problem("duplicate-id", 0, entry.id, "an earlier entry has the same id and is hidden by this one")
        late = entry.id in self._missing or entry.parent_id == entry.id
        self.entries.append(entry)
        self.by_id[entry.id] = entry
        if problem is not None or late:
            self._missing.pop(entry.id, None)
            self._children = None
            self._dirty = self.tangled = True
            self.epoch += 1
        parent = self.parent(entry)
        if parent is not None and parent is not entry:
            entry.depth = parent.depth + 1 if parent.depth >= 0 else -1
        elif entry.parent_id is not None and parent is None:
            self._missing.setdefault(entry.parent_id, []).append(entry)
        if self._children is not None:
            self._children.setdefault(self._parent_key(entry), []).append(entry)
        if entry.type == "label":
            self._take_label(entry)
        elif entry.type == "session_info":
            name = entry.data.get("name")
            self.name = (name.strip() or None) if isinstance(name, str) else None
        return problem

    def settle(self) -> None:
        """Computes all depths anew if entries arrived out of order; a no-op otherwise. Cycles get depth -1."""
        if not self._dirty:
            return
        self._dirty = False
        done: set[int] = set()
        for start in self.by_id.values():
            chain: list[Entry] = []
            on_chain: set[int] = set()
            at: Entry | None = start
            while at is not None and id(at) not in done and id(at) not in on_chain:
                chain.append(at)
                on_chain.add(id(at))
                at = self.parent(at)
            if at is not None and id(at) in on_chain:
                depth = None
            else:
                depth = at.depth if at is not None else -1
                if at is not None and at.depth < 0:
                    depth = None
            for entry in reversed(chain):
                depth = None if depth is None else depth + 1
                entry.depth = -1 if depth is None else depth
                done.add(id(entry))

    def parent(self, entry: Entry) -> Entry | None:
        """The entry's parent; None for a root and where the parent is missing."""
        return self.by_id.get(entry.parent_id) if entry.parent_id is not None else None

    def branch(self, leaf: Entry | None) -> list[Entry]:
        """The entries from the root to ``leaf``.

        Raises:
            ParentCycle: the parents lead in a circle.
        """
        path: list[Entry] = []
        seen: set[str] = set()
        entry = leaf
        while entry is not None:
            if self.tangled:
                if entry.id in seen:
                    raise ParentCycle(
                        f"parent cycle at {entry.id}: its parents lead back to itself, so no branch can be read from "
                        "here; `contexthost doctor SESSION` shows what can be saved",
                        entry_id=entry.id,
                    )
                seen.add(entry.id)
            path.append(entry)
            entry = self.parent(entry)
        path.reverse()
        return path

    def children(self, parent_id: str | None) -> list[Entry]:
        """The entries whose parent is ``parent_id``, in file order; None asks for the roots (orphans included)."""
        if self._children is None:
            self._children = {}
            for entry in self.entries:
                if self.tangled and self.by_id[entry.id] is not entry:
                    continue  # hidden by a later entry with its id
                self._children.setdefault(self._parent_key(entry), []).append(entry)
        return list(self._children.get(parent_id, ()))

    def label(self, entry_id: str) -> str | None:
        """The label in force on an entry."""
        return self._labels.get(entry_id)

    def missing_parents(self) -> list[Entry]:
        """The entries that name a parent which is not there."""
        return [entry for entries in self._missing.values() for entry in entries]

    def require(self, entry_id: str) -> Entry:
        """The entry with that id.

        Raises:
            EntryNotFound: there is none.
        """
        entry = self.by_id.get(entry_id)
        if entry is None:
            raise EntryNotFound(f"entry {entry_id!r} not found in this session")
        return entry

    def _parent_key(self, entry: Entry) -> str | None:
        return entry.parent_id if entry.parent_id in self.by_id else None

    def _take_label(self, entry: Entry) -> None:
        target, label = entry.data.get("targetId"), entry.data.get("label")
        if not isinstance(target, str):
            return
        if isinstance(label, str) and label:
            self._labels[target] = label
        else:
            self._labels.pop(target, None)
