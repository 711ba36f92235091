"""Pieces of work in a lane begin one after the other, always, whichever of them are cancelled and when."""

from __future__ import annotations

import asyncio

from hypothesis import given, strategies as st

from contexthost._budget import TimeBudget
from contexthost.pi.lanes import Lane
from support.clock import run_at_once


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(-1, 12)), min_size=1, max_size=8))
def test_each_begins_when_all_before_it_are_over(pieces: list[tuple[int, int | None]]) -> None:
    """Each has a length, and perhaps a time at which it is cancelled: at once (-1), or at half seconds, so that nothing
    coincides. What is cancelled before it begins is not reported as a coroutine that nobody awaited."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        running: list[int] = []
        begun: list[int] = []

        async def piece(number: int, seconds: int) -> None:
            running.append(number)
            begun.append(number)
            assert running == [number]
            try:
                await asyncio.sleep(seconds)
            finally:
                running.remove(number)

        lane = Lane()
        tasks = [lane.enter(piece(number, seconds)) for number, (seconds, _) in enumerate(pieces)]
        for task, (_, cancelled) in zip(tasks, pieces, strict=True):
            if cancelled == -1:
                task.cancel()
            elif cancelled is not None:
                loop.call_later(cancelled + 0.5, task.cancel)
        after = lane.enter(piece(len(pieces), 0))
        done = await asyncio.gather(*tasks, return_exceptions=True)
        await after
        assert begun == sorted(begun)
        assert all(one is None or isinstance(one, asyncio.CancelledError) for one in done)
        never = set(range(len(pieces))) - {*begun}
        assert all(pieces[number][1] is not None for number in never)

    run_at_once(work())


def test_a_fork_begins_after_what_is_queued_and_hurries_nobody_there() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        lane = Lane()
        notice, ended = TimeBudget(), []

        async def piece(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            ended.append((name, loop.time()))

        lane.enter(piece("notice", 2), notice=notice)
        fork = lane.fork()
        last = fork.enter(piece("fork", 1))
        lane.enter(piece("second", 3))
        fork.hurry(0)
        assert notice.left() == float("inf")
        lane.hurry(2)
        assert notice.left() == 1.8
        await last
        await asyncio.sleep(5)
        assert ended == [("notice", 2), ("fork", 3), ("second", 5)]
        lane.hurry(0)
        assert notice.left() == 0  # its own end, at 1.8: it is over, and nothing shortens it again

    run_at_once(work())
