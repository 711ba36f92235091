"""The record behind the context: what any entry says, in which state it is, and searching all of it.

Recovery tools (``recall``, ``context_tree_query``) stand on this. What they may give back: an entry that an edit
omitted is not there for them, one that was replaced says its replacement, and one behind a mask says what it said
before, since masks only save room (see `contexthost.projection.is_mask`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from contexthost._recorded import READABLE_TYPES, UNCHANGED, Query, Recorded, read_entry
from contexthost.errors import ContexthostError
from contexthost.projection import Snapshot, is_mask
from contexthost.session import Entry, Session

__all__ = ["Ancestor", "Change", "Found", "History", "HistoryEntry", "Page", "Place", "Recorded", "paged"]

Place: TypeAlias = Literal["in context", "compacted away", "other branch", "earlier session"]
"""Where an entry is, seen from the current leaf; an earlier session is one that this one was forked from."""

Change: TypeAlias = Literal["masked", "omitted", "replaced", "hidden"]
"""What was done to an entry; ``hidden`` is a command that the user kept from the model from the start."""

SNIPPET_CHARS: Final = 200
"""Code points on each side of what was found (from the seed of the relay plugin)."""

MAX_GENERATIONS: Final = 16
"""How many forks of forks `History.lineage` follows back."""

_BATCH: Final = 64
"""Entries that a search looks at together."""

_DEFAULT_TYPES: Final = READABLE_TYPES - {"compaction"}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An entry with what may be told of it; ``recorded`` is empty where that is nothing (omitted, hidden).

    ``session_id`` is that of the session it was found in.
    """

    entry: Entry
    recorded: Recorded
    place: Place
    change: Change | None
    session_id: str

    @property
    def text(self) -> str:
        """What it says: effective content, but the original of what is masked."""
        return self.recorded.text

    @property
    def withheld(self) -> bool:
        """Whether the model must not see it."""
        return self.change in ("omitted", "hidden")

    @property
    def state(self) -> str:
        """Place and change in a few words, such as ``compacted away, masked``."""
        return self.place if self.change is None else f"{self.place}, {self.change}"


@dataclass(frozen=True, slots=True)
class Found:
    """A hit of a search; ``snippet`` is the text around the longest word, up to 200 code points on each side, ``…``
    where it was cut."""

    item: HistoryEntry
    snippet: str


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a text: ``offset`` and ``total`` in code points, ``next_offset`` None on the last page."""

    text: str
    offset: int
    next_offset: int | None
    total: int


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A session that this one was forked from, directly or not; ``history`` None where it cannot be read, and then
    ``problem`` says why."""

    path: Path
    history: History | None
    problem: str | None = None


def paged(text: str, offset: int, size: int) -> Page:
    """The page of at most ``size`` code points (at least 1) from ``offset`` on; negative offsets count as 0, those
    past the end give an empty last page."""
    start = min(max(offset, 0), len(text))
    end = min(start + max(size, 1), len(text))
    return Page(text[start:end], start, end if end < len(text) else None, len(text))


class History:
    """What one session has recorded, whether the model still sees it or not; read-only.

    An index of edits and of the branch is kept and moved along with the session; entries are decoded when they are
    looked at and not kept decoded.

    Args:
        session: the session.
        snapshot: gives what the model sees now; None for a session that nobody works in (an earlier one).
    """

    def __init__(self, session: Session, snapshot: Callable[[], Snapshot] | None = None) -> None:
        self._session = session
        self._snapshot = snapshot
        self._edits: dict[str, list[Entry]] = {}
        self._indexed = 0
        self._epoch = -1
        self._branch: list[Entry] = []
        self._on_branch: set[str] = set()
        self._ancestors: dict[Path, Ancestor] = {}

    @property
    def session(self) -> Session:
        """The session, to be read."""
        return self._session

    # Single entries --------------------------------------------------------------------------------------------------

    def get(self, entry_id: str) -> HistoryEntry | None:
        """The entry with that id, on whichever branch; None when there is none or it says nothing."""
        self._index()
        entry = self._session.get(entry_id)
        return self._item(entry, frozenset()) if entry is not None else None

    def branch(self) -> Iterator[HistoryEntry]:
        """What the entries of the current branch say, from the root to the leaf, compacted-away ones included;
        withheld ones are left out."""
        self._index()
        for entry in list(self._branch):
            item = self._item(entry, frozenset())
            if item is not None and not item.withheld:
                yield item

    def effective(self, entry: Entry) -> HistoryEntry | None:
        """As `get`, of an entry at hand."""
        self._index()
        return self._item(entry, frozenset())

    # Searching -------------------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        limit: int,
        scope: Literal["branch", "all"] = "branch",
        summaries: bool = False,
        skip_tools: frozenset[str] = frozenset(),
        where: Callable[[HistoryEntry], bool] | None = None,
        skip_ids: Callable[[str], bool] | None = None,
    ) -> list[Found]:
        """Entries that hold all words of the query, case aside: those the model does not see any more first, then
        those in its context, newest first in both.

        Args:
            query: words with white space between them; without words nothing is found, unless ``where`` is given:
                then that alone decides.
            limit: how many hits at most.
            scope: ``branch`` looks at the current branch, ``all`` at the others too.
            summaries: whether the summaries of compactions count; they repeat what other entries say.
            skip_tools: tools whose calls and results do not count (a search would find earlier searches).
            where: a further condition.
            skip_ids: entry ids to pass over.
        """
        words = Query(query)
        if limit < 1 or not (words.words or where):
            return []
        self._index()
        types = READABLE_TYPES if summaries else _DEFAULT_TYPES
        found: list[Found] = []
        for part in self._in_order(scope):
            for entry in self._candidates(part, words, types):
                if skip_ids is not None and skip_ids(entry.id):
                    continue
                item = self._item(entry, skip_tools)
                if item is None or item.withheld or not item.text or (where is not None and not where(item)):
                    continue
                at = words.find(item.text) if words.words else (0, 0)
                if at is not None:
                    found.append(Found(item, _snippet(item.text, *at)))
                    if len(found) >= limit:
                        return found
        return found

    def _in_order(self, scope: Literal["branch", "all"]) -> Iterator[Iterable[Entry]]:
        """What is to be searched, part by part: masked in the context, out of it, then the rest of the context."""
        start = self._context_start()
        inside = self._branch[start:]
        masked = [entry for entry in inside if entry.id in self._edits and self._is_masked(entry)]
        yield reversed(masked)
        if scope == "branch":
            yield (self._branch[at] for at in range(start - 1, -1, -1))
        else:
            seen = {entry.id for entry in inside}
            get = self._session.get
            entries = self._session.entries
            yield (e for e in reversed(entries) if e.id not in seen and get(e.id) is e)
        hidden = {entry.id for entry in masked}
        yield (entry for entry in reversed(inside) if entry.id not in hidden)

    def _context_start(self) -> int:
        """The place on the branch where the context begins: it is the branch's end, but for system messages."""
        snapshot = self._snapshot() if self._snapshot is not None else None
        if snapshot is None or snapshot.checkpoint is None or not self._branch:
            return 0
        first = snapshot.checkpoint
        if len(snapshot.entries) > 1 and snapshot.entries[1].source.depth < first.depth:
            first = snapshot.entries[1].source
        start = self._session.depth(first) - self._session.depth(self._branch[0])
        return min(max(start, 0), len(self._branch))

    def _candidates(self, entries: Iterable[Entry], words: Query, types: frozenset[str]) -> Iterator[Entry]:
        """Those that may hold the words. Looked at in batches, since most batches hold none."""
        edits = self._edits
        left = (entry for entry in entries if entry.type in types)
        while batch := list(itertools.islice(left, _BATCH)):
            raws = [self._effective_raw(entry) if entry.id in edits else entry.raw for entry in batch]
            if words.words and not words.may_be_in(b"\n".join(raws)):
                continue
            for entry, raw in zip(batch, raws, strict=True):
                if not words.words or words.may_be_in(raw):
                    yield entry

    # Earlier sessions ------------------------------------------------------------------------------------------------

    def lineage(self) -> list[Ancestor]:
        """The sessions that this one was forked from, the nearest first; files that cannot be read are among them,
        with the reason. Reads those files again only as far as they grew, and never writes."""
        found: list[Ancestor] = []
        at: Session = self._session
        passed = {at.path.resolve()} if at.path is not None else set()
        while at.header.parent_session and len(found) < MAX_GENERATIONS:
            path = _parent_path(at, at.header.parent_session)
            if path in passed:
                found.append(Ancestor(path, None, "the chain of parent sessions leads in a circle"))
                break
            passed.add(path)
            ancestor = self._open(path)
            found.append(ancestor)
            if ancestor.history is None:
                break
            at = ancestor.history.session
        return found

    def _open(self, path: Path) -> Ancestor:
        known = self._ancestors.get(path)
        try:
            if known is None or known.history is None:
                known = Ancestor(path, History(Session.open(path)))
            else:
                known.history.session.refresh()
        except (ContexthostError, OSError, ValueError) as error:
            known = Ancestor(path, None, str(error))
        self._ancestors[path] = known
        return known

    # The index -------------------------------------------------------------------------------------------------------

    def _index(self) -> None:
        session = self._session
        if self._epoch != session.epoch or self._indexed > len(session.entries):
            self._edits, self._indexed, self._branch, self._on_branch = {}, 0, [], set()
            self._epoch = session.epoch
        entries = session.entries
        for position in range(self._indexed, len(entries)):
            entry = entries[position]
            if entry.type == "context_edit":
                target = entry.data.get("targetId")
                if isinstance(target, str):
                    self._edits.setdefault(target, []).append(entry)
        self._indexed = len(entries)
        self._follow_leaf()

    def _follow_leaf(self) -> None:
        """Keeps the branch: what came behind the old leaf is added, a move elsewhere walks it anew."""
        leaf = self._session.leaf
        old = self._branch[-1] if self._branch else None
        if leaf is old:
            return
        ahead: list[Entry] = []
        at = leaf
        while old is not None and at is not None and at is not old and at.depth > old.depth:
            ahead.append(at)
            at = self._session.parent(at)
        if old is not None and at is old:
            ahead.reverse()
            self._branch.extend(ahead)
        else:
            self._branch = self._session.branch(leaf.id) if leaf is not None else []
            self._on_branch = set()
            ahead = self._branch
        self._on_branch.update(entry.id for entry in ahead)

    def _place(self, entry: Entry) -> Place:
        if self._snapshot is None:
            return "earlier session"
        if self._session.get(entry.id) is not entry or entry.id not in self._on_branch:
            return "other branch"
        return "in context" if self._snapshot().find(entry.id) is not None else "compacted away"

    def _edits_of(self, entry: Entry) -> Sequence[Entry]:
        """The edits that count for an entry, the one in force last: those of the current branch; for an entry of
        another branch those that no later edit on the same path supersedes, omissions last, so that they prevail."""
        edits = self._edits.get(entry.id, ())
        if not edits:
            return ()
        if entry.id in self._on_branch:
            return [edit for edit in edits if edit.id in self._on_branch]
        heads = [edit for edit in edits if not any(self._is_above(edit, later) for later in edits)]
        others = [edit for edit in edits if edit not in heads]
        return [*others, *sorted(heads, key=lambda edit: (_severity(edit), edit.position))]

    def _is_above(self, edit: Entry, later: Entry) -> bool:
        at: Entry | None = later
        while at is not None and at.depth > edit.depth >= 0:
            at = self._session.parent(at)
        return at is edit and later is not edit

    def _is_masked(self, entry: Entry) -> bool:
        edits = self._edits_of(entry)
        return bool(edits) and is_mask(edits[-1].data.get("replacement"))

    def _effective_raw(self, entry: Entry) -> bytes:
        """The bytes that hold what the entry says."""
        if entry.id not in self._edits:
            return entry.raw
        edit = next((edit for edit in reversed(self._edits_of(entry)) if not _masks(edit)), None)
        return entry.raw if edit is None else edit.raw

    def _item(self, entry: Entry, skip_tools: frozenset[str]) -> HistoryEntry | None:
        if entry.type not in READABLE_TYPES:
            return None
        edits = self._edits_of(entry) if _is_editable(entry) else ()
        real = next((edit for edit in reversed(edits) if not _masks(edit)), None)
        replacement = real.data.get("replacement") if real is not None else None
        content = replacement.get("content") if isinstance(replacement, dict) else UNCHANGED
        recorded = read_entry(entry, content=content, skip_tools=skip_tools)
        if recorded is None:
            return None
        change: Change | None = None
        if recorded.hidden:
            change = "hidden"
        elif real is not None and not isinstance(replacement, dict):
            change = "omitted"
        elif edits:
            change = "masked" if _masks(edits[-1]) else "replaced"
        if change in ("hidden", "omitted"):
            recorded = Recorded(recorded.kind, "", recorded.tool, recorded.call_id)
        return HistoryEntry(entry, recorded, self._place(entry), change, self._session.id)


def _masks(edit: Entry) -> bool:
    return is_mask(edit.data.get("replacement"))


def _severity(edit: Entry) -> int:
    replacement: Any = edit.data.get("replacement")
    return 0 if is_mask(replacement) else 1 if isinstance(replacement, dict) else 2


def _is_editable(entry: Entry) -> bool:
    """Whether edits have an effect on it, as in the projection: not on commands and summaries, unless they omit."""
    return entry.type in ("message", "custom_message")


def _snippet(text: str, start: int, end: int) -> str:
    first, last = max(start - SNIPPET_CHARS, 0), min(end + SNIPPET_CHARS, len(text))
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")


def _parent_path(session: Session, parent: str) -> Path:
    try:
        path = Path(parent).expanduser()
    except RuntimeError:  # "~" of nobody
        path = Path(parent)
    if not path.is_absolute() and session.path is not None:
        path = session.path.parent / path
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle, a null character
        return path
