"""Shows what the clients record for streamed answers, whole and broken.

A real server on loopback streams them. The expected messages were worked out by hand from the scripted answers; that
they are what Pi records is shown by `tests/integration/test_models_pi.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from contexthost.context import AbortSignal, ModelRequest
from contexthost.models import RetryPolicy, Timeouts, Transport, open_model
from support.asking import HELLO, Waits, ask, comparable, model_info
from support.model_server import CHAT, RESPONSES, Answer, Call, ModelServer, call, refuse, say

BOTH = pytest.mark.parametrize("api", [CHAT, RESPONSES])
RICH = Answer(
    text="I look: 😀 é\u2028.", thinking="let me see", calls=(Call("read", {"path": "a.py"}), Call("ls", {}, "call_2"))
)
ONCE = RetryPolicy(max_retries=0)
COST = {"input": 80 / 1e6, "output": 20 / 1e6, "cacheRead": 10 / 1e6, "cacheWrite": 0, "total": 110 / 1e6}


def usage() -> dict[str, Any]:
    """100 tokens in, 20 of them from the cache, 10 out, at 1, 0.5 and 2 dollars per million."""
    cost = {**{kind: pytest.approx(value) for kind, value in COST.items()}, "totalFromProvider": False}
    tokens = {"input": 80, "output": 10, "cacheRead": 20, "cacheWrite": 0, "reasoning": 3, "totalTokens": 110}
    return {**tokens, "cost": cost}


def expected(api: str, **more: Any) -> dict[str, Any]:
    """What both protocols record for `RICH`, as each of them records it."""
    common = {"role": "assistant", "api": api, "provider": "faux", "model": "faux-1", "usage": usage()}
    text, chat = "I look: 😀 é\u2028.", api == CHAT
    thinking = {
        "type": "thinking",
        "thinking": "let me see",
        "thinkingSignature": "reasoning_content"
        if chat
        else '{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"let me see"}],'
        '"encrypted_content":"sealed"}',
    }
    said = {"type": "text", "text": text} | ({} if chat else {"textSignature": '{"v":1,"id":"msg_1"}'})
    ids = ("call_1", "call_2") if chat else ("call_1|fc_1", "call_2|fc_2")
    calls = [
        {"type": "toolCall", "id": ids[0], "name": "read", "arguments": {"path": "a.py"}},
        {"type": "toolCall", "id": ids[1], "name": "ls", "arguments": {}},
    ]
    end = {"responseId": "chatcmpl-1", "rawStopReason": "tool_calls"}
    if not chat:
        end = {"responseId": "resp_1", "rawStopReason": "completed"}
    return {**common, "content": [thinking, said, *calls], "stopReason": "toolUse", **end, **more}


@BOTH
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("write_bytes", [0, 1, 7])
def test_an_answer_is_recorded_however_its_bytes_arrive(api: str, line_end: str, write_bytes: int) -> None:
    answer = Answer(
        text=RICH.text, thinking=RICH.thinking, calls=RICH.calls, line_end=line_end, write_bytes=write_bytes
    )
    pieces: list[str] = []
    with ModelServer([answer]) as server:
        message = ask(model_info(api, server.base_url), ModelRequest(messages=HELLO, on_text=pieces.append))
        assert server.problems == []
    assert comparable(message) == expected(api)
    assert len(pieces) == 3
    assert "".join(pieces) == RICH.text


@BOTH
def test_a_text_is_a_stop_and_a_cut_text_a_length_stop(api: str) -> None:
    with ModelServer([say("yes"), say("ye", finish="length")]) as server:
        info = model_info(api, server.base_url)
        assert [ask(info)["stopReason"], ask(info)["stopReason"]] == ["stop", "length"]


@BOTH
def test_an_answer_without_usage_has_a_usage_of_zeros(api: str) -> None:
    with ModelServer([say("yes", usage=None)]) as server:
        found = ask(model_info(api, server.base_url))["usage"]
    assert (found["input"], found["output"], found["totalTokens"], found["cost"]["total"]) == (0, 0, 0, 0)


@BOTH
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [('{"path": ', "Received arguments:"), ("[1]", "must be a JSON object"), ('{"a": NaN}', "NaN is not JSON")],
)
def test_arguments_that_are_no_object_are_recorded_with_what_is_wrong(api: str, arguments: str, problem: str) -> None:
    with ModelServer([call("read", arguments)]) as server:
        message = ask(model_info(api, server.base_url))
    (block,) = message["content"]
    assert message["stopReason"] == "toolUse"
    assert block["arguments"] == {}
    assert problem in block["argumentsError"]
    assert block["argumentsError"].endswith(f"Received arguments:\n{arguments}")


@BOTH
def test_what_the_callback_raises_is_raised(api: str) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("of the caller")

    with ModelServer([say("yes")]) as server, pytest.raises(RuntimeError, match="of the caller"):
        ask(model_info(api, server.base_url), ModelRequest(messages=HELLO, on_text=broken))


@BOTH
def test_the_thinking_level_of_the_request_is_recorded(api: str) -> None:
    with ModelServer([say("yes")]) as server:
        request = ModelRequest(messages=HELLO, thinking_level="off")
        assert ask(model_info(api, server.base_url), request)["thinkingLevel"] == "off"


# --- what goes wrong -------------------------------------------------------------------------------------------------


@BOTH
def test_a_refusal_is_an_error_with_what_the_provider_says(api: str) -> None:
    with ModelServer([refuse(401, "bad key", code="invalid_api_key")]) as server:
        message = ask(model_info(api, server.base_url))
        assert len(server.requests) == 1
    prefix = "401: " if api == CHAT else "faux API error (401): "
    assert message["errorMessage"] == prefix + '{"message":"bad key","type":"test_error","code":"invalid_api_key"}'
    assert (message["stopReason"], message["content"], message["usage"]["totalTokens"]) == ("error", [], 0)


@BOTH
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "400 status code (no body)"),
        ("<html>Bad gateway</html>", "400 <html>Bad gateway</html>"),
        ('{"error": "too much"}', "400 too much"),
        ('{"message": "failed"}', '400 {"message":"failed"}'),
        ('{"error": {"message": "x"', '400 {"error": {"message": "x"'),
    ],
)
def test_refusals_without_an_error_object_say_what_they_can(api: str, body: str, text: str) -> None:
    with ModelServer([Answer(status=400, body=body)]) as server:
        message = ask(model_info(api, server.base_url))["errorMessage"]
    assert message == text if api == CHAT else message == f"faux API error (400): {text}"


@BOTH
def test_a_huge_refusal_is_cut(api: str) -> None:
    with ModelServer([Answer(status=400, body="x" * 1_000_000)]) as server:
        message = ask(model_info(api, server.base_url))["errorMessage"]
    assert 4000 < len(message) < 4100
    assert message.endswith(" chars]")


@BOTH
def test_a_huge_answer_arrives_whole(api: str) -> None:
    with ModelServer([say("x" * 2_000_000, pieces=2)]) as server:
        (block,) = ask(model_info(api, server.base_url))["content"]
    assert block["text"] == "x" * 2_000_000


@BOTH
def test_a_stream_that_breaks_off_keeps_what_has_arrived(api: str) -> None:
    before = 3  # chat: the role and two of three pieces; responses: created, added, the first piece
    text = "abcd" if api == CHAT else "ab"
    with ModelServer([say("abcdef", close_after=before)]) as server:
        message = ask(model_info(api, server.base_url), retry=ONCE)
    assert (message["stopReason"], message["content"]) == ("error", [{"type": "text", "text": text}])
    assert message["errorMessage"].startswith("Connection error: ")


@BOTH
def test_a_stream_that_ends_too_early_is_an_error(api: str) -> None:
    with ModelServer([Answer(events=[])]) as server:
        message = ask(model_info(api, server.base_url), retry=ONCE)
    assert message["stopReason"] == "error"
    assert "tream ended" in message["errorMessage"]


@BOTH
@pytest.mark.parametrize("event", ['{"broken": ', "[" * 100_000, "not json"], ids=["cut", "deep", "text"])
def test_an_event_that_is_not_json_is_an_error(api: str, event: str) -> None:
    with ModelServer([Answer(events=[event])]) as server:
        message = ask(model_info(api, server.base_url), retry=ONCE)
    assert message["stopReason"] == "error"
    assert message["errorMessage"].startswith("The stream holds an event that is not JSON: ")
    assert len(message["errorMessage"]) < 300


CHAT_NONSENSE: list[Any] = [
    "5",
    "[]",
    {},
    {"choices": None, "usage": 7, "id": 5, "model": {}},
    {"choices": [5]},
    {"choices": [{"delta": {"content": 5, "tool_calls": [5, {}, {"index": "x", "id": 7, "function": "f"}]}}]},
    {"choices": [{"delta": {"reasoning_details": [5], "reasoning": 5}, "finish_reason": None}]},
    {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": "x", "completion_tokens": -1}},
]
RESPONSES_NONSENSE: list[Any] = [
    "5",
    {},
    {"type": "response.created", "response": 5},
    {"type": "response.output_item.added", "output_index": [1], "item": {"type": "message"}},
    {"type": "response.output_item.added", "item": 5},
    {"type": "response.output_text.delta", "output_index": 9, "delta": {}},
    {"type": "response.function_call_arguments.delta", "output_index": {}, "delta": 5},
    {"type": "response.output_item.done", "output_index": [1], "item": {"type": "message", "content": [5, {}]}},
    {"type": "response.output_item.done", "output_index": 3, "item": {"type": "reasoning", "id": {}, "summary": 5}},
    {"type": "response.completed", "response": {"output": [5], "usage": {"input_tokens": "x"}}},
]


@pytest.mark.parametrize(("api", "events"), [(CHAT, CHAT_NONSENSE), (RESPONSES, RESPONSES_NONSENSE)])
def test_nonsense_in_events_is_passed_over(api: str, events: list[Any]) -> None:
    with ModelServer([Answer(events=events)]) as server:
        message = ask(model_info(api, server.base_url), retry=ONCE)
    assert message["stopReason"] in ("stop", "toolUse")
    assert message["usage"]["totalTokens"] == 0


@pytest.mark.parametrize("write_bytes", [0, 3])
def test_chat_reads_what_only_some_servers_send(write_bytes: int) -> None:
    events: list[Any] = [
        {"choices": [{"delta": {"reasoning": "hm ", "reasoning_content": ""}}]},
        {"choices": [{"delta": {"reasoning": "so", "content": "yes"}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"name": "ls", "arguments": {"a": 1}}}]}}]},
        {"choices": [{"finish_reason": "tool_calls", "usage": {"prompt_tokens": 7, "prompt_cache_hit_tokens": 2}}]},
    ]
    with ModelServer([Answer(events=events, write_bytes=write_bytes)]) as server:
        message = ask(model_info(CHAT, server.base_url))
    thinking, text, called = message["content"]
    assert thinking == {"type": "thinking", "thinking": "hm so", "thinkingSignature": "reasoning"}
    assert text == {"type": "text", "text": "yes"}
    assert called["id"].startswith("call_")
    assert (called["name"], called["arguments"]) == ("ls", {"a": 1})
    assert (message["usage"]["input"], message["usage"]["cacheRead"]) == (5, 2)


def test_chat_joins_reasoning_details_for_the_way_back() -> None:
    details = [
        {"type": "reasoning.text", "text": "on", "index": 0},
        {"type": "reasoning.text", "text": "e", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "d", "id": "r"},
    ]
    events: list[Any] = [{"choices": [{"delta": {"reasoning_details": [detail]}}]} for detail in details]
    events.append({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})
    with ModelServer([Answer(events=events)]) as server:
        thinking, _ = ask(model_info(CHAT, server.base_url))["content"]
    assert thinking["thinkingSignature"] == (
        '[{"type":"reasoning.text","text":"one","index":0,"signature":"s"},'
        '{"type":"reasoning.encrypted","data":"d","id":"r"}]'
    )


def test_chat_says_why_a_provider_stopped() -> None:
    with ModelServer([Answer(text="no", finish="content_filter")]) as server:
        message = ask(model_info(CHAT, server.base_url))
    assert (message["stopReason"], message["errorMessage"]) == ("error", "Provider finish_reason: content_filter")


def test_responses_do_not_hand_over_a_call_that_was_never_completed() -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "rm", "arguments": '{"path": "/'}
    events: list[Any] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    with ModelServer([Answer(events=events)]) as server:
        message = ask(model_info(RESPONSES, server.base_url), retry=ONCE)
    assert message["stopReason"] == "error"
    assert message["errorMessage"].endswith("with an unfinished tool call: rm")


def test_responses_take_the_sealed_reasoning_from_the_end() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": []}
    events: list[Any] = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {"status": "completed", "output": [{**item, "encrypted_content": "sealed"}]},
        },
    ]
    with ModelServer([Answer(events=events)]) as server:
        (thinking,) = ask(model_info(RESPONSES, server.base_url))["content"]
    assert thinking["thinkingSignature"] == '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"sealed"}'


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"type": "error", "code": "oops", "message": "m"}, "Error Code oops: m"),
        ({"type": "response.failed", "response": {"error": {"code": "bad", "message": "m"}}}, "bad: m"),
        (
            {"type": "response.incomplete", "response": {"status": "incomplete"}},
            "Response incomplete without a provider reason",
        ),
        (
            {
                "type": "response.incomplete",
                "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            },
            "Response incomplete: content_filter",
        ),
        ({"type": "response.completed", "response": {"status": "failed"}}, "Response ended with status failed"),
    ],
)
def test_responses_report_failures_within_the_stream(event: dict[str, Any], text: str) -> None:
    with ModelServer([Answer(events=[event])]) as server:
        message = ask(model_info(RESPONSES, server.base_url), retry=ONCE)
    assert (message["stopReason"], message["errorMessage"]) == ("error", text)


def test_responses_hand_on_a_text_that_comes_only_at_its_end() -> None:
    item = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "all"}, {"refusal": " no"}]}
    events: list[Any] = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    pieces: list[str] = []
    with ModelServer([Answer(events=events)]) as server:
        request = ModelRequest(messages=HELLO, on_text=pieces.append)
        message = ask(model_info(RESPONSES, server.base_url), request)
    assert message["content"] == [{"type": "text", "text": "all no", "textSignature": '{"v":1,"id":"msg_1"}'}]
    assert pieces == ["all no"]


def test_a_server_that_does_not_stream_is_named_as_such() -> None:
    with ModelServer([Answer(body='{"choices": []}', headers={"content-type": "application/json"})]) as server:
        message = ask(model_info(CHAT, server.base_url))
    assert message["errorMessage"] == "The answer is application/json, not a stream of events; is the base URL right?"


@BOTH
def test_silence_is_a_timeout(api: str) -> None:
    with ModelServer([say("abc", hold_after=2)]) as server:
        message = ask(model_info(api, server.base_url), timeouts=Timeouts(idle=0.2), retry=ONCE)
        server.release()
    assert (message["stopReason"], message["errorMessage"]) == (
        "error",
        "Request timed out: nothing arrived for 0.2 s",
    )


def test_a_server_that_is_not_there_is_an_error() -> None:
    with ModelServer() as server:
        gone = server.base_url
    waits = Waits()
    message = ask(model_info(CHAT, gone), waits=waits)
    assert message["stopReason"] == "error"
    assert message["errorMessage"].startswith("Connection error: ")
    assert waits.seconds == [2, 4, 8]


def test_connections_are_used_again_and_a_stream_left_open_does_not_hold_up_the_answer() -> None:
    async def twice() -> list[str]:
        async with httpx.AsyncClient(trust_env=False) as client:
            model = open_model(model_info(CHAT, server.base_url), transport=Transport(client=client))
            request = ModelRequest(messages=HELLO)
            return [(await model.respond(request, AbortSignal()))["stopReason"] for _ in range(3)]

    events: list[Any] = [
        {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]},
        "[DONE]",
        {"never": "read"},
    ]
    with ModelServer([say("a"), say("b"), Answer(events=events, hold_after=2)]) as server:
        assert asyncio.run(twice()) == ["stop"] * 3
        assert len({received.port for received in server.requests}) == 1
