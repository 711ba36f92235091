"""The plugin in a live session of the host, with a scripted model: L2 at both boundaries, L3 once, the tool called by
the model, the commands, and the same figures afterwards from the file.

The window is 40,000 tokens: masking starts at 20,000, summaries at 32,000; with the host's reserve of 16,384 tokens
masking is urgent from 19,616 on. Each result has about 1,000 tokens.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import contexthost_masking
from contexthost.cli.context import command as context_command
from contexthost.context import Context, ModelInfo, ModelRequest, Tool, ToolResult
from contexthost.events import CompactionResult, SessionBeforeCompactEvent
from contexthost.hookspecs import hookimpl
from contexthost.host import Host
from contexthost.messages import text_of
from contexthost.models import Reply, ScriptedCall, ScriptedModel
from contexthost.projection import MASK_PREFIX
from contexthost.session import Session
from contexthost.watch import CompactionEnded, Notified, StatusSet, WatchEvent
from contexthost_masking.cli_query import status

WINDOW = 40_000
INFO = ModelInfo(provider="scripted", id="small", api="scripted", context_window=WINDOW, max_tokens=4_000)
OUTPUT = "error: expected 3 but got 4\n" * 100  # 10 tokens a line, by cl100k


async def _run(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    return ToolResult(f"{arguments['case']}\n{OUTPUT}")


SCHEMA = {"type": "object", "properties": {"case": {"type": "integer"}}, "required": ["case"]}
TESTS = Tool(name="tests", description="Runs a test.", parameters=SCHEMA, handler=_run)


class Summarizer:
    """A plugin that makes every compaction, and counts them."""

    def __init__(self) -> None:
        self.asked = 0

    @hookimpl
    def session_before_compact(self, event: SessionBeforeCompactEvent, ctx: Context) -> CompactionResult:
        self.asked += 1
        kept = event.branch_entries[-1].id
        return CompactionResult(summary="what was done", first_kept_entry_id=kept, tokens_before=1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"MINCLEARTOKENS": "1000", "KEEPRECENTTURNS": "2"}.items():
        monkeypatch.setenv(f"CONTEXTHOST_MASKING__MASK__{key}", value)


def call(case: int, usage: int) -> Reply:
    return Reply(calls=[ScriptedCall("tests", {"case": case})], usage={"input": usage, "totalTokens": usage})


def say(text: str, usage: int) -> Reply:
    return Reply(text=text, usage={"input": usage, "totalTokens": usage})


def open_host(path: Path, model: ScriptedModel, *plugins: object) -> Host:
    return Host.open(
        path, model=model, tools=[TESTS], plugins=[contexthost_masking, *plugins], installed_plugins=False
    )


def edits(path: Path) -> list[tuple[str, list[str]]]:
    """Batches of masks in the file: the entry before each, and the targets."""
    found: list[tuple[str, list[str]]] = []
    before = ""
    with Session.open(path) as session:
        for entry in session.entries:
            if entry.type != "context_edit":
                before = entry.role or entry.type
            elif found and found[-1][1] and session.entries[entry.position - 1].type == "context_edit":
                found[-1][1].append(entry.data["targetId"])
            else:
                found.append((before, [entry.data["targetId"]]))
    return found


def test_a_run_that_ends_above_the_trigger_masks_its_old_results_in_one_batch(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    model = ScriptedModel([*(call(case, 5_000) for case in range(5)), say("done", 20_000)], info=INFO)

    async def run() -> None:
        async with open_host(path, model) as host:
            await host.prompt("run all tests")
            assert host.snapshot.ledger.masked_results == 4  # the last two turns are the fifth call and the answer

    asyncio.run(run())
    ((before, targets),) = edits(path)
    assert (before, len(targets)) == ("assistant", 4)


def test_a_turn_that_ends_with_the_window_nearly_full_masks_before_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__RESERVETOKENS", "2000")  # urgent within 4,000 tokens of 38,000
    path = tmp_path / "session.jsonl"
    script = [*(call(case, 5_000) for case in range(4)), call(4, 33_000), say("done", 9_000)]
    model = ScriptedModel(script, info=INFO)

    async def run() -> None:
        async with open_host(path, model) as host:
            await host.prompt("run all tests")

    asyncio.run(run())
    ((before, targets),) = edits(path)
    assert (before, len(targets)) == ("toolResult", 3)  # the last two turns are kept
    last = [text_of(message["content"]) for message in model.requests[-1].messages if message["role"] == "toolResult"]
    assert [text.startswith(MASK_PREFIX) for text in last] == [True, True, True, False, False]


def test_below_the_trigger_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    model = ScriptedModel([*(call(case, 5_000) for case in range(5)), say("done", 19_000)], info=INFO)

    async def run() -> None:
        async with open_host(path, model) as host:
            await host.prompt("run all tests")

    asyncio.run(run())
    assert edits(path) == []


def test_a_context_above_the_summary_threshold_is_summarised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__RESERVETOKENS", "2000")  # the host itself would begin at 38,000
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "1")
    summarizer = Summarizer()
    seen: list[WatchEvent] = []
    model = ScriptedModel([say("one", 31_000), say("two", 33_000), say("three", 4_000)], info=INFO)

    async def run() -> str:
        async with open_host(tmp_path / "session.jsonl", model, summarizer) as host:
            host.watch(seen.append)
            await host.prompt("first")
            assert summarizer.asked == 0
            await host.prompt("second")
            await host.wait_idle()
            await asyncio.sleep(0.05)
            await host.wait_idle()
            assert summarizer.asked == 1
            await host.prompt("third")
            assert summarizer.asked == 1
            return (await host.prompt("/compaction-status")).text or ""

    text = asyncio.run(run())
    (ended,) = [event for event in seen if isinstance(event, CompactionEnded)]
    assert (ended.error, ended.entry is not None) == (None, True)
    assert " by Summarizer, " in text
    statuses = [event.text for event in seen if isinstance(event, StatusSet)]
    # At the start of an empty session, after each run, after the compaction, after the last run.
    assert [*statuses[:3], statuses[4]] == [None, "31k/40k 78 %", "33k/40k 82 %", "4k/40k 10 %"]
    assert (statuses[3] or "").startswith("~")


def test_the_model_calls_the_tool_and_gets_the_original_back(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"

    def ask(request: ModelRequest) -> Reply:
        texts = (text_of(message["content"]) for message in request.messages if message["role"] == "toolResult")
        first = next(text for text in texts if text.startswith(MASK_PREFIX))
        entry = json.loads(first.rsplit("context_tree_query entry ", 1)[1])
        assert "context_tree_query" in [tool.name for tool in request.tools]
        return Reply(calls=[ScriptedCall("context_tree_query", {"entry": entry})])

    given: list[str] = []

    def read(request: ModelRequest) -> Reply:
        given.append(text_of(request.messages[-1]["content"]))
        return say("I see", 9_000)

    masked = [*(call(case, 5_000) for case in range(5)), say("done", 20_000)]
    model = ScriptedModel([*masked, ask, read], info=INFO)

    async def run() -> None:
        async with open_host(path, model) as host:
            await host.prompt("run all tests")
            await host.prompt("what did the first one say?")

    asyncio.run(run())
    (text,) = given
    head, _, body = text.partition("\n")
    assert "tool result tests · turn 1 · in context, masked · 2,802 characters" in head
    assert body == f"0\n{OUTPUT}"


def test_the_commands_and_the_file_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    model = ScriptedModel([*(call(case, 5_000) for case in range(5)), say("done", 20_000)], info=INFO)
    seen: list[WatchEvent] = []

    async def run() -> tuple[str, str, Any]:
        async with open_host(path, model) as host:
            host.watch(seen.append)
            await host.prompt("run all tests")
            status_text = (await host.prompt("/compaction-status")).text
            context_text = (await host.prompt("/context")).text
            return status_text or "", context_text or "", host.snapshot

    status_text, context_text, snapshot = asyncio.run(run())
    window = ["--context-window", str(WINDOW), "--json"]
    context = json.loads(CliRunner().invoke(context_command, [str(path), *window]).stdout)
    data = json.loads(CliRunner().invoke(status, [str(path), *window]).stdout)
    usage = snapshot.usage
    assert data["usage"] == context["usage"]
    assert (data["usage"]["tokens"], data["usage"]["lower"], data["usage"]["upper"]) == (
        usage.tokens, usage.lower, usage.upper,
    )  # fmt: skip
    assert (data["maskedResults"], data["reclaimedTokens"]) == (context["maskedResults"], context["reclaimedTokens"])
    assert (data["maskedResults"], data["reclaimedTokens"]) == (4, snapshot.ledger.reclaimed_tokens)
    assert data["lastBatch"]["results"] == 4
    assert data["lastBatch"]["reclaimedTokens"] == data["reclaimedTokens"]
    first = f"{usage.tokens:,} of {WINDOW:,} tokens"
    assert first in status_text.splitlines()[0]
    assert context_text.startswith(first)
    assert "masked       4 results; that saves" in status_text
    assert not [event for event in seen if isinstance(event, Notified)]
    shown = [event.text for event in seen if isinstance(event, StatusSet)][-1]
    assert shown == f"~{usage.tokens / 1000:,.0f}k/40k {usage.percent:.0f} % · 4 masked"


def test_a_wrong_question_is_an_error_result(tmp_path: Path) -> None:
    (tool,) = contexthost_masking.register_tools()

    async def run() -> tuple[ToolResult, ToolResult]:
        async with Host.open(None, plugins=[contexthost_masking], installed_plugins=False) as host:
            ctx = host.runtime.context("contexthost_masking")
            return await tool.handler({}, ctx), await tool.handler({"entry": "none"}, ctx)

    wrong, unknown = asyncio.run(run())
    assert wrong.is_error
    assert wrong.content == "say what to look for: entry, call, tool, path, text or turns"
    assert (unknown.is_error, unknown.content) == (False, "There is no entry none here.")
