"""Doctor takes time in proportion to what is wrong: four times the damage, about four times the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from contexthost.diagnosis import examine, plan_rescue, preview_rescue
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.builder import SessionBuilder, tool_call
from support.figures import report
from support.gates import measure

SIZES = (1_000, 4_000)
ROUNDS = 2  # alternating between the sizes; the least processor time of each counts
LIMIT = 8  # times the time for four times the size, which should be 4; what is quadratic takes 16


def split(build: SessionBuilder, size: int) -> None:
    """Calls in as many messages, then a compaction, then their results."""
    for at in range(size):
        build.assistant("look", calls=[tool_call(f"call-{at}", "read")])
    build.compaction("The summary.", None)
    for at in range(size):
        build.tool_result(f"call-{at}", "x")


def omitted(build: SessionBuilder, size: int) -> None:
    """As above, and the messages with the calls were omitted, so that nothing can be joined again."""
    calls = [build.assistant("look", calls=[tool_call(f"call-{at}", "read")]) for at in range(size)]
    build.compaction("The summary.", None)
    for call in calls:
        build.edit(call, None)
    for at in range(size):
        build.tool_result(f"call-{at}", "x")


def orphans(build: SessionBuilder, size: int) -> None:
    for at in range(size):
        build.tool_result(f"call-{at}", "x")


def failed(build: SessionBuilder, size: int) -> None:
    """A failed attempt before each result of one message."""
    build.assistant("look", calls=[tool_call(f"call-{at}", "read") for at in range(size)])
    for at in range(size):
        build.assistant("hm", stop_reason="error")
        build.tool_result(f"call-{at}", "x")


def empty(build: SessionBuilder, size: int) -> None:
    """Entries without a message, each behind the other, and a branch from every one of them."""
    for _ in range(size):
        at = build.entry("message")
        build.user("from here")
        build.branch_from(at)


def circles(build: SessionBuilder, size: int) -> None:
    """Pairs that name each other, off the branch in use."""
    start = build.leaf
    for _ in range(size):
        here = build.count
        for other in (here + 2, here + 1):
            build.message({"role": "user", "content": "x"}, parent=build.id_at(other))
    build.branch_from(start)


def siblings(build: SessionBuilder, size: int) -> None:
    """Two processes that leave each other behind at every step."""
    ours = build.leaf
    for _ in range(size):
        build.branch_from(ours)
        theirs = build.user("from there")
        build.branch_from(ours)
        ours = build.user("from here")
        build.branch_from(theirs)
        build.user("from there again")
    build.branch_from(ours)


DAMAGE = (split, omitted, orphans, failed, empty, circles, siblings)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_four_times_the_damage_takes_about_four_times_as_long(
    damage: Callable[[SessionBuilder, int], None], benchmark: BenchmarkFixture, tmp_path: Path
) -> None:
    paths = {size: damaged(tmp_path / f"{size}.jsonl", damage, size) for size in SIZES}
    looking: dict[int, list[float]] = {size: [] for size in SIZES}
    rescuing: dict[int, list[float]] = {size: [] for size in SIZES}

    def compare() -> None:
        for _ in range(ROUNDS):
            for size, path in paths.items():
                authority = ProjectionAuthority(Session.open(path))
                started = time.process_time()
                found = examine(authority).findings
                looking[size].append(time.process_time() - started)
                assert len(found) >= size
                started = time.process_time()
                preview_rescue(plan_rescue(path))
                rescuing[size].append(time.process_time() - started)

    measure(benchmark, compare)
    for what, times in (("doctor", looking), ("rescue", rescuing)):
        small, large = (min(times[size]) for size in SIZES)
        report(
            f"{what}, {damage.__name__}: {SIZES[0]:,} findings {small * 1e3:,.0f} ms, {SIZES[1]:,} "
            f"{large * 1e3:,.0f} ms, ratio {large / small:.1f}"
        )
        assert large < LIMIT * small


def damaged(path: Path, damage: Callable[[SessionBuilder, int], None], size: int) -> Path:
    build = SessionBuilder()
    build.user("go")
    damage(build, size)
    build.assistant("Done.")
    return build.write(path)
