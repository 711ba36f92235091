"""A model that answers from a script: for tests, demos, and agents that are to run without a provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from contexthost.context import AbortSignal, ModelInfo, ModelRequest
from contexthost.errors import ContexthostError
from contexthost.messages import Message
from contexthost.models.answer import ABORTED, new_answer
from contexthost.models.usage import empty_usage, priced
from contexthost.tokens.pi import pi_estimate

__all__ = ["Reply", "ScriptRanOut", "ScriptedCall", "ScriptedModel"]

SCRIPTED: Final = ModelInfo(
    provider="scripted", id="scripted-1", api="scripted", context_window=200_000, max_tokens=32_000
)


class ScriptRanOut(ContexthostError):
    """A `ScriptedModel` was asked more often than its script has answers."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of a reply; without an ``id`` it gets one that is new to the model."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer.

    ``error`` makes it a failed one with that text, after what else it says. ``stop_reason`` None follows from the rest.
    ``delay_seconds`` pass before the text and ``pause_seconds`` before each of its ``pieces``; 0 still lets other tasks
    run. ``usage`` None estimates it as Pi estimates tokens; else it is set over a usage of zeros, in Pi's keys.
    """

    text: str = ""
    thinking: str = ""
    calls: Sequence[ScriptedCall] = ()
    error: str | None = None
    stop_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    delay_seconds: float = 0.0
    pause_seconds: float = 0.0
    pieces: int = 1


Step: TypeAlias = "Reply | str | Callable[[ModelRequest], Reply | str]"


class ScriptedModel:
    """A `Model` that gives the steps of a script in order: replies, texts, or functions that make one of the request.

    ``requests`` holds the requests so far. An abort ends a reply with the text that has been given. Raises ScriptRanOut
    from ``respond`` when no step is left.
    """

    def __init__(self, script: Iterable[Step] = (), *, info: ModelInfo = SCRIPTED) -> None:
        self._info = info
        self._steps: Iterator[Step] = iter(script)
        self._given = 0
        self._calls = 0
        self.requests: list[ModelRequest] = []

    @property
    def info(self) -> ModelInfo:
        """Which model it is."""
        return self._info

    async def respond(self, request: ModelRequest, signal: AbortSignal) -> Message:
        """See `Model.respond`."""
        if signal.aborted:  # as with a provider, no request is made any more
            return {**new_answer(self._info), "stopReason": "aborted", "errorMessage": ABORTED}
        self.requests.append(request)
        try:
            step = next(self._steps)
        except StopIteration:
            raise ScriptRanOut(
                f"the scripted model {self._info.id} was asked {len(self.requests)} times, "
                f"but its script has {self._given} answers"
            ) from None
        self._given += 1
        made = step(request) if callable(step) else step
        reply = Reply(text=made) if isinstance(made, str) else made
        message = new_answer(self._info)
        aborted = await self._stream(reply, request, signal, message["content"])
        if aborted:
            return {**message, "stopReason": "aborted", "errorMessage": ABORTED}
        for call in reply.calls:
            self._calls += 1
            call_id = call.id or f"call_{self._calls}"
            message["content"].append(
                {"type": "toolCall", "id": call_id, "name": call.name, "arguments": dict(call.arguments)}
            )
        message["stopReason"] = reply.stop_reason or ("toolUse" if reply.calls else "stop")
        if reply.error is not None:
            return {**message, "stopReason": "error", "errorMessage": reply.error}
        message["usage"] = self._usage(reply, request, message)
        return message

    async def _stream(
        self, reply: Reply, request: ModelRequest, signal: AbortSignal, content: list[dict[str, Any]]
    ) -> bool:
        """Give the reply's thinking and text piece by piece; whether an abort ended that."""
        if await _aborted_within(reply.delay_seconds, signal):
            return True
        if reply.thinking:
            content.append({"type": "thinking", "thinking": reply.thinking})
        if not reply.text:
            return signal.aborted
        block = {"type": "text", "text": ""}
        size = max(1, -(-len(reply.text) // max(1, reply.pieces)))
        for start in range(0, len(reply.text), size):
            if start and await _aborted_within(reply.pause_seconds, signal):
                return True
            if not start:
                content.append(block)
            piece = reply.text[start : start + size]
            block["text"] += piece
            if request.on_text is not None:
                request.on_text(piece)
        return signal.aborted

    def _usage(self, reply: Reply, request: ModelRequest, message: Message) -> dict[str, Any]:
        if reply.usage is not None:
            return {**empty_usage(), **reply.usage}
        sent, made = sum(map(pi_estimate, request.messages)), pi_estimate(message)
        return priced({**empty_usage(), "input": sent, "output": made, "totalTokens": sent + made}, self._info)


async def _aborted_within(seconds: float, signal: AbortSignal) -> bool:
    if signal.aborted:
        return True
    if seconds <= 0:
        await asyncio.sleep(0)
        return signal.aborted
    try:
        async with asyncio.timeout(seconds):
            await signal.wait()
    except TimeoutError:
        return signal.aborted
    return True
