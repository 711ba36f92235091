"""What the compaction planners need of sessions and projections: shapes only, so that any of them will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from contexthost.messages import Message

__all__ = ["ContextMessages", "EntryLike", "ProjectedEntryLike", "ProjectionLike"]


class EntryLike(Protocol):
    """A session entry: ``data`` is its decoded JSON object."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


class ProjectedEntryLike(Protocol):
    """An entry and the messages that it contributes to the context, after context edits."""

    @property
    def source(self) -> EntryLike: ...
    def read(self) -> Sequence[Message]:
        """Its messages; decoded for whoever asks, and not kept."""
        ...


class ProjectionLike(Protocol):
    """The projection of a branch: its entries in context order (the compaction in force first)."""

    @property
    def entries(self) -> Sequence[ProjectedEntryLike]: ...


#: The messages that an entry has by itself, before any context edit.
ContextMessages: TypeAlias = Callable[[Any], Sequence[Message]]
