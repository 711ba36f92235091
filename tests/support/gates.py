"""Gates on benchmarks: the 95th percentile of the raw rounds decides, and the figures are printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pytest_benchmark.fixture import BenchmarkFixture

__all__ = ["measure", "p95", "percentile", "rounds"]

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
