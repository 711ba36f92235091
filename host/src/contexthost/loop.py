"""The agent loop: one run, from the first user message to the point where the session is idle again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

from contexthost._dispatch import Caught
from contexthost.context import AbortSignal, Model, ModelRequest, Tool
from contexthost.errors import (
    CompactionFailed,
    ContexthostError,
    InvalidDraft,
    NothingToCompact,
    SessionFormatError,
)
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
from contexthost.models.answer import ABORTED, new_answer
from contexthost.projection import ContextEditDraft
from contexthost.runtime import BoundaryOutcome, Runtime
from contexthost.session import Entry
from contexthost.toolbox import ToolCall, run_tools, tool_calls
from contexthost.waiting import ABORT_GRACE_SECONDS, until_abort
from contexthost.watch import MessageRecorded, Notified, Retrying, RunStarted, TextArrived, WatchEvent

__all__ = ["AgentRun", "IsOverflow"]

IsOverflow = Callable[[Message, int], bool]
"""Whether an assistant message says that the request did not fit a window of so many tokens."""

_Boundary = TypeVar("_Boundary", TurnEndEvent, AgentBeforeSettleEvent)


class Surroundings(Protocol):
    """What a run needs of its host."""

    @property
    def model(self) -> Model: ...

    @property
    def tools(self) -> Sequence[tuple[str, Tool]]: ...

    @property
    def thinking_level(self) -> str | None: ...

    def declare(self) -> None: ...

    def declaration(self) -> list[dict[str, Any]]: ...


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

    async def execute(self, first: Input) -> None:
        """Runs until nothing is left to do or the run is aborted.

        Raises:
            SessionWriteError, SessionLocked, SessionChanged: the session cannot be written; the run ends there. An
                input that could not be recorded is back in its queue, except for ``first``.
        """
        await self._compact_if_needed()
        following: Input | None = first
        while True:
            outcome = await self._activity(following)
            following = None
            if self.signal.aborted:
                break
            recovery = await self._recover(outcome)
            if recovery == "none":
                await self._compact_if_needed()
            if self.signal.aborted:
                break
            if recovery == "retry":
                continue
            following = self._inbox.next_following()
            if following is None:
                goes_on = await self._before_settle(outcome)
                if self.signal.aborted or not goes_on:
                    break
                following = self._inbox.next_following()
        self._answered()

    # One activity: from agent_start to agent_end

    async def _activity(self, following: Input | None) -> Outcome:
        self._emit(RunStarted())
        await self._runtime.notify("agent_start", AgentStartEvent())
        if following is None:
            following = self._next_steering()
        turn = 0
        while True:
            if following is not None:
                self._record_input(following)
            else:
                self._surroundings.declare()
            entry, message = await self._respond()
            if message.get("stopReason") in ("error", "aborted"):
                outcome: Outcome = "aborted" if message["stopReason"] == "aborted" else "error"
                await self._turn_end(turn, entry, message, [], outcome)
                return outcome
            calls = tool_calls(message)
            results = await self._run_calls(calls, message)
            continue_run = await self._turn_end(turn, entry, message, results, "completed")
            turn += 1
            if not calls and not continue_run and not self._inbox.waiting:
                return "completed"
            # Another request follows: whatever the tools brought must fit into it.
            await self._compact_if_needed()
            if self.signal.aborted and not calls:
                return "completed"
            following = self._next_steering()
            if following is None and not calls:
                following = self._inbox.next_following()

    def _next_steering(self) -> Input | None:
        """After an abort queued inputs stay where they are, for the next run."""
        return None if self.signal.aborted else self._inbox.next_steering()

    async def _respond(self) -> tuple[Entry, Message]:
        await self._runtime.notify("context", ContextEvent(snapshot=self._runtime.authority.snapshot()))
        request = ModelRequest(
            messages=self._runtime.authority.snapshot().provider_messages,
            tools=[tool for _, tool in self._surroundings.tools],
            thinking_level=self._surroundings.thinking_level,
            session_id=self._runtime.session.id,
            on_text=lambda text: self._emit(TextArrived(text)),
            on_retry=lambda text: self._emit(Retrying(text)),
            prepare_headers=self._prepare_headers,
            prepare_body=self._prepare_body,
        )
        message = await self._ask(self._surroundings.model, request)
        entry = self._record(message)
        self._last = entry, message
        if message.get("stopReason") not in ("error", "length"):
            self._overflow_tried = False
        return entry, message

    async def _ask(self, model: Model, request: ModelRequest) -> Message:
        """The model's answer; what it raises becomes a failed one, as in Pi, and an abort does not wait for it."""
        with Caught() as caught:
            message = await until_abort(
                model.respond(request, self.signal), self.signal, grace_seconds=ABORT_GRACE_SECONDS
            )
            if message is not None:
                return message
        if caught.error is None:
            return {**new_answer(model.info), "stopReason": "aborted", "errorMessage": ABORTED}
        what = str(caught.error) if isinstance(caught.error, ContexthostError) else repr(caught.error)
        return {**new_answer(model.info), "stopReason": "error", "errorMessage": what}

    async def _prepare_headers(self, headers: Mapping[str, str]) -> Mapping[str, str | None]:
        return (await self._runtime.headers(BeforeProviderHeadersEvent(headers=headers))).event.headers

    async def _prepare_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        event = BeforeProviderRequestEvent(payload=body)
        plugins = self._runtime.plugins
        return (await plugins.chain("before_provider_request", event, self._runtime.context)).event.payload

    async def _run_calls(self, calls: Sequence[ToolCall], message: Message) -> list[tuple[Entry, Message]]:
        """Runs the calls side by side; their results are recorded in call order, each as soon as it may be."""
        recorded: list[tuple[Entry, Message]] = []
        if not calls:
            return recorded
        truncated = message.get("stopReason") == "length"
        running = run_tools(
            calls, self._surroundings.tools, self._runtime.context, self.signal, truncated=truncated, emit=self._emit
        )
        async with contextlib.aclosing(running):
            async for result in running:
                recorded.append(self._record_result(result))
        return recorded

    def _record_result(self, result: Message) -> tuple[Entry, Message]:
        try:
            return self._record(result), result
        except SessionFormatError as error:  # what the tool gave is not JSON
            text = f"The result of {result['toolName']} cannot be recorded: {error}"
            plain = {key: value for key, value in result.items() if key != "details"}
            plain |= {"content": [{"type": "text", "text": text}], "isError": True}
            return self._record(plain), plain

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
        goes_on = await self._boundary("turn_end", event, timeout)
        return goes_on and outcome == "completed" and self._can_continue("turn_end")

    async def _before_settle(self, outcome: Outcome) -> bool:
        """Whether the run goes on: a plugin asked for it, or something arrived meanwhile."""
        event = AgentBeforeSettleEvent(outcome=outcome, context=self._runtime.authority.snapshot())
        goes_on = await self._boundary("agent_before_settle", event, None)
        if self._inbox.waiting:
            return True
        return goes_on and not self.signal.aborted and self._can_continue("agent_before_settle")

    async def _boundary(self, hook: str, event: _Boundary, timeout: float | None) -> bool:
        """Asks the plugins at a boundary and appends what they drafted; whether one wants the run to go on.

        An abort ends the waiting: plugins that do not listen to it are cut off, with what they would have drafted.
        """
        if self.signal.aborted:
            answer: BoundaryOutcome | None = await self._runtime.boundary(hook, event)
        else:
            asking = self._runtime.boundary(hook, event, timeout_seconds=timeout)
            answer = await until_abort(asking, self.signal, grace_seconds=ABORT_GRACE_SECONDS)
        if answer is None:
            return False
        await self._lifecycle.commit_boundary(answer, self.signal)
        return answer.continue_run

    def _can_continue(self, hook: str) -> bool:
        """A model can only be asked when the context ends with something to answer."""
        messages = self._runtime.authority.snapshot().provider_messages
        if messages and messages[-1].get("role") not in ("assistant", "system"):
            return True
        text = f"{hook} asked for another request, but there is nothing for the model to answer"
        self._emit(Notified("", text, "warning"))
        return False

    # Compaction

    async def _compact_if_needed(self) -> None:
        if self.signal.aborted or not self._lifecycle.over_threshold():
            return
        # A failure is told by the lifecycle; the run goes on as long as the provider takes its requests.
        with contextlib.suppress(CompactionFailed, NothingToCompact, InvalidDraft):
            await self._lifecycle.compact("threshold", parent_signal=self.signal)

    async def _recover(self, outcome: Outcome) -> Literal["none", "retry", "stop"]:
        """After an answer that shows that the request or the answer did not fit.

        A failed or cut-off attempt is omitted, with its results, and tried again once after a compaction (``retry``).
        A completed answer stands, and what it shows is that the next request will not fit. ``none``: nothing of that.
        """
        if self._last is None:
            return "none"
        entry, message = self._last
        info = self._surroundings.model.info
        if {message.get("provider"), message.get("model")} - {info.provider, info.id, None}:
            return "none"  # of another model, with another window
        overflow = self._is_overflow(message, self._runtime.authority.snapshot().window)
        if overflow and message.get("stopReason") == "stop":
            with contextlib.suppress(CompactionFailed, NothingToCompact, InvalidDraft):
                await self._lifecycle.compact("overflow", parent_signal=self.signal)
            return "stop"
        if not overflow and not _cut_short(message, info.max_tokens):
            return "none"
        what = "the context does not fit the window" if overflow else "the answer was cut off"
        if self._overflow_tried:
            text = f"{what}, still after one compaction: shorten the context, or choose a larger model"
            await self._lifecycle.gave_up("overflow", text)
            return "stop"
        self._overflow_tried = True
        if self._lifecycle.prepare() is None:
            self._emit(Notified("", f"{what}, and there is nothing to compact", "error"))
            return "stop"
        self._runtime.authority.commit(self._omissions(entry))
        try:
            await self._lifecycle.compact("overflow", will_retry=True, parent_signal=self.signal)
        except (CompactionFailed, InvalidDraft):
            return "stop"
        except NothingToCompact:  # what was left without the attempt fits in what is kept anyway
            self._emit(Notified("", f"{what}, and there is nothing to compact", "error"))
            return "stop"
        return "retry"

    def _omissions(self, entry: Entry) -> list[ContextEditDraft]:
        """The edits that take an answer and its tool results out of the context."""
        snapshot = self._runtime.authority.snapshot()
        position = snapshot.position(entry.id)
        if position is None:
            return []
        behind = (snapshot.entries[at].source for at in range(position + 1, len(snapshot.entries)))
        attempt = [entry.id, *(one.id for one in behind if one.role == "toolResult")]
        return [ContextEditDraft(target_id=one, replacement=None) for one in attempt]

    # The record

    def _record_input(self, item: Input) -> None:
        """Sends an input: records it, behind what has changed in the surroundings. One that cannot be is put back.

        A held input leaves its hold by the same write: a crash finds it either held or sent.
        """
        content = [{"type": "text", "text": item.text}] if item.text or not item.images else []
        message = {
            "role": "user",
            "content": [*content, *(dict(image) for image in item.images)],
            "timestamp": int(time.time() * 1000),
        }
        try:
            self._record(message, before=[*self._surroundings.declaration(), *sent_payload(item, "sent")])
        except ContexthostError:
            if item.run is None:
                self._inbox.put_back(item)
            raise
        item.sent = True
        if item.kind != "steer":
            self._answered()
        self._answering.append(item)  # what steers a run is answered by the run's end, as is what it steers
        self._overflow_tried = False

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


def _cut_short(message: Message, max_tokens: int | None) -> bool:
    """Whether the answer ended by its length although the model could have said more: the window left no room."""
    if message.get("stopReason") != "length" or not max_tokens:
        return False
    usage = message.get("usage")
    output = usage.get("output") if isinstance(usage, Mapping) else None
    return isinstance(output, int) and output < max_tokens
