"""The plugin in a live session, against the server: what is compacted, what is told, and what never happens.

After every fault the file is, byte for byte, what it was before; and after every test here the key is searched for in
the logs, the notifications, the session and the details.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import contexthost_jev
from contexthost.drivers.file import open_file
from contexthost.errors import CompactionCancelled, CompactionFailed
from contexthost.events import SessionStartEvent
from contexthost.hookspecs import hookimpl
from contexthost.host import Host
from contexthost.models.scripted import Reply as ModelReply, ScriptedModel
from contexthost.session import Entry, Session
from contexthost.watch import Notified
from contexthost_jev.summary import MARKER, decode_summary
from jev.jev_server import SECRET, JevServer, Reply, by_number
from jev.sessions import small_session

BUILT_IN = "## Goal\nMend it."
SUMMARIES = (BUILT_IN, BUILT_IN)  # one of the history, one of the turn that the cut splits
FALLBACK = "The built-in summary is made instead."


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, server: JevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, the server as the endpoint, a host that keeps little, second attempts without waiting."""
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    monkeypatch.setenv("PI_JEV_BASE_URL", server.url)
    monkeypatch.setattr("contexthost_jev.client.JevClient.__init__.__kwdefaults__", _defaults(), raising=True)
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    (config / "host.json").write_text('{"compaction": {"keepRecentTokens": 200}}')
    server.probability = by_number(lambda n: float(n < 3), lambda n: float(n == 1))


def _defaults(timeout_seconds: float = 20) -> dict[str, Any]:
    from contexthost_jev.client import JevClient

    return {
        **(JevClient.__init__.__kwdefaults__ or {}), "retry_seconds": 0.01, "timeout_seconds": timeout_seconds,
    }  # fmt: skip


@pytest.fixture
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One second, where the fault is that it takes longer."""
    if request.node.callspec.params["reply"].delay:
        monkeypatch.setattr("contexthost_jev.client.JevClient.__init__.__kwdefaults__", _defaults(1.0))


@pytest.fixture
def path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
    caplog.set_level(logging.DEBUG)
    made = small_session(tmp_path / "s.jsonl")
    yield made
    assert SECRET not in made.read_text()
    assert SECRET not in caplog.text
    assert all(SECRET not in repr(vars(record)) for record in caplog.records)


class Live:
    """A live session and what it tells its user."""

    def __init__(self, host: Host, model: ScriptedModel) -> None:
        self.host = host
        self.model = model
        self.told: list[tuple[str, str]] = []
        host.watch(lambda event: self._seen(event))

    def _seen(self, event: object) -> None:
        if isinstance(event, Notified):
            assert SECRET not in event.message
            self.told.append((event.level, event.message))

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.told]


@asynccontextmanager
async def live(path: Path, *script: Any, plugins: tuple[Any, ...] = ()) -> AsyncIterator[Live]:
    model = ScriptedModel(script)
    host = Host.open(path, model=model, plugins=[contexthost_jev, *plugins], installed_plugins=False)
    opened = Live(host, model)
    async with host:
        opened.told.clear()
        yield opened


def compact(path: Path, *script: Any, **options: Any) -> tuple[Entry, Live]:
    """A compaction by hand."""

    async def main() -> tuple[Entry, Live]:
        async with live(path, *script) as opened:
            return await opened.host.compact(**options), opened

    return asyncio.run(main())


# Compactions -----------------------------------------------------------------------------------------------------


def test_a_manual_compaction_is_made_by_jev_and_told(path: Path, server: JevServer) -> None:
    before = path.read_bytes()
    entry, opened = compact(path)
    assert path.read_bytes().startswith(before)
    assert entry.data["summary"].startswith(MARKER)
    assert entry.data["fromHook"] is True
    assert decode_summary(entry.data["summary"]) is not None
    details = entry.data["details"]
    assert (details["kept"], details["truncated"], details["dropped"]) == (1, 1, 1)
    assert details["model"] == "jev-1.13.0"
    (scored, saved) = opened.told
    assert scored[0] == "info"
    assert scored[1].startswith("jev, manual compaction: 1 calls kept, 1 truncated, 1 dropped; about ")
    assert scored[1].endswith(" s (1 request).")
    assert saved == ("info", "jev: its verbatim summary was saved.")
    assert opened.model.requests == []
    assert len(server.seen) == 1


def test_a_threshold_compaction_is_made_by_jev(path: Path) -> None:
    async def main() -> Live:
        async with live(path, ModelReply(text="Full.", usage={"input": 190_000, "totalTokens": 190_000})) as opened:
            await opened.host.prompt("Go on.")
            return opened

    opened = asyncio.run(main())
    assert any(text.startswith("jev, threshold compaction: 1 calls kept") for text in opened.texts)
    with Session.open(path) as session:
        assert [entry.data["details"]["plugin"] for entry in session.entries if entry.type == "compaction"] == ["jev"]


def test_an_overflow_compaction_is_made_by_jev_and_the_request_sent_again(path: Path) -> None:
    too_long = ModelReply(error="prompt is too long: 213462 tokens > 200000 maximum")

    async def main() -> Live:
        async with live(path, too_long, "Now it fits.") as opened:
            await opened.host.prompt("Go on.")
            return opened

    opened = asyncio.run(main())
    assert any(text.startswith("jev, overflow compaction: 1 calls kept") for text in opened.texts)
    assert len(opened.model.requests) == 2
    sent = json.dumps(list(opened.model.requests[1].messages))
    assert "[verbatim history, kept by jev" in sent


def test_the_users_instructions_reach_jev(path: Path, server: JevServer) -> None:
    compact(path, custom_instructions="Keep what is about dates.")
    assert "Keep what is about dates." in server.seen[0].body["state"]["goal"]


def test_settings_and_their_environment_are_in_force(
    path: Path, server: JevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PI_JEV_MODEL", "jev-1.13")
    monkeypatch.setenv("PI_JEV_GOAL", "Ship it.")
    monkeypatch.setenv("PI_JEV_TRUNCATE_HEAD", "10")
    entry, _ = compact(path)
    assert server.seen[0].body["model"] == "jev-1.13"
    assert server.seen[0].body["state"]["goal"] == "Ship it."
    assert "\n<2>xxxxxxx\n[… 2,990 more characters" in entry.data["summary"]


def test_a_compaction_that_another_plugin_drafted_is_left_alone(path: Path, server: JevServer) -> None:
    from contexthost.context import AbortSignal
    from contexthost.events import SessionBeforeCompactEvent
    from contexthost.projection import CompactionDraft

    async def main() -> Live:
        async with live(path) as opened:
            preparation = opened.host._activity.lifecycle.prepare()
            assert preparation is not None
            event = SessionBeforeCompactEvent(
                preparation=preparation,
                branch_entries=opened.host.snapshot.branch,
                reason="threshold",
                signal=AbortSignal(),
                draft=CompactionDraft(
                    summary="x", first_kept_entry_id=preparation.first_kept_entry_id, tokens_before=1
                ),
            )
            assert await opened.host.runtime.before_compact(event) is None
            return opened

    assert asyncio.run(main()).told == []
    assert server.seen == []


# Falling back ----------------------------------------------------------------------------------------------------

FAULTS: list[tuple[str, Reply, str]] = [
    ("busy", Reply(status=429), "the service is busy: the service answered 429 twice"),
    ("broken", Reply(status=500, body=SECRET.encode()), "the service is busy: the service answered 500 twice"),
    ("unauthorised", Reply(status=401), "the key was refused: the service refused the key (401)"),
    ("bad request", Reply(status=400), "the request was refused: the service answered 400"),
    ("slow", Reply(delay=30), "network failure: no whole answer came within 1 s"),
    ("half", Reply(half=True), "network failure: the connection failed (RemoteProtocolError)"),
    ("closed", Reply(hang_up=True), "network failure: the connection failed (RemoteProtocolError)"),
    ("list", Reply(body=b'{"answers":[]}'), "malformed answer: the answer holds no object `answers`"),
    ("text", Reply(body=b"<html>"), "malformed answer: the answer is not JSON"),
]


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize(("reply", "told"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_after_a_fault_the_built_in_summary_is_made_and_told_why(
    path: Path, server: JevServer, reply: Reply, told: str
) -> None:
    server.default = reply
    entry, opened = compact(path, *SUMMARIES)
    assert entry.data["summary"].startswith(BUILT_IN)
    assert opened.told == [
        ("warning", f"jev, manual compaction: {told}. {FALLBACK}"),
        ("info", "jev: the built-in summary was saved."),
    ]


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize(("reply", "told"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_after_a_fault_of_a_compaction_for_jev_alone_the_file_is_byte_for_byte_the_same(
    path: Path, server: JevServer, reply: Reply, told: str
) -> None:
    before = path.read_bytes()
    server.default = reply

    async def main() -> Live:
        async with live(path) as opened:
            with pytest.raises(CompactionCancelled) as caught:
                await opened.host.compact(to="jev")
            assert str(caught.value) == f"Compaction cancelled by jev: {told}. Nothing was compacted."
            return opened

    opened = asyncio.run(main())
    assert opened.told == [("info", f"compaction cancelled: {told}. Nothing was compacted.")]
    assert path.read_bytes() == before
    assert opened.model.requests == []


def test_numbers_out_of_range_are_a_malformed_answer(path: Path, server: JevServer) -> None:
    server.probability = lambda name: 1.01 if name == "result_t2" else 0.0
    entry, opened = compact(path, *SUMMARIES)
    assert entry.data["summary"].startswith(BUILT_IN)
    assert "malformed answer: an answer is missing or is no probability" in opened.texts[0]


def told_first(path: Path) -> tuple[str, str]:
    entry, opened = compact(path, *SUMMARIES)
    assert entry.data["summary"].startswith(BUILT_IN)
    return opened.told[0]


def test_without_a_key_it_says_how_to_get_one(path: Path, server: JevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY")
    level, text = told_first(path)
    assert level == "warning"
    assert text.startswith("jev, manual compaction: no key: get a key at https://console.typesafe.ai/settings/keys")
    assert text.endswith(f"/jev-setup guides you. {FALLBACK}")
    assert server.seen == []


def test_a_key_can_come_from_a_command_of_host_json(
    path: Path, server: JevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY")
    settings = {
        "compaction": {"keepRecentTokens": 200},
        "credentials": {"typesafe": {"command": ["echo", SECRET]}},
    }
    (tmp_path / "home" / "config" / "host.json").write_text(json.dumps(settings))
    entry, _ = compact(path)
    assert entry.data["details"]["plugin"] == "jev"
    assert server.seen[0].headers["authorization"] == f"Bearer {SECRET}"


def test_a_credential_command_that_fails_is_told_without_its_output(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY")
    command = ["sh", "-c", f"echo {SECRET}; exit 3"]
    settings = {"compaction": {"keepRecentTokens": 200}, "credentials": {"typesafe": {"command": command}}}
    (tmp_path / "home" / "config" / "host.json").write_text(json.dumps(settings))
    level, text = told_first(path)
    assert level == "warning"
    assert "no key: the command of credentials.typesafe in host.json ended with status 3" in text


def test_a_key_that_no_header_can_carry_is_told_without_being_quoted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TYPESAFE_API_KEY", "two words")
    assert "cannot be used as it is set up: the key of typesafe" in told_first(path)[1]


def test_an_unsafe_address_is_not_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PI_JEV_BASE_URL", "http://example.com/")
    assert "cannot be used as it is set up: baseUrl must be an https address" in told_first(path)[1]


def test_a_compaction_that_would_save_little_is_not_worth_it(path: Path, server: JevServer) -> None:
    server.probability = lambda name: 1.0
    level, text = told_first(path)
    expected = "jev, manual compaction: not worth it: only 0.0% would go, and less than 25% is not worth it."
    assert (level, text) == ("info", f"{expected} {FALLBACK}")


def test_a_history_that_does_not_fit_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PI_JEV_MAX_STATE_TOKENS", "60")
    level, text = told_first(path)
    assert level == "warning"
    assert "the history does not fit: the history needs " in text


def test_a_short_history_is_told_calmly(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PI_JEV_PRESERVE_RECENT", "1000")
    assert told_first(path) == ("info", f"jev, manual compaction: too short: the history is too short. {FALLBACK}")


def test_nothing_to_score_is_told_calmly(path: Path, server: JevServer) -> None:
    path.write_bytes(small_session(path.with_name("other.jsonl"), calls=0).read_bytes())
    level, text = told_first(path)
    assert level == "info"
    assert text == f"jev, manual compaction: nothing to score: no tool call is left that could go. {FALLBACK}"
    assert server.seen == []


def test_the_notification_says_threshold_or_overflow(path: Path, server: JevServer) -> None:
    server.default = Reply(status=401)
    full = ModelReply(text="Full.", usage={"input": 190_000, "totalTokens": 190_000})

    async def main() -> Live:
        async with live(path, full, *SUMMARIES) as opened:
            await opened.host.prompt("Go on.")
            return opened

    assert any(text.startswith("jev, threshold compaction: the key was refused") for text in asyncio.run(main()).texts)


def test_without_any_other_compactor_the_failure_is_an_error_and_nothing_changes(path: Path, server: JevServer) -> None:
    server.default = Reply(status=401)
    before = path.read_bytes()

    async def main() -> None:
        host = Host.open(path, plugins=[contexthost_jev], installed_plugins=False)
        async with host:
            with pytest.raises(CompactionFailed, match="no plugin made a compaction"):
                await host.compact()

    asyncio.run(main())
    assert path.read_bytes() == before


# Aborts ----------------------------------------------------------------------------------------------------------


def test_an_abort_is_told_in_a_few_words_and_changes_nothing(path: Path, server: JevServer) -> None:
    server.default = Reply(delay=5)
    before = path.read_bytes()

    async def main() -> Live:
        async with live(path) as opened:
            loop = asyncio.get_running_loop()
            started = time.monotonic()
            loop.call_later(0.5, opened.host.abort)
            with pytest.raises(CompactionCancelled):
                await opened.host.compact()
            assert time.monotonic() - started < 4, "the running request was not waited for"
            return opened

    assert asyncio.run(main()).told == [("info", "jev, manual compaction: aborted.")]
    assert path.read_bytes() == before


def test_a_driver_that_only_signals_the_abort_gets_a_silent_cancel(path: Path, server: JevServer) -> None:
    from contexthost.context import AbortSignal
    from contexthost.events import Cancel, SessionBeforeCompactEvent

    server.default = Reply(delay=5)
    signal = AbortSignal()

    async def main() -> Live:
        async with live(path) as opened:
            preparation = opened.host._activity.lifecycle.prepare()
            assert preparation is not None
            event = SessionBeforeCompactEvent(
                preparation=preparation, branch_entries=opened.host.snapshot.branch, reason="overflow", signal=signal
            )
            asyncio.get_running_loop().call_later(0.3, signal.abort)
            started = time.monotonic()
            answer = await contexthost_jev.session_before_compact(event, opened.host.runtime.context("contexthost_jev"))
            assert time.monotonic() - started < 4
            assert answer == Cancel()
            return opened

    assert asyncio.run(main()).told == []


def test_a_compaction_that_another_plugin_cancelled_is_not_jevs_to_tell(path: Path, server: JevServer) -> None:
    from contexthost.events import Cancel

    class Stopper:
        plugin_name = "stopper"

        @hookimpl(tryfirst=True)
        def session_before_compact(self) -> Cancel:
            return Cancel("not now")

    async def main() -> Live:
        async with live(path, plugins=(Stopper(),)) as opened:
            with pytest.raises(CompactionCancelled):
                await opened.host.compact()
            return opened

    # The host says that it was cancelled; jev has nothing to add.
    assert asyncio.run(main()).told == [("info", "compaction cancelled: not now")]
    assert server.seen == []


# The start -------------------------------------------------------------------------------------------------------


def greetings(path: Path, times: int = 1) -> list[str]:
    found: list[str] = []

    async def main() -> None:
        for _ in range(times):
            host = Host.open(path, plugins=[contexthost_jev], installed_plugins=False)
            host.watch(lambda event: found.append(event.message) if isinstance(event, Notified) else None)
            async with host:
                pass

    asyncio.run(main())
    return found


def test_once_per_process_it_says_that_it_is_ready(path: Path) -> None:
    assert greetings(path, times=3) == [
        "jev: ready (TYPESAFE_API_KEY); compactions are decided call by call. /jev-status shows the options."
    ]


def test_or_how_to_get_a_key(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY")
    (text,) = greetings(path, times=2)
    assert text == (
        "jev: no key, so compactions are left to others. To use it, get a key at "
        "https://console.typesafe.ai/settings/keys and set TYPESAFE_API_KEY (or OPENROUTER_API_KEY); "
        "/jev-setup guides you."
    )


@pytest.mark.parametrize(
    ("reason", "previous"), [("reload", None), ("new", None), ("resume", "before.jsonl"), ("fork", "before.jsonl")]
)
def test_a_reload_and_a_switch_say_nothing_even_in_a_new_process(path: Path, reason: Any, previous: Any) -> None:
    async def main() -> list[str]:
        async with live(path) as opened:
            contexthost_jev._process.greeted = False  # as in a process that has just begun
            started = SessionStartEvent(reason=reason, previous_session_file=previous)
            await opened.host.runtime.notify("session_start", started)
            return opened.texts

    assert asyncio.run(main()) == []


def test_a_command_on_a_file_says_nothing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with open_file(path, plugins=[]):
            pass

    asyncio.run(main())
    assert "jev" not in capsys.readouterr().err


def test_settings_are_read_again_at_each_start(path: Path, server: JevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(change: Callable[[], Awaitable[None]]) -> None:
        async with live(path, *SUMMARIES) as opened:
            await change()
            await opened.host.runtime.notify("session_start", SessionStartEvent(reason="reload"))
            await opened.host.compact()

    async def change() -> None:
        monkeypatch.setenv("PI_JEV_MODEL", "jev-2")

    asyncio.run(main(change))
    assert server.seen[0].body["model"] == "jev-2"
