"""Shows the scripted model: what it records, how it streams, that it heeds aborts and says when the script is over."""

from __future__ import annotations

import asyncio
import time

import pytest

from contexthost.context import AbortSignal, ModelInfo, ModelRequest
from contexthost.messages import Message
from contexthost.models import Reply, ScriptedCall, ScriptedModel, ScriptRanOut
from support.asking import HELLO


def respond(model: ScriptedModel, request: ModelRequest | None = None, signal: AbortSignal | None = None) -> Message:
    return asyncio.run(model.respond(request or ModelRequest(messages=HELLO), signal or AbortSignal()))


def test_a_text_is_an_answer_with_an_estimated_usage() -> None:
    model = ScriptedModel(["twelve chars"])
    message = respond(model)
    # "hello" is 5 characters, 2 tokens; the answer's 12 are 3.
    assert (message["usage"]["input"], message["usage"]["output"], message["usage"]["totalTokens"]) == (2, 3, 5)
    assert message["content"] == [{"type": "text", "text": "twelve chars"}]
    assert (message["stopReason"], message["provider"], message["model"]) == ("stop", "scripted", "scripted-1")
    assert model.requests[0].messages is HELLO


def test_a_reply_may_think_call_and_name_its_usage() -> None:
    info = ModelInfo(provider="p", id="m", api="openai-completions")
    calls = (ScriptedCall("read", {"path": "a"}), ScriptedCall("ls", id="mine"))
    model = ScriptedModel([Reply(thinking="hm", calls=calls, usage={"input": 9, "totalTokens": 9})], info=info)
    message = respond(model)
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm"},
        {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "a"}},
        {"type": "toolCall", "id": "mine", "name": "ls", "arguments": {}},
    ]
    assert (message["stopReason"], message["api"]) == ("toolUse", "openai-completions")
    assert (message["usage"]["input"], message["usage"]["output"], message["usage"]["totalTokens"]) == (9, 0, 9)


def test_calls_get_ids_that_are_new_to_the_model() -> None:
    model = ScriptedModel([Reply(calls=[ScriptedCall("a")]), Reply(calls=[ScriptedCall("a")])])
    assert [respond(model)["content"][0]["id"] for _ in range(2)] == ["call_1", "call_2"]


def test_a_function_makes_the_answer_of_the_request() -> None:
    model = ScriptedModel([lambda request: f"{len(request.messages)} messages"])
    assert respond(model)["content"][0]["text"] == "1 messages"


def test_a_failed_reply_keeps_what_it_said() -> None:
    message = respond(ScriptedModel([Reply(text="so", error="prompt is too long")]))
    assert (message["stopReason"], message["errorMessage"]) == ("error", "prompt is too long")
    assert message["content"] == [{"type": "text", "text": "so"}]
    assert message["usage"]["totalTokens"] == 0


def test_a_text_is_handed_on_in_pieces() -> None:
    pieces: list[str] = []
    respond(ScriptedModel([Reply(text="abcdefg", pieces=3)]), ModelRequest(messages=HELLO, on_text=pieces.append))
    assert pieces == ["abc", "def", "g"]


def test_an_abort_between_pieces_keeps_those_before() -> None:
    signal = AbortSignal()
    request = ModelRequest(messages=HELLO, on_text=lambda piece: signal.abort() if piece == "def" else None)
    message = respond(ScriptedModel([Reply(text="abcdefg", pieces=3, calls=[ScriptedCall("x")])]), request, signal)
    assert message["content"] == [{"type": "text", "text": "abcdef"}]
    assert (message["stopReason"], message["errorMessage"]) == ("aborted", "Request was aborted")


def test_an_abort_ends_a_delay() -> None:
    async def run() -> Message:
        signal = AbortSignal()
        asyncio.get_running_loop().call_later(0.02, signal.abort)
        return await model.respond(ModelRequest(messages=HELLO), signal)

    model = ScriptedModel([Reply(text="late", delay_seconds=60)])
    started = time.monotonic()
    message = asyncio.run(run())
    assert time.monotonic() - started < 10
    assert (message["stopReason"], message["content"]) == ("aborted", [])


def test_a_delay_passes_before_the_text() -> None:
    started = time.monotonic()
    assert respond(ScriptedModel([Reply(text="x", delay_seconds=0.05)]))["stopReason"] == "stop"
    assert time.monotonic() - started >= 0.05


def test_a_script_that_ran_out_says_so() -> None:
    model = ScriptedModel(["one"])
    respond(model)
    with pytest.raises(ScriptRanOut, match="scripted-1 was asked 2 times, but its script has 1 answers"):
        respond(model)
