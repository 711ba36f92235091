"""When to compact, and what a compaction would summarise and keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain

from contexthost.compaction.cut_point import find_projected_cut_point
from contexthost.compaction.files import FileOps, collect_file_ops
from contexthost.compaction.protocols import ContextMessages, EntryLike, ProjectedEntryLike, ProjectionLike
from contexthost.compaction.reading import ConversationMessages
from contexthost.messages import Message
from contexthost.tokens.pi import estimate_projected_context_tokens

__all__ = ["CompactionSettings", "Preparation", "drafted_preparation", "prepare_compaction", "should_compact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """When compaction starts and how much it keeps, in tokens; the defaults are Pi's.

    ``reserve_tokens`` is the room below the context window at which compaction starts, ``keep_recent_tokens`` what is
    to be kept as it is (see ``find_cut_point``). Raises ValueError for one that is not a non-negative integer.
    """

    enabled: bool = True
    reserve_tokens: int = 16384
    keep_recent_tokens: int = 20000

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{field.name} must be a non-negative integer, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What a compactor gets.

    ``messages_to_summarize`` is the history before the cut; if the cut splits a turn, the part of that turn before the
    cut is in ``turn_prefix_messages`` instead. Both reflect context edits and hold no system messages; both are decoded
    anew whenever they are looked at, and not kept.
    ``previous_summary`` is the summary of the compaction before, which the new one replaces. ``tokens_before`` is Pi's
    estimate of the whole context.
    """

    first_kept_entry_id: str
    messages_to_summarize: Sequence[Message]
    turn_prefix_messages: Sequence[Message]
    is_split_turn: bool
    tokens_before: int
    previous_summary: str | None
    file_ops: FileOps
    settings: CompactionSettings


def should_compact(context_tokens: int, context_window: int, settings: CompactionSettings) -> bool:
    """Whether the context has grown past the window less its reserve (strictly), and compaction is enabled."""
    return settings.enabled and context_tokens > context_window - settings.reserve_tokens


def prepare_compaction(
    projection: ProjectionLike,
    branch: Sequence[EntryLike],
    settings: CompactionSettings,
    *,
    context_messages: ContextMessages,
) -> Preparation | None:
    """What a compaction of this branch would summarise and keep; None if there is nothing to compact.

    ``projection`` is that of ``branch``, the entries from the root to the leaf. There is nothing to compact if the last
    entry is a compaction, if no entry before the cut has messages, or if everything fits in what is kept anyway.
    """
    if branch and branch[-1].type == "compaction":
        return None
    entries = projection.entries
    previous_index = _compaction_in_force(entries)
    previous = None if previous_index is None else entries[previous_index].source
    # The tail that the previous compaction kept is history like any other now.
    start = 0 if previous_index is None else previous_index + 1

    keep = settings.keep_recent_tokens
    cut = find_projected_cut_point(entries, start, len(entries), keep, context_messages=context_messages)
    if cut.first_kept >= len(entries) or not entries[cut.first_kept].source.id:
        return None
    history_end = cut.first_kept if cut.turn_start is None else cut.turn_start
    history = ConversationMessages(entries[start:history_end])
    prefix = ConversationMessages(entries[history_end : cut.first_kept])
    if not history and not prefix:
        return None

    summary = previous.data.get("summary") if previous is not None else None
    return Preparation(
        first_kept_entry_id=entries[cut.first_kept].source.id,
        messages_to_summarize=history,
        turn_prefix_messages=prefix,
        is_split_turn=cut.is_split_turn,
        tokens_before=estimate_projected_context_tokens(entries, branch).tokens,
        previous_summary=summary if isinstance(summary, str) else None,
        file_ops=collect_file_ops(chain(history, prefix), previous),
        settings=settings,
    )


def drafted_preparation(
    projection: ProjectionLike,
    branch: Sequence[EntryLike],
    first_kept_entry_id: str | None,
    settings: CompactionSettings,
) -> Preparation:
    """What a compaction stands for that a plugin drafted, keeping the entries from ``first_kept_entry_id`` on.

    None keeps nothing; the preparation has "" in its place. The other arguments are those of `prepare_compaction`.
    """
    entries = projection.entries
    previous_index = _compaction_in_force(entries)
    start = 0 if previous_index is None else previous_index + 1
    found = (at for at in range(start, len(entries)) if entries[at].source.id == first_kept_entry_id)
    history = ConversationMessages(entries[start : next(found, len(entries))])
    previous = None if previous_index is None else entries[previous_index].source
    summary = previous.data.get("summary") if previous is not None else None
    return Preparation(
        first_kept_entry_id=first_kept_entry_id or "",
        messages_to_summarize=history,
        turn_prefix_messages=(),
        is_split_turn=False,
        tokens_before=estimate_projected_context_tokens(entries, branch).tokens,
        previous_summary=summary if isinstance(summary, str) else None,
        file_ops=collect_file_ops(history, previous),
        settings=settings,
    )


def _compaction_in_force(entries: Sequence[ProjectedEntryLike]) -> int | None:
    """Older compactions may stand further back in the kept range, but contribute no messages."""
    found = (index for index, entry in enumerate(entries) if entry.source.type == "compaction" and entry.read())
    return next(found, None)
