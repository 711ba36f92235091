"""When a relay starts by itself: questions about a snapshot, a model and the time, all worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.context import ModelInfo
from contexthost.events import Image, InputEvent
from contexthost.projection import Snapshot
from contexthost_relay.settings import AutoSettings
from contexthost_relay.triggers import cache_deadline, has_grown, is_main, waits_for_relay, wants_relay
from support.builder import START, USAGE_ZERO, SessionBuilder, usage_of
from support.relay import open_built

T0 = START.timestamp()


def snapshot(build: SessionBuilder) -> Snapshot:
    return open_built(build)[1].snapshot()


@pytest.mark.parametrize(
    ("name", "mode", "main"),
    [
        (None, "tui", True),
        ("my work", "rpc", True),
        ("worker#0123abcd", "tui", False),
        ("worker#0123ABCD", "rpc", False),
        ("worker#0123abc", "tui", True),
        ("worker#0123abcde", "tui", True),
        ("#0123abcd later", "tui", True),
        (None, "print", False),
        (None, "json", False),
    ],
)
def test_main_sessions(name: str | None, mode: str, main: bool) -> None:
    assert is_main(name, mode) is main


IMAGE: Image = {"type": "image", "data": "", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("event", "waits"),
    [
        (InputEvent(text="go", source="interactive"), True),
        (InputEvent(text="go", source="rpc"), True),
        (InputEvent(text="go", source="extension"), False),
        (InputEvent(text="go", streaming_behavior="steer"), False),
        (InputEvent(text="go", streaming_behavior="followUp"), False),
        (InputEvent(text="/skill:x"), False),
        (InputEvent(text="", images=(IMAGE,)), True),
    ],
)
def test_inputs_that_a_relay_may_precede(event: InputEvent, waits: bool) -> None:
    assert waits_for_relay(event) is waits


def conversation(tokens: int) -> SessionBuilder:
    build = SessionBuilder()
    build.user("go")
    build.assistant("done", usage=usage_of(tokens))
    return build


@pytest.mark.parametrize(("tokens", "wants"), [(99_999, False), (100_000, True)])
def test_the_context_must_be_large_by_the_providers_word(tokens: int, wants: bool) -> None:
    auto = AutoSettings()
    assert wants_relay(snapshot(conversation(tokens)), auto.inputMinTokens, auto) is wants


def test_an_estimate_is_not_enough() -> None:
    build = conversation(150_000)
    build.edit("00000001", "other")  # from here on the provider's figure says nothing
    assert snapshot(build).usage.source == "estimate"
    assert not wants_relay(snapshot(build), 1, AutoSettings())


def test_after_a_relay_the_context_must_grow() -> None:
    build = conversation(150_000)
    build.user("kept")
    details = {"relay": True, "version": 1, "notePath": "/n/1.md"}
    build.compaction("note", "00000003", details=details)
    assert not has_grown(snapshot(build), 30_000)  # nothing is known yet
    build.assistant("first", usage=usage_of(120_000))
    assert not has_grown(snapshot(build), 30_000)
    build.assistant("second", usage=usage_of(149_999))
    assert not has_grown(snapshot(build), 30_000)
    build.assistant("third", usage=usage_of(150_000))
    assert has_grown(snapshot(build), 30_000)


def test_after_another_compaction_there_is_no_such_rule() -> None:
    build = conversation(150_000)
    build.compaction("summary", "00000002")
    assert has_grown(snapshot(build), 30_000)


# When the cache expires ----------------------------------------------------------------------------------------------

ANTHROPIC = ModelInfo(provider="anthropic", id="m", api="anthropic-messages")
DECLARED = ModelInfo(
    provider="p", id="m", api="openai-responses", prompt_cache_short_seconds=24, prompt_cache_long_seconds=86_400
)
SHORT_ONLY = ModelInfo(provider="p", id="m", api="openai-responses", prompt_cache_short_seconds=24)
SILENT = ModelInfo(provider="p", id="m", api="openai-responses")


def cached(**usage: Any) -> SessionBuilder:
    build = SessionBuilder()
    build.user("go")
    build.assistant("done", usage={**USAGE_ZERO, "input": 10, "totalTokens": 10, **usage})  # at second 2
    return build


@pytest.mark.parametrize(
    ("model", "usage", "retention", "lifetime"),
    [
        (ANTHROPIC, {"cacheWrite": 5}, None, 300),
        (ANTHROPIC, {"cacheWrite": 5, "cacheWrite1h": 0}, "long", 300),
        (ANTHROPIC, {"cacheWrite": 5, "cacheWrite1h": 5}, None, 3_600),
        (ANTHROPIC, {"cacheRead": 5}, None, 300),
        (ANTHROPIC, {}, None, None),  # no cache activity
        (DECLARED, {"cacheRead": 5}, None, 24),
        (DECLARED, {"cacheRead": 5}, "short", 24),
        (DECLARED, {"cacheRead": 5}, "long", 86_400),
        (DECLARED, {"cacheWrite": 5, "cacheWrite1h": 5}, None, 86_400),
        (DECLARED, {"cacheWrite": 5, "cacheWrite1h": 0}, "long", 24),
        (DECLARED, {}, "long", None),
        (SHORT_ONLY, {"cacheRead": 5}, "long", None),  # the long tier is not declared: unknown
        (SILENT, {"cacheRead": 5}, None, None),
        (None, {"cacheRead": 5}, None, None),
    ],
)
def test_lifetimes(model: ModelInfo | None, usage: dict[str, Any], retention: str | None, lifetime: int | None) -> None:
    environment = {"PI_CACHE_RETENTION": retention} if retention else {}
    found = cache_deadline(snapshot(cached(**usage)), model, environment)
    assert (found and (found.at, found.lifetime)) == (lifetime and (T0 + 2 + lifetime, lifetime))


def test_keeping_the_cache_warm_counts_as_a_request() -> None:
    build = cached(cacheWrite=5)
    build.custom("x")
    build.usage("cache_warm", {**USAGE_ZERO, "cacheRead": 9, "totalTokens": 9})  # at second 4
    found = cache_deadline(snapshot(build), ANTHROPIC, {})
    assert found is not None
    assert found.at == T0 + 4 + 300
    build.usage("title", {**USAGE_ZERO, "cacheRead": 9, "totalTokens": 9})
    assert cache_deadline(snapshot(build), ANTHROPIC, {}) == found


def test_the_last_write_decides_not_the_last_request() -> None:
    build = cached(cacheWrite=5, cacheWrite1h=5)
    build.user("more")
    build.assistant("done", usage={**USAGE_ZERO, "cacheRead": 9, "totalTokens": 9})
    found = cache_deadline(snapshot(build), ANTHROPIC, {})
    assert found is not None
    assert found.lifetime == 3_600


def test_a_request_that_hit_no_cache_ends_it() -> None:
    build = cached(cacheWrite=5)
    build.user("more")
    build.assistant("done", usage=usage_of(500))
    assert cache_deadline(snapshot(build), ANTHROPIC, {}) is None


def test_right_after_a_compaction_nothing_is_cached() -> None:
    build = cached(cacheWrite=5)
    build.compaction("note", "00000002")
    assert cache_deadline(snapshot(build), ANTHROPIC, {}) is None
