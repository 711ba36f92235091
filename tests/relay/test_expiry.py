"""Trigger B: a relay shortly before the prompt cache expires, and everything that keeps it from starting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contexthost.context import Timer
from contexthost.models import Reply
from contexthost.plugin_context import PluginContext
from contexthost.timers import WallTimer
from contexthost_relay import triggers
from support.relay_live import MODEL, Live, big, history_file, log_lines, user_texts

CACHED = replace(MODEL, prompt_cache_short_seconds=24.0)


DUE = 2.0
"""Seconds from the answer to the relay. A run that takes longer to settle sets no timer at all."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of 24 seconds: the relay starts 22 seconds before its end instead of 20, so that nobody waits long."""
    monkeypatch.setattr(triggers, "MARGIN_SECONDS", 24 - DUE)
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "50")


def live(path: Path, *script: Any, **options: Any) -> Live:
    return Live(history_file(path / "s.jsonl", 10), script, **{"info": CACHED, **options})


def relayed(session: Live) -> bool:
    return session.host.snapshot.checkpoint is not None


def test_a_relay_starts_before_the_cache_expires_and_sends_nothing(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path, big(tokens=145_000, cacheRead=5)) as session:
            began = time.time()
            await session.host.prompt("go")
            assert not relayed(session)
            await session.until(lambda: any("cache expiry" in text for text in session.texts))
            assert time.time() - began < 10
            assert relayed(session)
            assert len(session.model.requests) == 1
            assert user_texts(session.host.session.entries)[2:] == ["go"]
            assert session.texts[-1].startswith("context-relay: auto relay (cache expiry) 145k → ~")
            (line,) = log_lines(home)
            assert (line["trigger"], line["ok"]) == ("expiry", True)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("tokens", "usage", "changes", "environment"),
    [
        (139_999, {"cacheRead": 5}, {}, {}),
        (150_000, {}, {}, {}),  # nothing was cached
        (150_000, {"cacheRead": 5}, {"prompt_cache_short_seconds": None}, {}),  # a lifetime that nobody knows
        (150_000, {"cacheRead": 5}, {"prompt_cache_short_seconds": 24 - DUE}, {}),  # no longer than the margin
        (150_000, {"cacheRead": 5}, {}, {"CONTEXTHOST_RELAY__AUTO__BEFOREEXPIRY": "false"}),
        (150_000, {"cacheRead": 5}, {}, {"CONTEXTHOST_RELAY__ENABLED": "0"}),
        (150_000, {"cacheRead": 5}, {}, {"PI_CACHE_RETENTION": "long"}),  # that tier is not declared
    ],
)
def test_no_relay_and_no_word_otherwise(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    tokens: int,
    usage: dict[str, Any],
    changes: dict[str, Any],
    environment: dict[str, str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    async def scenario() -> None:
        reply = big(tokens=tokens, **usage)
        async with live(tmp_path, reply, info=replace(CACHED, **changes)) as session:
            await session.host.prompt("go")
            await asyncio.sleep(DUE + 0.3)
            assert not relayed(session)
            assert session.texts == []
            assert log_lines(home) == []

    asyncio.run(scenario())


def test_a_new_run_cancels_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        slow = Reply(text="slow", delay_seconds=DUE + 0.5, usage={"totalTokens": 150_000})
        async with live(tmp_path, big(tokens=145_000, cacheRead=5), slow) as session:
            await session.host.prompt("go", source="extension")
            await session.host.prompt("more", source="extension")
            assert not relayed(session)

    asyncio.run(scenario())


def test_the_end_of_the_session_cancels_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(tmp_path, big(tokens=145_000, cacheRead=5)) as session:
            await session.host.prompt("go")
        await asyncio.sleep(DUE + 0.3)
        assert not relayed(session)
        assert session.texts == []

    asyncio.run(scenario())


def test_not_after_a_suspend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with live(tmp_path, big(tokens=145_000, cacheRead=5)) as session:
            await session.host.prompt("go")
            real = time.time
            monkeypatch.setattr(time, "time", lambda: real() + 3_600)  # the machine slept for an hour
            await asyncio.sleep(DUE + 0.3)
            assert not relayed(session)

    asyncio.run(scenario())


def test_not_a_cold_cache_when_the_clock_was_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day is an hour behind while we wait: when it has caught up, the cache has long been gone."""
    real, waited, asked = time.time, [0.0], []

    def steady() -> float:
        asked.append(waited[0])
        return waited[0]

    monkeypatch.setattr("contexthost_relay.relays.time", SimpleNamespace(time=lambda: time.time(), monotonic=steady))
    monkeypatch.setattr(WallTimer, "_LONGEST_SLEEP", 0.05)

    async def scenario() -> None:
        async with live(tmp_path, big(tokens=145_000, cacheRead=5)) as session:
            await session.host.prompt("go")
            assert asked == [0.0]
            monkeypatch.setattr(time, "time", lambda: real() - 3_600)
            await asyncio.sleep(DUE + 0.3)
            assert asked == [0.0]
            waited[0] = 3_600.0
            monkeypatch.setattr(time, "time", real)
            await session.until(lambda: asked == [0.0, 3_600.0])
            await asyncio.sleep(0.2)
            assert not relayed(session)
            assert session.texts == []

    asyncio.run(scenario())


@pytest.mark.parametrize(("ahead", "timers"), [(3_600, 0), (1, 1)])
def test_a_request_of_the_future_sets_no_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, timers: int
) -> None:
    """The clock was set back since it was made; a second is what an ordinary correction takes."""
    real, waits = PluginContext.call_later, []

    def call_later(self: PluginContext, seconds: float, callback: Callable[[], None]) -> Timer:
        waits.append(seconds)
        return real(self, seconds, callback)

    async def scenario() -> None:
        reply = big(tokens=145_000, cacheRead=5)
        async with live(tmp_path, reply) as session:
            now = time.time_ns
            monkeypatch.setattr(PluginContext, "call_later", call_later)
            monkeypatch.setattr(time, "time_ns", lambda: now() + ahead * 1_000_000_000)
            await session.host.prompt("go")
        assert len(waits) == timers

    asyncio.run(scenario())


def test_a_cache_that_was_kept_warm_moves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with live(tmp_path, big(tokens=145_000, cacheRead=5)) as session:
            await session.host.prompt("go")
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 5))
            warm = {"type": "usage", "kind": "cache_warm", "usage": {"cacheRead": 9}, "timestamp": stamp}
            session.host.session.append([warm])
            await asyncio.sleep(DUE + 0.3)
            assert not relayed(session)
            await session.until(lambda: relayed(session))

    asyncio.run(scenario())


def test_the_real_margin_is_20_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "50")
    assert triggers.MARGIN_SECONDS == 20

    async def scenario() -> None:
        info = replace(MODEL, prompt_cache_short_seconds=20 + DUE)
        async with live(tmp_path, big(tokens=145_000, cacheRead=5), info=info) as session:
            await session.host.prompt("go")
            await session.until(lambda: relayed(session))

    asyncio.run(scenario())
