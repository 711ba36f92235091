"""What the host adds to a turn of a session of 100,000 entries: under 2 ms at the 95th percentile of the raw rounds.

A turn is one prompt to a scripted model that answers at once: input, projection, request, answer, both messages
recorded, all hooks. The gate is on what is the host's own: the session in memory, without plugins and with one that
listens to every hook and does nothing. Printed beside it: with the installed plugins, whose work is theirs, and with a
session on disk, whose two appends wait for the disk.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from contexthost.context import ModelInfo
from contexthost.host import Host
from contexthost.models.scripted import Reply, ScriptedModel
from support.figures import report
from support.gates import measure, p95
from support.large import large_entries, write_large
from support.live import Recorder

ENTRIES = 100_000
ROUNDS = 200
GATE_SECONDS = 0.002
# The window is large enough that nothing is compacted; usage is given, for its estimate is the model's work.
INFO = ModelInfo(provider="scripted", id="s", api="scripted", context_window=100_000_000, max_tokens=1000)
REPLY = Reply(text="In order.", usage={"input": 1000, "output": 3, "totalTokens": 1003})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("plugins", ["without plugins", "with a plugin on every hook", "with the installed plugins"])
def test_a_turn(
    benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, tmp_path: Path, where: str, plugins: str
) -> None:
    path = write_large(tmp_path / "large.jsonl", ENTRIES) if where == "file" else None
    model = ScriptedModel(itertools.repeat(REPLY), info=INFO)
    own = [Recorder()] if plugins == "with a plugin on every hook" else []
    installed = plugins == "with the installed plugins"
    host = Host.open(path, model=model, plugins=own, installed_plugins=installed)
    if path is None:
        host.session.append(list(large_entries(ENTRIES)))
    loop.run_until_complete(host.__aenter__())

    def turn() -> None:
        loop.run_until_complete(host.prompt("Please look at the next module."))
        model.requests.clear()

    turn()  # the first request makes what later ones find made
    turn()
    measure(benchmark, turn, rounds=ROUNDS)
    seconds = p95(benchmark)
    assert len(host.session.entries) > ENTRIES + 2 * ROUNDS
    loop.run_until_complete(host.shutdown())
    gated = where == "memory" and not installed
    gate = "gate 2 ms" if gated else "no gate"
    report(f"a turn at {ENTRIES} entries, in {where}, {plugins}: p95 {seconds * 1e3:.2f} ms ({gate})")
    assert seconds < GATE_SECONDS or not gated
