"""The agent loop: one run, from the first user message to the point where the session is idle again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from contexthost.context import AbortSignal, Model, ModelRequest, Tool
from contexthost.errors import CompactionFailed, InvalidDraft, NothingToCompact
from contexthost.events import (
    AgentBeforeSettleEvent,
    AgentStartEvent,
    BeforeProviderHeadersEvent,
    BeforeProviderRequestEvent,
    ContextEvent,
    Outcome,
    TurnEndEvent,
)
from contexthost.inbox import Inbox, Input, sent_payload
from contexthost.lifecycle import Lifecycle
from contexthost.messages import Message
from contexthost.projection import ContextEditDraft
from contexthost.runtime import Runtime
from contexthost.session import Entry
from contexthost.toolbox import ToolCall, run_tools, tool_calls
from contexthost.watch import MessageRecorded, Notified, Retrying, RunStarted, TextArrived, WatchEvent

__all__ = ["AgentRun", "IsOverflow"]

IsOverflow = Callable[[Message, int], bool]
"""Whether an assistant message says that the request did not fit a window of so many tokens."""

NO_CONTINUATION: Final = frozenset({"assistant"})


class Surroundings(Protocol):
    """What a run needs of its host."""

    @property
    def model(self) -> Model: ...

    @property
    def tools(self) -> Sequence[tuple[str, Tool]]: ...

    @property
    def thinking_level(self) -> str | None: ...

    def declare(self) -> None: ...


class AgentRun:
    """One run of the agent, with Pi's order of hooks (``agent_settled`` is the host's).

    Args:
        runtime, lifecycle, inbox: of the session.
        surroundings: model, tools and system prompt in force; they may change between two requests.
        is_overflow: recognises a request that did not fit.
        emit: tells whoever watches.
    """

    def __init__(
        self,
        runtime: Runtime,
        lifecycle: Lifecycle,
        inbox: Inbox,
        surroundings: Surroundings,
        *,
        is_overflow: IsOverflow,
        emit: Callable[[WatchEvent], None],
    ) -> None:
        self._runtime = runtime
        self._lifecycle = lifecycle
        self._inbox = inbox
        self._surroundings = surroundings
        self._is_overflow = is_overflow
        self._emit = emit
        self.signal = AbortSignal()
        self._answering: list[Input] = []
        self._last: tuple[Entry, Message] | None = None
        self._overflow_tried = False

    async def execute(self, first: Input | None) -> None:
        """Runs until nothing is left to do or the run is aborted; None goes on from the context as it is.

        Raises:
            SessionWriteError, SessionLocked: the session cannot be written; the run ends there.
        """
        if first is not None:
            await self._compact_if_needed()
            self._surroundings.declare()
            self._record_input(first)
        while True:
            outcome = await self._activity()
            if await self._recover(outcome):
                continue
            if self.signal.aborted:
                break
            await self._compact_if_needed(skip=outcome == "error")
            waiting = self._inbox.next_following()
            if waiting is not None and not self.signal.aborted:
                self._record_input(waiting)
                continue
            if self.signal.aborted or not await self._before_settle(outcome):
                break
        self._answered()

    # One activity: from agent_start to agent_end

    async def _activity(self) -> Outcome:
        self._emit(RunStarted())
        await self._runtime.notify("agent_start", AgentStartEvent())
        turn = 0
        while True:
            entry, message = await self._respond()
            if message.get("stopReason") in ("error", "aborted"):
                outcome: Outcome = "aborted" if message["stopReason"] == "aborted" else "error"
                await self._turn_end(turn, entry, message, [], outcome)
                return outcome
            calls = tool_calls(message)
            results = await self._run_calls(calls, message)
            continue_run = await self._turn_end(turn, entry, message, results, "completed")
            turn += 1
            following = self._inbox.next_steering()
            if following is None and not calls:
                following = self._inbox.next_following()
                if following is None and not continue_run:
                    return "completed"
            # Another request follows: whatever the tools brought must fit into it.
            await self._compact_if_needed()
            if following is None:
                following = self._inbox.next_steering()
            self._surroundings.declare()
            if following is not None:
                self._record_input(following)

    async def _respond(self) -> tuple[Entry, Message]:
        snapshot = self._runtime.authority.snapshot()
        await self._runtime.notify("context", ContextEvent(snapshot=snapshot))
        snapshot = self._runtime.authority.snapshot()
        request = ModelRequest(
            messages=snapshot.provider_messages,
            tools=[tool for _, tool in self._surroundings.tools],
            thinking_level=self._surroundings.thinking_level,
            session_id=self._runtime.session.id,
            on_text=lambda text: self._emit(TextArrived(text)),
            on_retry=lambda text: self._emit(Retrying(text)),
            prepare_headers=self._prepare_headers,
            prepare_body=self._prepare_body,
        )
        message = await self._surroundings.model.respond(request, self.signal)
        entry = self._record(message)
        self._last = entry, message
        return entry, message

    async def _prepare_headers(self, headers: Mapping[str, str]) -> Mapping[str, str | None]:
        event = BeforeProviderHeadersEvent(headers=headers)
        plugins = self._runtime.plugins
        return (await plugins.chain("before_provider_headers", event, self._runtime.context)).event.headers

    async def _prepare_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        event = BeforeProviderRequestEvent(payload=body)
        plugins = self._runtime.plugins
        return (await plugins.chain("before_provider_request", event, self._runtime.context)).event.payload

    async def _run_calls(self, calls: Sequence[ToolCall], message: Message) -> list[tuple[Entry, Message]]:
        """Runs the calls side by side; their results are recorded in call order, each as soon as it may be."""
        recorded: list[tuple[Entry, Message]] = []
        truncated = message.get("stopReason") == "length"
        async for result in run_tools(
            calls, self._surroundings.tools, self._runtime.context, self.signal, truncated=truncated, emit=self._emit
        ):
            recorded.append((self._record(result), result))
        return recorded

    async def _turn_end(
        self, turn: int, entry: Entry, message: Message, results: Sequence[tuple[Entry, Message]], outcome: Outcome
    ) -> bool:
        event = TurnEndEvent(
            turn_index=turn,
            message=message,
            tool_results=[result for _, result in results],
            message_entry_id=entry.id,
            tool_result_entry_ids=[result_entry.id for result_entry, _ in results],
            outcome=outcome,
            context=self._runtime.authority.snapshot(),
        )
        timeout = self._runtime.settings.values.compactionTimeoutSeconds
        answer = await self._runtime.boundary("turn_end", event, timeout_seconds=timeout)
        await self._lifecycle.commit_boundary(answer)
        return answer.continue_run and outcome == "completed" and self._can_continue("turn_end")

    async def _before_settle(self, outcome: Outcome) -> bool:
        """Whether the run goes on: a plugin asked for it, or something arrived meanwhile."""
        event = AgentBeforeSettleEvent(outcome=outcome, context=self._runtime.authority.snapshot())
        answer = await self._runtime.boundary("agent_before_settle", event)
        await self._lifecycle.commit_boundary(answer)
        if self.signal.aborted:
            return False
        waiting = self._inbox.next_following()
        if waiting is not None:
            self._record_input(waiting)
            return True
        return answer.continue_run and self._can_continue("agent_before_settle")

    def _can_continue(self, hook: str) -> bool:
        """A model can only be asked when the context ends with something to answer."""
        messages = self._runtime.authority.snapshot().provider_messages
        if messages and messages[-1].get("role") not in NO_CONTINUATION:
            return True
        text = f"{hook} asked for another request, but there is nothing for the model to answer"
        self._emit(Notified("", text, "warning"))
        return False

    # Compaction

    async def _compact_if_needed(self, *, skip: bool = False) -> None:
        if skip or self.signal.aborted or not self._lifecycle.over_threshold():
            return
        # A failure is told by the lifecycle; the run goes on as long as the provider takes its requests.
        with contextlib.suppress(CompactionFailed, NothingToCompact, InvalidDraft):
            await self._lifecycle.compact("threshold", parent_signal=self.signal)

    async def _recover(self, outcome: Outcome) -> bool:
        """After a request that did not fit: omits the failed attempt, compacts, and says whether to try again."""
        if self._last is None or outcome == "aborted" or self.signal.aborted:
            return False
        entry, message = self._last
        window = self._runtime.authority.snapshot().window
        if outcome != "error" or not self._is_overflow(message, window):
            return False
        if self._overflow_tried:
            text = "the context is still too large after one compaction: shorten it, or choose a larger model"
            self._emit(Notified("", text, "error"))
            return False
        self._overflow_tried = True
        if self._lifecycle.prepare() is None:
            self._emit(Notified("", "the request did not fit, and there is nothing to compact", "error"))
            return False
        self._runtime.authority.commit([ContextEditDraft(target_id=entry.id, replacement=None)])
        try:
            await self._lifecycle.compact("overflow", will_retry=True, parent_signal=self.signal)
        except CompactionFailed:
            return False
        return not self.signal.aborted

    # The record

    def _record_input(self, item: Input) -> None:
        if item.kind == "steer":
            self._answering.append(item)  # the run goes on: its end answers both
        else:
            self._answered()
            self._answering = [item]
        self._overflow_tried = False
        content = [{"type": "text", "text": item.text}] if item.text or not item.images else []
        message = {
            "role": "user",
            "content": [*content, *(dict(image) for image in item.images)],
            "timestamp": int(time.time() * 1000),
        }
        # A held input leaves its hold by the same write that sends it: a crash finds it either held or sent.
        self._record(message, before=sent_payload(item, "sent"))

    def _record(self, message: Message, before: Sequence[Mapping[str, Any]] = ()) -> Entry:
        entry = self._runtime.session.append([*before, {"type": "message", "message": message}])[-1]
        self._emit(MessageRecorded(entry))
        return entry

    def release(self) -> None:
        """Lets nobody wait any longer, however the run ended."""
        self._answered()

    def _answered(self) -> None:
        """Tells whoever waits for the inputs sent so far that their answer is there."""
        for item in self._answering:
            item.settle(self._last[1] if self._last is not None else None)
        self._answering = []
