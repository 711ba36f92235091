"""The context over a session's life: its size by category along the branch, and where masks and compactions changed it.

One pass over the branch: each entry is pushed on the snapshot before it, and the sums change by what that entry adds or
edits. Only a compaction makes them anew, from what it keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from contexthost import progress
from contexthost.bulk import many_objects
from contexthost.projection.breakdown import pieces
from contexthost.projection.entries import ProjectedEntry
from contexthost.projection.fold import Fold
from contexthost.projection.snapshot import Snapshot
from contexthost.session import Entry

__all__ = ["POINTS", "Change", "Point", "Timeline", "timeline"]

POINTS: Final = 240
"""Points at even distances, at most; those beside changes come on top."""
_VISITS_PER_ENTRY: Final = 60
"""Entries that compactions may make us look at again, per entry of the branch, before we give up: in a session made to
hurt every entry could be a compaction that keeps everything."""

ChangeKind = Literal["compaction", "masks", "edits"]


@dataclass(frozen=True, slots=True)
class Point:
    """The context after ``position`` entries of the branch; ``tokens`` by category, ``turn`` counts user messages.

    ``step`` counts what the model could notice: entries that came into the context, compactions, batches of edits.
    """

    position: int
    step: int
    turn: int
    timestamp: str
    tokens: dict[str, int]

    @property
    def total(self) -> int:
        """All categories together."""
        return sum(self.tokens.values())


@dataclass(frozen=True, slots=True)
class Change:
    """A compaction, or context edits that were appended together; ``before`` and ``after`` are the context's tokens."""

    kind: ChangeKind
    position: int
    step: int
    turn: int
    entry_id: str
    timestamp: str
    count: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A session's life.

    Attributes:
        points, changes: in order.
        entries, turns, steps: how long the branch is.
        away_entries, away_tokens: what was once in the context and left it by compactions, as it was when it came.
        complete: False when the compactions were too many to follow; then only the end is known.
    """

    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    entries: int
    turns: int
    steps: int
    away_entries: int
    away_tokens: int
    complete: bool = True

    @property
    def peak(self) -> int:
        """The most tokens that the context ever had, at one of the points."""
        return max((point.total for point in self.points), default=0)


def timeline(snapshot: Snapshot, *, points: int = POINTS) -> Timeline:
    """Follows a snapshot's branch from its root."""
    branch = snapshot.branch
    if not branch:
        return Timeline((), (), 0, 0, 0, 0, 0)
    fold = Fold(snapshot._session, snapshot._counter, snapshot.window)
    walk = _Walk(fold, fold.empty(), stride=max(1, -(-len(branch) // points)))
    limit = _VISITS_PER_ENTRY * len(branch) + 100_000
    number = 0
    with many_objects(), progress.stage("counting tokens", lambda: number, len(branch)):
        for number, entry in enumerate(branch, 1):
            walk.step(number, entry)
            if fold.visits > limit:
                walk.give_up(snapshot, branch)
                break
        walk.point(len(branch), branch[-1])
    here = {item.source.id for item in snapshot.entries}
    away = [tokens for entry_id, tokens in walk.came.items() if entry_id not in here]
    return Timeline(
        points=_thinned([walk.points[at] for at in sorted(walk.points)], 2 * points),
        changes=tuple(walk.changes),
        entries=len(branch),
        turns=walk.turn,
        steps=walk.stepped,
        away_entries=len(away),
        away_tokens=sum(away),
        complete=walk.complete,
    )


@dataclass(slots=True)
class _Walk:
    fold: Fold
    state: Snapshot
    stride: int
    sums: Counter[str] = field(default_factory=Counter)
    total: int = 0
    turn: int = 0
    stepped: int = 0
    last_step: int = 0  # at the last point
    points: dict[int, Point] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    came: dict[str, int] = field(default_factory=dict)  # entry → its tokens when it came into the context
    complete: bool = True
    _counted: dict[tuple[int, int], list[tuple[str, int]]] = field(default_factory=dict)
    _open: bool = False  # whether the last change may grow: nothing came into the context since

    def step(self, number: int, entry: Entry) -> None:
        """Goes on by one entry."""
        before = self.state
        self.state = self.fold.push(before, entry)
        if entry.type == "compaction":
            self._compacted(number, entry)
        else:
            self._came(entry)
            if entry.type == "context_edit":
                self._edited(number, entry, before)
        if number % self.stride == 0 and self.stepped != self.last_step:
            self.point(number, entry)

    def point(self, number: int, entry: Entry) -> None:
        """Notes how things stand."""
        self.last_step = self.stepped
        if number not in self.points:
            tokens = {name: count for name, count in self.sums.items() if count}
            self.points[number] = Point(number, self.stepped, self.turn, entry.timestamp, tokens)

    def give_up(self, end: Snapshot, branch: list[Entry]) -> None:
        """Jumps to the end."""
        self.complete = False
        self.points.clear()
        self.changes.clear()
        self.came.clear()
        self.turn = sum(entry.role == "user" for entry in branch)
        self._recount(end.entries)

    def _came(self, entry: Entry) -> None:
        item = self.state.entries[-1]
        if entry.role == "user":
            self.turn += 1
        size = self._add(item, 1)
        if size:
            self.came[entry.id] = size
            self.stepped += 1
            self._open = False

    def _compacted(self, number: int, entry: Entry) -> None:
        before = self.total
        if number > 1:
            self.point(number - 1, self._previous(entry))
        self.stepped += 1
        self._recount(self.state.entries)
        change = Change(
            "compaction", number, self.stepped, self.turn, entry.id, entry.timestamp, 1, before, self.total
        )
        self.changes.append(change)
        self._open = False
        self.point(number, entry)

    def _edited(self, number: int, entry: Entry, before: Snapshot) -> None:
        target = entry.data.get("targetId")
        place = before.position(target) if isinstance(target, str) else None
        if place is None:
            return
        old, new = before.entries[place], self.state.entries[place]
        if not self._open:
            self.point(number - 1, self._previous(entry))
        total = self.total
        self._add(old, -1)
        self._add(new, 1)
        kind: ChangeKind = "masks" if new.masked else "edits"
        if self._open and self.changes[-1].kind == kind:
            last = self.changes[-1]
            self.points.pop(last.position, None)  # the batch goes on: one step in the picture, not many
            self.changes[-1] = replace(last, position=number, count=last.count + 1, after=self.total)
        else:
            self.stepped += 1
            change = Change(
                kind, number, self.stepped, self.turn, entry.id, entry.timestamp, 1, total, self.total
            )
            self.changes.append(change)
        self._open = True
        self.point(number, entry)

    def _previous(self, entry: Entry) -> Entry:
        return self.state._session.parent(entry) or entry

    def _recount(self, items: Iterable[ProjectedEntry]) -> None:
        self.sums.clear()
        self.total = 0
        for item in items:
            self._add(item, 1)

    def _add(self, item: ProjectedEntry, sign: int) -> int:
        """Adds an entry's pieces to the sums, or takes them away; each form of an entry is counted once."""
        key = (id(item.source), id(item.edit))
        counted = self._counted.get(key)
        if counted is None or item.source.type == "compaction":  # an older one stands in a kept range without messages
            counted = self._counted[key] = [(name, tokens) for (name, _), tokens in pieces(item, self.state._counter)]
        for name, tokens in counted:
            self.sums[name] += sign * tokens
            self.total += sign * tokens
        return sum(tokens for _, tokens in counted)


def _thinned(points: list[Point], most: int) -> tuple[Point, ...]:
    """Every n-th point and the last, where there are more than ``most``."""
    if len(points) <= most:
        return tuple(points)
    every = -(-len(points) // most)
    kept = points[::every]
    return tuple(kept if kept[-1] is points[-1] else [*kept, points[-1]])
