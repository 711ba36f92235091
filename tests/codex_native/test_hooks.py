"""The hooks at their borders: drafts of others, headers, requests that are not ours, thresholds, and what a request
of a long session costs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import contexthost_codex_native as plugin
from contexthost.compaction import CompactionSettings
from contexthost.context import AbortSignal, Context, ModelInfo
from contexthost.events import (
    BeforeProviderHeadersEvent,
    BeforeProviderRequestEvent,
    BoundaryThresholdEvent,
    ProviderHeadersWantedEvent,
    SessionBeforeCompactEvent,
    TurnEndEvent,
)
from contexthost.host import Host
from contexthost.models import Reply, ScriptedModel
from contexthost.paths import plugin_data_dir
from contexthost.projection import CompactionDraft, ProjectedEntry, ProjectionAuthority
from contexthost.session import Session
from contexthost_codex_native.compactor import run_threshold
from support.builder import SessionBuilder, usage_of
from support.codex import ACCOUNT, codex, compacted, jwt, sub_api
from support.large import large_entries
from support.model_server import ModelServer

URL = "http://127.0.0.1:1/v1"
OPAQUE = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
FIRST = {"role": "user", "content": [{"type": "input_text", "text": "first"}]}
DETAILS = {
    "kind": "contexthost-codex-native",
    "version": 1,
    "modelKey": "sub-api:openai-responses:gpt-5",
    "replacementHistory": [FIRST, OPAQUE],
}


@dataclass
class Ui:
    told: list[str] = field(default_factory=list)

    def notify(self, message: str, level: str = "info") -> None:
        self.told.append(message)


@dataclass
class Fake:
    """As much of a context as the hooks for requests ask for."""

    authority: ProjectionAuthority
    model: ModelInfo | None
    ui: Ui = field(default_factory=Ui)
    signal: AbortSignal | None = None
    compaction_settings: CompactionSettings = field(default_factory=CompactionSettings)

    @property
    def session(self) -> Session:
        return self.authority.session

    @property
    def snapshot(self) -> Any:
        return self.authority.snapshot()

    @property
    def data_dir(self) -> Path:
        return plugin_data_dir("codex_native")

    async def credentials(self, provider: str) -> str | None:
        return None

    async def model_headers(self) -> Mapping[str, str]:
        return self.model.headers if self.model is not None else {}

    def compacting(self) -> None:
        """Only a live Pi has a deadline to extend."""

    @property
    def ctx(self) -> Context:
        return cast(Context, self)


def project(build: SessionBuilder, window: int = 200_000) -> ProjectionAuthority:
    entries = [json.loads(line) for line in build.bytes().splitlines()[1:]]
    return ProjectionAuthority(Session.in_memory(entries=entries), window=window)


def with_checkpoint() -> SessionBuilder:
    build = SessionBuilder()
    kept = build.user("first")
    build.compaction("portable", kept, details=DETAILS)
    build.user("after")
    return build


def request(fake: Fake, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return plugin.before_provider_request(BeforeProviderRequestEvent(payload=payload), fake.ctx)


def headers(model: ModelInfo | None, present: dict[str, str | None]) -> Any:
    fake = Fake(project(SessionBuilder()), model)
    event = BeforeProviderHeadersEvent(headers=present)
    answer = plugin.before_provider_headers(event, fake.ctx)
    return event.headers if answer is None else event.apply(dict(answer)).headers


@pytest.mark.parametrize("name", ["x-codex-beta-features", "X-Codex-Beta-Features"])
def test_the_feature_joins_those_that_are_there_in_one_header(name: str) -> None:
    found = headers(sub_api(URL), {name: "other", "accept": "x"})
    assert found == {"accept": "x", "x-codex-beta-features": "other,remote_compaction_v2"}


def test_requests_of_other_models_keep_their_headers() -> None:
    other = ModelInfo(provider="openai", id="gpt-5", api="openai-responses")
    assert headers(other, {"accept": "x"}) == {"accept": "x"}
    assert headers(None, {"accept": "x"}) == {"accept": "x"}


def test_headers_are_wanted_of_models_that_can_compact_natively() -> None:
    fake = Fake(project(SessionBuilder()), sub_api(URL))
    asked = ProviderHeadersWantedEvent()
    assert plugin.provider_headers_wanted(asked, fake.ctx) is True
    for model in (ModelInfo(provider="openai", id="gpt-5", api="openai-responses"), None):
        fake.model = model
        assert plugin.provider_headers_wanted(asked, fake.ctx) is False


def test_the_conversation_is_replaced_and_the_rest_of_the_request_stays() -> None:
    payload = {
        "model": "gpt-5",
        "input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": []}],
        "previous_response_id": "resp_1",
        "tools": [1],
    }
    assert request(Fake(project(with_checkpoint()), sub_api(URL)), payload) == {
        "model": "gpt-5",
        "input": [
            {"role": "developer", "content": "Be brief."},
            FIRST,
            OPAQUE,
            {"role": "user", "content": [{"type": "input_text", "text": "after"}]},
        ],
        "tools": [1],
    }
    assert payload["previous_response_id"] == "resp_1"  # what the event holds is not written to


@pytest.mark.parametrize(
    ("model", "payload"),
    [
        (sub_api(URL), {"model": "gpt-4-titles", "input": []}),
        (sub_api(URL), {"model": "gpt-5", "messages": []}),
        (sub_api(URL), {"model": "gpt-5", "input": "hello"}),
        (sub_api(URL, id="gpt-6"), {"model": "gpt-6", "input": []}),
        (codex(), {"model": "gpt-5-codex", "input": []}),
        (ModelInfo(provider="openai", id="gpt-5", api="openai-responses"), {"model": "gpt-5", "input": []}),
        (None, {"model": "gpt-5", "input": []}),
    ],
)
def test_no_other_request_gets_the_opaque_item(model: ModelInfo | None, payload: dict[str, Any]) -> None:
    assert request(Fake(project(with_checkpoint()), model), payload) is None


@pytest.mark.parametrize("change", [{"version": 2}, {"kind": "another"}, {"replacementHistory": []}])
def test_a_bad_checkpoint_is_not_sent_and_told_once(change: dict[str, Any]) -> None:
    build = SessionBuilder()
    kept = build.user("first")
    build.compaction("portable", kept, details={**DETAILS, **change})
    fake = Fake(project(build), sub_api(URL))
    for _ in range(3):
        assert request(fake, {"model": "gpt-5", "input": []}) is None
    [told] = fake.ui.told
    assert told.endswith("its portable summary stands in")


def test_an_ordinary_compaction_is_nothing_to_tell_about() -> None:
    build = SessionBuilder()
    kept = build.user("first")
    build.compaction("ordinary", kept, details={"readFiles": [], "modifiedFiles": []})
    fake = Fake(project(build), sub_api(URL))
    assert request(fake, {"model": "gpt-5", "input": []}) is None
    assert fake.ui.told == []


def test_a_compaction_that_somebody_has_made_already_is_left_to_them() -> None:
    draft = CompactionDraft(summary="made", first_kept_entry_id=None)
    event = SessionBeforeCompactEvent(
        preparation=cast(Any, None), branch_entries=(), reason="threshold", signal=AbortSignal(), draft=draft
    )
    fake = Fake(project(SessionBuilder()), sub_api(URL))  # asking would fail: there is no server
    assert asyncio.run(plugin.session_before_compact(event, fake.ctx)) is None
    assert fake.ui.told == []


def full_turn(tokens: int = 190_000, **changes: Any) -> tuple[TurnEndEvent, Fake]:
    build = SessionBuilder()
    build.user("begin")
    build.assistant("begun")
    build.user("go " * 40_000)
    build.assistant("done", usage=usage_of(tokens))
    build.user("more")
    last = build.assistant("done", usage=usage_of(tokens))
    fake = Fake(project(build), sub_api(URL))
    event = TurnEndEvent(
        **{
            "turn_index": 0,
            "message": {},
            "tool_results": [],
            "message_entry_id": last,
            "tool_result_entry_ids": [],
            "outcome": "completed",
            "context": fake.snapshot,
            **changes,
        }
    )
    return event, fake


def test_a_full_turn_is_compacted_and_a_failure_told() -> None:
    event, fake = full_turn()
    assert asyncio.run(plugin.turn_end(event, fake.ctx)) is None
    assert "SubAPI has no credential" in fake.ui.told[0]


@pytest.mark.parametrize(
    ("tokens", "settings", "compacted", "threshold"),
    [
        (95_999, CompactionSettings(reserve_tokens=100_000), False, 96_000),
        (96_000, CompactionSettings(reserve_tokens=100_000), True, 96_000),
        (96_000, CompactionSettings(), False, 179_616),
        (190_000, CompactionSettings(enabled=False), False, sys.maxsize),
    ],
)
def test_the_hosts_own_limit_is_the_sessions(
    tokens: int, settings: CompactionSettings, compacted: bool, threshold: int
) -> None:
    event, fake = full_turn(tokens)
    fake.compaction_settings = settings
    assert plugin.boundary_threshold(BoundaryThresholdEvent(boundary="turn_end"), fake.ctx) == threshold
    assert asyncio.run(plugin.turn_end(event, fake.ctx)) is None
    assert bool(fake.ui.told) is compacted  # told, because the attempt has no credential


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "error"},
        {"outcome": "aborted"},
        {"entries": (CompactionDraft(summary="made", first_kept_entry_id=None),)},
    ],
)
def test_a_turn_that_failed_or_that_another_plugin_compacts_is_left_alone(changes: dict[str, Any]) -> None:
    event, fake = full_turn(**changes)
    assert asyncio.run(plugin.turn_end(event, fake.ctx)) is None
    assert fake.ui.told == []


@pytest.mark.parametrize(
    ("window", "ratio", "threshold"),
    [
        (400_000, 0.9, 360_000),
        (200_000, 0.9, 179_616),  # 200,000 - 16,384 - 4,000 is the smaller one
        (128_000, 0.9, 107_616),
        (128_000, 0.5, 64_000),
        (20_384, 0.9, None),
    ],
)
def test_the_threshold_within_a_run(window: int, ratio: float, threshold: int | None) -> None:
    assert run_threshold(window, ratio, 16_384) == threshold


def test_a_model_that_cannot_compact_wants_no_boundary() -> None:
    _, fake = full_turn()
    asked = BoundaryThresholdEvent(boundary="turn_end")
    assert plugin.boundary_threshold(asked, fake.ctx) == 179_616
    for model in (ModelInfo(provider="sub-api", id="gpt-5", api="openai-completions"), None):
        fake.model = model
        assert plugin.boundary_threshold(asked, fake.ctx) == sys.maxsize


def test_a_request_of_a_hundred_thousand_entries_costs_what_came_after_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = list(large_entries(100_000))
    kept = entries[4]["id"]  # nearly everything is kept: even that is not looked at
    stamp = entries[-1]["timestamp"]
    checkpoint = {"type": "compaction", "id": "c0", "parentId": entries[-1]["id"], "timestamp": stamp}
    checkpoint |= {"summary": "portable", "firstKeptEntryId": kept, "tokensBefore": 1, "details": DETAILS}
    session = Session.in_memory(entries=[*entries, checkpoint])
    authority = ProjectionAuthority(session)
    fake = Fake(authority, sub_api(URL))
    assert len(fake.snapshot.entries) > 99_000
    visits = authority.visits
    message = {"role": "user", "content": [{"type": "text", "text": "after"}], "timestamp": 1}
    session.append([{"type": "message", "message": message}])

    looked: list[str] = []
    untyped: Any = ProjectedEntry
    original = untyped.messages.fget

    def counted(entry: ProjectedEntry) -> Any:
        looked.append(entry.source.id)
        return original(entry)

    monkeypatch.setattr(ProjectedEntry, "messages", property(counted))
    made = request(fake, {"model": "gpt-5", "input": []})
    assert made is not None
    assert made["input"] == [FIRST, OPAQUE, {"role": "user", "content": [{"type": "input_text", "text": "after"}]}]
    assert looked == [session.entries[-1].id]
    assert authority.visits - visits == 1


def test_codex_is_asked_at_its_own_endpoint_with_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CODEX_API_KEY", jwt())
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "20")

    async def work(base_url: str) -> Any:
        model = ScriptedModel([Reply(text="A." * 60), Reply(text="B." * 60)], info=codex(base_url))
        async with Host.open(None, model=model, plugins=[plugin], installed_plugins=False) as host:
            await host.prompt("one " * 30)
            await host.prompt("two " * 30)
            entry = await host.compact()
            return entry.data["details"]["modelKey"], host.session.id

    with ModelServer([compacted()]) as server:
        key, session_id = asyncio.run(work(server.base_url.removesuffix("/v1") + "/backend-api/"))
    [received] = server.requests
    assert key == "openai-codex:openai-codex-responses:gpt-5-codex"
    assert received.path == "/backend-api/codex/responses"
    wanted = {
        "authorization": f"Bearer {jwt()}",
        "chatgpt-account-id": ACCOUNT,
        "originator": "pi",
        "openai-beta": "responses=experimental",
        "accept": "text/event-stream",
        "session-id": session_id,
        "x-client-request-id": session_id,
        "x-codex-beta-features": "remote_compaction_v2",
    }
    assert {name: received.headers.get(name) for name in wanted} == wanted
    assert received.problems == []
