"""What masking costs in a session of 100,000 entries: nothing on the hot path, under 50 ms for a plan.

The gates of the projection (a cache hit under 2 ms, a delta with a 50 kB result under 10 ms) hold with the plugin
loaded, hooks included. A plan is made between two requests, at the end of a turn or run; it looks at what has changed since the
last one and once at each result that may go.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import contexthost_masking
from contexthost.config import HostSettings, load_settings
from contexthost.drivers.file import FileDriver
from contexthost.events import ContextEvent, SessionStartEvent
from contexthost.plugins import PluginManager
from contexthost.projection import ProjectionAuthority, Snapshot
from contexthost.runtime import Runtime
from contexthost.session import Session
from contexthost_masking.plan import MaskPlan, plan_mask
from contexthost_masking.settings import MaskSettings
from contexthost_masking.status import status_line
from support.gates import measure, p95, report
from support.large import large_entries

SIZE = 100_000
ROUNDS = 60
RESULT_TEXT = ("def handle(request): return self.store.load(request.key)  # a line of code\n" * 700)[:50_000]


class Quarters:
    """Four characters a token: what is measured here is planning, not counting."""

    def count(self, text: str) -> int:
        return len(text) // 4


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTEXTHOST_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def large(result_chars: int) -> Session:
    return Session.in_memory(entries=large_entries(SIZE, result_chars=result_chars))


def append_turn(session: Session, number: int, text: str = RESULT_TEXT) -> None:
    call = {"type": "toolCall", "id": f"more-{number}", "name": "read", "arguments": {"path": f"src/{number % 50}.py"}}
    usage = {"input": 90_000, "output": 10, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 90_010}
    result = {"role": "toolResult", "toolCallId": f"more-{number}", "toolName": "read", "isError": False}
    session.append(
        [
            {"type": "message", "message": {"role": "assistant", "content": [call], "usage": usage}},
            {"type": "message", "message": {**result, "content": [{"type": "text", "text": f"{number}{text}"}]}},
        ]
    )


@pytest.fixture(scope="module")
def runtime() -> Iterator[tuple[Runtime, asyncio.Runner]]:
    plugins = PluginManager()
    plugins.load(entry_points=False, extra=[contexthost_masking])
    driver = FileDriver()
    made = Runtime(large(200), plugins=plugins, settings=load_settings(HostSettings, "host"), driver=driver)
    driver.bind(made)
    with asyncio.Runner() as runner:
        runner.run(made.notify("session_start", SessionStartEvent(reason="startup")))
        made.authority.snapshot()
        yield made, runner


def step(runtime: Runtime, runner: asyncio.Runner) -> Snapshot:
    """What a request costs before it is built: the snapshot, and the hook that tells the plugins."""
    snapshot = runtime.authority.snapshot()
    runner.run(runtime.notify("context", ContextEvent(snapshot=snapshot)))
    return runtime.authority.snapshot()


def test_a_cache_hit_with_the_plugin_loaded(
    benchmark: BenchmarkFixture, runtime: tuple[Runtime, asyncio.Runner]
) -> None:
    made, runner = runtime
    visits = made.authority.visits
    measure(benchmark, step, made, runner, rounds=500)
    assert made.authority.visits == visits
    report(f"cache hit with masking loaded: p95 {p95(benchmark) * 1e6:,.1f} µs (gate 2 ms)")
    assert p95(benchmark) < 0.002


def test_a_delta_with_the_plugin_loaded(benchmark: BenchmarkFixture, runtime: tuple[Runtime, asyncio.Runner]) -> None:
    made, runner = runtime
    numbers = iter(range(1_000))
    visits = made.authority.visits
    measure(
        benchmark, step, made, runner, setup=lambda: append_turn(made.session, next(numbers)), rounds=ROUNDS
    )
    assert made.authority.visits == visits + 2 * ROUNDS  # nothing but what was appended is looked at
    report(f"delta with masking loaded: p95 {p95(benchmark) * 1e3:,.2f} ms (gate 10 ms)")
    assert p95(benchmark) < 0.010


def plan_step(
    benchmark: BenchmarkFixture, authority: ProjectionAuthority, settings: MaskSettings, name: str, limit: float
) -> MaskPlan:
    """Plans after each of a series of turns; the first plan, which looks at everything once, is not measured."""
    numbers = iter(range(10_000))
    plan_mask(authority.snapshot(), settings)

    def setup() -> None:
        append_turn(authority.session, next(numbers))
        authority.snapshot()

    plan = measure(
        benchmark, lambda: plan_mask(authority.snapshot(), settings), setup=setup, rounds=ROUNDS
    )
    report(f"plan at {SIZE:,} entries, {name}: p95 {p95(benchmark) * 1e3:,.1f} ms (gate {limit * 1e3:g} ms)")
    assert p95(benchmark) < limit
    return plan


def test_a_plan_with_everything_masked_but_the_end(benchmark: BenchmarkFixture) -> None:
    authority = ProjectionAuthority(large(2_000), counter=Quarters())
    settings = MaskSettings()
    first = plan_mask(authority.snapshot(), settings)
    assert len(first.drafts) > 24_000
    authority.session.append(
        [
            {"type": "context_edit", "targetId": draft.target_id, "replacement": draft.replacement}
            for draft in first.drafts
        ]
    )
    plan = plan_step(benchmark, authority, settings, "all masked but the end", 0.050)
    assert 40 < len(plan.drafts) < 60


def test_a_plan_after_each_batch(benchmark: BenchmarkFixture) -> None:
    """Each round masks 100 results more, all over the context, so that the next plan finds their chunks changed."""
    authority = ProjectionAuthority(large(2_000), counter=Quarters())
    settings = MaskSettings(triggerTokens=1, targetTokens=0)
    candidates = iter(plan_mask(authority.snapshot(), settings).drafts[::7])

    def setup() -> None:
        batch = [next(candidates) for _ in range(40)]
        authority.session.append(
            [{"type": "context_edit", "targetId": one.target_id, "replacement": one.replacement} for one in batch]
        )
        authority.snapshot()

    measure(benchmark, lambda: plan_mask(authority.snapshot(), settings), setup=setup, rounds=30)
    report(f"plan at {SIZE:,} entries, after a batch of 40: p95 {p95(benchmark) * 1e3:,.1f} ms")


def test_a_plan_that_takes_all_of_25000_results(benchmark: BenchmarkFixture) -> None:
    authority = ProjectionAuthority(large(2_000), counter=Quarters())
    plan = plan_step(benchmark, authority, MaskSettings(), "25,000 results to mask", 0.250)
    assert len(plan.drafts) > 24_000


def test_the_status_line(benchmark: BenchmarkFixture) -> None:
    authority = ProjectionAuthority(large(200), counter=Quarters())
    status_line(authority.snapshot())
    numbers = iter(range(10_000))

    def setup() -> None:
        append_turn(authority.session, next(numbers))

    measure(benchmark, lambda: status_line(authority.snapshot()), setup=setup, rounds=ROUNDS)
    report(f"status line at {SIZE:,} entries: p95 {p95(benchmark) * 1e3:,.2f} ms (gate 10 ms)")
    assert p95(benchmark) < 0.010


def test_the_placeholders_are_those_of_a_plan_made_from_scratch(tmp_path: Path) -> None:
    """A check on the numbers above: what was remembered is what a fresh look finds."""
    session = Session.in_memory(entries=large_entries(4_000, result_chars=2_000))
    authority = ProjectionAuthority(session, counter=Quarters())
    plan_mask(authority.snapshot(), MaskSettings())
    for number in range(30):
        append_turn(session, number)
    fresh = ProjectionAuthority(session, counter=Quarters())
    remembered = plan_mask(authority.snapshot(), MaskSettings())
    scratch = plan_mask(fresh.snapshot(), MaskSettings())
    assert json.dumps([one.placeholder for one in remembered.candidates]) == json.dumps(
        [one.placeholder for one in scratch.candidates]
    )
