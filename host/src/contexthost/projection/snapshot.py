"""The snapshot: what the model sees at one moment, immutable and shared by everybody who asks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contexthost import progress
from contexthost.bulk import many_objects
from contexthost.messages import Message, current_system_message
from contexthost.projection.entries import ProjectedEntry
from contexthost.projection.overlay import EntrySource
from contexthost.projection.provider import Mend, Part, ProviderView, part_of
from contexthost.projection.vector import Sealed, Vector
from contexthost.session import Entry
from contexthost.tokens import EffectiveUsage, TokenCounter, effective_usage

__all__ = ["MaskLedger", "Snapshot"]


@dataclass(frozen=True, slots=True)
class MaskLedger:
    """What masks save at the moment.

    Attributes:
        masked_results: entries behind a mask.
        reclaimed_tokens: their tokens as they stand in the file, less those of the placeholders.
    """

    masked_results: int
    reclaimed_tokens: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """The newest provider usage that can be trusted: no edit and no compaction came after it.

    ``position`` is the entry's place in the snapshot, ``tokens`` the provider's total for that request and answer.
    """

    position: int
    tokens: int


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What the model sees, entry by entry.

    Everything that costs more than a look is computed when first asked for and then remembered, per chunk of 256
    entries where it is a sum, so that the next snapshot finds it done.

    Attributes:
        revision: grows with every new snapshot of an authority.
        session_id: the session's id.
        leaf_id: where the branch ends; None before the first entry.
        entries: the context's entries in order: the compaction in force first, if there is one, then what it keeps,
            then all that came after it. Entries without messages (labels, edits, …) are among them.
        model: provider and model id last used on the branch, as ``{"provider": …, "modelId": …}``; None if none was.
        thinking_level: the thinking level in force, ``"off"`` by default.
        checkpoint: the compaction in force.
        window: the context window in tokens.
    """

    revision: int
    session_id: str
    leaf_id: str | None
    entries: Vector[ProjectedEntry]
    model: dict[str, Any] | None
    thinking_level: Any
    checkpoint: Entry | None
    window: int
    _session: EntrySource = field(repr=False)
    _counter: TokenCounter = field(repr=False)
    _leaf: Entry | None = field(repr=False)
    _kept: Mapping[str, int] = field(repr=False, default_factory=dict)  # places of what the compaction keeps
    _tail_depth: int = field(repr=False, default=0)  # the depth of the first entry behind head and kept entries
    _tail_start: int = field(repr=False, default=0)  # and its place
    _pending: Mapping[str, Entry] = field(repr=False, default_factory=dict)  # edits whose target is not there
    _baseline: Baseline | None = field(repr=False, default=None)
    _epoch: int = field(repr=False, default=0)  # the session's, when the snapshot was made
    _thinking_seen: bool = field(repr=False, default=False)

    def find(self, entry_id: str) -> ProjectedEntry | None:
        """The context's entry with that id; None when it is not part of the context."""
        position = self.position(entry_id)
        return None if position is None else self.entries[position]

    def position(self, entry_id: str) -> int | None:
        """The place in `entries` of an entry id; costs the same however long the context is."""
        kept = self._kept.get(entry_id)
        if kept is not None:
            return kept
        if self.checkpoint is not None and self.checkpoint.id == entry_id:
            return 0
        if self._session.epoch != self._epoch:
            # Depths changed since: this snapshot, which must still read as it did, looks through its entries.
            found = (at for at in range(self._tail_start, len(self.entries)) if self.entries[at].source.id == entry_id)
            return next(found, None)
        entry = self._session.get(entry_id)
        if entry is None:
            return None
        position = self._tail_start + entry.depth - self._tail_depth
        if not self._tail_start <= position < len(self.entries) or self.entries[position].source is not entry:
            return None
        return position

    @property
    def since_checkpoint(self) -> Sequence[ProjectedEntry]:
        """The entries behind the compaction in force and what it kept; all of them when there is none. Costs as much
        as it gives, however long the kept range is."""
        return self.entries[self._tail_start :]

    @functools.cached_property
    def messages(self) -> Sequence[Message]:
        """What the model sees, as Pi's projection has it; to be read, not written."""
        with many_objects():
            return tuple(itertools.chain.from_iterable(self.entries.each(_messages)))

    @functools.cached_property
    def system_message(self) -> Message | None:
        """The system prompt and tools in force: all system messages replayed; None if there are none."""
        return current_system_message(itertools.chain.from_iterable(self.entries.each(_system_messages)))

    @functools.cached_property
    def _provider_view(self) -> ProviderView:
        with many_objects():
            tail = [chunk.once(_part) for chunk in self.entries.tail]
            return ProviderView(tail, self.entries.sealed.once(_sealed_view))

    @property
    def provider_messages(self) -> Sequence[Message]:
        """`messages` in the roles of a request (system, user, assistant, toolResult), made safe to send: no result
        without its call before it, none twice, every call answered."""
        return self._provider_view.messages

    @property
    def mended(self) -> Sequence[Mend]:
        """What had to be changed for that, in the order of the messages; empty for a healthy session."""
        return self._provider_view.mends

    @functools.cached_property
    def tokens(self) -> int:
        """Our own count of all the context's messages."""
        total = done = 0
        with progress.stage("counting tokens", lambda: done, len(self.entries)):
            for chunk in self.entries.chunks:
                total += chunk.once(_tokens)
                done += len(chunk.items)
        return total

    @functools.cached_property
    def usage(self) -> EffectiveUsage:
        """How full the window is: the provider's last trustworthy figure and what came since, else our count."""
        if self._baseline is None:
            return effective_usage(baseline=None, counted=self.tokens, window=self.window)
        since = range(self._baseline.position + 1, len(self.entries))
        counted = sum(self.entries[position].tokens for position in since)
        return effective_usage(baseline=self._baseline.tokens, counted=counted, window=self.window)

    @functools.cached_property
    def ledger(self) -> MaskLedger:
        """What masks save."""
        parts = self.entries.each(_masks)
        return MaskLedger(sum(part[0] for part in parts), sum(part[1] for part in parts))

    @property
    def branch(self) -> list[Entry]:
        """All entries from the root to the leaf, those behind compactions included; walks the whole branch."""
        return self._session.branch(self.leaf_id) if self.leaf_id is not None else []


def _messages(items: tuple[ProjectedEntry, ...]) -> tuple[Message, ...]:
    return tuple(message for item in items for message in item.messages)


def _part(items: tuple[ProjectedEntry, ...]) -> Part:
    return part_of(message for item in items for message in item.messages)


def _sealed_view(sealed: Sealed[ProjectedEntry]) -> ProviderView:
    return ProviderView(sealed.each(_part))


def _system_messages(items: tuple[ProjectedEntry, ...]) -> tuple[Message, ...]:
    shown = (item for item in items if item.source.type == "compaction" or item.source.role == "system")
    return tuple(message for item in shown for message in item.messages if message.get("role") == "system")


def _tokens(items: tuple[ProjectedEntry, ...]) -> int:
    return sum(item.tokens for item in items)


def _masks(items: tuple[ProjectedEntry, ...]) -> tuple[int, int]:
    masked = [item for item in items if item.edit is not None and item.masked]
    return len(masked), sum(item.base.tokens - item.tokens for item in masked)
