"""What OpenAI's two protocols demand of a request, so that tests can refuse what a provider would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


class InvalidRequest(AssertionError):
    """A body that a provider would refuse."""


def validate_request(body: Json, api: str) -> None:
    """Fails with everything that is wrong with a body of `openai-completions` or `openai-responses`."""
    problems = request_problems(body, api)
    if problems:
        raise InvalidRequest("; ".join(problems))


def request_problems(body: Json, api: str) -> list[str]:
    """What is wrong with a body, one text for each fault."""
    check = {"openai-completions": _chat, "openai-responses": _responses}[api]
    return [*_common(body), *check(body)]


def _common(body: Json) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "no model"
    if body.get("stream") is not True:
        yield "not streamed"
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        yield "a lone surrogate"
    except ValueError:
        yield "a number that JSON cannot hold"
    names: set[str] = set()
    for place, tool in enumerate(body.get("tools", [])):
        function = tool.get("function", {}) if "function" in tool else tool
        name = function.get("name")
        if tool.get("type") != "function" or not _is_name(name):
            yield f"tool {place} is no function with a name: {tool}"
            continue
        if name in names:
            yield f"two tools named {name}"
        names.add(name)
        parameters = function.get("parameters")
        if not isinstance(parameters, dict) or parameters.get("type") != "object":
            yield f"the parameters of {name} are no schema of an object"
    for key in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        if key in body and (not isinstance(body[key], int) or body[key] < 1):
            yield f"{key} is {body[key]!r}"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 64 and name.replace("_", "a").replace("-", "a").isalnum()


# Chat Completions --------------------------------------------------------------------------------------------------


def _chat(body: Json) -> Iterator[str]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "no messages"
        return
    if all(message.get("role") in ("system", "developer") for message in messages):
        yield "only instructions"
    waiting: list[str] = []  # calls of the last assistant message that have no result yet
    for place, message in enumerate(messages):
        role = message.get("role")
        where = f"message {place} ({role})"
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                yield f"{where} answers no open call: {call_id}"
            else:
                waiting.remove(call_id)
            yield from _chat_content(message.get("content"), where)
            continue
        if waiting:
            yield f"{where} stands before the results of {', '.join(waiting)}"
            waiting = []
        if role in ("system", "developer"):
            if place:
                yield f"{where} is not the first"
            yield from _chat_content(message.get("content"), where)
        elif role == "user":
            yield from _chat_content(message.get("content"), where)
        elif role == "assistant":
            calls = message.get("tool_calls")
            if message.get("content") is not None or calls is None:
                yield from _chat_content(message.get("content"), where)
            if calls is not None:
                waiting = [call.get("id") for call in calls]
                yield from _chat_calls(calls, where)
        else:
            yield f"{where}: no such role"
    if waiting:
        yield f"no results for {', '.join(waiting)}"


def _chat_content(content: object, where: str) -> Iterator[str]:
    if isinstance(content, str):
        if not content:
            yield f"{where} is empty"
        return
    if not isinstance(content, list) or not content:
        yield f"{where} has no content"
        return
    for part in content:
        match part:
            case {"type": "text", "text": str(text)} if text:
                continue
            case {"type": "image_url", "image_url": {"url": str(url)}} if _is_image(url):
                continue
        yield f"{where} has an unusable part: {str(part)[:100]}"


def _chat_calls(calls: object, where: str) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield f"{where} has an empty list of calls"
        return
    ids: set[str] = set()
    for call in calls:
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in ids:
            yield f"{where}: a call without an id of its own: {call_id!r}"
            continue
        ids.add(call_id)
        function = call.get("function", {})
        if call.get("type") != "function" or not _is_name(function.get("name")):
            yield f"{where}: the call {call_id} names no function"
        yield from _arguments(function.get("arguments"), f"{where}: the call {call_id}")


# Responses ---------------------------------------------------------------------------------------------------------


def _responses(body: Json) -> Iterator[str]:
    items = body.get("input")
    if not isinstance(items, list) or not items:
        yield "no input"
        return
    if all(item.get("role") in ("system", "developer") for item in items):
        yield "only instructions"
    if body.get("store") is not False:
        yield "the provider would store it"
    open_calls: set[str] = set()
    done_calls: set[str] = set()
    ids: set[str] = set()
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        where = f"item {place} ({item.get('role', kind)})"
        item_id = item.get("id")
        if item_id is not None:
            if not isinstance(item_id, str) or not 0 < len(item_id) <= 64 or item_id in ids:
                yield f"{where} has an unusable id: {item_id!r}"
            ids.add(str(item_id))
        if kind == "function_call":
            call_id = item.get("call_id")
            if not isinstance(call_id, str) or not 0 < len(call_id) <= 64 or call_id in open_calls | done_calls:
                yield f"{where} has no call id of its own: {call_id!r}"
            open_calls.add(str(call_id))
            if not _is_name(item.get("name")):
                yield f"{where} names no function"
            if item_id is not None and not str(item_id).startswith("fc_"):
                yield f"{where} has an id of another kind: {item_id}"
            yield from _arguments(item.get("arguments"), where)
        elif kind == "function_call_output":
            if item.get("call_id") not in open_calls:
                yield f"{where} answers no open call: {item.get('call_id')}"
            open_calls.discard(item.get("call_id"))
            done_calls.add(str(item.get("call_id")))
            yield from _output(item.get("output"), where)
        elif kind == "reasoning":
            following = items[place + 1] if place + 1 < len(items) else {}
            if following.get("type") not in ("reasoning", "function_call") and following.get("role") != "assistant":
                yield f"{where} is not followed by what it was thought for"
        elif kind in ("compaction", "compaction_summary"):
            if not isinstance(item.get("encrypted_content"), str) or not item["encrypted_content"]:
                yield f"{where} has nothing in it"
            if any(one.get("type") in ("compaction", "compaction_summary") for one in items[:place]):
                yield f"{where} is a second one"
            if any(one.get("role") not in ("user", "system", "developer") for one in items[:place]):
                yield f"{where} stands behind something that it replaces"
        elif kind == "compaction_trigger":
            if item != {"type": "compaction_trigger"} or place != len(items) - 1:
                yield f"{where} is not the bare last item"
        elif kind == "message":
            if open_calls and item.get("role") != "assistant":  # a model may call and then go on talking
                yield f"{where} stands before the results of {', '.join(sorted(open_calls))}"
            yield from _message(item, place, where)
        else:
            yield f"{where}: no such item"
    if open_calls:
        yield f"no results for {', '.join(sorted(open_calls))}"


def _message(item: Json, place: int, where: str) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role in ("system", "developer"):
        if place:
            yield f"{where} is not the first"
        if not content:
            yield f"{where} is empty"
        return
    if not isinstance(content, list) or not content:
        yield f"{where} has no content"
        return
    for part in content:
        match role, part:
            case "user", {"type": "input_text", "text": str(text)} if text:
                continue
            case "user", {"type": "input_image", "image_url": str(url)} if _is_image(url):
                continue
            case "assistant", {"type": "output_text", "text": str(text)} if text:
                continue
        yield f"{where} has an unusable part: {str(part)[:100]}"


def _output(output: object, where: str) -> Iterator[str]:
    if isinstance(output, list) and output:
        yield from _message({"role": "user", "content": output}, 1, where)
    elif not isinstance(output, str) or not output:
        yield f"{where} is empty"


def _arguments(text: object, where: str) -> Iterator[str]:
    try:
        if isinstance(text, str) and isinstance(json.loads(text), dict):
            return
    except RecursionError:
        if str(text).startswith("{"):  # an object, more deeply nested than Python reads
            return
    except ValueError:
        pass
    yield f"{where} has arguments that are no JSON object: {str(text)[:100]}"


def _is_image(url: str) -> bool:
    return url.startswith("data:image/") and ";base64," in url
