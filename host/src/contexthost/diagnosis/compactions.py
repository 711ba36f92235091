"""The compaction in force: whether it lost history, and the compaction that appending can put in its place.

Only the newest compaction of a branch counts, so a further one with the same summary mends a wrong boundary:

1. Its first kept entry is not on the branch (Pi then keeps nothing): the new one keeps what Pi's own cut of 20,000
   tokens would have kept. The summary stands for all that is older.
2. Its summary is empty (nothing stands for what it dropped): the new one says so, repeats the summary before it if
   there is one, and keeps as much of what was dropped as leaves half the window free.
3. It separates a call from its result: the new one keeps from the message with the call on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contexthost.compaction import find_projected_cut_point
from contexthost.diagnosis.pairs import PairReport, examine_pairs, sent_messages
from contexthost.messages import own_text
from contexthost.projection import CompactionDraft, ProjectedEntry, ProjectionAuthority, Snapshot, context_messages
from contexthost.session import Entry

__all__ = ["CompactionReport", "examine_compaction"]

_KEEP_RECENT: Final = 20_000
"""Tokens: Pi's default for ``compaction.keepRecentTokens``."""

_CUT_ROLES: Final = frozenset({"user", "custom", "bashExecution", "branchSummary", "assistant"})


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What is wrong with the compaction in force.

    Attributes:
        compaction: the compaction; None without one.
        unknown_kept: its first kept entry is not on the branch before it.
        empty: it has no summary, and history before it.
        split: the entries of the results that it separates from their calls.
        draft: the compaction to append; None when nothing is wrong.
        after: the snapshot with the draft; the one given when there is none.
        pairs: the calls and results of ``after``.
    """

    compaction: Entry | None
    unknown_kept: bool
    empty: bool
    split: tuple[str, ...]
    draft: CompactionDraft | None
    after: Snapshot
    pairs: PairReport


def examine_compaction(authority: ProjectionAuthority, snapshot: Snapshot) -> CompactionReport:
    """Looks at the compaction in force of ``snapshot``, which is the authority's current one."""
    pairs = examine_pairs(sent_messages(snapshot.entries))
    healthy = CompactionReport(snapshot.checkpoint, False, False, (), None, snapshot, pairs)
    compaction = snapshot.checkpoint
    if compaction is None or compaction.parent_id is None or authority.session.get(compaction.parent_id) is None:
        return healthy
    summary = compaction.data.get("summary")
    first = compaction.data.get("firstKeptEntryId")
    before = authority.session.branch(compaction.parent_id)
    known = isinstance(first, str) and any(entry.id == first for entry in before)
    unknown_kept, empty = first != compaction.id and not known, not isinstance(summary, str) or not summary.strip()
    report = healthy
    if unknown_kept or empty:
        prior = authority.at(compaction.parent_id)
        if isinstance(summary, str) and not any(_is_conversation(item) for item in prior.entries):
            return healthy  # nothing was there to be lost
        if empty:
            kept = _as_much_as_fits(prior, snapshot, compaction, first if known else None)
            draft = _draft(compaction, _words_for_nothing(prior, kept), kept)
        else:
            draft = _draft(compaction, str(summary), _recent(prior))
        report = _with_draft(authority, replace(healthy, unknown_kept=unknown_kept, empty=empty), draft)
    return _rejoined(authority, report, before, first if known else None)


def _with_draft(authority: ProjectionAuthority, report: CompactionReport, draft: CompactionDraft) -> CompactionReport:
    # Unchecked: the authority refuses the draft as long as the edits that belong to it are missing.
    after = authority.preview([draft], check=False)
    return replace(report, draft=draft, after=after, pairs=examine_pairs(sent_messages(after.entries)))


def _rejoined(
    authority: ProjectionAuthority, report: CompactionReport, before: Sequence[Entry], first: str | None
) -> CompactionReport:
    """The report with a draft that keeps from the calls on whose results are in the context without them.

    Two projections at most: one from the first such call in the file on shows which results that mends (a message with
    a call may have been omitted since), and the second keeps from the first call on that is needed for those.
    """
    compaction = report.compaction
    assert compaction is not None
    orphans = {fault.entry_id: fault.call_id for fault in report.pairs.faults if fault.kind == "orphan-result"}
    if not orphans:
        return report
    draft = report.draft or _draft(compaction, own_text(compaction.data.get("summary")), first)
    start = next((at for at, entry in enumerate(before) if entry.id == draft.first_kept_entry_id), len(before))
    owners = {call_id: at for at in range(start) for call_id in _call_ids(before[at])}  # the newest of each id wins
    places = {owners[call] for call in orphans.values() if call in owners}
    if not places:
        return report
    tried = _with_draft(authority, report, replace(draft, first_kept_entry_id=before[min(places)].id))
    left = {fault.entry_id for fault in tried.pairs.faults}
    callers = tried.pairs.callers
    mended = tuple(entry_id for entry_id in orphans if entry_id in callers and entry_id not in left)
    if not mended:
        return report
    needed = {callers[entry_id] for entry_id in mended}
    place = next((at for at, entry in enumerate(before) if entry.id in needed), min(places))
    if place != min(places):
        tried = _with_draft(authority, report, replace(draft, first_kept_entry_id=before[place].id))
    return replace(tried, split=mended)


def _draft(compaction: Entry, summary: str, first_kept: str | None) -> CompactionDraft:
    tokens = compaction.data.get("tokensBefore")
    usable = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
    return CompactionDraft(
        summary=summary,
        first_kept_entry_id=first_kept,
        tokens_before=tokens if usable else None,
        details=compaction.data.get("details"),
        from_hook=compaction.data.get("fromHook") is True,
    )


def _recent(prior: Snapshot) -> str | None:
    """Where Pi's own compaction would have begun to keep."""
    entries = prior.entries
    start = 1 if prior.checkpoint is not None else 0
    cut = find_projected_cut_point(entries, start, len(entries), _KEEP_RECENT, context_messages=context_messages)
    return entries[cut.first_kept].source.id if cut.first_kept < len(entries) else None


def _as_much_as_fits(prior: Snapshot, now: Snapshot, compaction: Entry, first: str | None) -> str | None:
    """The oldest entry of the dropped context to keep from, beginning a turn where one fits; never after ``first``."""
    since = [item for item in now.entries if item.source.depth > compaction.depth]
    room = now.window // 2 - sum(item.tokens for item in since)
    entries = list(prior.entries)
    whole_turn: int | None = None
    part: int | None = None
    for at in range(len(entries) - 1, 0 if prior.checkpoint is not None else -1, -1):
        item = entries[at]
        room -= item.tokens
        if room < 0:
            break
        role = own_text(item.messages[0].get("role")) if item.messages else ""
        if role in _CUT_ROLES and item.source.type != "compaction":
            part = at
            whole_turn = at if role != "assistant" else whole_turn
    best = whole_turn if whole_turn is not None else part
    if first is not None:
        at_first = next((at for at, item in enumerate(entries) if item.source.id == first), -1)
        if best is None or at_first < best:
            return first
    return entries[best].source.id if best is not None else None


def _words_for_nothing(prior: Snapshot, kept: str | None) -> str:
    """What stands in place of a summary that was recorded empty."""
    entries = prior.entries
    dropped = [item for item in _until(entries, kept) if _is_conversation(item)]
    words = "The summary of the conversation before this point was lost: it was recorded empty."
    if kept is None:
        words += " The conversation itself can only be read in the session file."
    elif dropped:
        words += (
            " The messages that follow are the most recent part of that conversation; what is older can only be read "
            "in the session file."
        )
    else:
        words += " Nothing else is missing: the messages that it was to stand for follow."
    earlier = prior.checkpoint.data.get("summary") if prior.checkpoint is not None else None
    if isinstance(earlier, str) and earlier.strip():
        words += f"\n\nThe summary before it, of an earlier part of the conversation:\n\n{earlier}"
    return words


def _until(entries: Sequence[ProjectedEntry], entry_id: str | None) -> list[ProjectedEntry]:
    found: list[ProjectedEntry] = []
    for item in entries:
        if item.source.id == entry_id:
            break
        found.append(item)
    return found


def _is_conversation(item: ProjectedEntry) -> bool:
    return item.source.type != "compaction" and any(message.get("role") != "system" for message in item.messages)


def _call_ids(entry: Entry) -> list[str]:
    message = entry.message
    if message is None or message.get("role") != "assistant" or message.get("stopReason") in ("aborted", "error"):
        return []
    content: Any = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [
        block["id"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "toolCall" and isinstance(block.get("id"), str)
    ]
