"""What masking costs in a session of 100,000 entries: nothing on the hot path, under 50 ms for a plan.

The gates of the projection (a cache hit under 2 ms, a delta with a 50 kB result under 10 ms) hold with the plugin
loaded, hooks included. A plan is made between two requests, at the end of a turn or run; it looks at what has changed
since the last one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import contexthost_masking
from contexthost.config import HostSettings, load_settings
from contexthost.drivers.file import FileDriver
from contexthost.events import ContextEvent, SessionStartEvent
from contexthost.plugins import PluginManager
from contexthost.projection import ContextEditDraft, ProjectionAuthority, Snapshot
from contexthost.runtime import Runtime
from contexthost.session import Session
from contexthost_masking.plan import MaskPlan, plan_mask
from contexthost_masking.settings import MaskSettings
from contexthost_masking.status import status_line
from support.figures import report
from support.gates import measure, p95
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
    measure(benchmark, step, made, runner, setup=lambda: append_turn(made.session, next(numbers)), rounds=ROUNDS)
    assert made.authority.visits == visits + 2 * ROUNDS  # nothing but what was appended is looked at
    report(f"delta with masking loaded: p95 {p95(benchmark) * 1e3:,.2f} ms (gate 10 ms)")
    assert p95(benchmark) < 0.010


@pytest.fixture(scope="module")
def full() -> ProjectionAuthority:
    """25,000 results that may be masked, and a plan that has looked at all of them."""
    authority = ProjectionAuthority(large(2_000), counter=Quarters())
    append_turn(authority.session, 0)
    assert len(plan_mask(authority.snapshot(), MaskSettings()).drafts) > 24_000
    return authority


NUMBERS = iter(range(1, 10_000))


def plan_again(benchmark: BenchmarkFixture, authority: ProjectionAuthority, name: str) -> MaskPlan:
    """Plans after each of a series of turns."""

    def setup() -> None:
        append_turn(authority.session, next(NUMBERS))
        authority.snapshot()

    plan = measure(benchmark, lambda: plan_mask(authority.snapshot(), MaskSettings()), setup=setup, rounds=ROUNDS)
    report(f"plan at {SIZE:,} entries, {name}: p95 {p95(benchmark) * 1e3:,.1f} ms (gate 50 ms)")
    assert p95(benchmark) < 0.050
    return plan


def mask(authority: ProjectionAuthority, batch: Sequence[ContextEditDraft]) -> None:
    authority.session.append(
        [{"type": "context_edit", "targetId": one.target_id, "replacement": one.replacement} for one in batch]
    )
    authority.snapshot()


def test_a_plan_that_takes_all_of_25000_results(benchmark: BenchmarkFixture, full: ProjectionAuthority) -> None:
    assert len(plan_again(benchmark, full, "25,000 results to mask").drafts) > 24_000


def test_a_plan_right_after_a_batch_of_40_in_a_row(benchmark: BenchmarkFixture, full: ProjectionAuthority) -> None:
    """The chunks that a batch has changed are looked at anew, once."""
    append_turn(full.session, next(NUMBERS))
    drafts = plan_mask(full.snapshot(), MaskSettings()).drafts
    batches = iter([drafts[start : start + 40] for start in range(0, len(drafts), 40)])
    plan = measure(
        benchmark,
        lambda: plan_mask(full.snapshot(), MaskSettings()),
        setup=lambda: mask(full, next(batches)),
        rounds=ROUNDS,
    )
    assert len(plan.drafts) > 20_000
    report(f"plan at {SIZE:,} entries, right after a batch of 40: p95 {p95(benchmark) * 1e3:,.1f} ms (gate 50 ms)")
    assert p95(benchmark) < 0.050


def test_a_plan_with_everything_masked_but_the_end(benchmark: BenchmarkFixture, full: ProjectionAuthority) -> None:
    append_turn(full.session, next(NUMBERS))
    mask(full, plan_mask(full.snapshot(), MaskSettings()).drafts)
    plan_mask(full.snapshot(), MaskSettings())
    plan = plan_again(benchmark, full, "all masked but the end")
    assert 40 < len(plan.drafts) < 80


def test_the_status_line(benchmark: BenchmarkFixture) -> None:
    authority = ProjectionAuthority(large(200), counter=Quarters())
    status_line(authority.snapshot())
    numbers = iter(range(10_000))

    def setup() -> None:
        append_turn(authority.session, next(numbers))

    measure(benchmark, lambda: status_line(authority.snapshot()), setup=setup, rounds=ROUNDS)
    report(f"status line at {SIZE:,} entries: p95 {p95(benchmark) * 1e3:,.2f} ms (gate 10 ms)")
    assert p95(benchmark) < 0.010


def test_the_placeholders_are_those_of_a_plan_made_from_scratch() -> None:
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
