"""Drafts: entries proposed for a session, validated as a whole and appended as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["CompactionDraft", "ContextEditDraft", "CustomDraft", "CustomMessageDraft", "Draft"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEditDraft:
    """Hides or replaces what the model sees of one entry; the entry itself stays in the file.

    Attributes:
        target_id: a message or custom message on the branch.
        replacement: None omits it; ``{"content": text or blocks}`` stands in its place.
    """

    target_id: str
    replacement: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomDraft:
    """A plugin's own record; never part of the model's context."""

    custom_type: str
    data: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMessageDraft:
    """A plugin's message that the model reads as a user message.

    Attributes:
        content: text, or text and image blocks.
        display: whether a user interface shows it.
        details: anything for the plugin's own use; not sent.
    """

    custom_type: str
    content: str | list[dict[str, Any]]
    display: bool = True
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionDraft:
    """A compaction: the summary and what is kept stand for everything before.

    Attributes:
        summary: not empty.
        first_kept_entry_id: where the kept entries begin, on the branch and not inside a call/result pair; None
            keeps nothing.
        tokens_before: the context's size before it, in tokens; None computes Pi's figure.
        details: anything for the plugin's own use.
        usage: what making the summary cost, as Pi records usage.
        from_hook: whether an extension made it, rather than the host's own summariser.
    """

    summary: str
    first_kept_entry_id: str | None
    tokens_before: int | None = None
    details: Any = None
    usage: Mapping[str, Any] | None = None
    from_hook: bool = True


Draft: TypeAlias = ContextEditDraft | CustomDraft | CustomMessageDraft | CompactionDraft
