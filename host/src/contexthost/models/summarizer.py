"""The built-in summary: asks a model for what `contexthost.compaction.summary` lays out."""

from __future__ import annotations

import time
from typing import Any

from contexthost.compaction import Preparation, compute_file_lists
from contexthost.compaction.summary import SUMMARY_SYSTEM_PROMPT, checked_summary, joined_summary, summary_prompts
from contexthost.context import AbortSignal, Model, ModelRequest
from contexthost.errors import CompactionCancelled
from contexthost.events import CompactionResult
from contexthost.messages import Message
from contexthost.models.usage import add_usage

__all__ = ["summarize"]


async def summarize(
    preparation: Preparation,
    model: Model,
    signal: AbortSignal,
    *,
    custom_instructions: str | None = None,
    thinking_level: str | None = None,
) -> CompactionResult:
    """The compaction that a model's summary makes: one request, or two in turn if a turn is split.

    The requests offer no tools and are not cached. ``details`` holds the file lists, ``usage`` what the requests cost
    together. Raises CompactionFailed if an answer cannot be used, CompactionCancelled after an abort.
    """
    texts: dict[str, str] = {}
    usage: dict[str, Any] | None = None
    for prompt in summary_prompts(preparation, custom_instructions):
        now = time.time_ns() // 1_000_000
        messages: list[Message] = [
            {"role": "system", "content": SUMMARY_SYSTEM_PROMPT, "timestamp": now},
            {"role": "user", "content": [{"type": "text", "text": prompt.text}], "timestamp": now},
        ]
        answer = await model.respond(ModelRequest(messages=messages, thinking_level=thinking_level), signal)
        texts[prompt.part] = checked_summary(answer, prompt.part)
        usage = answer["usage"] if usage is None else add_usage(usage, answer["usage"])
    if signal.aborted:  # after the last answer, while nothing was waited for
        raise CompactionCancelled("The compaction was cancelled; nothing has changed")
    lists = compute_file_lists(preparation.file_ops)
    return CompactionResult(
        summary=joined_summary(preparation, texts.get("history"), texts.get("turn-prefix")),
        first_kept_entry_id=preparation.first_kept_entry_id,
        tokens_before=preparation.tokens_before,
        details={"readFiles": lists.read_files, "modifiedFiles": lists.modified_files},
        usage=usage,
    )
