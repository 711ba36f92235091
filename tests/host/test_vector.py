"""The persistent vector is the sequence that a list would be after the same changes, older ones stay as they were, and
what was computed over a chunk is not computed again while the chunk is there."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from contexthost.projection.vector import Sealed, Vector

changes = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 300)),
        st.tuples(st.just("set"), st.integers(0, 1_000)),
        st.tuples(st.just("truncate"), st.integers(-3, 1_000)),
    ),
    max_size=8,
)


def total(items: tuple[int, ...]) -> int:
    return sum(items)


def total_of_all(sealed: Sealed[int]) -> int:
    return sum(sealed.each(total))


@given(st.integers(0, 800), changes)
def test_it_is_what_a_list_would_be(size: int, steps: list[tuple[str, int]]) -> None:
    plain = list(range(size))
    vector = Vector(plain)
    older: list[tuple[Vector[int], list[int]]] = []
    for number, (step, argument) in enumerate(steps):
        older.append((vector, list(plain)))
        if step == "append":
            for item in range(argument):
                vector = vector.append(item)
                plain.append(item)
        elif step == "truncate":
            vector, plain = vector.truncate(argument), plain[: max(argument, 0)]
        elif plain:
            vector = vector.set(argument % len(plain), -number)
            plain[argument % len(plain)] = -number
        for made, wanted in [*older, (vector, plain)]:
            assert list(made) == wanted
            assert (len(made), [made[at] for at in range(-len(wanted), len(wanted))]) == (len(wanted), wanted * 2)
            assert [item for chunk in made.chunks for item in chunk.items] == wanted
            assert [len(chunk.items) for chunk in made.sealed.chunks] == [256] * (len(wanted) // 256)
            assert all(len(chunk.items) == 16 for chunk in made.tail[:-1])
            assert len(made.tail) <= 16
            assert sum(made.each(total)) == sum(wanted)
            assert made.sealed.once(total_of_all) == sum(wanted[: len(wanted) // 256 * 256])


def test_an_append_computes_over_the_last_few_items_alone() -> None:
    looked_at: Counter[int] = Counter()

    def look(items: tuple[int, ...]) -> int:
        looked_at.update(items)
        return len(items)

    vector = Vector(range(1_000))
    assert sum(vector.each(look)) == 1_000
    for number in range(1_000, 1_024):  # the last one completes a chunk of 256
        vector = vector.append(number)
        assert sum(vector.each(look)) == number + 1
    assert all(looked_at[number] == 1 for number in range(768))
    assert max(looked_at.values()) <= 17  # 16 times in a small chunk that grows, once when it became part of a full one
    assert looked_at[1_023] == 1
