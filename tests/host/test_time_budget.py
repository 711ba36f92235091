"""Where somebody waits only so long for a hook, it ends before that whichever plugins hang, and those that do not hang
are asked and heard; a plugin that makes a compaction gets the time of one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from contexthost import PluginManager, SessionStartEvent, hookimpl
from contexthost._budget import TimeBudget, time_budget
from support.clock import run_at_once

START = SessionStartEvent(reason="startup")
NEVER = 1e5


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


def now() -> float:
    return asyncio.get_running_loop().time()


def waiting(seconds: float, answered: list[int], number: int, *, stubborn: bool = False) -> Callable[..., Any]:
    async def wait(event: object) -> None:
        ends = now() + seconds
        while now() < ends:
            try:
                await asyncio.sleep(ends - now())
            except asyncio.CancelledError:
                if not stubborn:
                    raise
        answered.append(number)

    return wait


def manager_of(*functions: Callable[..., Any]) -> tuple[PluginManager, list[str]]:
    told: list[str] = []
    names = [f"p{number}" for number in range(len(functions))]
    manager = PluginManager(order=names, timeout_seconds=10, report=lambda failure: told.append(failure.plugin))
    for name, function in zip(names, functions, strict=True):
        manager.register(SimpleNamespace(session_start=hookimpl(function)), name)
    return manager, told


async def notified(manager: PluginManager, budget: TimeBudget | None) -> float:
    """How long it took."""
    time_budget.set(budget)
    began = now()
    await manager.notify("session_start", START, lambda plugin: None)
    return now() - began


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.3, 1.5, NEVER]), st.booleans()), min_size=1, max_size=7),
    st.sampled_from([0.5, 2.0, 120.0]),
)
def test_it_always_ends_in_time_and_who_does_not_wait_is_always_heard(
    plugins: list[tuple[float, bool]], seconds: float
) -> None:
    async def work() -> None:
        answered: list[int] = []
        functions = [
            waiting(wait, answered, number, stubborn=stubborn) for number, (wait, stubborn) in enumerate(plugins)
        ]
        manager, told = manager_of(*functions)
        taken = await notified(manager, TimeBudget(seconds))
        # 0.05 s are everybody's in any case; the last of those that hang began in time, and may be given as much to end
        assert taken <= seconds - min(seconds / 10, 1) + 0.05 * len(plugins) + 1e-6
        heard = {*answered}
        assert {number for number, (wait, _) in enumerate(plugins) if wait <= 0.01} <= heard
        late = {int(name[1:]) for name in told}
        assert late | heard == {*range(len(plugins))}
        assert all(plugins[number][1] for number in late & heard)  # such a one goes on, but nobody listens

    run_at_once(work())


def test_one_has_three_quarters_of_what_is_left_and_the_last_one_all_of_it() -> None:
    async def work() -> None:
        answered: list[int] = []
        slow = waiting(NEVER, answered, 0)
        assert await notified(manager_of(slow)[0], TimeBudget(2)) == pytest.approx(1.8)
        first = manager_of(slow, waiting(0.44, answered, 1))[0]
        assert await notified(first, TimeBudget(2)) == pytest.approx(1.35 + 0.44)
        assert answered == [1]
        second = manager_of(slow, waiting(0.46, answered, 2))[0]
        assert await notified(second, TimeBudget(2)) == pytest.approx(1.35 + 0.45)
        assert answered == [1]
        assert await notified(manager_of(slow)[0], TimeBudget(120)) == pytest.approx(10)  # the plugin's own deadline
        assert await notified(manager_of(slow)[0], None) == pytest.approx(10)

    run_at_once(work())


def test_nothing_hurries_what_nobody_waits_for_until_somebody_does() -> None:
    async def work() -> None:
        answered: list[int] = []
        manager, told = manager_of(waiting(8, answered, 0), waiting(NEVER, answered, 1), waiting(0, answered, 2))
        budget = TimeBudget()
        asyncio.get_running_loop().call_later(12, budget.shorten, 1)
        assert await notified(manager, budget) == pytest.approx(12 + 0.9 * 0.75)
        assert (answered, told) == ([0, 2], ["p1"])
        soon = TimeBudget()
        asyncio.get_running_loop().call_later(1, soon.shorten, 100)
        assert await notified(manager_of(waiting(NEVER, answered, 3))[0], soon) == pytest.approx(10)  # not later

    run_at_once(work())


def test_a_compaction_has_the_time_of_one_from_when_it_says_so() -> None:
    async def work() -> None:
        budget = TimeBudget(2)

        async def compacts(event: object) -> None:
            await asyncio.sleep(1)
            budget.extend(6)
            await asyncio.sleep(5.3)  # of 5.4 s

        async def looks(event: object) -> None:
            assert time_budget.get() is None  # or what it starts would have to be over as soon

        manager, told = manager_of(compacts, looks)
        assert await notified(manager, budget) == pytest.approx(1 + 5.4 * 0.75)
        assert told == ["p0"]
        alone, told = manager_of(compacts)
        budget = TimeBudget(2)
        assert await notified(alone, budget) == pytest.approx(6.3)
        assert told == []

    run_at_once(work())
