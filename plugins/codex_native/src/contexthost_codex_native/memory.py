"""What is remembered of an open session; in memory only, the session itself is not written to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Memory"]


@dataclass(slots=True)
class Memory:
    """What is known of one open session."""

    shapes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Model key → the last ordinary request without its conversation."""
    unsupported: dict[str, str] = field(default_factory=dict)
    """Model key and URL of gateways that cannot compact → what was told."""
    told: set[str] = field(default_factory=set)
    paused: bool = False
    """Whether compacting within a run failed; the next compaction of any kind or another model ends that."""
