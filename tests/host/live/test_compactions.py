"""A compaction of a live session is appended as a whole or not at all, by the one who may make it, and is told once.

What plugins return is validated; plugins that hang or raise are passed over; an addressed compaction is one plugin's
alone; nothing else changes the session meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from contexthost.context import AbortSignal, Context
from contexthost.errors import CompactionFailed, SessionBusy, Unsupported
from contexthost.events import Cancel, CompactionResult, SessionBeforeCompactEvent
from contexthost.hookspecs import hookimpl
from contexthost.host import Host
from contexthost.models.scripted import Reply, ScriptedCall, ScriptedModel
from contexthost.watch import Notified
from support.live import Recorder, echo, run

Answer = Callable[[SessionBeforeCompactEvent], Awaitable[CompactionResult | Cancel | None]]


class Compactor:
    """A plugin that answers what a function makes of the event."""

    def __init__(self, name: str, answer: Answer) -> None:
        self.plugin_name = name
        self.asked = 0
        self._answer = answer

    @hookimpl
    async def session_before_compact(
        self, event: SessionBeforeCompactEvent, ctx: Context
    ) -> CompactionResult | Cancel | None:
        self.asked += 1
        return await self._answer(event)


def result(event: SessionBeforeCompactEvent, **changes: Any) -> CompactionResult:
    made = {
        "summary": "made",
        "first_kept_entry_id": event.preparation.first_kept_entry_id,
        "tokens_before": event.preparation.tokens_before,
    }
    return CompactionResult(**{**made, **changes})


def giving(**changes: Any) -> Answer:
    async def answer(event: SessionBeforeCompactEvent) -> CompactionResult:
        return result(event, **changes)

    return answer


async def nothing(event: SessionBeforeCompactEvent) -> None:
    return None


def opened(*plugins: object, script: Any = ("a", "b")) -> Host:
    return Host.open(model=ScriptedModel(script), plugins=plugins, tools=[echo()], installed_plugins=False)


async def talked(host: Host, *texts: str) -> list[str]:
    for text in texts or ("one", "two"):
        await host.prompt(text)
    return [entry.id for entry in host.session.entries]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"summary": " \n"}, "empty summary"),
        ({"summary": None}, "summary"),
        ({"first_kept_entry_id": "nowhere"}, "not found"),
        ({"first_kept_entry_id": ["x"]}, "first kept"),
        ({"tokens_before": -1}, "negative"),
        ({"tokens_before": "many"}, "tokens_before"),
        ({"details": {"x": object()}}, "JSON"),
    ],
)
def test_an_answer_that_cannot_be_appended_counts_as_none_and_the_next_plugin_is_asked(
    changes: dict[str, Any], problem: str
) -> None:
    async def test() -> None:
        bad, good = Compactor("a-bad", giving(**changes)), Compactor("b-good", giving())
        async with opened(bad, good) as host:
            told: list[str] = []
            host.watch(lambda event: told.append(event.message) if isinstance(event, Notified) else None)
            await talked(host)
            entry = await host.compact()
            assert entry.data["summary"] == "made"
            assert (bad.asked, good.asked) == (1, 1)
            [text] = told
            assert "a-bad" in text
            assert problem in text

    run(test)


def test_a_compaction_must_not_keep_a_result_without_its_call() -> None:
    async def test() -> None:
        kept: list[str] = []

        async def inside(event: SessionBeforeCompactEvent) -> CompactionResult:
            return result(event, first_kept_entry_id=kept[0])

        script = ["a", Reply(calls=[ScriptedCall("echo", {"text": "x"})]), "b", "the summary", "of a turn"]
        async with opened(Compactor("inside", inside), script=script) as host:
            await talked(host)
            kept += [entry.id for entry in host.session.entries if entry.role == "toolResult"]
            entry = await host.compact()  # the built-in summary: nobody else is there
            assert entry.data["summary"].startswith("the summary")
            assert entry.data["firstKeptEntryId"] != kept[0]

    run(test)


def test_a_plugin_that_hangs_is_passed_over_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTIONTIMEOUTSECONDS", "0.05")

    async def hang(event: SessionBeforeCompactEvent) -> None:
        await asyncio.sleep(60)

    async def test() -> None:
        async with opened(Compactor("a", hang), Compactor("b", giving())) as host:
            await talked(host)
            assert (await host.compact()).data["summary"] == "made"

    run(test)


def test_an_abort_does_not_wait_for_a_plugin_that_does_not_listen() -> None:
    async def hang(event: SessionBeforeCompactEvent) -> None:
        await asyncio.sleep(60)

    async def test() -> None:
        recorder = Recorder()
        async with opened(Compactor("a", hang), recorder) as host:
            before = await talked(host)
            compacting = asyncio.create_task(host.compact())
            await asyncio.sleep(0.02)
            host.abort()
            async with asyncio.timeout(2):
                with pytest.raises(CompactionFailed):
                    await compacting
            assert [entry.id for entry in host.session.entries] == before
            assert recorder.take()[-1] == "compact_failed manual aborted"

    run(test)


@pytest.mark.parametrize("how", ["nothing", "raises", "invalid"])
def test_an_addressed_compaction_is_one_plugins_alone(how: str) -> None:
    async def fails(event: SessionBeforeCompactEvent) -> CompactionResult | None:
        if how == "raises":
            raise RuntimeError("no key")
        return result(event, summary="") if how == "invalid" else None

    async def test() -> None:
        model = ScriptedModel(["a", "b"])
        addressed, other, recorder = Compactor("mine", fails), Compactor("other", giving()), Recorder()
        host = Host.open(model=model, plugins=[addressed, other, recorder], installed_plugins=False)
        async with host:
            before = await talked(host)
            with pytest.raises(CompactionFailed, match="for mine alone"):
                await host.compact(to="mine")
            assert (addressed.asked, other.asked, recorder.before) == (1, 0, [])
            assert len(model.requests) == 2  # no summary was asked for
            assert [entry.id for entry in host.session.entries] == before
            assert (recorder.failed[0].plugin, recorder.failed[0].aborted) == ("mine", False)

    run(test)


def test_a_second_compaction_is_refused_while_one_runs_and_so_are_other_operations() -> None:
    async def test() -> None:
        recorder = Recorder("wait")
        async with opened(recorder, script=["a", "b", "c"]) as host:
            await talked(host)
            first = asyncio.create_task(host.compact())
            await recorder.waiting.wait()
            with pytest.raises(CompactionFailed, match="already running"):
                await host.compact()
            with pytest.raises(SessionBusy, match="a compaction is going on"):
                await host.prompt("three")
            with pytest.raises(SessionBusy):
                await host.navigate(host.session.entries[0].id)
            queued = await host.follow_up("three")
            assert queued.disposition == "queued"
            host.abort()
            with pytest.raises(CompactionFailed):
                await first
            answer = await queued.answer()
            assert answer is not None
            assert answer["content"][0]["text"] == "c"

    run(test)


def test_two_compactions_with_equal_summaries_are_each_told_with_their_own_entry() -> None:
    async def test() -> None:
        recorder = Recorder()
        async with opened(Compactor("a", giving()), recorder, script=["a", "b", "c"]) as host:
            await talked(host, "one", "two")
            first = await host.compact()
            await host.prompt("three")
            second = await host.compact()
            assert [event.compaction_entry for event in recorder.compacted] == [first, second]
            assert first.data["summary"] == second.data["summary"]
            assert first.id != second.id

    run(test)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply(text=""), "empty|no text|no summary"),
        (Reply(text="half a", stop_reason="length"), "incomplete|length|limit|cut"),
        (Reply(calls=[ScriptedCall("echo", {"text": "x"})]), "tool"),
        (Reply(error="overloaded"), "overloaded"),
    ],
)
def test_a_built_in_summary_that_cannot_be_used_changes_nothing(reply: Reply, problem: str) -> None:
    async def test() -> None:
        recorder = Recorder()
        async with opened(recorder, script=["a", "b", reply]) as host:
            before = await talked(host)
            with pytest.raises(CompactionFailed, match=problem):
                await host.compact()
            assert [entry.id for entry in host.session.entries] == before
            assert recorder.take()[-1] == "compact_failed manual error"

    run(test)


def test_a_model_that_raises_in_a_summary_is_a_failed_compaction() -> None:
    class Broken(ScriptedModel):
        async def respond(self, request: Any, signal: AbortSignal) -> Any:
            if self.requests:
                raise KeyError("usage")
            return await super().respond(request, signal)

    async def test() -> None:
        recorder = Recorder()
        async with Host.open(model=Broken(["a"]), plugins=[recorder], installed_plugins=False) as host:
            await host.prompt("one")
            prompted = await host.prompt("two")
            answer = await prompted.answer()
            assert answer is not None  # in a run it is a failed answer
            assert (answer["stopReason"], answer["errorMessage"]) == ("error", "KeyError('usage')")
            with pytest.raises(CompactionFailed, match="KeyError"):
                await host.compact()
            assert recorder.take()[-1] == "compact_failed manual error"

    run(test)


def test_without_plugin_and_model_a_compaction_fails_and_changes_nothing() -> None:
    async def test() -> None:
        async with opened() as first:
            await talked(first)
            entries = [entry.data for entry in first.session.entries]
        async with Host.open(installed_plugins=False) as host:
            host.session.append([{key: data[key] for key in ("type", "message") if key in data} for data in entries
                                 if data["type"] == "message"])  # fmt: skip
            before = host.session.leaf_id
            with pytest.raises(CompactionFailed, match="no model"):
                await host.compact()
            assert host.session.leaf_id == before
            with pytest.raises(Unsupported, match="no model"):
                await host.prompt("x")

    run(test)


def test_a_drafted_compaction_can_be_cancelled_and_its_reason_is_told() -> None:
    async def objects(event: SessionBeforeCompactEvent) -> Cancel | None:
        return Cancel("not now") if event.draft is not None else None

    async def test() -> None:
        recorder = Recorder()
        script = ["a", Reply(calls=[ScriptedCall("echo", {"text": "x"})]), "b"]
        async with opened(recorder, Compactor("zz", objects), script=script) as host:
            told: list[str] = []
            host.watch(lambda event: told.append(event.message) if isinstance(event, Notified) else None)
            await host.prompt("one")
            recorder.draft = True
            recorder.take()
            await host.prompt("two")
            log = recorder.take()
            assert log[4:6] == ["before_compact threshold", "compact_failed threshold aborted"]
            assert host.snapshot.checkpoint is None
            assert told == ["compaction cancelled: not now"]

    run(test)


def test_a_plugins_request_that_must_not_disturb_a_run_is_refused_in_it() -> None:
    async def test() -> None:
        recorder = Recorder("answer")
        asked: list[Awaitable[Any]] = []
        async with opened(recorder) as host:
            recorder.at["context"] = lambda ctx: asked.append(ctx.compact(only_if_idle=True))
            await host.prompt("one")
            with pytest.raises(Unsupported, match="not idle"):
                await asked[0]
            assert "before_compact manual" not in recorder.log

    run(test)


def test_a_compaction_asked_for_at_an_input_comes_before_its_run() -> None:
    async def test() -> None:
        recorder = Recorder("answer")
        async with opened(recorder, script=["a", "b", "c"]) as host:
            await talked(host)
            recorder.take()

            def compact(ctx: Context) -> None:
                ctx.compact(only_if_idle=True)

            recorder.at["input"] = compact
            prompted = await host.prompt("three")
            assert prompted.disposition == "started"
            assert recorder.take()[:4] == [
                "input idle: three",
                "before_compact manual",
                "compact manual plugin",
                "agent_start busy",
            ]

    run(test)
