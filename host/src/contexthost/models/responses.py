"""A model behind OpenAI's Responses protocol: items in, items out, nothing stored at the provider."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from contexthost.context import AbortSignal, ModelInfo, ModelRequest
from contexthost.messages import Message, js_json
from contexthost.models.answer import Draft, ToolCallText
from contexthost.models.conversion import (
    clean,
    conversation,
    data_url,
    is_same_model,
    output_limit,
    parsed_json,
    result_text,
    short_id,
    system_prompt,
    thinking_effort,
)
from contexthost.models.retry import ProviderError, event_error
from contexthost.models.transport import Transport, endpoint
from contexthost.models.usage import count, priced

__all__ = ["RESPONSES_API", "ResponsesModel", "responses_body", "responses_items", "responses_usage"]

RESPONSES_API: Final = "openai-responses"
"""Pi's name for the protocol."""
_PATH: Final = "responses"
_ID_MAX: Final = 64
"""Characters of any id, OpenAI's limit."""
_OUTPUT_MIN: Final = 16
"""Tokens; OpenAI refuses a smaller ``max_output_tokens``."""


class ResponsesModel:
    """A `Model` over Responses. Raises SettingsError if ``info`` has no usable base URL."""

    def __init__(self, info: ModelInfo, transport: Transport | None = None) -> None:
        endpoint(info, _PATH)
        self._info = info
        self._transport = transport or Transport()

    @property
    def info(self) -> ModelInfo:
        """Which model it is."""
        return self._info

    async def respond(self, request: ModelRequest, signal: AbortSignal) -> Message:
        """See `Model.respond`."""
        body = responses_body(request, self._info)
        prefix = f"{'OpenAI' if self._info.provider == 'openai' else self._info.provider} API error"
        return await self._transport.answer(
            self._info, _PATH, body, request, signal, _ResponsesReader, error_prefix=prefix
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


# The request -------------------------------------------------------------------------------------------------------


def responses_body(request: ModelRequest, info: ModelInfo) -> dict[str, Any]:
    """The body of the request: the same for the same messages, so that prompt caches match."""
    items: list[dict[str, Any]] = []
    if prompt := system_prompt(request.messages):
        items.append({"role": "developer" if info.reasoning else "system", "content": prompt})
    items += responses_items(request.messages, info)

    body: dict[str, Any] = {"model": info.id, "input": items, "stream": True, "store": False}
    if request.session_id is not None:
        body["prompt_cache_key"] = request.session_id[:_ID_MAX]
    if limit := output_limit(request.max_tokens, info, request.messages):
        body["max_output_tokens"] = max(limit, _OUTPUT_MIN)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            }
            for tool in request.tools
        ]
    if effort := thinking_effort(request.thinking_level, info):
        if request.thinking_level == "off":
            body["reasoning"] = {"effort": effort}
        else:
            # Nothing is stored at the provider, so its reasoning has to come back with the answer, sealed.
            body["reasoning"] = {"effort": effort, "summary": "auto"}
            body["include"] = ["reasoning.encrypted_content"]
    return body


def responses_items(messages: Sequence[Message], info: ModelInfo) -> list[dict[str, Any]]:
    """The conversation as input items for this model, without the system prompt; every call has its output."""
    items: list[dict[str, Any]] = []
    item_ids: set[object] = set()
    for index, message in enumerate(conversation(messages, info, _responses_id)):
        if message["role"] == "user":
            content = [_input_part(block) for block in message["content"] if block.get("text") != ""]
            if content:
                items.append({"role": "user", "content": content})
        elif message["role"] == "assistant":
            items += _without_repeated_ids(_output_items(message, info, index), item_ids, f"msg_{index}")
        else:
            call_id = message["toolCallId"].partition("|")[0]
            items.append({"type": "function_call_output", "call_id": call_id, "output": _output(message)})
    return items


def _responses_id(call_id: str) -> str:
    """The id for a call that another model made: the call's part of it, without an item id."""
    safe = re.sub(r"[^a-zA-Z0-9_-]", "_", call_id.partition("|")[0])
    return short_id(safe, safe, _ID_MAX)


def _input_part(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "image":
        return {"type": "input_image", "detail": "auto", "image_url": data_url(block)}
    return {"type": "input_text", "text": block["text"]}


def _output(message: Message) -> str | list[dict[str, Any]]:
    """A tool result: its text, or parts if it has images."""
    text, own = result_text(message["content"])
    images = [_input_part(block) for block in message["content"] if block["type"] == "image"]
    if not images:
        return text
    return [*([{"type": "input_text", "text": text}] if own else []), *images]


def _output_items(message: Message, info: ModelInfo, index: int) -> Iterator[dict[str, Any]]:
    """The items of an answer. Reasoning that no other item of the answer follows is left out: it would be refused."""
    blocks: list[dict[str, Any]] = message["content"]
    last = max((place for place, block in enumerate(blocks) if _makes_item(block)), default=-1)
    texts = 0
    for block in blocks[: last + 1]:
        if block["type"] == "thinking":
            item = parsed_json(block.get("thinkingSignature"))
            if isinstance(item, dict) and item.get("type") == "reasoning" and isinstance(item.get("id"), str):
                yield item
        elif block["type"] == "text":
            if _makes_item(block):
                yield _message_item(block, f"msg_{index}_{texts}")
            texts += 1
        else:
            call_id, _, item_id = block["id"].partition("|")
            call: dict[str, Any] = {"type": "function_call"}
            if is_same_model(message, info) and item_id.startswith("fc_"):
                call["id"] = item_id
            yield {**call, "call_id": call_id, "name": block["name"], "arguments": js_json(block["arguments"])}


def _without_repeated_ids(
    items: Iterable[dict[str, Any]], used: set[object], message_id: str
) -> Iterator[dict[str, Any]]:
    """The items, none with the id of an earlier one: OpenAI gives each its own, other servers may not."""
    for number, item in enumerate(items):
        item_id = item.get("id")
        if item_id is None or item_id not in used:
            used.add(item_id)
        elif item["type"] == "function_call":
            item = {key: value for key, value in item.items() if key != "id"}
        elif item["type"] == "message":
            item = {**item, "id": f"{message_id}_again_{number}"}
        else:
            continue
        yield item


def _makes_item(block: Mapping[str, Any]) -> bool:
    return block["type"] == "toolCall" or (block["type"] == "text" and bool(clean(block["text"])))


def _message_item(block: Mapping[str, Any], fallback_id: str) -> dict[str, Any]:
    """A text as the item it came from; its id and phase are kept in the signature."""
    signature = block.get("textSignature")
    kept = parsed_json(signature)
    kept = kept if isinstance(kept, dict) else {"id": signature}
    item_id = kept.get("id")
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": clean(block["text"]), "annotations": []}],
        "status": "completed",
        "id": short_id(item_id, "msg", _ID_MAX) if isinstance(item_id, str) and item_id else fallback_id,
    }
    if kept.get("phase") in ("commentary", "final_answer"):
        item["phase"] = kept["phase"]
    return item


# The answer --------------------------------------------------------------------------------------------------------


class _ResponsesReader:
    """Puts the events of one answer together."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._blocks: dict[int | None, dict[str, Any]] = {}  # by output index, while they arrive
        self._calls: dict[int | None, ToolCallText] = {}
        self._reasoning: dict[str, dict[str, Any]] = {}  # by item id
        self._ended = False
        self._problem: str | None = None

    def feed(self, event: dict[str, Any]) -> None:
        """Take one event in."""
        kind, place = event.get("type"), event.get("output_index")
        index = place if isinstance(place, int) else None
        match kind:
            case "response.created":
                self._identify(event.get("response"))
            case "response.output_item.added":
                self._begin(index, _dict(event.get("item")))
            case "response.output_text.delta" | "response.refusal.delta":
                self._text_delta(index, event.get("delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._thinking_delta(index, event.get("delta"))
            case "response.reasoning_summary_part.done":
                self._thinking_delta(index, "\n\n")
            case "response.function_call_arguments.delta" if index in self._calls:
                self._calls[index].append(str(event.get("delta") or ""))
            case "response.function_call_arguments.done" if index in self._calls:
                self._calls[index].replace(str(event.get("arguments") or ""))
            case "response.output_item.done":
                self._end_item(index, _dict(event.get("item")))
            case "response.completed" | "response.incomplete":
                self._end(_dict(event.get("response")))
            case "response.failed":
                response = _dict(event.get("response"))
                self._draft.message["rawStopReason"] = response.get("status")
                raise _failure(response)
            case "error":
                detail = _dict(event.get("error")) or event
                raise event_error(detail, f"Error Code {detail.get('code')}: {detail.get('message')}")

    def _identify(self, response: object) -> None:
        response_id = _dict(response).get("id")
        if isinstance(response_id, str) and response_id:
            self._draft.message["responseId"] = response_id

    def _begin(self, index: int | None, item: dict[str, Any]) -> None:
        match item.get("type"):
            case "reasoning":
                self._blocks[index] = self._draft.add({"type": "thinking", "thinking": ""})
            case "message":
                self._blocks[index] = self._draft.add({"type": "text", "text": ""})
            case "function_call":
                call_id, name = item.get("call_id"), item.get("name")
                call = self._draft.add_call(f"{call_id}|{item.get('id')}", name if isinstance(name, str) else "")
                call.append(str(item.get("arguments") or ""))
                self._calls[index] = call

    def _text_delta(self, index: int | None, delta: object) -> None:
        block = self._blocks.get(index)
        if block is not None and block["type"] == "text" and isinstance(delta, str):
            block["text"] += delta
            self._draft.tell(delta)

    def _thinking_delta(self, index: int | None, delta: object) -> None:
        block = self._blocks.get(index)
        if block is not None and block["type"] == "thinking" and isinstance(delta, str):
            block["thinking"] += delta

    def _end_item(self, index: int | None, item: dict[str, Any]) -> None:
        if index not in self._blocks and index not in self._calls:
            self._begin(index, item)
        if item.get("type") == "function_call" and index in self._calls:
            call = self._calls.pop(index)
            if item.get("arguments"):
                call.replace(str(item["arguments"]))
            self._draft.close_call(call)
            return
        block = self._blocks.pop(index, None)
        if block is None:
            return
        if item.get("type") == "reasoning" and block["type"] == "thinking":
            summary = "\n\n".join(_texts(item.get("summary"), "text"))
            block["thinking"] = summary or "\n\n".join(_texts(item.get("content"), "text")) or block["thinking"]
            block["thinkingSignature"] = js_json(item)
            self._reasoning[str(item.get("id"))] = block
        elif item.get("type") == "message" and block["type"] == "text":
            whole = "".join(_texts(item.get("content"), "text", "refusal"))
            if whole.startswith(block["text"]):
                self._draft.tell(whole[len(block["text"]) :])  # servers may send the text only here
            block["text"] = whole
            phase = item.get("phase")
            block["textSignature"] = js_json({"v": 1, "id": item.get("id"), **({"phase": phase} if phase else {})})

    def _end(self, response: dict[str, Any]) -> None:
        self._ended = True
        message = self._draft.message
        self._identify(response)
        self._complete_reasoning(response.get("output"))
        usage = response.get("usage")
        message["usage"] = priced(
            responses_usage(usage) if isinstance(usage, dict) else message["usage"], self._draft.info
        )
        status = response.get("status")
        reason = _dict(response.get("incomplete_details")).get("reason")
        reason = reason if isinstance(reason, str) else None
        message["rawStopReason"] = f"{status}.{reason}" if reason else status
        self._problem = None
        if status in ("completed", "in_progress", "queued", None):
            message["stopReason"] = "toolUse" if self._draft.has_calls() else "stop"
        elif status == "incomplete" and reason == "max_output_tokens":
            message["stopReason"] = "length"
        elif status == "incomplete":
            self._problem = (
                f"Response incomplete: {reason}" if reason else "Response incomplete without a provider reason"
            )
        else:
            self._problem = f"Response ended with status {status}"

    def _complete_reasoning(self, output: object) -> None:
        """Some servers give the sealed reasoning only at the end; without it the item cannot be sent back."""
        for item in output if isinstance(output, list) else ():
            if not isinstance(item, dict) or item.get("type") != "reasoning" or not item.get("encrypted_content"):
                continue
            block = self._reasoning.get(str(item.get("id")))
            kept = parsed_json(block.get("thinkingSignature")) if block is not None else None
            if block is not None and isinstance(kept, dict) and not kept.get("encrypted_content"):
                block["thinkingSignature"] = js_json({**kept, "encrypted_content": item["encrypted_content"]})

    def finish(self) -> None:
        """The stream has ended."""
        if not self._ended:
            raise ProviderError("OpenAI Responses stream ended before a terminal response event", retry=True)
        if self._problem is not None:
            raise ProviderError(self._problem)
        # A call that the provider never completed may be cut off: it must not be run.
        for call in self._draft.open_calls:
            if self._draft.message["stopReason"] == "toolUse":
                name = call.block["name"]
                raise ProviderError(f"OpenAI Responses stream completed with an unfinished tool call: {name}")
            self._draft.close_call(call)

    def close(self, *, aborted: bool) -> None:
        """Everything is in the message already."""


def _failure(response: dict[str, Any]) -> ProviderError:
    error = _dict(response.get("error"))
    if error:
        return event_error(error, f"{error.get('code') or 'unknown'}: {error.get('message') or 'no message'}")
    reason = _dict(response.get("incomplete_details")).get("reason")
    return ProviderError(
        f"incomplete: {reason}" if reason else "Unknown error (no error details in response)", retry=not reason
    )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(parts: object, *fields: str) -> list[str]:
    """The texts of an item's parts: of each part the first of the fields that holds one."""
    found: list[str] = []
    for part in parts if isinstance(parts, list) else ():
        values = (part.get(field) for field in fields) if isinstance(part, dict) else ()
        found += [next((value for value in values if isinstance(value, str)), "")]
    return found


def responses_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """A response's usage as Pi records it: ``input`` without what came from or went into the cache."""
    details = _dict(usage.get("input_tokens_details"))
    read, written = count(details.get("cached_tokens")), count(details.get("cache_write_tokens"))
    return {
        "input": max(0, count(usage.get("input_tokens")) - read - written),
        "output": count(usage.get("output_tokens")),
        "cacheRead": read,
        "cacheWrite": written,
        "reasoning": count(_dict(usage.get("output_tokens_details")).get("reasoning_tokens")),
        "totalTokens": count(usage.get("total_tokens")),
    }
