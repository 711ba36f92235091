"""The body of a compaction request, against bodies written by hand: the projection as items, edits applied, pairs
whole, the trigger last and once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contexthost.projection import CompactionDraft, ProjectionAuthority, Snapshot
from contexthost.session import Session
from contexthost_codex_native.body import compaction_body, shape_of
from contexthost_codex_native.checkpoint import Checkpoint, replacement_history
from contexthost_codex_native.items import checkpoint_for, input_items, user_items_newest_first
from support.builder import SessionBuilder, image_block, text_block, tool_call
from support.codex import sub_api
from support.provider_rules import request_problems
from support.talk import healthy_session

MODEL = sub_api("https://gateway.example/v1")
OWN: dict[str, Any] = {"provider": "sub-api", "api": "openai-responses", "model": "gpt-5"}
OPAQUE = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}


def snapshot(build: SessionBuilder) -> Snapshot:
    entries = [json.loads(line) for line in build.bytes().splitlines()[1:]]
    return ProjectionAuthority(Session.in_memory(entries=entries)).snapshot()


def body(build: SessionBuilder, **more: Any) -> dict[str, Any]:
    shown = snapshot(build)
    items = input_items(shown, MODEL, checkpoint_for(shown, MODEL))
    return compaction_body(MODEL, items, system=shown.system_message, session_id="session-1", **more)


def said(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


def native(build: SessionBuilder, first_kept: str, key: str = "sub-api:openai-responses:gpt-5") -> str:
    details = {
        "kind": "contexthost-codex-native",
        "version": 1,
        "modelKey": key,
        "replacementHistory": [said("first"), OPAQUE],
    }
    return build.compaction("portable", first_kept, details=details, fromHook=True)


def test_a_conversation_with_everything_in_it() -> None:
    build = SessionBuilder()
    tools = [{"name": "read", "description": "Reads.", "parameters": {"type": "object"}}]
    build.system("Be brief.", sections={"cwd": "In /project."}, tools_added=tools)
    build.user([text_block("look"), image_block()])
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "thought"}
    thinking = {"type": "thinking", "thinking": "", "thinkingSignature": json.dumps(reasoning)}
    signature = json.dumps({"v": 1, "id": "msg_a", "phase": "commentary"})
    text = {"type": "text", "text": "I read.", "textSignature": signature}
    calls = [tool_call("call_1|fc_1", "read", {"path": "ü"}), tool_call("call_2|fc_2", "read", {})]
    build.assistant([thinking, text], calls=calls, **OWN)
    masked = build.tool_result("call_1|fc_1", "x" * 500)
    build.tool_result("call_2|fc_2", [text_block("a"), text_block("b"), image_block()])
    build.assistant("never sent", stop_reason="error", **OWN)
    omitted = build.user("a secret")
    build.edit(masked, "[pi-compaction] Earlier read result masked")
    build.edit(omitted, None)
    build.user("")
    picture = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    made = body(build)
    assert made == {
        "model": "gpt-5",
        "store": False,
        "stream": True,
        "instructions": "Be brief.\n\nIn /project.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "look"}, picture]},
            reasoning,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I read.", "annotations": []}],
                "status": "completed",
                "id": "msg_a",
                "phase": "commentary",
            },
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": '{"path":"ü"}'},
            {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "read", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": "[pi-compaction] Earlier read result masked",
            },
            {
                "type": "function_call_output",
                "call_id": "call_2",
                "output": [{"type": "input_text", "text": "a\nb"}, picture],
            },
            {"type": "compaction_trigger"},
        ],
        "tools": [
            {"type": "function", "name": "read", "description": "Reads.", "parameters": {"type": "object"}},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "session-1",
        "text": {"verbosity": "low"},
    }  # fmt: skip
    assert request_problems(made, "openai-responses") == []
    assert body(build) == made


def test_what_another_model_left_is_made_fit_and_open_calls_are_answered() -> None:
    build = SessionBuilder()
    build.user("go")
    build.assistant("so", calls=[tool_call("toolu_" + "x" * 80, "read", {}), tool_call("c2|fc_9", "read", {})])
    build.tool_result("toolu_" + "x" * 80, "")
    made = body(build)
    assert request_problems(made, "openai-responses") == []
    kinds = [(item.get("type") or item["role"], item.get("output")) for item in made["input"]]
    assert kinds == [
        ("user", None),
        ("message", None),
        ("function_call", None),
        ("function_call", None),
        ("function_call_output", "(no tool output)"),
        ("function_call_output", "No result provided"),
        ("compaction_trigger", None),
    ]
    assert [item.get("id") for item in made["input"] if item.get("type") == "function_call"] == [None, None]


def test_the_last_ordinary_request_gives_the_shape() -> None:
    build = SessionBuilder()
    build.user("go")
    payload = {
        "model": "gpt-5",
        "messages": [1],
        "input": [2],
        "previous_response_id": "resp_1",
        "tools": [{"type": "web_search"}],
        "text": {"verbosity": "high", "format": {"type": "text"}},
        "include": ["web_search_call.results", "reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "tool_choice": "none",
        "store": True,
        "service_tier": "flex",
    }
    made = body(build, shape=shape_of(payload))
    assert made == {
        "model": "gpt-5",
        "tools": [{"type": "web_search"}],
        "text": {"verbosity": "high", "format": {"type": "text"}},
        "include": ["web_search_call.results", "reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "store": False,
        "service_tier": "flex",
        "stream": True,
        "instructions": "",
        "input": [said("go"), {"type": "compaction_trigger"}],
        "prompt_cache_key": "session-1",
    }


def test_a_checkpoint_of_this_model_stands_for_everything_before_it() -> None:
    build = SessionBuilder()
    build.user("first")
    kept = build.user("kept")
    native(build, kept)
    build.user("after")
    gone = build.user("hidden")
    replaced = build.user("wrong")
    build.edit(gone, None)
    build.edit(replaced, "right")
    made = body(build)
    assert made["input"] == [said("first"), OPAQUE, said("after"), said("right"), {"type": "compaction_trigger"}]
    assert request_problems(made, "openai-responses") == []


def test_a_checkpoint_of_another_model_is_its_portable_summary_and_the_kept_entries() -> None:
    build = SessionBuilder()
    build.user("first")
    kept = build.user("kept")
    native(build, kept, key="openai-codex:openai-codex-responses:gpt-5")
    build.user("after")
    made = body(build)
    text = (
        "The conversation history before this point was compacted into the following summary:\n\n"
        "<summary>\nportable\n</summary>"
    )
    assert made["input"] == [said(text), said("kept"), said("after"), {"type": "compaction_trigger"}]


def test_the_newest_compaction_counts_even_if_an_older_one_was_native() -> None:
    build = SessionBuilder()
    first = build.user("first")
    native(build, first)
    kept = build.user("kept")
    build.compaction("ordinary", kept)
    shown = snapshot(build)
    assert checkpoint_for(shown, MODEL) is None
    assert "sealed" not in json.dumps(body(build))


def test_the_users_words_are_what_the_user_wrote_newest_first() -> None:
    build = SessionBuilder()
    kept = build.user("kept")
    native(build, kept)
    build.user("second")
    build.bash("ls", "a.py")
    build.custom_message("note", "from a plugin")
    build.branch_summary("elsewhere")
    build.assistant("answer", **OWN)
    hidden = build.user("hidden")
    build.user("third")
    build.edit(hidden, None)
    shown = snapshot(build)
    found = list(user_items_newest_first(shown, MODEL, checkpoint_for(shown, MODEL)))
    assert found == [said("third"), said("second"), said("first")]


@pytest.mark.parametrize("seed", range(60))
def test_a_session_of_any_course_gives_a_valid_request_before_and_after_a_checkpoint(seed: int) -> None:
    lines = [json.loads(line) for line in healthy_session(seed).splitlines()]
    session = Session.in_memory(entries=lines[1:], header=lines[0])
    authority = ProjectionAuthority(session)

    def problems() -> list[str]:
        shown = authority.snapshot()
        items = input_items(shown, MODEL, checkpoint_for(shown, MODEL))
        made = compaction_body(MODEL, items, system=shown.system_message, session_id="s")
        return request_problems(made, "openai-responses")

    assert problems() == []
    before = authority.snapshot()
    history = replacement_history(user_items_newest_first(before, MODEL, None), OPAQUE)
    details = Checkpoint("sub-api:openai-responses:gpt-5", history).details()
    authority.commit([CompactionDraft(summary="portable", first_kept_entry_id=None, details=details)])
    messages = [{"role": "user", "content": "more", "timestamp": 1}]
    messages += [entry.message for entry in before.branch if entry.message and entry.role != "system"][:6]
    session.append([{"type": "message", "message": message} for message in messages])
    found = authority.snapshot()
    assert checkpoint_for(found, MODEL) is not None
    assert problems() == []


def test_the_order_of_ids_and_texts_is_the_same_every_time() -> None:
    build = SessionBuilder()
    build.user("go")
    for number in range(3):
        build.assistant("so", calls=[tool_call(f"c{number}|fc_{number}", "read", {"b": 1, "a": 2})], **OWN)
        build.tool_result(f"c{number}|fc_{number}", "ok")
    assert json.dumps(body(build)) == json.dumps(body(build))
    grown = body(build)["input"][:-1]
    build.user("more")
    assert body(build)["input"][: len(grown)] == grown  # so that the provider's prompt cache matches
