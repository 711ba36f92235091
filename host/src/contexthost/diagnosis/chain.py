"""How the entries that a rescue saves hang together: rules 3, 4 and 6 of `contexthost.diagnosis.rescue`.

Everything here takes time in proportion to the number of entries, also where thousands were left out or lead in
circles: what was walked over once is skipped the next time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Chain", "Saved"]


@dataclass(slots=True, eq=False)
class Saved:
    """An object of the old file: ``left_out`` ones only say what references to them mean."""

    data: dict[str, Any]
    old_id: str | None
    left_out: bool
    place: int
    new_id: str = ""
    parent: Saved | None = None
    renamed: bool = False
    above: Saved | None = None  # a shortcut towards the root of the tree that it belongs to
    kept_above: list[Saved | None] = field(default_factory=list)  # the nearest ancestor not left out, when known


class Chain:
    """Finds parents and what references mean.

    Args:
        found: the objects in the order of the file; ``place`` is their index.
        linear: each follows the one before it, as in version 1.

    Attributes:
        rehung: how many entries that are not left out got another parent than they name.
    """

    def __init__(self, found: list[Saved], *, linear: bool) -> None:
        self.found = found
        self.rehung = 0
        self._places: dict[str, list[int]] = {}
        self._kept: list[int] = []  # the places of those that are not left out
        for one in found:
            if one.old_id is not None:
                self._places.setdefault(one.old_id, []).append(one.place)
            if not one.left_out:
                self._kept.append(one.place)
        self._skip = list(range(-1, len(self._kept) - 1))  # from each of these to the next one back to be asked
        self._settle(linear)

    def _settle(self, linear: bool) -> None:
        later: list[tuple[Saved, Saved]] = []
        before: Saved | None = None
        for one in self.found:
            named = one.data.get("parentId")
            if linear:
                self._hang(one, before)
            elif not (named == "" or (named is None and "parentId" in one.data)):
                place = self.meant(named, one.place)
                if place is None:
                    self._hang(one, before)
                    self.rehung += not one.left_out and before is not None
                elif place < one.place:
                    self._hang(one, self.found[place])
                else:
                    later.append((one, self.found[place]))  # a child before its parent: settled below
            if not one.left_out:
                before = one
        for one, parent in later:
            if self._root(parent) is not one:
                self._hang(one, parent)
            else:
                self._hang(one, self._before_outside(one))
                self.rehung += not one.left_out

    def meant(self, reference: Any, at: int) -> int | None:
        """The place of what an entry at ``at`` means by an id: the nearest before it, else the first after it."""
        places = self._places.get(reference, []) if isinstance(reference, str) else []
        here = bisect_left(places, at)
        if here > 0:
            return places[here - 1]
        return next((place for place in places[here : here + 2] if place > at), None)

    def saved_from(self, at: int) -> Saved | None:
        """The first entry from a place on that is not left out."""
        here = bisect_left(self._kept, at)
        return self.found[self._kept[here]] if here < len(self._kept) else None

    def saved_parent(self, one: Saved) -> Saved | None:
        """The nearest ancestor that is not left out."""
        passed: list[Saved] = []
        parent = one.parent
        while parent is not None and parent.left_out:
            passed.append(parent)
            parent = parent.kept_above[0] if parent.kept_above else parent.parent
        for over in passed:
            over.kept_above = [parent]
        return parent

    def _hang(self, one: Saved, parent: Saved | None) -> None:
        one.parent = one.above = parent

    def _root(self, one: Saved) -> Saved:
        """The root of the tree so far; an entry that has no parent yet is one."""
        passed: list[Saved] = []
        while one.above is not None:
            passed.append(one)
            one = one.above
        for under in passed:
            under.above = one
        return one

    def _before_outside(self, one: Saved) -> Saved | None:
        """The nearest kept entry before ``one``, the root of its tree, that is not in that tree.

        Trees only grow together, so what lay in one tree with all that was passed over will lie so for ever.
        """
        passed: list[int] = []
        at = bisect_left(self._kept, one.place) - 1
        while at >= 0 and self._root(self.found[self._kept[at]]) is one:
            passed.append(at)
            at = self._skip[at]
        for over in passed:
            self._skip[over] = at
        return self.found[self._kept[at]] if at >= 0 else None
