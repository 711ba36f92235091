"""How one snapshot becomes the next: the cost of a step is that of what was added, not of what is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from contexthost.bulk import many_objects
from contexthost.projection.entries import ProjectedEntry
from contexthost.projection.overlay import EntrySource
from contexthost.projection.snapshot import Baseline, Snapshot
from contexthost.projection.vector import Vector
from contexthost.session import Entry
from contexthost.tokens import TokenCounter
from contexthost.tokens.pi import assistant_usage, calculate_context_tokens

__all__ = ["Fold"]


class Fold:
    """Builds snapshots of one session; `visits` counts the entries looked at, to prove what a step costs."""

    def __init__(self, session: EntrySource, counter: TokenCounter, window: int) -> None:
        self._session = session
        self._counter = counter
        self._window = window
        self.visits = 0

    def empty(self) -> Snapshot:
        """The context before the first entry."""
        return Snapshot(
            revision=0,
            session_id=self._session.id,
            leaf_id=None,
            entries=Vector(),
            model=None,
            thinking_level="off",
            checkpoint=None,
            window=self._window,
            _session=self._session,
            _counter=self._counter,
            _leaf=None,
            _epoch=self._session.epoch,
        )

    def hydrate(self, leaf: Entry | None) -> Snapshot:
        """The snapshot at ``leaf`` from scratch: one pass over the branch.

        Raises:
            ParentCycle: the branch leads in a circle.
        """
        with many_objects():
            return self._hydrate(leaf)

    def _hydrate(self, leaf: Entry | None) -> Snapshot:
        branch = self._session.branch(leaf.id) if leaf is not None else []
        self.visits += len(branch)
        if not branch:
            return self.empty()
        self._session.depth(branch[-1])  # depths are computed anew here if entries arrived out of order
        head = next((at for at in range(len(branch) - 1, -1, -1) if branch[at].type == "compaction"), None)
        blank = self.empty()
        if head is None:
            context, kept, tail = list(branch), 0, branch[0].depth
        else:
            kept_entries = self._kept_entries(branch[:head], branch[head])
            context = [branch[head], *kept_entries, *branch[head + 1 :]]
            kept, tail = len(kept_entries), branch[head].depth + 1
            blank = self._headed(blank, branch[head], kept_entries)
        items = [self._item(entry, at) for at, entry in enumerate(context)]
        snapshot = replace(
            blank, leaf_id=branch[-1].id, _leaf=branch[-1], _tail_depth=tail, _tail_start=kept + (head is not None)
        )
        snapshot = self._apply_edits(snapshot, items, context)
        return self._with_settings(self._with_baseline(snapshot), branch)

    def push(self, snapshot: Snapshot, entry: Entry) -> Snapshot:
        """The snapshot with one more entry behind its leaf."""
        self.visits += 1
        if entry.type == "compaction":
            return self._compact(snapshot, entry)
        entries = snapshot.entries
        item = self._item(entry, len(entries))
        pending = snapshot._pending
        if pending and entry.id in pending:
            item = item.edited(pending[entry.id])
        if entry.type == "context_edit" and entry.data.get("targetId") == entry.id:
            item = item.edited(entry)
        entries = entries.append(item)
        changes: dict[str, Any] = {}
        kind = entry.type
        if kind == "context_edit":
            changes["_baseline"] = None
            target = entry.data.get("targetId")
            position = snapshot.position(target) if isinstance(target, str) else None
            if position is not None:
                entries = entries.set(position, entries[position].edited(entry))
            elif isinstance(target, str) and target != entry.id:
                changes["_pending"] = {**pending, target: entry}
        elif kind == "message":
            probe = entry.probe
            if probe is not None and probe.role == "assistant":
                changes["model"] = _model(probe.provider, probe.model)
                baseline = _usage_tokens(item)
                if baseline is not None:
                    changes["_baseline"] = Baseline(len(entries) - 1, baseline)
        elif kind == "model_change":
            changes["model"] = _changed_model(entry)
        elif kind == "thinking_level_change":
            changes["thinking_level"] = entry.data.get("thinkingLevel")
            changes["_thinking_seen"] = True
        if not snapshot.entries:
            changes["_tail_depth"] = entry.depth
        return replace(snapshot, entries=entries, leaf_id=entry.id, _leaf=entry, **changes)

    def pop(self, snapshot: Snapshot, to: Entry) -> Snapshot | None:
        """The snapshot at ``to``, an entry above the leaf; None where only hydration can tell."""
        position = snapshot.position(to.id)
        if snapshot._pending or position is None or position < snapshot._tail_start:
            return None
        length = position + 1
        entries = snapshot.entries
        types: set[str] = set()
        for at in range(len(entries) - 1, position, -1):
            undone = snapshot.entries[at].source
            self.visits += 1
            types.add(undone.type)
            target = undone.data.get("targetId") if undone.type == "context_edit" else None
            place = snapshot.position(target) if isinstance(target, str) else None
            if place is not None and place < length:
                edited = entries[place]
                if edited.edit is not undone or edited.previous is None:
                    return None
                entries = entries.set(place, edited.previous)
        entries = entries.truncate(length)
        back = replace(snapshot, entries=entries, leaf_id=to.id, _leaf=to)
        if snapshot._baseline is None or snapshot._baseline.position >= len(entries):
            back = self._with_baseline(back)
        if types & {"message", "model_change", "thinking_level_change"}:
            return self._with_settings(back, None)
        return back

    def _compact(self, snapshot: Snapshot, entry: Entry) -> Snapshot:
        """A new compaction goes first; what it keeps follows, with the token counts that were there already."""
        kept = self._kept_entries(None, entry)
        context = [entry, *kept]
        items = [self._item(entry, 0)]
        for at, source in enumerate(kept, 1):
            old = snapshot.find(source.id)
            reuse = old is not None and source.type != "compaction"
            items.append(old.base if reuse and old is not None else self._item(source, at))
        made = replace(
            self._headed(snapshot, entry, kept),
            leaf_id=entry.id,
            _leaf=entry,
            _tail_depth=entry.depth + 1,
            _tail_start=len(context),
        )
        return replace(self._apply_edits(made, items, context), _baseline=None)

    def _headed(self, snapshot: Snapshot, head: Entry, kept: Sequence[Entry]) -> Snapshot:
        places = {entry.id: at for at, entry in enumerate(kept, 1)}
        return replace(snapshot, checkpoint=head, _kept=places, _pending={})

    def _kept_entries(self, before: Sequence[Entry] | None, compaction: Entry) -> list[Entry]:
        """What a compaction keeps, without system messages: its own system message stands for those.

        ``before`` is the branch up to it, if that is at hand; otherwise the kept range alone is walked.
        """
        first = compaction.data.get("firstKeptEntryId")
        start = self._session.get(first) if isinstance(first, str) else None
        if start is None or start.depth >= compaction.depth:
            return []
        if before is None:
            before = list(self._up_to(compaction, start))
            if not before or before[0] is not start:
                return []
            at = 0
        else:
            at = start.depth - before[0].depth if before else 0
            if not (0 <= at < len(before) and before[at] is start):
                return []
        return [entry for entry in before[at:] if not (entry.type == "message" and entry.role == "system")]

    def _up_to(self, below: Entry, top: Entry) -> Iterator[Entry]:
        path: list[Entry] = []
        entry = self._session.parent(below)
        while entry is not None and entry.depth >= top.depth:
            self.visits += 1
            path.append(entry)
            entry = self._session.parent(entry)
        return reversed(path)

    def _apply_edits(self, snapshot: Snapshot, items: list[ProjectedEntry], context: Sequence[Entry]) -> Snapshot:
        """Applies the context's edits in order; those whose target is elsewhere wait for it."""
        pending: dict[str, Entry] = {}
        edits = [entry for entry in context if entry.type == "context_edit"]
        places = {entry.id: at for at, entry in enumerate(context)} if edits else {}
        for edit in edits:
            target = edit.data.get("targetId")
            if not isinstance(target, str):
                continue
            place = places.get(target)
            if place is None:
                pending[target] = edit
            else:
                items[place] = items[place].edited(edit)
        return replace(snapshot, entries=Vector(items), _pending=pending)

    def _item(self, entry: Entry, at: int) -> ProjectedEntry:
        return ProjectedEntry(entry, self._counter, shown=entry.type != "compaction" or at == 0)

    def _with_baseline(self, snapshot: Snapshot) -> Snapshot:
        """Looks back for the newest provider usage, as far as the newest edit or compaction: none beyond is trusted."""
        baseline: Baseline | None = None
        for position in range(len(snapshot.entries) - 1, snapshot._tail_start - 1, -1):
            item = snapshot.entries[position]
            self.visits += 1
            if item.source.type in ("context_edit", "compaction"):
                break
            tokens = _usage_tokens(item)
            if tokens is not None:
                baseline = Baseline(position, tokens)
                break
        return replace(snapshot, _baseline=baseline)

    def _with_settings(self, snapshot: Snapshot, branch: Sequence[Entry] | None) -> Snapshot:
        """Looks back over the whole branch, past compactions, for the model and the thinking level in force."""
        model: dict[str, Any] | None = None
        level: Any = "off"
        level_seen = model_seen = False
        needs_level = branch is not None or snapshot._thinking_seen
        for entry in self._back(snapshot._leaf, branch):
            if not model_seen and entry.type == "model_change":
                model, model_seen = _changed_model(entry), True
            elif not model_seen and entry.type == "message":
                probe = entry.probe
                if probe is not None and probe.role == "assistant":
                    model, model_seen = _model(probe.provider, probe.model), True
            elif not level_seen and entry.type == "thinking_level_change":
                level, level_seen = entry.data.get("thinkingLevel"), True
            if model_seen and (level_seen or not needs_level):
                break
        return replace(snapshot, model=model, thinking_level=level, _thinking_seen=level_seen)

    def _back(self, leaf: Entry | None, branch: Sequence[Entry] | None) -> Iterator[Entry]:
        if branch is not None:
            yield from reversed(branch)
            return
        while leaf is not None:
            self.visits += 1
            yield leaf
            leaf = self._session.parent(leaf)


def _changed_model(entry: Entry) -> dict[str, Any]:
    return _model(entry.data.get("provider", msgspec.UNSET), entry.data.get("modelId", msgspec.UNSET))


def _model(provider: Any, model_id: Any) -> dict[str, Any]:
    """A model as Pi's projection names it; what the file does not say is left out."""
    both = {"provider": provider, "modelId": model_id}
    return {key: value for key, value in both.items() if value is not msgspec.UNSET}


def _usage_tokens(item: ProjectedEntry) -> int | None:
    """The provider's total on an assistant message, if it is valid and the message is still shown as it was."""
    probe = item.source.probe
    if probe is None or probe.role != "assistant" or item.edit is not None:
        return None
    recorded = item.source.read_usage()
    usage = assistant_usage({"role": "assistant", "stopReason": probe.stopReason, "usage": recorded})
    return int(calculate_context_tokens(usage)) if usage is not None else None
