"""Recall over 100,000 entries: gates on the 95th percentile of raw rounds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from contexthost.history import History
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost_relay.recall import recall
from support.figures import report
from support.gates import measure, p95
from support.large import write_large

GATE_SECONDS = 0.250


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    path = write_large(tmp_path_factory.mktemp("recall") / "large.jsonl", 100_000)
    with Session.open(path) as session:
        authority = ProjectionAuthority(session)
        authority.snapshot()
        yield History(session, authority.snapshot)


@pytest.mark.parametrize(
    ("query", "hits"),
    [
        ("MODULE 6 order", 8),  # common words: enough is found soon
        ("no-such-word-anywhere", 0),  # every entry is looked at
        ("src/module_1.py", 1),  # the oldest entries alone have it
        ("timestamp", 0),  # a word of the frame of every line
    ],
)
def test_recall(benchmark: BenchmarkFixture, history: History, tmp_path: Path, query: str, hits: int) -> None:
    found = measure(benchmark, recall, {"query": query}, history, tmp_path, rounds=20)
    assert len(found.data["hits"]) == hits
    size = sum(len(entry.raw) for entry in history.session.entries) / 1e6
    report(f"recall {query!r} over 100,000 entries ({size:.0f} MB): p95 {p95(benchmark) * 1000:.0f} ms")
    assert p95(benchmark) < GATE_SECONDS


def test_recall_does_not_hold_the_file_twice(history: History, tmp_path: Path) -> None:
    recall({"query": "warm up"}, history, tmp_path)
    size = sum(len(entry.raw) for entry in history.session.entries)
    tracemalloc.start()
    try:
        for query in ("no-such-word-anywhere", "timestamp", "module in order store load"):
            recall({"query": query, "limit": 30}, history, tmp_path)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    report(f"recall keeps {kept / 1e6:.2f} MB, at its peak {peak / 1e6:.2f} MB, of a {size / 1e6:.0f} MB session")
    assert peak < size / 10
