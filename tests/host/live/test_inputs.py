"""Each input of a live session is sent exactly once, or is back in the editor, or is found at the next start.

Held inputs with images and order, what arrives meanwhile, releases, switches, shutdowns, a killed process; many queued
prompts from many tasks; inputs that cannot be written; what plugins do beside the session.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contexthost.context import Context, ModelRequest
from contexthost.errors import SessionBusy, SessionWriteError, Unsupported
from contexthost.events import Handled, Hold, InputEvent, Transform
from contexthost.hookspecs import hookimpl
from contexthost.host import Host
from contexthost.models.scripted import Reply, ScriptedModel
from contexthost.session import Session
from support.live import Recorder, Slow, run, until

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
OTHER = {"type": "image", "data": "aG8=", "mimeType": "image/png"}


class Holder:
    """Holds every input while ``holding``."""

    plugin_name = "holder"

    def __init__(self) -> None:
        self.holding = True
        self.seen: list[str] = []
        self.ctx: Context | None = None

    @hookimpl
    def input(self, event: InputEvent, ctx: Context) -> Hold | None:
        self.ctx = ctx
        self.seen.append(event.text)
        return Hold() if self.holding else None

    def release(self) -> None:
        assert self.ctx is not None
        self.holding = False
        self.ctx.release_held()


class Editor:
    """A user interface with a draft in its editor."""

    def __init__(self, draft: str = "") -> None:
        self.text = draft

    async def confirm(self, title: str, message: str, timeout_seconds: float | None) -> bool:
        return False

    async def get_editor_text(self) -> str:
        return self.text

    def set_editor_text(self, text: str) -> None:
        self.text = text


def opened(path: Path | None = None, *plugins: object, script: Any = ("a", "b", "c"), **options: Any) -> Host:
    return Host.open(path, model=ScriptedModel(script), plugins=plugins, installed_plugins=False, **options)


def fail(*_: object) -> None:
    raise ZeroDivisionError


def sent(entries: Sequence[Any]) -> list[str]:
    return [entry.message["content"][0]["text"] for entry in entries if entry.role == "user"]


# Held --------------------------------------------------------------------------------------------------------------


def test_held_inputs_are_joined_with_their_images_in_order_and_sent_once() -> None:
    async def test() -> None:
        holder = Holder()
        async with opened(None, holder) as host:
            first = await host.prompt("one", images=[IMAGE])
            second = await host.prompt("two")
            third = await host.prompt("three", images=[OTHER])
            assert [one.disposition for one in (first, second, third)] == ["held", "held", "held"]
            assert holder.seen == ["one"]  # what arrives meanwhile is kept with it
            assert host.session.entries[-1].type == "custom"
            holder.release()
            holder.release()
            answers = [await one.answer() for one in (first, second, third)]
            assert all(answer is not None and answer["content"][0]["text"] == "a" for answer in answers)
            await host.wait_idle()
            [message] = [entry.message for entry in host.session.entries if entry.role == "user" and entry.message]
            assert message["content"] == [{"type": "text", "text": "one\n\ntwo\n\nthree"}, IMAGE, OTHER]

    run(test)


@pytest.mark.parametrize("when", ["within the hook", "in the next step", "in a task"])
def test_a_release_that_comes_before_the_input_is_held_is_not_lost(when: str) -> None:
    """As of a plugin that holds an input for work which turns out to be none."""

    class Hasty(Holder):
        @hookimpl
        def input(self, event: InputEvent, ctx: Context) -> Hold | None:
            held = super().input(event, ctx)
            if held and when == "within the hook":
                self.release()
            elif held and when == "in the next step":
                ctx.call_later(0, self.release)
            elif held:
                ctx.spawn(self.at_once())
            return held

        async def at_once(self) -> None:
            self.release()

    async def test() -> None:
        async with opened(None, hasty := Hasty()) as host:
            prompted = await host.prompt("one")
            assert prompted.disposition == "held"
            assert (await asyncio.wait_for(prompted.answer(), 30)) is not None
            assert (await host.prompt("two")).disposition == "started"
            assert hasty.seen == ["one", "two"]

    run(test)


def test_a_held_input_leaves_its_hold_by_the_write_that_sends_it(tmp_path: Path) -> None:
    async def test() -> None:
        holder = Holder()
        async with opened(tmp_path / "s.jsonl", holder) as host:
            held = await host.prompt("one")
            holder.release()
            await held.answer()
        async with opened(tmp_path / "s.jsonl") as again:
            assert again.unsent == []
            assert sent(again.session.entries) == ["one"]

    run(test)


def test_what_is_released_during_a_run_is_sent_at_its_end() -> None:
    async def test() -> None:
        holder, slow = Holder(), Slow()
        holder.holding = False
        script = ["a", Reply(text="b", delay_seconds=0.05), "c"]
        async with opened(None, holder, script=script, tools=[slow.tool]) as host:
            await host.prompt("one")
            running = asyncio.create_task(host.prompt("two"))
            await until(lambda: not host.idle)
            holder.holding = True
            held = await host.prompt("three", streaming_behavior="followUp")
            assert held.disposition == "held"
            holder.release()
            await running
            await held.answer()
            assert sent(host.session.entries) == ["one", "two", "three"]

    run(test)


def test_a_transformed_input_is_held_as_it_was_transformed_and_a_handled_one_is_not_sent() -> None:
    class First:
        plugin_name = "a-first"

        @hookimpl
        def input(self, event: InputEvent, ctx: Context) -> Transform | Handled:
            return Handled() if event.text == "done" else Transform(event.text.upper())

    async def test() -> None:
        holder = Holder()
        async with opened(None, First(), holder) as host:
            assert (await host.prompt("done")).disposition == "handled"
            held = await host.prompt("one")
            holder.release()
            await held.answer()
            assert sent(host.session.entries) == ["ONE"]

    run(test)


@pytest.mark.parametrize("leave", ["shutdown", "switch"])
def test_a_held_input_never_goes_into_another_session(leave: str, tmp_path: Path) -> None:
    async def test() -> None:
        holder = Holder()
        path = tmp_path / "s.jsonl"
        async with opened(path, holder) as host:
            held = await host.prompt("one", images=[IMAGE])
            old = holder.ctx
            assert old is not None
            if leave == "switch":
                await host.switch(tmp_path / "other.jsonl")
                with pytest.raises(Unsupported, match="this session has ended"):
                    old.release_held()
                with pytest.raises(Unsupported):
                    old.send_user_message("x")
                assert host.session.entries == []
        assert await held.answer() is None
        async with opened(path, script=["late"]) as again:
            [found] = again.unsent
            assert (found.text, found.images) == ("one", (IMAGE,))
            prompted = await again.resend_unsent()
            assert prompted is not None
            assert await again.resend_unsent() is None
        async with opened(path) as last:
            assert last.unsent == []
            assert sent(last.session.entries) == ["one"]

    run(test)


def test_what_was_not_sent_goes_back_to_the_editor_in_front_of_the_draft(tmp_path: Path) -> None:
    async def test() -> None:
        holder, editor = Holder(), Editor("draft")
        path = tmp_path / "s.jsonl"
        async with opened(path, holder, ui=editor) as host:
            await host.prompt("one")
            await host.prompt("two", images=[IMAGE])
        assert editor.text == "one\n\ndraft"
        later = Editor()
        async with opened(path, ui=later) as again:
            assert [item.text for item in again.unsent] == ["two"]  # an editor takes no images
            assert later.text == ""

    run(test)


def test_an_input_that_was_held_when_the_process_was_killed_is_found_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    command = [sys.executable, str(Path(__file__).with_name("holder.py")), str(path), "please"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        process.kill()

    async def test() -> None:
        async with opened(path) as host:
            [found] = host.unsent
            assert (found.text, found.images) == ("please", (IMAGE,))
            prompted = await host.resend_unsent()
            assert prompted is not None
            answer = await prompted.answer()
            assert answer is not None
            assert sent(host.session.entries) == ["please"]

    run(test)


def test_without_a_model_held_inputs_stay_held() -> None:
    async def test() -> None:
        holder = Holder()
        async with Host.open(plugins=[holder], installed_plugins=False) as host:
            held = await host.prompt("one")
            with pytest.raises(Unsupported, match="no model"):
                host.release_held()
            await host.set_model(ScriptedModel(["a"]))
            holder.release()
            assert await held.answer() is not None

    run(test)


# Queued ------------------------------------------------------------------------------------------------------------


def test_a_thousand_prompts_from_twenty_tasks_are_each_answered_once_in_order() -> None:
    def echo(request: ModelRequest) -> str:
        return "re " + str(request.messages[-1]["content"][0]["text"])

    async def test() -> None:
        order: list[str] = []

        async def ask(host: Host, number: int) -> None:
            waiting = []
            for count in range(50):
                prompted = await host.follow_up(f"{number}:{count}")
                waiting.append((f"{number}:{count}", prompted))
                if count % 10 == 0:
                    await asyncio.sleep(0)
            for text, prompted in waiting:
                answer = await prompted.answer()
                assert answer is not None
                assert answer["content"][0]["text"] == f"re {text}"

        async with opened(None, script=[echo] * 1000) as host:
            await asyncio.gather(*(ask(host, number) for number in range(20)))
            await host.wait_idle()
            order = sent(host.session.entries)
        assert len(order) == len(set(order)) == 1000
        for number in range(20):
            mine = [text for text in order if text.startswith(f"{number}:")]
            assert mine == [f"{number}:{count}" for count in range(50)]

    run(test)


def test_a_prompt_that_does_not_say_how_to_queue_is_refused_before_any_plugin_sees_it() -> None:
    async def test() -> None:
        recorder, slow = Recorder(), Slow()
        async with opened(None, recorder, script=[Reply(text="a", delay_seconds=0.05)], tools=[slow.tool]) as host:
            running = asyncio.create_task(host.prompt("one"))
            await until(lambda: not host.idle)
            with pytest.raises(SessionBusy, match="a run is going on"):
                await host.prompt("two")
            await running
            assert "input busy: two" not in recorder.log

    run(test)


def test_inputs_of_a_session_that_cannot_be_written_are_kept_and_sent_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        slow = Slow()
        async with opened(tmp_path / "s.jsonl", script=["a", Reply(text="b", delay_seconds=0.05), "c", "d"]) as host:
            await host.prompt("one")
            append = Session.append

            def full(self: Session, payloads: Sequence[Any], **more: Any) -> Any:
                if any(one.get("message", {}).get("role") == "user" for one in payloads):
                    raise SessionWriteError("no space left on device")
                return append(self, payloads, **more)

            running = asyncio.create_task(host.prompt("two"))
            await until(lambda: len(sent(host.session.entries)) == 2)
            queued = await host.follow_up("three")
            monkeypatch.setattr(Session, "append", full)
            with pytest.raises(SessionWriteError):
                await running
            assert host.pending == 1
            with pytest.raises(SessionWriteError):
                await host.prompt("four")  # refused loudly: it is not kept
            monkeypatch.setattr(Session, "append", append)
            await host.prompt("five")
            assert await queued.answer() is not None
            await host.wait_idle()
            assert sent(host.session.entries) == ["one", "two", "five", "three"]
            assert slow.cancelled == 0

    run(test)


def test_queued_inputs_are_found_at_the_next_start(tmp_path: Path) -> None:
    async def test() -> None:
        slow = Slow()
        path = tmp_path / "s.jsonl"
        async with opened(path, script=[Reply(text="a", delay_seconds=30)], tools=[slow.tool]) as host:
            running = asyncio.create_task(host.prompt("one"))
            await until(lambda: not host.idle)
            await host.follow_up("two")
            await host.steer("three")
        await running
        async with opened(path) as again:
            assert [item.text for item in again.unsent] == ["three", "two"]  # what steers would have come first

    run(test)


# Beside the session ------------------------------------------------------------------------------------------------


def test_spawned_work_and_timers_end_with_the_session_without_a_warning() -> None:
    ended: list[str] = []

    class Busy:
        plugin_name = "busy"

        @hookimpl
        def session_start(self, event: Any, ctx: Context) -> None:
            async def forever() -> None:
                try:
                    await asyncio.sleep(60)
                finally:
                    ended.append("cancelled")

            async def fails() -> None:
                raise RuntimeError("broken")

            ctx.spawn(forever())
            ctx.spawn(fails())
            ctx.call_later(60, lambda: ended.append("too late"))
            ctx.call_later(0, lambda: ended.append("in time"))
            ctx.call_later(0, fail)

    async def test() -> None:
        told: list[str] = []
        host = opened(None, Busy())
        host.watch(lambda event: told.append(getattr(event, "message", "")))
        async with host:
            await asyncio.sleep(0.02)
            assert ended == ["in time"]
        assert ended == ["in time", "cancelled"]
        assert [text.split(": ")[1] for text in told] == ["RuntimeError", "ZeroDivisionError"]

    run(test)


def test_a_message_sent_at_the_start_of_a_session_waits_for_all_plugins_to_have_started() -> None:
    class Eager:
        plugin_name = "a-eager"

        @hookimpl
        async def session_start(self, event: Any, ctx: Context) -> None:
            ctx.send_user_message("good morning")
            await asyncio.sleep(0.01)

    async def test() -> None:
        recorder = Recorder()
        async with opened(None, Eager(), recorder) as host:
            await until(lambda: len(sent(host.session.entries)) == 1)
            await host.wait_idle()
            assert recorder.log[:2] == ["session_start startup", "input idle: good morning"]

    run(test)


def test_a_watcher_that_fails_does_not_harm_the_run() -> None:
    async def test() -> None:
        async with opened() as host:
            host.watch(fail)
            prompted = await host.prompt("one")
            assert await prompted.answer() is not None

    run(test)


def test_closing_twice_and_using_a_closed_session() -> None:
    async def test() -> None:
        host = opened()
        async with host:
            await asyncio.gather(host.shutdown(), host.shutdown())
        with pytest.raises(Unsupported, match="closed"):
            await host.prompt("x")

    run(test)
