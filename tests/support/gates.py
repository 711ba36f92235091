"""Gates on benchmarks: the 95th percentile of the raw rounds decides, and the figures are printed."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from pytest_benchmark.fixture import BenchmarkFixture

__all__ = ["p95", "percentile", "report", "rounds"]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rounds(benchmark: BenchmarkFixture) -> list[float]:
    """The seconds of each round of a benchmark that has run."""
    stats = benchmark.stats
    assert stats is not None, "run the benchmarks with -n 0: under xdist they are switched off"
    return list(stats.stats.data)


def p95(benchmark: BenchmarkFixture) -> float:
    """The 95th percentile of the raw rounds, in seconds."""
    return percentile(rounds(benchmark), 0.95)


def report(text: str) -> None:
    """Prints a figure past pytest's capture, so that it stands in every log."""
    print(f"\n    {text}", file=sys.__stderr__, flush=True)
