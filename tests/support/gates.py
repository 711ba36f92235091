"""Gates on benchmarks: the 95th percentile of the raw rounds decides, and the figures are printed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pytest_benchmark.fixture import BenchmarkFixture

from support.figures import report

__all__ = ["calm_p95", "measure", "p95", "percentile", "rounds", "strayed"]

T = TypeVar("T")


def measure(
    benchmark: BenchmarkFixture,
    function: Callable[..., T],
    *arguments: object,
    setup: Callable[[], object] | None = None,
    rounds: int = 1,
    iterations: int = 1,
) -> T:
    """Runs the benchmark: ``rounds`` times, each after ``setup``; a round is the mean of ``iterations`` calls."""
    untyped: Any = benchmark
    result: T = untyped.pedantic(function, args=arguments, setup=setup, rounds=rounds, iterations=iterations)
    return result


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rounds(benchmark: BenchmarkFixture) -> list[float]:
    """The seconds of each round of a benchmark that has run."""
    stats = benchmark.stats
    assert stats is not None, "run the benchmarks with -n 0: under xdist they are switched off"
    data: list[float] = stats.stats.data
    return list(data)


def p95(benchmark: BenchmarkFixture) -> float:
    """The 95th percentile of the raw rounds, in seconds."""
    return percentile(rounds(benchmark), 0.95)


def calm_p95(benchmark: BenchmarkFixture) -> float:
    """The 95th percentile of the calmest third of the raw rounds, in seconds: the rounds are cut into three stretches
    in the order in which they ran, since a slow spell of a shared machine lasts longer than a round."""
    data = rounds(benchmark)
    size = max(1, len(data) // 3)
    return min(percentile(data[at : at + size], 0.95) for at in (0, size, len(data) - size))


def strayed() -> float:
    """How far this machine strays just now: the 95th percentile of a constant piece of work over its best round, at
    least 1. A gate in seconds is stretched by it, since the cores are shared with work that is not ours; ratios between
    two sizes or against a peer need no such help."""
    taken: list[float] = []
    for _ in range(300):
        started = time.perf_counter()
        json.loads(json.dumps({str(number): [number] * 10 for number in range(150)}))
        taken.append(time.perf_counter() - started)
    factor = max(1.0, percentile(taken, 0.95) / min(taken))
    report(f"this machine strays by {factor:.2f} now (p95 over the best of a constant piece of work)")
    return factor
