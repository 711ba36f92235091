"""Shows the request bodies that Pi's messages become, against bodies written by hand.

Every body also passes the rules of the two protocols (`support.provider_rules`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from contexthost.context import Context, ModelInfo, ModelRequest, Tool, ToolResult
from contexthost.messages import Message
from contexthost.models.chat import chat_body
from contexthost.models.conversion import output_limit, thinking_effort
from contexthost.models.responses import responses_body
from support.asking import HELLO, model_info
from support.model_server import CHAT, RESPONSES
from support.provider_rules import request_problems, validate_request

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
URL = "data:image/png;base64,aGk="


async def nothing(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    return ToolResult("")


READ = Tool(name="read", description="Reads.", parameters={"type": "object", "properties": {}}, handler=nothing)


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(content: Any) -> Message:
    return {"role": "user", "content": content, "timestamp": 1}


def assistant(*content: dict[str, Any], api: str = CHAT, model: str = "faux-1", **more: Any) -> Message:
    message = {"role": "assistant", "content": list(content), "api": api, "provider": "faux", "model": model}
    return {**message, "stopReason": "stop", "timestamp": 1, **more}


def called(call_id: str, name: str = "read", arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments or {}, **more}


def result(call_id: str, *content: dict[str, Any], **more: Any) -> Message:
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": list(content), **more}


def chat(*messages: Message, info: ModelInfo | None = None, **more: Any) -> list[Any]:
    body = chat_body(ModelRequest(messages=messages, **more), info or model_info(CHAT))
    validate_request(body, CHAT)
    found: list[Any] = body["messages"]
    return found


def responses(*messages: Message, info: ModelInfo | None = None, **more: Any) -> list[Any]:
    body = responses_body(ModelRequest(messages=messages, **more), info or model_info(RESPONSES))
    validate_request(body, RESPONSES)
    found: list[Any] = body["input"]
    return found


CONVERSATION: list[Message] = [
    {"role": "system", "content": "Be brief.", "sections": {"date": "Monday"}, "timestamp": 1},
    user("hello"),
    {"role": "system", "content": "", "sections": {"date": "Tuesday", "more": "x"}, "timestamp": 2},
    user([text("look"), IMAGE, text("")]),
]


def test_a_chat_body_in_full() -> None:
    request = ModelRequest(messages=CONVERSATION, tools=[READ], max_tokens=50, session_id="s-1")
    body = chat_body(request, model_info(CHAT))
    validate_request(body, CHAT)
    assert body == {
        "model": "faux-1",
        "messages": [
            {"role": "system", "content": "Be brief.\n\nTuesday\n\nx"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": URL}}],
            },
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 50,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Reads.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


def test_a_responses_body_in_full() -> None:
    request = ModelRequest(messages=CONVERSATION, tools=[READ], max_tokens=5, session_id="s" * 70)
    body = responses_body(request, model_info(RESPONSES))
    validate_request(body, RESPONSES)
    assert body == {
        "model": "faux-1",
        "input": [
            {"role": "system", "content": "Be brief.\n\nTuesday\n\nx"},
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "detail": "auto", "image_url": URL},
                ],
            },
        ],
        "stream": True,
        "store": False,
        "prompt_cache_key": "s" * 64,
        "max_output_tokens": 16,
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Reads.",
                "parameters": {"type": "object", "properties": {}},
            }
        ],
    }


@pytest.mark.parametrize("make", [chat_body, responses_body])
def test_bodies_are_the_same_for_the_same_messages(make: Any) -> None:
    request = ModelRequest(messages=CONVERSATION, tools=[READ])
    assert json.dumps(make(request, model_info(CHAT))) == json.dumps(make(request, model_info(CHAT)))


# --- turns -----------------------------------------------------------------------------------------------------------


def test_a_turn_with_calls_in_chat() -> None:
    turn = assistant(
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "reasoning_content"},
        text("I "),
        text("look"),
        called("call_1", arguments={"path": "é", "n": 1.0}),
        called("call_2", "ls"),
    )
    results = result("call_1", text("one"), text("two")), result("call_2")
    assert chat(user("hi"), turn, *results)[1:] == [
        {
            "role": "assistant",
            "content": "I look",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path":"é","n":1}'}},
                {"id": "call_2", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "content": "one\ntwo", "tool_call_id": "call_1"},
        {"role": "tool", "content": "(no tool output)", "tool_call_id": "call_2"},
    ]


def test_a_turn_with_calls_in_responses() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    turn = assistant(
        {"type": "thinking", "thinking": "", "thinkingSignature": json.dumps(reasoning)},
        text("I look", textSignature='{"v":1,"id":"msg_9","phase":"commentary"}'),
        called("call_1|fc_1", arguments={"path": "é"}),
        api=RESPONSES,
    )
    assert responses(user("hi"), turn, result("call_1|fc_1", text("one"), text("two")))[1:] == [
        reasoning,
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look", "annotations": []}],
            "status": "completed",
            "id": "msg_9",
            "phase": "commentary",
        },
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": '{"path":"é"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "one\ntwo"},
    ]


def test_images_of_tool_results_follow_the_batch_in_chat() -> None:
    turn = assistant(called("a"), called("b"))
    assert chat(user("hi"), turn, result("a", IMAGE), result("b", text("two"), IMAGE), user("go on"))[2:] == [
        {"role": "tool", "content": "(see attached image)", "tool_call_id": "a"},
        {"role": "tool", "content": "two", "tool_call_id": "b"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Attached image(s) from tool result:"},
                {"type": "image_url", "image_url": {"url": URL}},
                {"type": "image_url", "image_url": {"url": URL}},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
    ]


def test_images_of_tool_results_are_part_of_the_output_in_responses() -> None:
    turn = assistant(called("a|fc_1"), called("b|fc_2"), api=RESPONSES)
    outputs = responses(user("hi"), turn, result("a|fc_1", IMAGE), result("b|fc_2", text("two"), IMAGE))[3:]
    image = {"type": "input_image", "detail": "auto", "image_url": URL}
    assert [output["output"] for output in outputs] == [[image], [{"type": "input_text", "text": "two"}, image]]


@pytest.mark.parametrize("kind", ["text/html", "00000003", "", "image/", "image/png,x", "image/png\n"])
def test_what_calls_itself_an_image_and_is_none_is_named_instead_of_sent(kind: str) -> None:
    odd = {**IMAGE, "mimeType": kind}
    (found,) = chat(user([odd, odd, IMAGE]))
    assert found["content"] == [
        {"type": "text", "text": "(image omitted: it is none)"},
        {"type": "image_url", "image_url": {"url": URL}},
    ]


def test_a_model_without_eyes_reads_a_note_for_each_run_of_images() -> None:
    info = model_info(CHAT, images=False)
    found = chat(user([IMAGE, IMAGE, text("x"), IMAGE]), assistant(called("a")), result("a", IMAGE), info=info)
    note = "(image omitted: model does not support images)"
    assert [part["text"] for part in found[0]["content"]] == [note, "x", note]
    assert found[2]["content"] == "(tool image omitted: model does not support images)"


# --- other models ----------------------------------------------------------------------------------------------------


def test_the_thinking_and_the_ids_of_another_model_are_not_sent_to_chat() -> None:
    long = f"call_{'x' * 30}|fc_{'y' * 30}"
    turn = assistant(
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "reasoning"},
        called("a|fc+1", thoughtSignature="s"),
        called(long),
        api=RESPONSES,
    )
    found = chat(user("hi"), turn, result("a|fc+1", text("1")), result(long, text("2")))
    first, second = (call["id"] for call in found[1]["tool_calls"])
    assert "reasoning" not in found[1]
    assert first == "a_fc_1"
    assert second.startswith(f"call_{'x' * 26}_")
    assert len(second) == 40
    assert [message["tool_call_id"] for message in found[2:]] == [first, second]


def test_the_thinking_and_the_ids_of_another_model_are_not_sent_to_responses() -> None:
    turn = assistant(
        {"type": "thinking", "thinking": "hm", "thinkingSignature": '{"type":"reasoning","id":"rs_1"}'},
        text("so", textSignature="msg_9"),
        called("a|fc_1"),
        called("to+lu"),
        api=RESPONSES,
        model="faux-2",
    )
    found = responses(user("hi"), turn, result("a|fc_1", text("1")), result("to+lu", text("2")))
    assert [(item.get("type"), item.get("id"), item.get("call_id")) for item in found[1:]] == [
        ("message", "msg_1_0", None),
        ("function_call", None, "a"),
        ("function_call", None, "to_lu"),
        ("function_call_output", None, "a"),
        ("function_call_output", None, "to_lu"),
    ]


def test_ids_that_come_again_are_numbered() -> None:
    turns = [assistant(called("a|fc_1"), api=RESPONSES), result("a|fc_1", text("1"))] * 2
    found = responses(user("hi"), *turns)
    assert [(item.get("id"), item["call_id"]) for item in found[1:]] == [
        ("fc_1", "a"), (None, "a"), (None, "a_2"), (None, "a_2"),
    ]  # fmt: skip
    turns = [assistant(called("a")), result("a", text("1"))] * 2
    assert [message["tool_call_id"] for message in chat(user("hi"), *turns)[2::2]] == ["a", "a_2"]


def test_reasoning_that_nothing_follows_is_left_out_of_responses() -> None:
    turn = assistant({"type": "thinking", "thinking": "hm", "thinkingSignature": '{"type":"reasoning"}'}, api=RESPONSES)
    assert [item["role"] for item in responses(user("hi"), turn, user("and?"))] == ["user", "user"]


# --- what cannot be sent ---------------------------------------------------------------------------------------------


def test_empty_turns_failed_attempts_and_unknown_blocks_are_left_out() -> None:
    messages = [
        user(""),
        user([]),
        user([5, {"type": "video"}, text("hi")]),
        assistant(text("  ")),
        assistant(text("half"), stopReason="aborted"),
        assistant(text("half"), called("x"), stopReason="error"),
        {"role": "custom", "content": "noted", "timestamp": 1},
    ]
    said = [[{"type": "text", "text": "hi"}], [{"type": "text", "text": "noted"}]]
    assert [message["content"] for message in chat(*messages)] == said


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        ("read", "read"),
        ("files.read", "files_read"),
        ("a b/ü", "a_b__"),
        ("x" * 65, "x" * 64),
        ("", "unnamed_tool"),
        (["read"], "unnamed_tool"),
    ],
)
def test_a_tool_is_called_by_a_name_that_providers_take(recorded: Any, sent: str) -> None:
    """Other programs record names with dots, and a model may call a tool that does not exist by any name."""
    turn = {**assistant(called("a")), "content": [{**called("a"), "name": recorded}]}
    found = [user("hi"), turn, result("a", text("1"))]
    assert chat(*found)[1]["tool_calls"][0]["function"]["name"] == sent
    assert responses(*found)[1]["name"] == sent


def test_a_text_of_which_nothing_can_be_sent_makes_no_item() -> None:
    """Half of a character is all that a provider's stream left when it broke off."""
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": '{"type":"reasoning","id":"rs_1"}'}
    turn = assistant(thought, text("\ud83d"), api=RESPONSES)
    assert [item["role"] for item in responses(user("hi"), turn, user("and?"))] == ["user", "user"]
    assert [message["role"] for message in chat(user("hi"), turn, user("and?"))] == ["user", "user"]


def test_calls_without_results_get_one_and_results_without_calls_none() -> None:
    turn = assistant(called("a"), called("b", ""))
    found = chat(user("hi"), result("z", text("?")), turn, user("go on"))
    assert found[1]["tool_calls"][1]["function"]["name"] == "unnamed_tool"
    assert [message.get("tool_call_id") for message in found[2:]] == ["a", "b", None]
    assert found[2]["content"] == "No result provided"


def test_lone_surrogates_are_left_out_and_pairs_joined() -> None:
    assert chat(user([text("a\ud83d b\ud83d\ude00")]))[0]["content"][0]["text"] == "a b😀"
    assert responses(user("a\ud83d"))[0]["content"][0]["text"] == "a"


BLOCKS = st.one_of(
    st.text(max_size=5).map(text),
    st.just(IMAGE),
    st.sampled_from(["a", "b", "a|fc_1", ""]).map(called),
    st.sampled_from(["reasoning_content", '{"type":"reasoning","id":"rs"}', "[{}]", "x"]).map(
        lambda signature: {"type": "thinking", "thinking": "t", "thinkingSignature": signature}
    ),
    st.sampled_from([None, 5, {}, {"type": "text"}, {"type": "toolCall", "id": "q", "arguments": []}]),
)
MESSAGES = st.one_of(
    st.lists(BLOCKS, max_size=4).map(user),
    st.text(max_size=4).map(user),
    st.builds(
        lambda content, api, stop: {**assistant(api=api, stopReason=stop), "content": content},
        st.lists(BLOCKS, max_size=4) | st.none(),
        st.sampled_from([CHAT, RESPONSES]),
        st.sampled_from(["stop", "toolUse", "error"]),
    ),
    st.builds(
        lambda call_id, content: {**result(call_id), "content": content},
        st.sampled_from(["a", "b", "a|fc_1", "q"]),
        st.lists(BLOCKS, max_size=2) | st.none(),
    ),
    st.just({"role": "system", "content": "later", "timestamp": 3}),
)


@settings(max_examples=150)
@given(st.lists(MESSAGES, max_size=8))
def test_whatever_a_session_holds_the_body_is_valid(messages: list[Any]) -> None:
    request = ModelRequest(messages=[*HELLO, *messages], tools=[READ])
    assert request_problems(chat_body(request, model_info(CHAT)), CHAT) == []
    assert request_problems(responses_body(request, model_info(RESPONSES)), RESPONSES) == []


@pytest.mark.parametrize(
    ("level", "names", "effort"),
    [
        (None, {}, None),
        ("off", {}, None),
        ("off", {"off": "none"}, "none"),
        ("low", {}, "low"),
        ("low", {"low": "small"}, "small"),
        ("max", {}, "high"),
        ("max", {"xhigh": "most"}, "most"),
        ("minimal", {"minimal": None}, None),
        ("medium", {"medium": None, "low": None}, "minimal"),
    ],
)
def test_thinking_levels_become_what_the_model_has(
    level: str | None, names: dict[str, str | None], effort: str | None
) -> None:
    info = model_info(CHAT, reasoning=True, thinking_levels=names)
    assert thinking_effort(level, info) == effort
    assert thinking_effort(level, model_info(CHAT)) is None
    assert chat_body(ModelRequest(messages=HELLO, thinking_level=level), info).get("reasoning_effort") == effort


def test_responses_ask_for_sealed_reasoning_when_the_model_thinks() -> None:
    info = model_info(RESPONSES, reasoning=True, thinking_levels={"off": "none"})
    body = responses_body(ModelRequest(messages=HELLO, thinking_level="low"), info)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    body = responses_body(ModelRequest(messages=HELLO, thinking_level="off"), info)
    assert (body["reasoning"], "include" in body) == ({"effort": "none"}, False)


@pytest.mark.parametrize(
    ("wanted", "limit", "window", "chars", "expected"),
    [
        (None, None, 10_000, 35, None),
        (50, None, None, 35, 50),
        (None, 1000, 128_000, 35, 1000),
        # 3,500 characters are 875 tokens to Pi, 1,000 at 3.5 characters each: 9,000 - 4,096 are left.
        (None, 9000, 10_000, 3500, 4904),
        (2000, 9000, 10_000, 3500, 2000),
        (None, 9000, 5000, 3500, 1),
        # 140,000 characters are 40,000 tokens: of 200,000 the input and 15 % of it are taken off.
        (None, 200_000, 200_000, 140_000, 154_000),
    ],
)
def test_the_answer_is_limited_to_the_room_in_the_window(
    wanted: int | None, limit: int | None, window: int | None, chars: int, expected: int | None
) -> None:
    info = model_info(CHAT, max_tokens=limit, context_window=window)
    assert output_limit(wanted, info, [user("x" * chars)]) == expected
