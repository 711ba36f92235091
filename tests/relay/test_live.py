"""Relays in a live session: by hand, before a new message, what the model gets afterwards, and everything that may
come between."""

from __future__ import annotations

import asyncio
import hashlib
import stat
from pathlib import Path
from typing import Any

import pytest

from contexthost.errors import CompactionFailed
from contexthost.inbox import HELD_TYPE, SENT_TYPE
from contexthost.messages import text_of
from contexthost.models import Reply, ScriptedCall
from contexthost_relay import relays
from contexthost_relay.material import is_relay
from contexthost_relay.relays import RESEND_TYPE
from support.builder import image_block
from support.relay import SUBAGENT
from support.relay_live import Editor, Gate, Live, big, history_file, log_lines, user_texts


@pytest.fixture(autouse=True)
def keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "50")


def notes(home: Path) -> list[Path]:
    return sorted((home / "data" / "plugins" / "relay").glob("*/*"))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# By hand -------------------------------------------------------------------------------------------------------------


def test_the_next_request_is_system_note_and_tail(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        path = history_file(tmp_path / "s.jsonl", 10)
        script = [big("the third answer", 90_000), "done"]
        async with Live(path, script, system_prompt="You are careful.") as live:
            await live.host.prompt("the third request")
            await live.host.prompt("/relay")
            await live.host.prompt("the fourth request")
            request = live.model.requests[1]
            roles = [message["role"] for message in request.messages]
            assert roles == ["system", "user", "user", "assistant", "user"]
            texts = [text_of(message["content"]) for message in request.messages[1:]]
            assert "# Relay note 1\n" in texts[0]
            assert "the first request" in texts[0]
            assert "> the second answer" in texts[0]
            assert ["the third request" in texts[1], "the third answer" in texts[2]] == [True, True]
            assert "the fourth request" in texts[3]
            assert "the first answer word word" not in "".join(texts[1:])
            (note,) = notes(home)
            assert note.name == "1.md"
            assert note.read_text() == live.host.snapshot.checkpoint.data["summary"]  # type: ignore[union-attr]
            assert stat.S_IMODE(note.stat().st_mode) == 0o600
            assert stat.S_IMODE(note.parent.stat().st_mode) == 0o700
            (told,) = [text for text in live.texts if "relay" in text]
            assert told.startswith("context-relay: relay 90k → ~")
            (line,) = log_lines(home)
            assert {key: line[key] for key in ("sessionId", "trigger", "tokensBefore", "ok")} == {
                "sessionId": "session-1",
                "trigger": "manual",
                "tokensBefore": 90_000,
                "ok": True,
            }
            assert line["noteChars"] == len(note.read_text())
            kept = live.host.session.get(line["keptFrom"])
            assert kept is not None
            assert user_texts([kept]) == ["the third request"]

    asyncio.run(scenario())


def test_when_there_is_nothing_to_relay_it_says_so(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        path = history_file(tmp_path / "s.jsonl")
        async with Live(path) as live:
            await live.host.prompt("/relay")
            await live.host.prompt("/relay")
            (error,) = [event for event in live.told if event.level == "error"]
            assert error.message.startswith("context-relay: nothing to relay: nothing to compact")
            assert [line["ok"] for line in log_lines(home)] == [True, False]
            assert len(notes(home)) == 1

    asyncio.run(scenario())


def test_it_is_for_idle_sessions_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = history_file(tmp_path / "s.jsonl", 10)
        async with Live(path, [Reply(text="slow", delay_seconds=0.3)]) as live:
            run = asyncio.create_task(live.host.prompt("go"))
            await live.until(lambda: live.model.requests)
            await live.host.prompt("/relay")
            assert "something is going on" in live.texts[-1]
            await run
            assert live.host.snapshot.checkpoint is None

    asyncio.run(scenario())


def test_other_compactions_are_left_alone(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        path = history_file(tmp_path / "s.jsonl")
        async with Live(path, ["## Goal\nA model's summary", "## Goal\nprefix"]) as live:
            entry = await live.host.compact()
            assert not is_relay(entry)
            assert "summary" in entry.data["summary"]
            assert notes(home) == []
            assert log_lines(home) == []

    asyncio.run(scenario())


def test_no_model_is_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Live(history_file(tmp_path / "s.jsonl")) as live:
            await live.host.prompt("/relay")
            assert live.model.requests == []
            assert live.host.snapshot.checkpoint is not None

    asyncio.run(scenario())


def test_the_model_calls_recall(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = history_file(tmp_path / "s.jsonl", 1_000)
        script = [Reply(calls=[ScriptedCall("recall", {"query": "FIRST answer", "limit": "x"})]), "it was the first"]
        async with Live(path, script) as live:
            await live.host.prompt("/relay")
            await live.host.prompt("what was the first answer?")
            result = next(e.message for e in reversed(live.host.session.entries) if e.role == "toolResult")
            assert result is not None
            assert result["isError"] is False
            text = result["content"][0]["text"]
            assert text.startswith("Entries with all of: FIRST answer.")
            assert "[00000002] assistant · " in text
            assert "compacted away\nthe first answer word" in text

    asyncio.run(scenario())


# Before a new message ------------------------------------------------------------------------------------------------


def test_images_and_what_arrives_meanwhile_are_sent_once_as_one_message(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        first, second, third = ({**image_block(), "data": data} for data in ("AA==", "AQ==", "Ag=="))
        path = history_file(tmp_path / "s.jsonl", 152_000)
        async with Live(path, ["done"], plugins=[gate]) as live:
            prompted = await live.host.prompt("look at these", images=[first, second])
            assert prompted.disposition == "held"
            await gate.reached.wait()
            later = await live.host.follow_up("and this", images=[third])
            assert later.disposition == "held"
            gate.open.set()
            answer = await prompted.answer()
            assert answer is not None
            assert (await later.answer()) == answer
            await live.host.wait_idle()

            entries = live.host.session.entries
            assert user_texts(entries)[2:] == ["look at these\n\nand this"]
            sent = entries[-2]
            assert sent.message is not None
            assert sent.message["content"][1:] == [first, second, third]
            kinds = [e.data.get("customType") or e.role or e.type for e in entries[4:]]
            after = kinds[kinds.index(RESEND_TYPE) :]  # the host declares its tools in between
            assert [kind for kind in after if kind != "system"] == [RESEND_TYPE, SENT_TYPE, "user", "assistant"]
            resend = next(e for e in entries if e.data.get("customType") == RESEND_TYPE)
            assert resend.data["data"] == {
                "trigger": "input",
                "items": [
                    {"sha256": digest("look at these"), "images": 2},
                    {"sha256": digest("and this"), "images": 1},
                ],
            }
            (request,) = live.model.requests
            assert "# Relay note 1" in str(list(request.messages))
            told = next(text for text in live.texts if "auto relay" in text)
            assert told.startswith("context-relay: auto relay (new message) 152k → ~")
            (line,) = log_lines(home)
            assert (line["trigger"], line["ok"]) == ("input", True)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("tokens", "options", "environment"),
    [
        (99_999, {}, {}),
        (150_000, {"source": "extension"}, {}),
        (150_000, {}, {"CONTEXTHOST_RELAY__AUTO__ONINPUT": "false"}),
        (150_000, {}, {"CONTEXTHOST_RELAY__ENABLED": "false"}),
        (150_000, {}, {"CONTEXTHOST_RELAY__AUTO__INPUTMINTOKENS": "160000"}),
    ],
)
def test_messages_that_are_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: int, options: dict[str, Any], environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    async def scenario() -> None:
        async with Live(history_file(tmp_path / "s.jsonl", tokens), ["done"]) as live:
            prompted = await live.host.prompt("go on", **options)
            assert prompted.disposition == "started"
            assert live.host.snapshot.checkpoint is None

    asyncio.run(scenario())


def test_the_message_goes_out_when_the_relay_fails(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(relays, "write_note_file", full)

    async def scenario() -> None:
        async with Live(history_file(tmp_path / "s.jsonl"), ["done"]) as live:
            prompted = await live.host.prompt("go on", images=[image_block()])
            assert await prompted.answer() is not None
            await live.host.wait_idle()
            assert live.host.snapshot.checkpoint is None
            assert user_texts(live.host.session.entries)[2:] == ["go on"]
            failed = next(text for text in live.texts if text.startswith("context-relay: the relay failed"))
            assert "No space left" in failed
            assert failed.endswith("; your message is sent all the same")
            (line,) = log_lines(home)
            assert (line["trigger"], line["ok"]) == ("input", False)
            assert "No space left" in line["error"]
            assert notes(home) == []

    asyncio.run(scenario())


def test_the_message_goes_out_when_there_is_nothing_to_relay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "1000000")

    async def scenario() -> None:
        async with Live(history_file(tmp_path / "s.jsonl"), ["done"]) as live:
            prompted = await live.host.prompt("go on")
            assert await prompted.answer() is not None
            assert user_texts(live.host.session.entries)[2:] == ["go on"]

    asyncio.run(scenario())


def test_the_message_goes_out_when_the_relay_is_cancelled_and_no_note_stays(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with Live(history_file(tmp_path / "s.jsonl"), ["done"], plugins=[gate]) as live:
            prompted = await live.host.prompt("go on")
            await gate.reached.wait()
            live.host.abort()
            assert await prompted.answer() is not None
            await live.host.wait_idle()
            assert user_texts(live.host.session.entries)[2:] == ["go on"]
            assert "context-relay: the relay was cancelled; your message is sent all the same" in live.texts
            assert notes(home) == []
            (line,) = log_lines(home)
            assert (line["ok"], line["error"]) == (False, "cancelled")

    asyncio.run(scenario())


def test_after_a_relay_none_until_the_context_has_grown(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = history_file(tmp_path / "s.jsonl")
        script = [big(tokens=120_000), big(tokens=149_000), big(tokens=151_000), big()]
        async with Live(path, script) as live:
            held = await live.host.prompt("third")
            await held.answer()
            await live.host.wait_idle()
            assert (await live.host.prompt("fourth")).disposition == "started"
            assert (await live.host.prompt("fifth")).disposition == "started"  # 29,000 more
            last = await live.host.prompt("sixth")  # 31,000 more
            assert last.disposition == "held"
            await last.answer()
            assert [e.data["details"]["notePath"][-4:] for e in live.host.session.entries if is_relay(e)] == [
                "1.md", "2.md"
            ]  # fmt: skip

    asyncio.run(scenario())


def test_a_second_message_starts_no_second_relay(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with Live(history_file(tmp_path / "s.jsonl"), ["done"], plugins=[gate]) as live:
            first, second = await asyncio.gather(live.host.prompt("one"), live.host.prompt("two"))
            assert {first.disposition, second.disposition} == {"held"}
            gate.open.set()
            await first.answer()
            await live.host.wait_idle()
            assert user_texts(live.host.session.entries)[2:] == ["one\n\ntwo"]
            assert len(log_lines(home)) == 1

    asyncio.run(scenario())


# Switches and ends ---------------------------------------------------------------------------------------------------


def test_a_switch_during_a_relay_gives_the_text_back_and_sends_nothing_anywhere(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        gate, editor = Gate(), Editor("a draft")
        path, other = history_file(tmp_path / "s.jsonl"), history_file(tmp_path / "other.jsonl", 10)
        async with Live(path, ["never"], plugins=[gate], ui=editor) as live:
            await live.host.prompt("go on", images=[image_block(), image_block()])
            await gate.reached.wait()
            assert await live.host.switch(other)
            gate.open.set()
            await asyncio.sleep(0.05)
            assert editor.text == "a draft"  # with images it is kept whole, for the session's next start
            assert live.model.requests == []
            assert user_texts(live.host.session.entries) == ["the first request", "the second request"]
            warning = next(event for event in live.told if "images" in event.message)
            assert warning.level == "warning"
            assert "It has 2 images: attach again what has not come back with it" in warning.message
            assert notes(home) == []
        text = path.read_text()
        assert '"compaction"' not in text
        assert text.count('"role":"user"') == 2

    asyncio.run(scenario())


def test_a_text_goes_back_to_the_editor_in_front_of_the_draft(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate, editor = Gate(), Editor("a draft")
        path = history_file(tmp_path / "s.jsonl")
        async with Live(path, plugins=[gate], ui=editor) as live:
            await live.host.prompt("go on")
            await gate.reached.wait()
            await live.host.switch(None)
            assert editor.text == "go on\n\na draft"
            assert any(text.endswith("it was given back and not sent anywhere") for text in live.texts)
            assert live.model.requests == []

    asyncio.run(scenario())


def test_an_end_without_an_editor_keeps_the_text_for_the_next_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        path = history_file(tmp_path / "s.jsonl")
        async with Live(path, plugins=[gate]) as live:
            await live.host.prompt("go on")
            await gate.reached.wait()
        assert any("given back and not sent anywhere" in text for text in live.texts)
        async with Live(path, ["done"]) as again:
            assert [item.text for item in again.host.unsent] == ["go on"]
            assert again.host.snapshot.checkpoint is None

    asyncio.run(scenario())


def test_what_was_held_is_recorded_before_anything_else_happens(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        path = history_file(tmp_path / "s.jsonl")
        async with Live(path, ["done"], plugins=[gate]) as live:
            await live.host.prompt("go on")
            record = live.host.session.entries[-1]
            assert record.data["customType"] == HELD_TYPE
            assert record.data["data"]["sha256"] == digest("go on")
            gate.open.set()
            await live.host.wait_idle()

    asyncio.run(scenario())


# Sessions that are left alone ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mode"), [(SUBAGENT, "rpc"), (SUBAGENT, "tui"), (None, "print"), (None, "json")]
)
def test_subagents_and_headless_sessions_are_left_alone(
    tmp_path: Path, home: Path, name: str | None, mode: Any
) -> None:
    async def scenario() -> None:
        path = history_file(tmp_path / "s.jsonl", name=name, cached=5)
        async with Live(path, ["done"], mode=mode) as live:
            assert "relay" not in live.host.commands()
            assert (await live.host.prompt("go on")).disposition == "started"
            (request,) = live.model.requests
            assert [tool.name for tool in request.tools] == []
            with pytest.raises(CompactionFailed):
                await live.host.compact(to="relay")
            assert live.host.snapshot.checkpoint is None
            assert (notes(home), log_lines(home)) == ([], [])

    asyncio.run(scenario())


def test_main_sessions_have_both(tmp_path: Path) -> None:
    async def scenario() -> None:
        for mode in ("tui", "rpc"):
            async with Live(history_file(tmp_path / "s.jsonl", 10), ["done"], mode=mode) as live:
                assert "relay" in live.host.commands()
                await live.host.prompt("go")
                assert [tool.name for tool in live.model.requests[0].tools] == ["recall"]

    asyncio.run(scenario())
