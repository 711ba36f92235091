"""Whether drafts may be appended: Pi's own checks, and that no call loses its result or result its call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from contexthost.errors import ContexthostError, InvalidDraft
from contexthost.messages import Message
from contexthost.projection.drafts import CompactionDraft, ContextEditDraft, CustomDraft, CustomMessageDraft, Draft
from contexthost.projection.overlay import EntrySource
from contexthost.projection.snapshot import Snapshot
from contexthost.session.entries import encode_json
from contexthost.shapes import content_problem, usage_problem

__all__ = ["check_draft", "check_pairs"]

_EDITABLE_ROLES: Final = frozenset({"user", "assistant", "toolResult"})
_LARGEST: Final = 2**53 - 1
"""JavaScript has no larger integers one by one, and infinity for the largest, which Pi would write as null."""


def check_draft(draft: Draft, snapshot: Snapshot, session: EntrySource) -> None:
    """Checks one draft against the state that the drafts before it leave.

    Raises:
        InvalidDraft: it must not be appended; the message says why.
    """
    if isinstance(draft, ContextEditDraft):
        _check_edit(draft, snapshot, session)
    elif isinstance(draft, CompactionDraft):
        _check_compaction(draft, snapshot, session)
    elif isinstance(draft, CustomMessageDraft):
        _check_type(draft.custom_type, "a custom message needs a type")
        _check_content(draft.content, "custom message", sent=True)
        _check_json(draft.details, "a custom message's details")
    elif isinstance(draft, CustomDraft):
        _check_type(draft.custom_type, "a custom entry needs a type")
        _check_json(draft.data, "a custom entry's data")
    else:
        raise InvalidDraft(f"{draft!r} is not a draft")


def _check_type(custom_type: Any, problem: str) -> None:
    if not isinstance(custom_type, str) or not custom_type:
        raise InvalidDraft(problem)


def _check_edit(draft: ContextEditDraft, snapshot: Snapshot, session: EntrySource) -> None:
    if draft.replacement is not None:
        if not isinstance(draft.replacement, dict):
            raise InvalidDraft("a context edit's replacement is None or a dict with text or block content")
        _check_content(draft.replacement.get("content"), f"context edit of {draft.target_id}")
    target = session.get(draft.target_id)
    if target is None:
        raise InvalidDraft(f"entry {draft.target_id} not found")
    if snapshot.position(target.id) is None and target not in snapshot.branch:
        raise InvalidDraft(f"entry {draft.target_id} is not on the active branch")
    if target.type != "custom_message" and not (target.type == "message" and target.role in _EDITABLE_ROLES):
        raise InvalidDraft(f"entry {draft.target_id} does not contribute editable model content")


def _check_content(content: Any, what: str, *, sent: bool = False) -> None:
    """Pi takes any array; a block that is only half there would break every later request."""
    problem = content_problem(content, sent=sent)
    if problem is not None:
        raise InvalidDraft(f"{what}: {problem}")


def _check_json(value: Any, what: str) -> None:
    try:
        encode_json({"value": value})
    except ContexthostError as error:
        raise InvalidDraft(f"{what} is not JSON: {error}") from error


def _check_compaction(draft: CompactionDraft, snapshot: Snapshot, session: EntrySource) -> None:
    # Plugins are not type-checked: what they give may be anything.
    summary: Any = draft.summary
    tokens: Any = draft.tokens_before
    first: Any = draft.first_kept_entry_id
    if not isinstance(summary, str) or not summary.strip():
        raise InvalidDraft("a compaction with an empty summary would lose the history it stands for")
    if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool)):
        raise InvalidDraft(f"a compaction's tokens_before must be a whole number, not {tokens!r}")
    if tokens is not None and tokens < 0:
        raise InvalidDraft("a compaction's tokens_before cannot be negative")
    if tokens is not None and tokens > _LARGEST:
        raise InvalidDraft("a compaction's tokens_before is larger than any context")
    _check_json(draft.details, "a compaction's details")
    _check_json(draft.usage, "a compaction's usage")
    problem = usage_problem(draft.usage) if draft.usage is not None else None
    if problem is not None:
        raise InvalidDraft(f"a compaction's usage is not as Pi records it: {problem}")
    if first is None:
        return
    if not isinstance(first, str):
        raise InvalidDraft(f"a compaction's first kept entry is named by its id, not by {first!r}")
    if session.get(first) is None:
        raise InvalidDraft(f"first kept entry {first} not found: all history would silently be lost")
    if snapshot.position(first) is None and all(entry.id != first for entry in snapshot.branch):
        raise InvalidDraft(f"first kept entry {first} is not on the active branch: all history would silently be lost")


def check_pairs(before: Snapshot, after: Snapshot, drafts: Sequence[Draft]) -> None:
    """Checks that the drafts together break no call/result pair that was whole.

    Looks only where a draft could have broken one: replacing a tool result keeps its call id, so a batch of masks
    costs nothing here.

    Raises:
        InvalidDraft: a call would lose its result or a result its call.
    """
    if not any(_may_break(draft, before) for draft in drafts):
        return
    broken = Counter(_broken_pairs(after)) - Counter(_broken_pairs(before))
    if broken:
        what, call_id = min(broken)
        raise InvalidDraft(
            f"these drafts would leave {what} {call_id}: providers refuse that; edit call and results together"
        )


def _may_break(draft: Draft, before: Snapshot) -> bool:
    if isinstance(draft, CompactionDraft):
        return draft.first_kept_entry_id is not None
    if not isinstance(draft, ContextEditDraft):
        return False
    target = before.find(draft.target_id)
    if target is None:
        return False  # not in the context: no effect on what is sent
    role = target.source.role
    if role == "assistant":
        return True
    # Giving an omitted result back can only mend; replacing a shown one changes nothing about the pair.
    return role == "toolResult" and (draft.replacement is None or target.omitted)


def _calls_and_results(snapshot: Snapshot) -> Iterator[Message]:
    """The messages that may be part of a pair; not kept, since a long context is large when decoded."""
    for item in snapshot.entries:
        if item.source.role in ("assistant", "toolResult"):
            yield from item.read()


def _broken_pairs(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Calls without a result, results without a call before them. Failed attempts are never sent.

    Some providers count their call ids anew in every answer: a call answers to the results up to the next call with
    its id.
    """
    answered: dict[str, bool] = {}  # of the newest call with each id
    for message in _calls_and_results(snapshot):
        role = message.get("role")
        if role == "assistant" and message.get("stopReason") not in ("aborted", "error"):
            content = message.get("content")
            for block in content if isinstance(content, list) else ():
                if isinstance(block, dict) and block.get("type") == "toolCall" and isinstance(block.get("id"), str):
                    if answered.get(block["id"]) is False:
                        yield "an unanswered call", block["id"]
                    answered[block["id"]] = False
        elif role == "toolResult":
            call_id = message.get("toolCallId")
            if isinstance(call_id, str):
                if call_id not in answered:
                    yield "an orphaned result for", call_id
                elif answered[call_id]:
                    yield "a second result for", call_id
                else:
                    answered[call_id] = True
    for call_id, done in answered.items():
        if not done:
            yield "an unanswered call", call_id
