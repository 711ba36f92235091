"""Sections that others add to the note: plugins by a hook, a model when the settings say so."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contexthost.context import AbortSignal, ModelInfo, ModelRequest
from contexthost.errors import SettingsError
from contexthost.hookspecs import hookimpl
from contexthost.messages import Message
from contexthost.models import Reply, ScriptedModel
from contexthost_relay import NoteSection, RelayNoteEvent, written
from contexthost_relay.settings import RelaySettings
from support.builder import SessionBuilder
from support.relay import relayed
from support.relay_live import MODEL, Live, big, history_file


class Adds:
    """A plugin that adds what it was made with."""

    def __init__(self, name: str, answer: Any) -> None:
        self.plugin_name = name
        self.answer = answer
        self.events: list[RelayNoteEvent] = []

    @hookimpl(optionalhook=True)
    async def relay_note_sections(self, event: RelayNoteEvent, ctx: Any) -> Any:
        self.events.append(event)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def note(path: Path, *plugins: Adds, **settings: Any) -> str:
    build = SessionBuilder()
    build.user("first")
    build.assistant("answer")
    build.user("last")
    file = build.write(path / "s.jsonl")
    return asyncio.run(relayed(file, RelaySettings(**settings), plugins=plugins)).note


def test_plugins_add_sections_before_the_footer(tmp_path: Path) -> None:
    one = Adds("one", NoteSection("One", "a\nb"))
    two = Adds("two", [NoteSection("Two", "c"), NoteSection("Three", "d")])
    text = note(tmp_path, one, two)
    assert "## One\n\na\nb\n\n## Two\n\nc\n\n## Three\n\nd\n\n---\n" in text
    (event,) = one.events
    assert (event.first_kept_entry_id, event.room, len(event.branch_entries)) == ("00000003", 700, 3)


def test_they_are_held_to_the_limit_together(tmp_path: Path) -> None:
    text = note(tmp_path, Adds("one", [NoteSection("One", "x" * 5_000), NoteSection("Two", "y")]))
    section = text[text.index("## One") : text.index("\n---")]
    assert len(section) == 700
    assert "## Two" not in text
    assert "## One" not in note(tmp_path, Adds("one", NoteSection("One", "x")), limits={"extra": 0})


@pytest.mark.parametrize("answer", [RuntimeError("broken"), "text", 7, ["text"], {"title": "x"}, NoteSection("", "")])
def test_one_that_fails_or_answers_nonsense_is_left_out(tmp_path: Path, answer: Any) -> None:
    text = note(tmp_path, Adds("bad", answer), Adds("good", NoteSection("Good", "kept")))
    assert "## Good\n\nkept\n" in text


# The written section -------------------------------------------------------------------------------------------------


class Closable(ScriptedModel):
    closed = False

    async def aclose(self) -> None:
        self.closed = True


class Opened:
    """Stands in for `open_model`: remembers what was opened, and answers from a script."""

    def __init__(self, *script: Any) -> None:
        self.script = script
        self.models: list[tuple[ModelInfo, Closable]] = []

    def __call__(self, info: ModelInfo, *, api_key: str | None) -> Closable:
        model = Closable(self.script, info=info)
        self.models.append((info, model))
        return model


LIGHT = '{"provider": "deepseek", "id": "flash", "baseUrl": "http://127.0.0.1:9"}'
CACHED = replace(MODEL, prompt_cache_short_seconds=300.0)


def relay_with(path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch, *, warm: bool, light: bool = True) -> Live:
    """A session after a manual relay with the written section on."""
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "50")
    monkeypatch.setenv("CONTEXTHOST_RELAY__AUTO__WRITTENSECTION", "true")
    if light:
        monkeypatch.setenv("CONTEXTHOST_RELAY__AUTO__LIGHTMODEL", LIGHT)
    monkeypatch.setattr(written, "opener", lambda: opened)
    live: list[Live] = []

    async def scenario() -> None:
        reply = big(tokens=90_000, cacheRead=5 if warm else 0)
        session = Live(history_file(path / "s.jsonl", 10), [reply], info=CACHED, system_prompt="Be careful.")
        live.append(session)
        async with session:
            await session.host.prompt("go")
            await session.host.prompt("/relay")
            assert session.host.snapshot.checkpoint is not None

    asyncio.run(scenario())
    return live[0]


def summary(session: Live) -> str:
    checkpoint = session.host.snapshot.checkpoint
    assert checkpoint is not None
    return str(checkpoint.data["summary"])


def test_with_a_warm_cache_the_same_model_goes_on_from_the_cached_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(Reply(text="- open: the port", usage={"input": 7, "output": 3, "totalTokens": 10}))
    session = relay_with(tmp_path, opened, monkeypatch, warm=True)
    ((info, model),) = opened.models
    assert info == CACHED
    assert model.closed
    (request,) = model.requests
    (before,) = session.model.requests
    count = len(before.messages)
    assert list(request.messages[:count]) == list(before.messages)  # a prefix that the cache has
    assert [message["role"] for message in request.messages[count:]] == ["assistant", "user"]
    assert request.session_id == before.session_id
    assert [(tool.name, tool.parameters) for tool in request.tools] == [
        (tool.name, dict(tool.parameters)) for tool in before.tools
    ]
    assert "## Open questions and decisions (written by a model)\n\n- open: the port\n" in summary(session)
    checkpoint = session.host.snapshot.checkpoint
    assert checkpoint is not None
    assert checkpoint.data["usage"]["totalTokens"] == 10


def test_with_a_cold_cache_the_light_model_reads_the_end_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened("- decided: port 80")
    session = relay_with(tmp_path, opened, monkeypatch, warm=False)
    ((info, model),) = opened.models
    assert (info.provider, info.id, info.api) == ("deepseek", "flash", "openai-completions")
    (request,) = model.requests
    (message,) = request.messages
    assert "[User]: the second request" in str(message["content"])
    assert request.session_id is None
    assert "- decided: port 80" in summary(session)


def test_with_a_cold_cache_and_no_light_model_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened("never")
    session = relay_with(tmp_path, opened, monkeypatch, warm=False, light=False)
    assert opened.models == []
    assert "Open questions" not in summary(session)


class Hangs(Closable):
    async def respond(self, request: ModelRequest, signal: AbortSignal) -> Message:
        await asyncio.sleep(60)
        raise AssertionError


@pytest.mark.parametrize("failure", ["error", "empty", "raises", "refused", "hangs"])
def test_any_failure_leaves_the_note_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    class Refused(Opened):
        def __call__(self, info: ModelInfo, *, api_key: str | None) -> Closable:
            if failure == "refused":
                raise SettingsError("no key")
            if failure == "hangs":
                return Hangs()
            return super().__call__(info, api_key=api_key)

    scripts: dict[str, list[Any]] = {"error": [Reply(error="overloaded")], "empty": [""], "raises": []}
    monkeypatch.setattr(written, "TIMEOUT_SECONDS", 0.2)
    began = time.monotonic()
    session = relay_with(tmp_path, Refused(*scripts.get(failure, [])), monkeypatch, warm=True)
    assert time.monotonic() - began < 20
    assert summary(session).startswith("# Relay note 1")
    assert "Open questions" not in summary(session)


def test_it_is_off_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened("never")
    monkeypatch.setattr(written, "opener", lambda: opened)
    note(tmp_path)
    assert opened.models == []
