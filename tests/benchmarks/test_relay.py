"""Opening and relaying the recorded sessions, git section included: a gate on the 95th percentile of raw rounds.

Apart from the benchmarks of recall, whose 100,000 entries make each full collection of this process a part of a round.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from contexthost.drivers.file import open_file
from support.figures import report
from support.gates import measure, p95
from support.relay import of_runtime, with_repository

GATE_SECONDS = 0.300
SESSIONS = Path(__file__).parents[3] / "shared" / "sessions"


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the recorded sessions are not beside this checkout")
@pytest.mark.parametrize("name", ["large-session.jsonl", "before-compaction.jsonl"])
def test_relay(benchmark: BenchmarkFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    path = with_repository(SESSIONS / name, tmp_path)

    def relay() -> None:
        async def scenario() -> None:
            async with open_file(path, window=200_000) as runtime:
                await of_runtime(runtime, keep=20_000)

        asyncio.run(scenario())

    measure(benchmark, relay, rounds=30)
    report(f"opening and relaying {name}, git section on: p95 {p95(benchmark) * 1000:.0f} ms")
    assert p95(benchmark) < GATE_SECONDS
