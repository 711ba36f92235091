"""What one more message costs before the next request is built: contexthost with masking, and two peers.

Each conversation has N messages (question, call, result of 2,000 characters, answer, and so on). Each round adds one
message, which is not measured, and then does what the library does between two requests of the model:

- contexthost: the next snapshot, a plan of masks, and the list of messages to send;
- LangChain: ``ContextEditingMiddleware`` with ``ClearToolUsesEdit`` around a model call that does nothing;
- Haystack: ``CompactionHook`` with ``ToolResultPruningCompactor`` on the agent's state.

All count four characters as one token, so that no tokenizer is measured. "Under": the trigger is not reached. "Over":
it is in every round; what has been cleared before stays cleared where the library keeps it. The figures are medians.

Run it with the command in RESULTS.md, with the names of libraries or without; it prints a table.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.large import large_entries

SIZES = (1_000, 10_000, 50_000)
RESULT_CHARS = 2_000
ROUNDS = 15
NEVER = 10**12

Step = tuple[Callable[[], None], Callable[[], object]]
"""Adds one message; does what comes between two requests."""


class Quarters:
    """contexthost's counter."""

    def count(self, text: str) -> int:
        return len(text) // 4


def contexthost_step(size: int, trigger: int) -> Step:
    from contexthost.projection import ProjectionAuthority
    from contexthost.session import Session
    from contexthost_masking.plan import plan_mask
    from contexthost_masking.settings import MaskSettings

    session = Session.in_memory(entries=large_entries(size, result_chars=RESULT_CHARS))
    authority = ProjectionAuthority(session, counter=Quarters(), window=NEVER)
    # Over: always, with a target that no batch reaches, so that every round plans in full.
    over = {"triggerTokens": 1} if trigger < NEVER // 4 else {"triggerTokens": trigger}
    settings = MaskSettings(**over, triggerRatio=1.0, targetTokens=0, targetRatio=1.0)
    message = {"role": "user", "content": "one more", "timestamp": 1}

    def between() -> object:
        plan = plan_mask(authority.snapshot(), settings)
        if plan.drafts:
            authority.commit(plan.drafts)
        return authority.snapshot().messages

    def add() -> None:
        session.append([{"type": "message", "message": message}])

    return add, between


def langchain_step(size: int, trigger: int) -> Step:
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware
    from langchain.agents.middleware.types import ModelRequest, ModelResponse
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    def convert(message: dict[str, Any]) -> Any:
        if message["role"] == "user":
            return HumanMessage(message["content"])
        block = message["content"][0]
        if message["role"] == "toolResult":
            return ToolMessage(block["text"], tool_call_id=message["toolCallId"], name=message["toolName"])
        if block["type"] == "text":
            return AIMessage(block["text"])
        return AIMessage("", tool_calls=[{"name": block["name"], "args": block["arguments"], "id": block["id"]}])

    messages = [convert(entry["message"]) for entry in large_entries(size, result_chars=RESULT_CHARS)]
    middleware = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=trigger, keep=10)])
    model = FakeListChatModel(responses=["ok"])
    answer = ModelResponse(result=[AIMessage("ok")])

    def between() -> object:
        request = ModelRequest(model=model, messages=messages)
        return middleware.wrap_model_call(request, lambda request: answer)

    return lambda: messages.append(HumanMessage("one more")), between


def haystack_step(size: int, trigger: int) -> Step:
    from haystack.components.agents.state.state import State
    from haystack.dataclasses import ChatMessage, ToolCall
    from haystack.hooks.compaction import CompactionHook, ToolResultPruningCompactor

    calls: dict[str, Any] = {}

    def convert(message: dict[str, Any]) -> Any:
        if message["role"] == "user":
            return ChatMessage.from_user(message["content"])
        block = message["content"][0]
        if message["role"] == "toolResult":
            return ChatMessage.from_tool(tool_result=block["text"], origin=calls[message["toolCallId"]])
        if block["type"] == "text":
            return ChatMessage.from_assistant(block["text"])
        call = calls[block["id"]] = ToolCall(tool_name=block["name"], arguments=block["arguments"], id=block["id"])
        return ChatMessage.from_assistant(tool_calls=[call])

    messages = [convert(entry["message"]) for entry in large_entries(size, result_chars=RESULT_CHARS)]
    hook = CompactionHook(
        ToolResultPruningCompactor(min_keep_steps=10), context_window=2 * trigger, compact_at=0.5, compact_to=0.25
    )
    state = State(schema={"messages": {"type": list[ChatMessage]}, "context_tokens": {"type": int}})
    state.data["messages"] = messages

    def between() -> object:
        # As after an answer of the model: the provider's count is there.
        state.data["context_tokens"] = size * RESULT_CHARS // 16
        hook.run(state)
        return state.data["messages"]

    return lambda: state.data["messages"].append(ChatMessage.from_user("one more")), between


LIBRARIES: dict[str, Callable[[int, int], Step]] = {
    "contexthost": contexthost_step, "LangChain": langchain_step, "Haystack": haystack_step,
}  # fmt: skip


def measure(step: Step) -> list[float]:
    """Seconds of each round; the first, which may look at everything, is not among them."""
    add, between = step
    between()
    found = []
    for _ in range(ROUNDS):
        add()
        begun = time.perf_counter()
        between()
        found.append(time.perf_counter() - begun)
    return found


def main() -> None:
    warnings.simplefilter("ignore")  # of experimental interfaces
    print("| | " + " | ".join(f"{size:,} messages" for size in SIZES) + " |")
    print("|---|" + "---|" * len(SIZES))
    for name, make in LIBRARIES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        for side in ("under", "over"):
            cells = []
            for size in SIZES:
                trigger = NEVER // 4 if side == "under" else size * RESULT_CHARS // 64
                times = measure(make(size, trigger))
                cells.append(f"{statistics.median(times) * 1e3:,.2f} ms")
            print(f"| {name}, {side} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
