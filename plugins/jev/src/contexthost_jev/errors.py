"""What can go wrong with Jev, by kind. No message ever holds a key or text of an answer (a server could echo a key)."""

from __future__ import annotations

from typing import Literal, get_args

from contexthost.errors import ContexthostError

__all__ = ["FAILURE_KINDS", "FailureKind", "JevAborted", "JevFailure"]

FailureKind = Literal[
    "no-key",
    "configuration",
    "network",
    "authentication",
    "refused",
    "busy",
    "malformed-answer",
    "malformed-history",
]
"""``configuration``: the endpoint or the key cannot be used as set. ``network``: no whole answer came in time.
``refused``: another 4xx than 401, 403 and 429. ``busy``: 429 or 5xx, also at the second attempt.
``malformed-history``: calls and results of the session do not pair up."""

FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


class JevFailure(ContexthostError):
    """Jev gave no usable answers: nothing of the compaction counts, never a part of it."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind


class JevAborted(ContexthostError):
    """The abort signal ended the work."""
