"""Shows that our clients record answers, and build requests, as the real Pi does against the same server.

Pi runs in RPC mode with a scripted provider on loopback; then our client asks the same server for the same answers.
The messages that Pi stored and ours must be equal, key by key, but for the time and for the words of errors that come
out of JavaScript or Node. From the session that Pi wrote we then build the request that Pi sent last.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contexthost.context import AbortSignal, Context, ModelRequest, Tool, ToolResult
from contexthost.messages import Message, current_system_message
from contexthost.models import RetryPolicy
from contexthost.models.chat import chat_body
from contexthost.models.responses import responses_body
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.asking import HELLO, ask, model_info
from support.model_server import CHAT, RESPONSES, Answer, Call, ModelServer, call, refuse, say
from support.pi_rpc import PiRpc, pi_rpc

BOTH = pytest.mark.parametrize("api", [CHAT, RESPONSES])

CALLS = (Call("read", {"path": "nothing.txt"}, "call_a"), Call("nope", '{"a": 1, bad', "call_b"))
TURN = [Answer(text="I look 😀", thinking="let me see", calls=CALLS), say("done\nso far", finish="length", usage=None)]
FAILURES = [
    refuse(401, "bad key", code="invalid_api_key"),
    Answer(status=400, body=""),
    Answer(status=400, body="not json"),
    say("a text that breaks off", close_after=4),
    call("read", {"path": "a/path/that/breaks/off"}, "call_c", close_after=5),
    Answer(events=[]),
]
OTHER_WORDS = {"timestamp", "durationMs"}


def alike(ours: Message, pis: Message) -> tuple[Message, Message]:
    """Both without times; where words differ by design, only that there are any."""

    def plain(message: Message) -> Message:
        kept = {key: value for key, value in message.items() if key not in OTHER_WORDS}
        blocks = [
            {**block, "argumentsError": "some"} if "argumentsError" in block else block for block in message["content"]
        ]
        if any(word in message.get("errorMessage", "") for word in ("terminated", "Connection error", "abort")):
            kept["errorMessage"] = "some"
        return {**kept, "content": blocks}

    return plain(ours), plain(pis)


def ours_for(api: str, answers: list[Answer]) -> list[Message]:
    with ModelServer(answers) as server:
        info = model_info(api, server.base_url)
        request = ModelRequest(messages=HELLO, thinking_level="off")
        return [ask(info, request, retry=RetryPolicy(max_retries=0)) for _ in answers]


@BOTH
def test_answers_are_recorded_as_pi_records_them(api: str, tmp_path: Path) -> None:
    with (
        ModelServer([*TURN, *FAILURES]) as server,
        pi_rpc(tmp_path, server.base_url, api, settings={"retry": {"enabled": False}}) as pi,
    ):
        for text in ("hello", *("again" for _ in FAILURES)):
            pi.prompt(text)
        assert server.problems == []
        stored = pi.messages("assistant")
    ours = ours_for(api, [*TURN, *FAILURES])
    assert len(stored) == len(ours) == 8
    assert [message["stopReason"] for message in stored] == ["toolUse", "length", *["error"] * 6]
    for mine, pis in zip(ours, stored, strict=True):
        left, right = alike(mine, pis)
        assert left == right


@BOTH
def test_an_abort_is_recorded_as_pi_records_it(api: str, tmp_path: Path) -> None:
    answer = Answer(text="abc def", calls=(Call("read", {"path": "some long path"}, "call_c"),), hold_after=6)

    def abort_pi(pi: PiRpc, server: ModelServer) -> Message:
        pi.send("prompt", message="hello")
        assert server.reached.wait(60)
        time.sleep(0.3)  # for Pi to read what was sent
        pi.send("abort")
        pi.wait_for("agent_settled")
        (message,) = pi.messages("assistant")
        return message

    with ModelServer([answer]) as server, pi_rpc(tmp_path, server.base_url, api) as pi:
        stored = abort_pi(pi, server)
    with ModelServer([answer]) as server:
        request = ModelRequest(messages=HELLO, thinking_level="off")
        mine = ask(model_info(api, server.base_url), request, meanwhile=abort_ours(server))
    # In Pi the end of an aborted stream of Responses counts as an early end; here it is named as what it is.
    assert mine.pop("errorMessage") == "Request was aborted"
    assert stored.pop("errorMessage")
    left, right = alike(mine, stored)
    assert left == right
    assert left["stopReason"] == "aborted"


def abort_ours(server: ModelServer) -> Callable[[AbortSignal], Any]:
    async def abort(signal: AbortSignal) -> None:
        await asyncio.to_thread(server.reached.wait, 20)
        await asyncio.sleep(0.1)
        signal.abort()

    return abort


# --- requests --------------------------------------------------------------------------------------------------------


async def nothing(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    return ToolResult("")


def declared_tools(messages: list[Message]) -> list[Tool]:
    """The tools that the session declares, as Pi sends them."""
    system = current_system_message(messages) or {}
    return [
        Tool(name=one["name"], description=one["description"], parameters=one["parameters"], handler=nothing)
        for one in system["toolsAdded"]
    ]


@BOTH
def test_the_request_for_a_session_is_the_one_that_pi_sends(api: str, tmp_path: Path) -> None:
    answers = [*TURN, refuse(400), call("ls", {"path": "."}, "call_d", finish="length"), say("fine"), say("last")]
    with (
        ModelServer(answers) as server,
        pi_rpc(tmp_path, server.base_url, api, settings={"retry": {"enabled": False}}) as pi,
    ):
        for _ in range(4):
            pi.prompt("hello")
        sent = server.requests[-1].body
        (path,) = pi.sessions.rglob("*.jsonl")
    with Session.open(path) as session:
        answered = [entry for entry in session.branch() if entry.role == "assistant"]
        session.move_leaf(answered[-1].parent_id)
        messages = list(ProjectionAuthority(session).snapshot().provider_messages)
        assert session.id is not None
        request = ModelRequest(messages=messages, tools=declared_tools(messages), session_id=session.id)
    if api == CHAT:
        body = chat_body(request, model_info(CHAT))
        sent.pop("store")  # sent by us to OpenAI only
    else:
        body = responses_body(request, model_info(RESPONSES))
    assert json.loads(json.dumps(body)) == sent
