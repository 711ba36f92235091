"""A plugin that writes down every hook of a live session in short words, and does what a test tells it to.

The recording extension of the real Pi (`tests/integration/pi/hooks/recorder.ts`) uses the same words, so that the two
can be compared line by line.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Literal

from contexthost.context import Context, Tool, ToolResult
from contexthost.events import (
    AgentBeforeSettleEvent,
    AgentSettledEvent,
    AgentStartEvent,
    Boundary,
    Cancel,
    CompactionResult,
    ContextEvent,
    InputEvent,
    ModelSelectEvent,
    SessionBeforeCompactEvent,
    SessionBeforeSwitchEvent,
    SessionCompactEvent,
    SessionCompactFailedEvent,
    SessionShutdownEvent,
    SessionStartEvent,
    SessionTreeEvent,
    TurnEndEvent,
)
from contexthost.hookspecs import hookimpl
from contexthost.projection.drafts import CompactionDraft, CustomMessageDraft

Compacting = Literal["nothing", "answer", "cancel", "wait"]
"""What the recorder does when it is asked for a compaction; ``wait`` ends with the abort."""


class Recorder:
    """Words of the log: ``input idle``, ``turn_end completed``, ``before_compact threshold``, ``settled aborted``, …

    ``compacting`` says what it answers to ``session_before_compact``; ``go_on`` how often it asks for a continuation
    before the run settles; ``draft`` makes it draft a compaction at the next turn's end; ``at`` holds functions to
    call at a hook, once, by the first word of its line.
    """

    plugin_name = "recorder"

    def __init__(self, compacting: Compacting = "nothing") -> None:
        self.log: list[str] = []
        self.compacting: Compacting = compacting
        self.go_on = 0
        self.draft = False
        self.at: dict[str, Callable[[Context], Awaitable[None] | None]] = {}
        self.before: list[SessionBeforeCompactEvent] = []
        self.compacted: list[SessionCompactEvent] = []
        self.failed: list[SessionCompactFailedEvent] = []
        self.waiting = asyncio.Event()
        self._summaries = 0

    def take(self) -> list[str]:
        """The log since the last call."""
        taken, self.log = self.log, []
        return taken

    async def _note(self, line: str, ctx: Context) -> None:
        self.log.append(line)
        act = self.at.pop(line.split(" ")[0], None)
        if act is not None:
            done = act(ctx)
            if done is not None:
                await done

    @hookimpl
    async def session_start(self, event: SessionStartEvent, ctx: Context) -> None:
        await self._note(f"session_start {event.reason}", ctx)

    @hookimpl
    async def session_shutdown(self, event: SessionShutdownEvent, ctx: Context) -> None:
        await self._note(f"session_shutdown {event.reason}", ctx)

    @hookimpl
    async def session_before_switch(self, event: SessionBeforeSwitchEvent, ctx: Context) -> None:
        await self._note(f"session_before_switch {event.reason}", ctx)

    @hookimpl
    async def session_tree(self, event: SessionTreeEvent, ctx: Context) -> None:
        await self._note("session_tree", ctx)

    @hookimpl
    async def model_select(self, event: ModelSelectEvent, ctx: Context) -> None:
        await self._note(f"model_select {event.model.id}", ctx)

    @hookimpl
    async def input(self, event: InputEvent, ctx: Context) -> None:
        queued = f" {event.streaming_behavior}" if event.streaming_behavior else ""
        await self._note(f"input {'idle' if ctx.is_idle() else 'busy'}{queued}: {event.text}", ctx)

    @hookimpl
    async def agent_start(self, event: AgentStartEvent, ctx: Context) -> None:
        await self._note(f"agent_start {'idle' if ctx.is_idle() else 'busy'}", ctx)

    @hookimpl
    async def context(self, event: ContextEvent, ctx: Context) -> None:
        await self._note("context", ctx)

    @hookimpl
    async def turn_end(self, event: TurnEndEvent, ctx: Context) -> Boundary | None:
        await self._note(f"turn_end {event.turn_index} {event.outcome} results={len(event.tool_results)}", ctx)
        if not self.draft:
            return None
        self.draft = False
        draft = CompactionDraft(summary=self._summary(), first_kept_entry_id=event.message_entry_id)
        return Boundary((draft,))

    @hookimpl
    async def agent_before_settle(self, event: AgentBeforeSettleEvent, ctx: Context) -> Boundary | None:
        await self._note(f"before_settle {event.outcome}", ctx)
        if self.go_on == 0:
            return None
        self.go_on -= 1
        note = CustomMessageDraft(custom_type="recorder", content="one thing more", display=False)
        return Boundary((note,), continue_run=True)

    @hookimpl
    async def agent_settled(self, event: AgentSettledEvent, ctx: Context) -> None:
        word = "aborted" if event.aborted else "done"
        await self._note(f"settled {word} {'idle' if ctx.is_idle() else 'busy'}", ctx)

    @hookimpl
    async def session_before_compact(
        self, event: SessionBeforeCompactEvent, ctx: Context
    ) -> Cancel | CompactionResult | None:
        self.before.append(event)
        retry = " retry" if event.will_retry else ""
        await self._note(f"before_compact {event.reason}{retry}", ctx)
        if self.compacting == "cancel":
            return Cancel()
        if self.compacting == "wait":
            self.waiting.set()
            await event.signal.wait()
        if self.compacting != "answer":
            return None
        return CompactionResult(
            summary=self._summary(),
            first_kept_entry_id=event.preparation.first_kept_entry_id,
            tokens_before=event.preparation.tokens_before,
        )

    @hookimpl
    async def session_compact(self, event: SessionCompactEvent, ctx: Context) -> None:
        self.compacted.append(event)
        retry = " retry" if event.will_retry else ""
        who = "plugin" if event.from_extension else "built-in"
        await self._note(f"compact {event.reason} {who}{retry}", ctx)

    @hookimpl
    async def session_compact_failed(self, event: SessionCompactFailedEvent, ctx: Context) -> None:
        self.failed.append(event)
        await self._note(f"compact_failed {event.reason} {'aborted' if event.aborted else 'error'}", ctx)

    def _summary(self) -> str:
        self._summaries += 1
        return f"summary {self._summaries}"


def tool(
    name: str,
    handler: Callable[[Mapping[str, Any]], Awaitable[str | ToolResult]],
    **properties: Mapping[str, Any],
) -> Tool:
    """A tool whose handler gives a text or a result; ``properties`` are those of its schema, all required."""

    async def handle(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
        made = await handler(arguments)
        return made if isinstance(made, ToolResult) else ToolResult(made)

    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    return Tool(name=name, description=f"the tool {name}", parameters=schema, handler=handle)


def echo() -> Tool:
    async def handle(arguments: Mapping[str, Any]) -> str:
        return f"echo {arguments['text']}"

    return tool("echo", handle, text={"type": "string"})


class Slow:
    """The tool ``slow``: waits for the abort of its call; ``reached`` is set once it waits."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.cancelled = 0

    async def handle(self, arguments: Mapping[str, Any]) -> str:
        self.reached.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "slow is done"

    @property
    def tool(self) -> Tool:
        return tool("slow", self.handle)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a test's coroutine; fails when it leaves a task behind, or one whose exception nobody looked at."""
    complaints: list[str] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
        await asyncio.wait_for(test(), 60)
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"still running: {left}"

    asyncio.run(watched())
    gc.collect()
    assert not complaints, complaints


async def until(condition: Callable[[], bool]) -> None:
    """Waits until something is so; at most 10 s."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)
