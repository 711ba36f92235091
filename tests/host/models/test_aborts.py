"""Shows that an abort ends a request in every phase and gives what has arrived, as Pi records it.

A real server on loopback holds its answer back until the abort has happened.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from contexthost.context import AbortSignal, ModelRequest
from contexthost.models import open_model
from support.asking import HELLO, Waits, ask, model_info
from support.model_server import CHAT, RESPONSES, Answer, ModelServer, Received, call, refuse, say

BOTH = pytest.mark.parametrize("api", [CHAT, RESPONSES])


async def abort_when(reached: threading.Event, signal: AbortSignal) -> None:
    await asyncio.to_thread(reached.wait, 20)
    await asyncio.sleep(0.05)  # so that what was sent before is read
    signal.abort()


def test_an_abort_before_the_request_sends_nothing() -> None:
    signal = AbortSignal()
    signal.abort()
    with ModelServer() as server:
        message = ask(model_info(CHAT, server.base_url), signal=signal)
        assert server.requests == []
    assert (message["stopReason"], message["errorMessage"]) == ("aborted", "Request was aborted")


def test_an_abort_while_a_hook_prepares_the_request_sends_nothing() -> None:
    async def slow(body: Any) -> Any:
        started.set()
        await asyncio.sleep(60)
        return body

    started = threading.Event()
    with ModelServer() as server:
        request = ModelRequest(messages=HELLO, prepare_body=slow)
        info = model_info(CHAT, server.base_url)
        message = ask(info, request, meanwhile=lambda signal: abort_when(started, signal))
        assert server.requests == []
    assert message["stopReason"] == "aborted"


@BOTH
def test_an_abort_before_the_headers_gives_an_empty_answer(api: str) -> None:
    arrived = threading.Event()

    def answer(_: Received) -> Answer:
        arrived.set()
        return say("late", delay_seconds=10)  # nobody waits for it

    with ModelServer(answer) as server:
        message = ask(model_info(api, server.base_url), meanwhile=lambda signal: abort_when(arrived, signal))
    assert (message["stopReason"], message["content"]) == ("aborted", [])


@BOTH
def test_an_abort_within_the_text_keeps_what_has_arrived(api: str) -> None:
    with ModelServer([say("abcdef", hold_after=3)]) as server:
        message = ask(model_info(api, server.base_url), meanwhile=lambda signal: abort_when(server.reached, signal))
    text = "abcd" if api == CHAT else "ab"
    assert (message["stopReason"], message["content"]) == ("aborted", [{"type": "text", "text": text}])
    assert message["errorMessage"] == "Request was aborted"


def test_an_abort_within_the_arguments_leaves_the_call_without_them_in_chat() -> None:
    with ModelServer([call("read", {"path": "long/path"}, hold_after=4)]) as server:
        message = ask(model_info(CHAT, server.base_url), meanwhile=lambda signal: abort_when(server.reached, signal))
    (block,) = message["content"]
    assert (block["name"], block["arguments"]) == ("read", {})
    assert "Received arguments:" in block["argumentsError"]


def test_an_abort_within_the_arguments_keeps_their_beginning_in_responses() -> None:
    with ModelServer([call("read", {"path": "long/path"}, hold_after=4)]) as server:
        info = model_info(RESPONSES, server.base_url)
        message = ask(info, meanwhile=lambda signal: abort_when(server.reached, signal))
    assert message["content"] == [
        {"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {"path": "long"}}
    ]


def test_an_abort_from_the_callback_of_the_last_piece_counts() -> None:
    signal = AbortSignal()
    with ModelServer([say("abc", pieces=1)]) as server:
        request = ModelRequest(messages=HELLO, on_text=lambda _: signal.abort())
        message = ask(model_info(CHAT, server.base_url), request, signal=signal)
    assert (message["stopReason"], message["content"]) == ("aborted", [{"type": "text", "text": "abc"}])


def test_an_abort_ends_the_wait_before_a_retry() -> None:
    class Forever(Waits):
        async def __call__(self, seconds: float) -> None:
            waiting.set()
            await asyncio.sleep(60)

    waiting = threading.Event()
    with ModelServer([refuse(500)]) as server:
        info = model_info(CHAT, server.base_url)
        message = ask(info, waits=Forever(), meanwhile=lambda signal: abort_when(waiting, signal))
        assert len(server.requests) == 1
    assert message["stopReason"] == "aborted"


@pytest.mark.parametrize("abort", [False, True], ids=["cancelled", "cancelled-and-aborted"])
def test_cancelling_the_task_is_not_an_abort(abort: bool) -> None:
    async def cancelled(abort: bool) -> bool:
        model = open_model(model_info(CHAT, server.base_url))
        signal = AbortSignal()
        task = asyncio.ensure_future(model.respond(ModelRequest(messages=HELLO), signal))
        await asyncio.to_thread(server.reached.wait, 20)
        task.cancel()
        if abort:
            signal.abort()
        done, _ = await asyncio.wait([task])
        await model.aclose()
        return done.pop().cancelled()

    with ModelServer([say("abc", hold_after=0)]) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        assert asyncio.run(cancelled(abort))
