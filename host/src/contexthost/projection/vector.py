"""A persistent vector: appending to it or changing one place gives a new one that shares all other chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar, overload

__all__ = ["Chunk", "Sealed", "Vector"]

T = TypeVar("T")
R = TypeVar("R")

_SIZE: Final = 256
"""Items a full chunk: a change copies one chunk and the list of chunks; this balances both at 100,000 items (391)."""

_SMALL: Final = 16
"""Items a chunk at the end, until there are enough for a full one: what is computed over the last chunk is computed
anew after each append."""


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


class Sealed(Generic[T]):
    """A vector's full chunks, which it shares with what is appended to it, and what was computed over all of them."""

    __slots__ = ("_memo", "_results", "chunks")

    def __init__(self, chunks: tuple[Chunk[T], ...]) -> None:
        self.chunks = chunks
        self._results: dict[Any, Any] = {}
        self._memo: dict[Any, Any] = {}

    def each(self, compute: Callable[[tuple[T, ...]], R]) -> tuple[R, ...]:
        """What `Chunk.once` gives for each chunk."""
        if compute not in self._results:
            self._results[compute] = tuple([chunk.once(compute) for chunk in self.chunks])
        results: tuple[R, ...] = self._results[compute]
        return results

    def once(self, compute: Callable[[Sealed[T]], R]) -> R:
        """``compute(self)``, remembered under the function."""
        if compute not in self._memo:
            self._memo[compute] = compute(self)
        result: R = self._memo[compute]
        return result


class Vector(Sequence[T]):
    """An immutable sequence with cheap `append`, `set` and `truncate`.

    Attributes:
        sealed: all full chunks.
        tail: what comes behind them, less than a full chunk: chunks of up to 16 items, all of them full but the last.
    """

    __slots__ = ("_length", "sealed", "tail")

    def __init__(self, items: Iterable[T] = ()) -> None:
        everything = tuple(items)
        ends = range(_SIZE, len(everything) + 1, _SIZE)
        self.sealed = Sealed(tuple(Chunk(everything[end - _SIZE : end]) for end in ends))
        self.tail = _small(everything[len(ends) * _SIZE :])
        self._length = len(everything)

    @classmethod
    def _of(cls, sealed: Sealed[T], tail: tuple[Chunk[T], ...], length: int) -> Vector[T]:
        made: Vector[T] = cls.__new__(cls)
        made.sealed = sealed
        made.tail = tail
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
        number, at = divmod(index, _SIZE)
        if number < len(self.sealed.chunks):
            return self.sealed.chunks[number].items[at]
        return self.tail[at // _SMALL].items[at % _SMALL]

    def __iter__(self) -> Iterator[T]:
        for chunk in self.chunks:
            yield from chunk.items

    @property
    def chunks(self) -> Sequence[Chunk[T]]:
        """All chunks in order, of any size; for sums that are remembered per chunk."""
        return (*self.sealed.chunks, *self.tail)

    def each(self, compute: Callable[[tuple[T, ...]], R]) -> Sequence[R]:
        """What `Chunk.once` gives for each of `chunks`; costs a look at the tail when the rest is known."""
        return (*self.sealed.each(compute), *[chunk.once(compute) for chunk in self.tail])

    def append(self, item: T) -> Vector[T]:
        """A vector with one more item."""
        length = self._length + 1
        last = self.tail[-1].items if length % _SMALL != 1 else ()
        tail = (*(self.tail[:-1] if last else self.tail), Chunk((*last, item)))
        if length % _SIZE:
            return self._of(self.sealed, tail, length)
        full = Chunk(tuple(itertools.chain.from_iterable(chunk.items for chunk in tail)))
        return self._of(Sealed((*self.sealed.chunks, full)), (), length)

    def set(self, index: int, item: T) -> Vector[T]:
        """A vector with the item at ``index`` (0 or above) replaced.

        Raises:
            IndexError: there is no such place.
        """
        if not 0 <= index < self._length:
            raise IndexError(index)
        number, at = divmod(index, _SIZE)
        if number < len(self.sealed.chunks):
            return self._of(Sealed(_replaced(self.sealed.chunks, number, at, item)), self.tail, self._length)
        return self._of(self.sealed, _replaced(self.tail, at // _SMALL, at % _SMALL, item), self._length)

    def truncate(self, length: int) -> Vector[T]:
        """A vector of the first ``length`` items."""
        length = max(length, 0)
        if length >= self._length:
            return self
        number, rest = divmod(length, _SIZE)
        known = self.sealed.chunks
        if number == len(known):
            return self._of(self.sealed, _small(self[length - rest : length]), length)
        return self._of(Sealed(known[:number]), _small(known[number].items[:rest]), length)


def _small(items: Sequence[T]) -> tuple[Chunk[T], ...]:
    return tuple(Chunk(tuple(items[start : start + _SMALL])) for start in range(0, len(items), _SMALL))


def _replaced(chunks: tuple[Chunk[T], ...], number: int, at: int, item: T) -> tuple[Chunk[T], ...]:
    items = chunks[number].items
    return (*chunks[:number], Chunk((*items[:at], item, *items[at + 1 :])), *chunks[number + 1 :])
