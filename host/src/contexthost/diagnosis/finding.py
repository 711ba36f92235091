"""`Finding`: one thing that is wrong with a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from contexthost.projection import Draft

__all__ = ["Finding", "Mend", "Severity"]

Mend: TypeAlias = Literal["append", "rescue", "none"]
Severity: TypeAlias = Literal["problem", "notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a session.

    Attributes:
        kind: a stable name, such as ``orphan-result``; ``host/docs/bricked-session.md`` lists them.
        severity: a ``problem`` loses something, breaks requests or stops Pi; a ``notice`` does none of that.
        mend: what mends it: ``append`` (a repair of the same file), ``rescue`` (a new file), or ``none``.
        entry_id: the entry concerned; None where none has an id that could be named.
        line: its line in the file, from 1; 0 when it is not known.
        problem: what is wrong.
        model_sees: what the model (or Pi) makes of it.
        repair: what ``--repair`` or ``--rescue`` would do.
        drafts: what would be appended for this finding; None when appending does not mend it. Findings share drafts:
            two unanswered calls of one message are mended by one edit.
    """

    kind: str
    severity: Severity = "problem"
    mend: Mend
    entry_id: str | None
    line: int = 0
    problem: str
    model_sees: str
    repair: str
    drafts: tuple[Draft, ...] | None = None
