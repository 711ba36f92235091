"""Finding the tool calls of a history: each with its result, numbered, and whether it may be asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contexthost_jev.errors import JevFailure
from contexthost_jev.messages import JevMessage, ToolResult, ToolUse
from contexthost_jev.options import JevOptions

__all__ = ["ToolCall", "ToolCalls", "collect_tool_calls"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call paired with its result.

    ``number`` counts from 1 over all paired calls in the order of the calls; ``use_index`` and ``result_index`` are
    the places of the two messages. ``pinned``: one of them must not be touched.
    """

    number: int
    use: ToolUse
    result: ToolResult
    use_index: int
    result_index: int
    pinned: bool

    @property
    def id(self) -> str:
        """What Jev knows it by: ``t1``, ``t2``, …"""
        return f"t{self.number}"

    @property
    def candidate(self) -> bool:
        """Whether Jev is asked about it: not pinned, and not truncated by an earlier compaction."""
        return not self.pinned and not self.result.truncated


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """All paired calls, and by message index the uses that have no result (yet)."""

    calls: tuple[ToolCall, ...]
    pending: Mapping[int, tuple[ToolUse, ...]]

    @property
    def candidates(self) -> tuple[ToolCall, ...]:
        """The calls that Jev is asked about."""
        return tuple(call for call in self.calls if call.candidate)


def collect_tool_calls(messages: Sequence[JevMessage], options: JevOptions) -> ToolCalls:
    """Pair every tool use with its result by id.

    A call without a result and a result without a call are no candidates. Raises JevFailure (``malformed-history``)
    for an id that two uses or two results share, and for a result that stands before its call.
    """
    results: dict[str, tuple[int, ToolResult]] = {}
    for index, message in enumerate(messages):
        for result in message.tool_results:
            if result.id in results:
                raise JevFailure("malformed-history", f"message {index + 1} holds a second result of one tool call")
            results[result.id] = (index, result)
    count = len(messages)
    seen: set[str] = set()
    calls: list[ToolCall] = []
    pending: dict[int, tuple[ToolUse, ...]] = {}
    for index, message in enumerate(messages):
        for use in message.tool_uses:
            if use.id in seen:
                raise JevFailure("malformed-history", f"message {index + 1} repeats the id of an earlier tool call")
            seen.add(use.id)
            found = results.get(use.id)
            if found is None:
                pending[index] = (*pending.get(index, ()), use)
                continue
            at, result = found
            if at <= index:
                raise JevFailure("malformed-history", f"message {at + 1} holds a result that stands before its call")
            pinned = options.is_pinned(index, count) or options.is_pinned(at, count)
            calls.append(ToolCall(len(calls) + 1, use, result, index, at, pinned))
    return ToolCalls(tuple(calls), pending)
