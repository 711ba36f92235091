"""Running the tool calls of one assistant message: side by side, results in call order, an answer to each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contexthost._dispatch import Caught
from contexthost.context import AbortSignal, Context, Tool, ToolResult
from contexthost.messages import Message, own_text
from contexthost.plugin_context import TOO_DEEP
from contexthost.session.entries import is_deep
from contexthost.shapes import content_problem
from contexthost.waiting import ABORT_GRACE_SECONDS
from contexthost.watch import ToolEnded, ToolStarted, WatchEvent

__all__ = ["ToolCall", "run_tools", "tool_calls", "tool_problem", "usable_result"]

ABORTED: Final = "Operation aborted"
"""The result of a call that an abort kept from ending, as Pi words it."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in an assistant message; ``problem`` says what is wrong with its arguments, if they cannot be used."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    problem: str | None = None


def tool_calls(message: Message) -> list[ToolCall]:
    """The calls of an assistant message, in order; those without an id cannot be answered and are left out."""
    found = []
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "toolCall" and isinstance(block.get("id"), str):
            arguments = block.get("arguments")
            problem = block.get("argumentsError")
            if problem is None and not isinstance(arguments, dict):
                problem = "the arguments are not a JSON object"
            usable = arguments if isinstance(arguments, dict) else {}
            found.append(ToolCall(block["id"], own_text(block.get("name")), usable, problem))
    return found


async def run_tools(
    calls: Sequence[ToolCall],
    tools: Sequence[tuple[str, Tool]],
    context: Callable[[str], Context],
    signal: AbortSignal,
    *,
    truncated: bool,
    emit: Callable[[WatchEvent], None],
) -> AsyncGenerator[Message, None]:
    """Yields one result message a call, in call order, each as soon as it and those before it are there.

    Args:
        calls: of one assistant message.
        tools: (plugin, tool) that may be called.
        context: gives a plugin's ``ctx``.
        signal: an abort ends running tools and answers what has not ended with an error result.
        truncated: the message was cut off by the output limit, so that arguments may be incomplete: nothing is run.
        emit: tells whoever watches.
    """
    by_name = {tool.name: (plugin, tool) for plugin, tool in tools}
    tasks = []
    for call in calls:
        emit(ToolStarted(call.id, call.name, call.arguments))
        tasks.append(asyncio.ensure_future(_run(call, by_name.get(call.name), context, signal, truncated)))

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    unlink = signal.on_abort(cancel)
    aborted = asyncio.ensure_future(signal.wait())
    try:
        for call, task in zip(calls, tasks, strict=True):
            await asyncio.wait([task, aborted], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait(tasks, timeout=ABORT_GRACE_SECONDS)
            result = task.result() if task.done() and not task.cancelled() else ToolResult(ABORTED, is_error=True)
            emit(ToolEnded(call.id, call.name, result.is_error))
            yield _message(call, result)
    finally:
        unlink()
        aborted.cancel()
        cancel()
        await asyncio.wait([*tasks, aborted], timeout=ABORT_GRACE_SECONDS)


async def _run(
    call: ToolCall,
    found: tuple[str, Tool] | None,
    context: Callable[[str], Context],
    signal: AbortSignal,
    truncated: bool,
) -> ToolResult:
    if signal.aborted:
        return ToolResult(ABORTED, is_error=True)
    if truncated:
        return ToolResult("The answer was cut off by the output limit; this call was not run.", is_error=True)
    if found is None:
        return ToolResult(f"Tool {call.name} not found", is_error=True)
    plugin, tool = found
    with Caught() as caught:  # whatever a tool or its schema raises is the model's to know, not the run's end
        problem = call.problem or tool_problem(tool, call.arguments)
        if problem is not None:
            return ToolResult(f"Invalid arguments for {call.name}: {problem}", is_error=True)
        return usable_result(plugin, call.name, await tool.handler(call.arguments, context(plugin)))
    return ToolResult(str(caught.error) or type(caught.error).__name__, is_error=True)


def usable_result(plugin: str, name: str, result: Any) -> ToolResult:
    """What a plugin's tool gave, with plain blocks and details; an error result that names both where Pi would fail on
    it: it keeps results as they are, and sends them with every request from then on."""
    problem = _result_problem(result)
    if problem is not None:
        whose = f" of plugin {plugin}" if plugin else ""  # the program's own tools are no plugin's
        return ToolResult(f"Tool {name}{whose} gave a result that cannot be used: {problem}", is_error=True)
    content = result.content if isinstance(result.content, str) else [dict(block) for block in result.content]
    details = dict(result.details) if result.details is not None else None
    return ToolResult(content, bool(result.is_error), details)


def _result_problem(result: Any) -> str | None:
    if not isinstance(result, ToolResult):
        return f"a {type(result).__name__}, not a ToolResult"
    content: Any = result.content
    details: Any = result.details
    if details is not None and not isinstance(details, Mapping):
        return "its details are not an object"
    return content_problem(content, sent=True) or (TOO_DEEP if is_deep([content, details]) else None)


def tool_problem(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """What is wrong with arguments by the tool's JSON Schema, in one line; None when they fit."""
    import jsonschema  # slow to import: only once a tool is called

    errors = sorted(jsonschema.Draft202012Validator(tool.parameters).iter_errors(arguments), key=lambda e: list(e.path))
    if not errors:
        return None
    return "; ".join(f"{'/'.join(map(str, e.absolute_path)) or 'arguments'}: {e.message}"[:300] for e in errors[:5])


def _message(call: ToolCall, result: ToolResult) -> Message:
    content = [{"type": "text", "text": result.content}] if isinstance(result.content, str) else list(result.content)
    message: Message = {
        "role": "toolResult",
        "toolCallId": call.id,
        "toolName": call.name,
        "content": content,
        "isError": result.is_error,
        "timestamp": int(time.time() * 1000),
    }
    if result.details is not None:
        message["details"] = dict(result.details)
    return message
