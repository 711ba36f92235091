"""The projection: what the model sees of a session, decided in one place."""

from contexthost.projection.authority import DEFAULT_WINDOW, ProjectionAuthority
from contexthost.projection.drafts import CompactionDraft, ContextEditDraft, CustomDraft, CustomMessageDraft, Draft
from contexthost.projection.entries import MASK_PREFIX, ProjectedEntry, context_messages, is_mask
from contexthost.projection.provider import Mend
from contexthost.projection.snapshot import MaskLedger, Snapshot

__all__ = [
    "DEFAULT_WINDOW",
    "MASK_PREFIX",
    "CompactionDraft",
    "ContextEditDraft",
    "CustomDraft",
    "CustomMessageDraft",
    "Draft",
    "MaskLedger",
    "Mend",
    "ProjectedEntry",
    "ProjectionAuthority",
    "Snapshot",
    "context_messages",
    "is_mask",
]
