"""A persistent vector: appending to it or changing one place gives a new one that shares all other chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar, overload

__all__ = ["Chunk", "Vector"]

T = TypeVar("T")
R = TypeVar("R")

_SIZE: Final = 256
"""Items a chunk: a change copies one chunk and the list of chunks, so this balances both at 100,000 items (391)."""


class Chunk(Generic[T]):
    """Up to 256 items and what was computed over them once; immutable but for that memory."""

    __slots__ = ("_memo", "items")

    def __init__(self, items: tuple[T, ...]) -> None:
        self.items = items
        self._memo: dict[Any, Any] | None = None

    def once(self, compute: Callable[[tuple[T, ...]], R]) -> R:
        """``compute(items)``, remembered under the function: later snapshots that share the chunk share the result."""
        if self._memo is None:
            self._memo = {}
        if compute not in self._memo:
            self._memo[compute] = compute(self.items)
        result: R = self._memo[compute]
        return result


class Vector(Sequence[T]):
    """An immutable sequence with cheap `append`, `set` and `truncate`."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        everything = tuple(items)
        self._chunks: tuple[Chunk[T], ...] = tuple(
            Chunk(everything[start : start + _SIZE]) for start in range(0, len(everything), _SIZE)
        )
        self._length = len(everything)

    @classmethod
    def _of(cls, chunks: tuple[Chunk[T], ...], length: int) -> Vector[T]:
        made: Vector[T] = cls.__new__(cls)
        made._chunks = chunks
        made._length = length
        return made

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._chunks[index // _SIZE].items[index % _SIZE]

    def __iter__(self) -> Iterator[T]:
        for chunk in self._chunks:
            yield from chunk.items

    @property
    def chunks(self) -> Sequence[Chunk[T]]:
        """The chunks, all full but the last; for sums that are remembered per chunk."""
        return self._chunks

    def append(self, item: T) -> Vector[T]:
        """A vector with one more item."""
        at = self._length % _SIZE
        if at == 0:
            return self._of((*self._chunks, Chunk((item,))), self._length + 1)
        last = self._chunks[-1]
        return self._of((*self._chunks[:-1], Chunk((*last.items, item))), self._length + 1)

    def set(self, index: int, item: T) -> Vector[T]:
        """A vector with the item at ``index`` (0 or above) replaced.

        Raises:
            IndexError: there is no such place.
        """
        if not 0 <= index < self._length:
            raise IndexError(index)
        number, at = divmod(index, _SIZE)
        items = self._chunks[number].items
        chunk = Chunk((*items[:at], item, *items[at + 1 :]))
        return self._of((*self._chunks[:number], chunk, *self._chunks[number + 1 :]), self._length)

    def truncate(self, length: int) -> Vector[T]:
        """A vector of the first ``length`` items."""
        if length >= self._length:
            return self
        number, rest = divmod(max(length, 0), _SIZE)
        chunks = self._chunks[:number]
        if rest:
            chunks = (*chunks, Chunk(self._chunks[number].items[:rest]))
        return self._of(chunks, max(length, 0))
