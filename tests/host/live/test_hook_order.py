"""The hooks of a live session come in Pi's order, in every way in which a run or a compaction can go.

The expected logs are written by hand from Pi's documented order; `tests/integration/test_hook_order_pi.py` compares
the same scenarios with the real Pi.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from contexthost.context import Context, ModelInfo
from contexthost.errors import CompactionCancelled, CompactionFailed, NothingToCompact
from contexthost.host import Host
from contexthost.models.scripted import Reply, ScriptedCall, ScriptedModel, Step
from contexthost.watch import TextArrived
from support.live import Recorder, Slow, echo, run, until

WINDOW = 128_000
FULL = {"input": 120_000, "output": 10, "totalTokens": 120_010}  # over 128,000 - 16,384
OVERFLOW = Reply(error="This model's maximum context length is 128000 tokens.")

RUN = ["agent_start busy", "context", "turn_end 0 completed results=0"]
SETTLED = ["before_settle completed", "settled done idle"]
ABORTED = ["turn_end 0 aborted results=0", "settled aborted idle"]


@dataclass
class Live:
    host: Host
    recorder: Recorder
    model: ScriptedModel
    slow: Slow

    @property
    def log(self) -> list[str]:
        return self.recorder.take()

    def kinds(self) -> list[str]:
        """What is in the session, in short."""
        return [str(entry.role or entry.type) for entry in self.host.session.entries]


@asynccontextmanager
async def live(script: Sequence[Step], *, recorder: Recorder | None = None, **options: Any) -> AsyncIterator[Live]:
    recorder = recorder or Recorder("answer")
    info = ModelInfo(provider="scripted", id="s", api="scripted", context_window=WINDOW, max_tokens=1000)
    model, slow = ScriptedModel(script, info=info), Slow()
    host = Host.open(
        model=model, plugins=[recorder], tools=[echo(), slow.tool], installed_plugins=False, **options
    )
    async with host:
        assert recorder.take() == ["session_start startup"]
        yield Live(host, recorder, model, slow)


def call(text: str = "x", **more: Any) -> Reply:
    return Reply(calls=[ScriptedCall("echo", {"text": text})], **more)


def abort(ctx: Context) -> None:
    ctx.abort()


SLOW = Reply(calls=[ScriptedCall("slow"), ScriptedCall("echo", {"text": "y"})])


# Runs --------------------------------------------------------------------------------------------------------------


def test_a_plain_run() -> None:
    async def test() -> None:
        async with live(["hello"]) as it:
            await it.host.prompt("hi")
            assert it.log == ["input idle: hi", *RUN, *SETTLED]
        assert it.log == ["session_shutdown quit"]

    run(test)


def test_a_run_with_tools() -> None:
    async def test() -> None:
        async with live([call(), "done"]) as it:
            await it.host.prompt("go")
            assert it.log == [
                "input idle: go",
                "agent_start busy",
                "context",
                "turn_end 0 completed results=1",
                "context",
                "turn_end 1 completed results=0",
                *SETTLED,
            ]
            assert it.kinds() == ["model_change", "system", "user", "assistant", "toolResult", "assistant"]

    run(test)


def test_queued_inputs_steer_between_turns_and_follow_at_the_end() -> None:
    async def test() -> None:
        async with live([Reply(text="a", delay_seconds=0.05), "b", "c", "d"]) as it:
            first = asyncio.create_task(it.host.prompt("one"))
            await until(lambda: "context" in it.recorder.log)
            assert (await it.host.follow_up("later")).disposition == "queued"
            assert (await it.host.steer("now")).disposition == "queued"
            await first
            assert it.log == [
                "input idle: one",
                "agent_start busy",
                "context",
                "input busy followUp: later",
                "input busy steer: now",
                "turn_end 0 completed results=0",
                "context",
                "turn_end 1 completed results=0",
                "context",
                "turn_end 2 completed results=0",
                *SETTLED,
            ]
            said = [e.message["content"][0]["text"] for e in it.host.session.entries if e.message and e.role == "user"]
            assert said == ["one", "now", "later"]

    run(test)


def test_a_continuation_before_the_run_settles_starts_again_without_an_input() -> None:
    async def test() -> None:
        async with live(["a", "b"]) as it:
            it.recorder.go_on = 1
            await it.host.prompt("go")
            assert it.log == ["input idle: go", *RUN, "before_settle completed", *RUN, *SETTLED]

    run(test)


def test_a_failed_answer_settles_the_run_as_failed() -> None:
    async def test() -> None:
        async with live([Reply(error="no such model")]) as it:
            prompted = await it.host.prompt("go")
            answer = await prompted.answer()
            assert answer is not None
            assert answer["errorMessage"] == "no such model"
            assert it.log == [
                "input idle: go",
                "agent_start busy",
                "context",
                "turn_end 0 error results=0",
                "before_settle error",
                "settled done idle",
            ]

    run(test)


# Aborts ------------------------------------------------------------------------------------------------------------


def test_an_abort_while_the_answer_arrives() -> None:
    async def test() -> None:
        async with live([Reply(text="ab", pieces=2, pause_seconds=30), "next"]) as it:
            pieces: list[object] = []
            it.host.watch(lambda event: pieces.append(event) if isinstance(event, TextArrived) else None)
            asked = asyncio.create_task(it.host.prompt("go"))
            await until(lambda: len(pieces) == 1)
            it.host.abort()
            answer = await (await asked).answer()
            assert answer is not None
            assert (answer["stopReason"], answer["content"]) == ("aborted", [{"type": "text", "text": "a"}])
            assert it.log == ["input idle: go", "agent_start busy", "context", *ABORTED]
            await it.host.prompt("again")
            assert it.log == ["input idle: again", *RUN, *SETTLED]

    run(test)


def test_an_abort_while_tools_run_leaves_every_call_with_a_result() -> None:
    async def test() -> None:
        async with live([SLOW]) as it:
            asked = asyncio.create_task(it.host.prompt("go"))
            await it.slow.reached.wait()
            it.host.abort()
            await asked
            assert it.log == [
                "input idle: go",
                "agent_start busy",
                "context",
                "turn_end 0 completed results=2",
                "context",
                "turn_end 1 aborted results=0",
                "settled aborted idle",
            ]
            results = [entry.message for entry in it.host.session.entries if entry.role == "toolResult"]
            assert [(one["isError"], one["content"][0]["text"]) for one in results if one] == [
                (True, "Operation aborted"),
                (False, "echo y"),
            ]
            assert it.slow.cancelled == 1
            assert len(it.model.requests) == 1  # the aborted answer was not asked for

    run(test)


@pytest.mark.parametrize("hook", ["agent_start", "context"])
def test_an_abort_before_the_request(hook: str) -> None:
    async def test() -> None:
        async with live([]) as it:
            it.recorder.at[hook] = abort
            await it.host.prompt("go")
            assert it.log == ["input idle: go", "agent_start busy", "context", *ABORTED]
            assert it.kinds()[-2:] == ["user", "assistant"]
            assert it.model.requests == []

    run(test)


def test_an_abort_at_the_end_of_a_turn_skips_the_boundary_before_settling() -> None:
    async def test() -> None:
        async with live(["a"]) as it:
            it.recorder.at["turn_end"] = abort
            await it.host.prompt("go")
            assert it.log == ["input idle: go", *RUN, "settled aborted idle"]

    run(test)


def test_an_abort_does_not_wait_for_a_plugin_that_hangs_at_the_end_of_a_turn() -> None:
    async def test() -> None:
        async with live(["a"]) as it:

            async def hang(ctx: Context) -> None:
                await asyncio.sleep(60)

            it.recorder.at["turn_end"] = hang
            asked = asyncio.create_task(it.host.prompt("go"))
            await until(lambda: any(line.startswith("turn_end") for line in it.recorder.log))
            it.host.abort()
            async with asyncio.timeout(5):
                await asked
            assert it.log[-1] == "settled aborted idle"

    run(test)


def test_an_abort_before_the_run_settles_ends_it_without_a_continuation() -> None:
    async def test() -> None:
        async with live(["a"]) as it:
            it.recorder.at["before_settle"] = abort
            it.recorder.go_on = 1
            await it.host.prompt("go")
            assert it.log == ["input idle: go", *RUN, "before_settle completed", "settled aborted idle"]

    run(test)


def test_what_was_queued_when_a_run_is_aborted_is_sent_in_the_next_one() -> None:
    async def test() -> None:
        async with live([SLOW, "b", "c"]) as it:
            asked = asyncio.create_task(it.host.prompt("go"))
            await it.slow.reached.wait()
            steered, followed = await it.host.steer("steer"), await it.host.follow_up("follow")
            it.host.abort()
            await asked
            assert await steered.answer() is not None
            answer = await followed.answer()
            assert answer is not None
            assert answer["content"][0]["text"] == "c"
            await it.host.wait_idle()
            users = [e.message["content"][0]["text"] for e in it.host.session.entries if e.role == "user" and e.message]
            assert users == ["go", "steer", "follow"]

    run(test)


# Threshold ---------------------------------------------------------------------------------------------------------


COMPACTED = ["before_compact threshold", "compact threshold plugin"]


def test_the_threshold_after_a_run() -> None:
    async def test() -> None:
        async with live(["a", Reply(text="b", usage=FULL)]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            await it.host.prompt("two")
            assert it.log == ["input idle: two", *RUN, *COMPACTED, *SETTLED]
            assert it.host.snapshot.checkpoint is it.recorder.compacted[0].compaction_entry

    run(test)


def test_the_threshold_between_two_turns() -> None:
    async def test() -> None:
        async with live(["a", call(usage=FULL), "done"]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            await it.host.prompt("two")
            assert it.log == [
                "input idle: two",
                "agent_start busy",
                "context",
                "turn_end 0 completed results=1",
                *COMPACTED,
                "context",
                "turn_end 1 completed results=0",
                *SETTLED,
            ]

    run(test)


def test_the_threshold_before_a_prompt() -> None:
    async def test() -> None:
        async with live(["a", Reply(text="b", usage=FULL), "c"]) as it:
            await it.host.prompt("one")
            it.recorder.compacting = "cancel"
            await it.host.prompt("two")
            it.recorder.take()
            it.recorder.compacting = "answer"
            await it.host.prompt("three")
            assert it.log == ["input idle: three", *COMPACTED, *RUN, *SETTLED]

    run(test)


def test_a_cancelled_threshold_compaction_lets_the_run_go_on() -> None:
    async def test() -> None:
        async with live(["a", call(usage=FULL), "done"], recorder=Recorder("cancel")) as it:
            await it.host.prompt("one")
            it.recorder.take()
            await it.host.prompt("two")
            tried = ["before_compact threshold", "compact_failed threshold aborted"]
            assert it.log == [
                "input idle: two",
                "agent_start busy",
                "context",
                "turn_end 0 completed results=1",
                *tried,
                "context",
                "turn_end 1 completed results=0",
                *SETTLED,
            ]  # the answer after it says that there is room, and so nothing is tried at the end

    run(test)


def test_an_abort_during_a_threshold_compaction_aborts_the_run() -> None:
    async def test() -> None:
        async with live(["a", call(usage=FULL)]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            it.recorder.compacting = "wait"
            asked = asyncio.create_task(it.host.prompt("two"))
            await it.recorder.waiting.wait()
            it.host.abort()
            await asked
            assert it.log == [
                "input idle: two",
                "agent_start busy",
                "context",
                "turn_end 0 completed results=1",
                "before_compact threshold",
                "compact_failed threshold aborted",
                "context",
                "turn_end 1 aborted results=0",
                "settled aborted idle",
            ]

    run(test)


# Overflow ----------------------------------------------------------------------------------------------------------


def test_an_overflow_that_a_compaction_mends() -> None:
    async def test() -> None:
        async with live(["a", OVERFLOW, "b"]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            prompted = await it.host.prompt("two")
            assert it.log == [
                "input idle: two",
                "agent_start busy",
                "context",
                "turn_end 0 error results=0",
                "before_compact overflow retry",
                "compact overflow plugin retry",
                *RUN,
                *SETTLED,
            ]
            answer = await prompted.answer()
            assert answer is not None
            assert answer["content"][0]["text"] == "b"
            assert it.kinds()[-5:] == ["user", "assistant", "context_edit", "compaction", "assistant"]

    run(test)


def test_an_overflow_that_a_compaction_does_not_mend() -> None:
    async def test() -> None:
        async with live(["a", OVERFLOW, OVERFLOW]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            await it.host.prompt("two")
            assert it.log == [
                "input idle: two",
                "agent_start busy",
                "context",
                "turn_end 0 error results=0",
                "before_compact overflow retry",
                "compact overflow plugin retry",
                "agent_start busy",
                "context",
                "turn_end 0 error results=0",
                "compact_failed overflow error",
                "before_settle error",
                "settled done idle",
            ]
            assert "after one compaction" in str(it.recorder.failed[0].error_message)

    run(test)


def test_an_overflow_whose_compaction_is_cancelled_settles_with_the_error() -> None:
    async def test() -> None:
        async with live(["a", OVERFLOW], recorder=Recorder("cancel")) as it:
            await it.host.prompt("one")
            it.recorder.take()
            await it.host.prompt("two")
            assert it.log == [
                "input idle: two",
                "agent_start busy",
                "context",
                "turn_end 0 error results=0",
                "before_compact overflow retry",
                "compact_failed overflow aborted",
                "before_settle error",
                "settled done idle",
            ]

    run(test)


def test_an_overflow_with_nothing_to_compact_is_told() -> None:
    async def test() -> None:
        async with live([OVERFLOW]) as it:
            told: list[str] = []
            it.host.watch(lambda event: told.append(getattr(event, "message", "")))
            await it.host.prompt("one")
            assert it.log == [
                "input idle: one",
                "agent_start busy",
                "context",
                "turn_end 0 error results=0",
                "before_settle error",
                "settled done idle",
            ]
            assert "the context does not fit the window, and there is nothing to compact" in told
            assert "context_edit" not in it.kinds()

    run(test)


def test_an_answer_that_the_window_cut_off_is_omitted_and_tried_again() -> None:
    async def test() -> None:
        cut = Reply(text="half", stop_reason="length", usage={"input": 127_000, "output": 20, "totalTokens": 127_020})
        async with live(["a", cut, "whole"]) as it:
            await it.host.prompt("one")
            prompted = await it.host.prompt("two")
            answer = await prompted.answer()
            assert answer is not None
            assert answer["content"][0]["text"] == "whole"
            assert [event.reason for event in it.recorder.compacted] == ["overflow"]
            texts = [str(message.get("content")) for message in it.host.snapshot.messages]
            assert not any("half" in text for text in texts)

    run(test)


def test_an_answer_that_says_more_came_in_than_the_window_holds_stands_and_is_compacted_behind() -> None:
    async def test() -> None:
        beyond = Reply(text="b", usage={"input": 130_000, "output": 20, "totalTokens": 130_020})
        async with live(["a", beyond]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            await it.host.prompt("two")
            assert it.log == [
                "input idle: two",
                *RUN,
                "before_compact overflow",
                "compact overflow plugin",
                *SETTLED,
            ]

    run(test)


# By hand -----------------------------------------------------------------------------------------------------------


def test_a_compaction_by_hand() -> None:
    async def test() -> None:
        async with live(["a", "b"]) as it:
            await it.host.prompt("one")
            await it.host.prompt("two")
            it.recorder.take()
            entry = await it.host.compact(custom_instructions="mind the gap")
            assert it.log == ["before_compact manual", "compact manual plugin"]
            assert it.recorder.before[-1].custom_instructions == "mind the gap"
            assert it.recorder.compacted[-1].compaction_entry is entry
            assert it.host.session.leaf_id == entry.id

    run(test)


def test_a_compaction_by_hand_through_the_built_in_summary() -> None:
    async def test() -> None:
        async with live(["a", "b", "## Goal\nall of it"], recorder=Recorder()) as it:
            await it.host.prompt("one")
            await it.host.prompt("two")
            it.recorder.take()
            entry = await it.host.compact()
            assert it.log == ["before_compact manual", "compact manual built-in"]
            assert entry.data["summary"].startswith("## Goal\nall of it")
            assert "fromHook" not in entry.data

    run(test)


def test_a_compaction_by_hand_that_a_plugin_cancels() -> None:
    async def test() -> None:
        async with live(["a", "b"], recorder=Recorder("cancel")) as it:
            await it.host.prompt("one")
            await it.host.prompt("two")
            before = it.kinds()
            it.recorder.take()
            with pytest.raises(CompactionCancelled, match="recorder"):
                await it.host.compact()
            assert it.log == ["before_compact manual", "compact_failed manual aborted"]
            assert it.kinds() == before

    run(test)


def test_a_compaction_by_hand_that_fails() -> None:
    async def test() -> None:
        async with live(["a", "b", Reply(error="overloaded")], recorder=Recorder()) as it:
            await it.host.prompt("one")
            await it.host.prompt("two")
            before = it.kinds()
            it.recorder.take()
            with pytest.raises(CompactionFailed, match="overloaded"):
                await it.host.compact()
            assert it.log == ["before_compact manual", "compact_failed manual error"]
            assert it.kinds() == before
            assert it.host.idle

    run(test)


def test_a_compaction_by_hand_that_is_aborted() -> None:
    async def test() -> None:
        async with live(["a", "b"], recorder=Recorder("wait")) as it:
            await it.host.prompt("one")
            await it.host.prompt("two")
            before = it.kinds()
            it.recorder.take()
            compacting = asyncio.create_task(it.host.compact())
            await it.recorder.waiting.wait()
            assert not it.host.idle
            it.host.abort()
            with pytest.raises(CompactionCancelled):
                await compacting
            assert it.log == ["before_compact manual", "compact_failed manual aborted"]
            assert it.kinds() == before
            assert it.host.idle

    run(test)


def test_with_nothing_to_compact_no_hook_is_called() -> None:
    async def test() -> None:
        async with live(["a"]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            with pytest.raises(NothingToCompact):
                await it.host.compact()
            assert it.log == []

    run(test)


def test_a_compaction_by_hand_aborts_the_run_and_lets_it_settle_first() -> None:
    async def test() -> None:
        async with live(["a", SLOW]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            asked = asyncio.create_task(it.host.prompt("two"))
            await it.slow.reached.wait()
            queued = await it.host.follow_up("three")
            await it.host.compact()
            await asked
            assert it.log[:9] == [
                "input idle: two",
                "agent_start busy",
                "context",
                "input busy followUp: three",
                "turn_end 0 completed results=2",
                "context",
                "turn_end 1 aborted results=0",
                "settled aborted idle",
                "before_compact manual",
            ]
            await queued.answer()  # sent after the compaction
            await it.host.wait_idle()
            assert it.log == ["agent_start busy", "context", "turn_end 0 error results=0", "before_settle error",
                              "settled done idle"]  # fmt: skip

    run(test)


def test_a_drafted_compaction_at_the_end_of_a_turn_is_announced_as_any_other_and_the_run_goes_on() -> None:
    async def test() -> None:
        async with live(["a", call("kept"), "done"]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            it.recorder.draft = True
            await it.host.prompt("two")
            assert it.log == [
                "input idle: two",
                "agent_start busy",
                "context",
                "turn_end 0 completed results=1",
                "before_compact threshold",
                "compact threshold plugin",
                "context",
                "turn_end 1 completed results=0",
                *SETTLED,
            ]
            before = it.recorder.before[-1]
            assert before.draft is not None
            assert [message["role"] for message in before.preparation.messages_to_summarize] == [
                "user",
                "assistant",
                "user",
            ]
            sent = it.model.requests[-1].messages
            assert [message["role"] for message in sent] == ["system", "user", "assistant", "toolResult"]
            assert sent[-1]["content"] == [{"type": "text", "text": "echo kept"}]

    run(test)


# After it has settled ----------------------------------------------------------------------------------------------


def test_what_plugins_ask_for_once_it_has_settled_comes_after_all_handlers_in_order() -> None:
    async def test() -> None:
        async with live(["a", "b", "c"]) as it:

            def ask(ctx: Context) -> None:
                ctx.compact(only_if_idle=True)
                ctx.send_user_message("more")

            await it.host.prompt("one")
            it.recorder.take()
            it.recorder.at["settled"] = ask
            await it.host.prompt("two")
            await it.host.wait_idle()
            assert it.log == [
                "input idle: two",
                *RUN,
                *SETTLED,
                "before_compact manual",
                "compact manual plugin",
                "input idle: more",
                *RUN,
                *SETTLED,
            ]

    run(test)


def test_a_switch_aborts_the_run_lets_it_settle_and_starts_the_other_session() -> None:
    async def test() -> None:
        async with live([SLOW]) as it:
            asked = asyncio.create_task(it.host.prompt("one"))
            await it.slow.reached.wait()
            it.recorder.take()
            assert await it.host.switch(None)
            await asked
            assert it.log == [
                "session_before_switch new",
                "turn_end 0 completed results=2",
                "context",
                "turn_end 1 aborted results=0",
                "settled aborted idle",
                "session_shutdown new",
                "session_start new",
            ]
            assert it.host.session.entries == []

    run(test)


def test_a_move_in_the_tree_and_another_model() -> None:
    async def test() -> None:
        async with live(["a"]) as it:
            await it.host.prompt("one")
            it.recorder.take()
            question = next(entry for entry in it.host.session.entries if entry.role == "user")
            assert await it.host.navigate(question.id) == "one"
            await it.host.set_model(ScriptedModel(["b"]))
            assert it.log == ["session_tree", "model_select scripted-1"]
            assert it.host.snapshot.window == 200_000

    run(test)
