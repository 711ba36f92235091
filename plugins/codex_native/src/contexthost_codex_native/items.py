"""The current snapshot as input items: what a model gets that can read a native checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from contexthost.models.responses import responses_items
from contexthost_codex_native.checkpoint import (
    Checkpoint,
    MalformedCheckpoint,
    claims_to_be_native,
    parse_checkpoint,
)
from contexthost_codex_native.eligibility import model_key

if TYPE_CHECKING:
    from contexthost.context import ModelInfo
    from contexthost.messages import Message
    from contexthost.projection import ProjectedEntry, Snapshot

__all__ = ["checkpoint_for", "input_items", "messages_of", "user_items_newest_first", "with_history"]

Item = dict[str, Any]


def checkpoint_for(snapshot: Snapshot, model: ModelInfo) -> Checkpoint | None:
    """The checkpoint in force, if it is a native one of this very model; anything else is never sent."""
    if snapshot.checkpoint is None or not claims_to_be_native(snapshot.checkpoint.data.get("details")):
        return None
    try:
        found = parse_checkpoint(snapshot.checkpoint.data.get("details"))
    except MalformedCheckpoint:
        return None
    return found if found.model_key == model_key(model) else None


def messages_of(entries: Sequence[ProjectedEntry]) -> list[Message]:
    """The messages of entries, context edits applied."""
    return [message for entry in entries for message in entry.messages]


def input_items(snapshot: Snapshot, model: ModelInfo, checkpoint: Checkpoint | None) -> list[Item]:
    """The conversation as the model gets it, without the system prompt.

    With a checkpoint of this model: its history and what came after it, and only that is looked at. Without one: the
    whole context, where an older compaction is its summary.
    """
    if checkpoint is None:
        return responses_items(snapshot.messages, model)
    return [*checkpoint.history, *responses_items(messages_of(snapshot.since_checkpoint), model)]


def with_history(payload_input: Sequence[Any], items: Sequence[Item]) -> list[Any]:
    """The input of an ordinary request with its conversation replaced; the prompt that it begins with stays."""
    prompt: list[Any] = []
    for item in payload_input:
        if not isinstance(item, dict) or item.get("role") not in ("system", "developer"):
            break
        prompt.append(item)
    return [*prompt, *items]


def user_items_newest_first(snapshot: Snapshot, model: ModelInfo, checkpoint: Checkpoint | None) -> Iterator[Item]:
    """What the user wrote, newest first: since the checkpoint, then what that kept. Summaries and commands are not
    the user's words."""
    entries = snapshot.since_checkpoint if checkpoint is not None else snapshot.entries
    for entry in reversed(entries):
        if entry.source.type == "message" and entry.source.role == "user":
            yield from responses_items(entry.messages, model)
    if checkpoint is not None:
        yield from reversed(checkpoint.user_items)
