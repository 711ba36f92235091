"""Whatever users, programs, plugins and models do in whatever order: no input is lost or sent twice, every call has a
result, every request is one that a provider takes, the file reads as the session did, and nothing is left running.

Random sequences of prompts, steers, follow-ups, aborts, context edits, compactions, switches, restarts, held inputs
and pauses, against a model with random answers and tools that are slow, fail or do not exist. Each input carries a
mark of its own; at the end every mark is in exactly one place: a message, the record for the next start, or a refusal.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from contexthost.context import AbortSignal, Context, ModelInfo, ModelRequest
from contexthost.errors import ContexthostError
from contexthost.events import Cancel, CompactionResult, Hold, InputEvent, SessionBeforeCompactEvent
from contexthost.hookspecs import hookimpl
from contexthost.host import Host
from contexthost.inbox import unsent_inputs
from contexthost.messages import Message
from contexthost.models.chat import chat_body
from contexthost.models.responses import responses_body
from contexthost.models.scripted import Reply, ScriptedCall, ScriptedModel
from contexthost.projection import ContextEditDraft, ProjectionAuthority
from contexthost.session import Session
from support.live import Slow, echo, run, tool
from support.model_server import CHAT, RESPONSES
from support.provider_rules import request_problems

INFO = ModelInfo(provider="scripted", id="s", api="scripted", context_window=60_000, max_tokens=1000, base_url="http://x")
OPERATIONS = [
    "prompt", "prompt", "steer", "follow_up", "start", "start", "abort", "edit", "compact", "start compaction",
    "switch", "restart", "hold", "release", "pause", "pause", "resend", "custom", "navigate",
]  # fmt: skip


class RandomModel(ScriptedModel):
    """Answers of all kinds; ``problems`` is what a provider would say of its requests."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(self._step() for _ in itertools.count())
        self._info = INFO
        self._rng = rng
        self.problems: list[str] = []

    async def respond(self, request: ModelRequest, signal: AbortSignal) -> Message:
        if request.messages[-1].get("role") != "assistant":  # after an abort there may be nothing to answer
            self.problems += request_problems(chat_body(request, INFO), CHAT)
            self.problems += request_problems(responses_body(request, INFO), RESPONSES)
        return await super().respond(request, signal)

    def _step(self) -> Reply:
        rng = self._rng
        kind = rng.randrange(12)
        if kind < 4:
            names = rng.choices(["echo", "slow", "fails", "missing"], weights=[4, 1, 2, 1], k=rng.randrange(1, 4))
            return Reply(calls=[ScriptedCall(name, {"text": "x"}) for name in names], usage=self._size())
        if kind == 4:
            return Reply(error="This model's maximum context length is 60000 tokens.")
        if kind == 5:
            return Reply(error="bad request")
        if kind == 6:
            return Reply(text="cut", stop_reason="length", usage={"input": 100, "output": 5, "totalTokens": 105})
        if kind == 7:
            return Reply(text="slow answer", pieces=4, pause_seconds=0.004)
        return Reply(text="an answer", delay_seconds=rng.choice([0, 0.003]), usage=self._size())

    def _size(self) -> Mapping[str, Any]:
        total = self._rng.choice([1_000, 2_000, 50_000])
        return {"input": total, "output": 1, "totalTokens": total + 1}


class Moody:
    """Holds inputs while ``holding``; compacts, cancels or leaves it to the built-in summary."""

    plugin_name = "moody"

    def __init__(self, rng: random.Random) -> None:
        self.holding = False
        self._rng = rng

    @hookimpl
    async def input(self, event: InputEvent, ctx: Context) -> Hold | None:
        await asyncio.sleep(self._rng.choice([0, 0, 0.002]))
        return Hold() if self.holding else None

    @hookimpl
    async def session_before_compact(
        self, event: SessionBeforeCompactEvent, ctx: Context
    ) -> CompactionResult | Cancel | None:
        await asyncio.sleep(self._rng.choice([0, 0.003]))
        match self._rng.randrange(4):
            case 0:
                return Cancel()
            case 1:
                return None
        first = event.preparation.first_kept_entry_id
        return CompactionResult(summary="a summary", first_kept_entry_id=first, tokens_before=1)


async def fails(arguments: Mapping[str, Any]) -> str:
    raise RuntimeError("the tool is broken")


class Story:
    """One random session after another, and what became of each input."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.files: list[Path] = []
        self.marks = itertools.count()
        self.given: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.tasks: list[asyncio.Task[None]] = []
        self.model = RandomModel(self.rng)
        self.moody = Moody(self.rng)
        self.host = self._open(self._file())

    def _file(self) -> Path:
        if len(self.files) < 2 or self.rng.random() < 0.3:
            self.files.append(self.directory / f"{len(self.files)}.jsonl")
            return self.files[-1]
        return self.rng.choice(self.files)

    def _open(self, path: Path) -> Host:
        tools = [echo(), Slow().tool, tool("fails", fails)]
        return Host.open(path, model=self.model, plugins=[self.moody], tools=tools, installed_plugins=False)

    async def _send(self, how: str) -> None:
        mark = f"<{next(self.marks)}>"
        self.given.add(mark)
        try:
            if how == "prompt":
                await self.host.prompt(f"say {mark}")
            elif how == "steer":
                await self.host.steer(f"say {mark}")
            else:
                await self.host.follow_up(f"say {mark}")
        except ContexthostError:
            self.refused[mark] += 1

    async def _patiently(self, work: Any) -> None:
        """Slow tools end only with an abort: nothing waits for them for ever."""
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        await asyncio.wait({task}, timeout=0.05)
        if not task.done():
            self.host.abort()
            await asyncio.wait({task}, timeout=0.02)

    async def _tried(self, work: Any) -> None:
        try:
            await work
        except ContexthostError:
            return

    async def do(self, operation: str) -> None:
        host = self.host
        match operation:
            case "prompt" | "steer" | "follow_up":
                await self._patiently(self._send(operation))
            case "start":
                self.tasks.append(asyncio.create_task(self._send(self.rng.choice(["prompt", "steer", "follow_up"]))))
                await asyncio.sleep(0)
            case "abort":
                host.abort()
            case "edit":
                entries = host.session.entries
                if entries and host.idle:  # the hooks' rule: never while a call waits for its result
                    target = self.rng.choice(entries[-8:]).id
                    replacement = self.rng.choice([None, {"content": "edited"}])
                    try:
                        host.runtime.authority.commit([ContextEditDraft(target_id=target, replacement=replacement)])
                    except ContexthostError:
                        return
            case "compact":
                await self._patiently(self._tried(host.compact()))
            case "start compaction":
                self.tasks.append(asyncio.create_task(self._tried(host.compact())))
                await asyncio.sleep(0)
            case "switch":
                await self._tried(host.switch(self._file()))
            case "restart":
                await host.shutdown()
                self.check_file(host)
                self.host = await self._open(self._file()).__aenter__()
            case "hold":
                self.moody.holding = True
            case "release":
                self.moody.holding = False
                host.release_held()
            case "pause":
                await asyncio.sleep(self.rng.choice([0, 0.001, 0.005]))
            case "resend":
                await self._patiently(self._tried(host.resend_unsent()))
            case "custom":
                host.append_custom("note", {"n": 1})
            case "navigate":
                questions = [entry for entry in host.session.entries if entry.role == "user"]  # never inside a pair
                if questions:
                    await self._tried(host.navigate(self.rng.choice(questions[-4:]).id))

    def check_file(self, host: Host) -> None:
        path = host.session.path
        if path is None or not path.exists():
            return
        again = Session.open(path)
        again.move_leaf(host.session.leaf_id)
        seen = ProjectionAuthority(again, window=INFO.context_window or 0).snapshot()
        assert list(seen.messages) == list(host.snapshot.messages)
        assert again.problems == []
        kinds = {mended.kind for mended in seen.mended} - {"failed-attempt"}
        assert not kinds, kinds

    def where(self) -> Counter[str]:
        """Mark → in how many places it is."""
        found: Counter[str] = Counter(self.refused)
        for path in self.files:
            if not path.exists():
                continue
            session = Session.open(path)
            texts = [str(e.message["content"]) for e in session.entries if e.role == "user" and e.message is not None]
            texts += [item.text for item in unsent_inputs(session)]
            found.update(mark for text in texts for mark in re.findall(r"<\d+>", text))
        return found


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.lists(st.sampled_from(OPERATIONS), min_size=3, max_size=25))
def test_every_input_is_in_one_place_and_the_session_is_whole(seed: int, operations: list[str]) -> None:
    async def test() -> None:
        with tempfile.TemporaryDirectory() as directory:
            story = Story(Path(directory), seed)
            await story.host.__aenter__()
            for operation in operations:
                await story.do(operation)
            await story.host.shutdown()
            story.check_file(story.host)
            async with asyncio.timeout(20):
                await asyncio.gather(*story.tasks)
            assert story.where() == Counter(dict.fromkeys(story.given, 1))
            assert story.model.problems == []

    run(test)
