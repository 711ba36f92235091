"""Messages of a long history that are decoded when somebody looks at them, and let go of again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from contexthost.compaction.protocols import ProjectedEntryLike
from contexthost.messages import Message

__all__ = ["ConversationMessages"]


class ConversationMessages(Sequence[Message]):
    """The messages of projected entries, without system messages (prompt state) and compaction summaries.

    Decoded, a session takes several times its bytes, and a compaction is made when it is longest: so each look at a
    message reads its entry anew, and nothing is kept. Equal to every sequence of the same messages. To be read, not
    written; who needs a message more than once keeps it.
    """

    __slots__ = ("_entries", "_places")

    def __init__(self, entries: Iterable[ProjectedEntryLike] = ()) -> None:
        self._entries: list[ProjectedEntryLike] = []  # the entry of each message, and
        self._places: list[int] = []  # which of its messages it is
        for entry in entries:
            if entry.source.type == "compaction":
                continue
            for place, message in enumerate(entry.read()):
                if not isinstance(message, dict) or message.get("role") != "system":
                    self._entries.append(entry)
                    self._places.append(place)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Message]:
        for entry, place in zip(self._entries, self._places, strict=True):
            yield entry.read()[place]

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        return self._entries[index].read()[self._places[index]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"<{len(self)} messages>"
