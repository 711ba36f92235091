"""A model behind the Chat Completions protocol: OpenAI's, and what most local servers and gateways speak."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from contexthost.context import AbortSignal, ModelInfo, ModelRequest
from contexthost.messages import Message, js_json
from contexthost.models.answer import Draft, ToolCallText
from contexthost.models.conversion import (
    clean,
    conversation,
    data_url,
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

__all__ = ["CHAT_API", "ChatModel", "chat_body"]

CHAT_API: Final = "openai-completions"
"""Pi's name for the protocol."""
_PATH: Final = "chat/completions"
_ID_MAX: Final = 40
"""Characters of a tool call id, OpenAI's limit."""
_ATTACHED: Final = "Attached image(s) from tool result:"
_THINKING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_text")
"""Where servers put thinking, in the order in which Pi looks."""
_STOP_REASONS: Final = {
    "stop": "stop",
    "end": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}


class ChatModel:
    """A `Model` over Chat Completions. Raises SettingsError if ``info`` has no usable base URL."""

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
        body = chat_body(request, self._info)
        return await self._transport.answer(self._info, _PATH, body, request, signal, _ChatReader)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


# The request -------------------------------------------------------------------------------------------------------


def chat_body(request: ModelRequest, info: ModelInfo) -> dict[str, Any]:
    """The body of the request: the same for the same messages, so that prompt caches match."""
    messages: list[dict[str, Any]] = []
    if prompt := system_prompt(request.messages):
        developer = info.reasoning and info.provider == "openai"
        messages.append({"role": "developer" if developer else "system", "content": prompt})
    images: list[dict[str, Any]] = []
    for message in conversation(request.messages, info, _chat_id):
        if message["role"] != "toolResult" and images:
            messages.append(_attached(images))
            images = []
        if message["role"] == "user":
            content = [_user_part(block) for block in message["content"] if block.get("text") != ""]
            if content:
                messages.append({"role": "user", "content": content})
        elif message["role"] == "assistant":
            if turn := _assistant(message):
                messages.append(turn)
        else:
            text, _ = result_text(message["content"])
            messages.append({"role": "tool", "content": text, "tool_call_id": message["toolCallId"]})
            # A tool message holds text only: images follow the last result of the batch, as the user's.
            images += [_user_part(block) for block in message["content"] if block["type"] == "image"]
    if images:
        messages.append(_attached(images))

    body: dict[str, Any] = {
        "model": info.id,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if info.provider == "openai":  # others may refuse what they do not know
        body["store"] = False
        if request.session_id is not None:
            body["prompt_cache_key"] = request.session_id[:64]
    if limit := output_limit(request.max_tokens, info, request.messages):
        body["max_completion_tokens"] = limit
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
            }
            for tool in request.tools
        ]
    if effort := thinking_effort(request.thinking_level, info):
        body["reasoning_effort"] = effort
    return body


def _chat_id(call_id: str) -> str:
    """The id for a call that another model made. Those of Responses are two ids in one."""
    safe = re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)
    return short_id(safe, re.sub(r"[^a-zA-Z0-9_-]", "_", call_id.partition("|")[0]), _ID_MAX)


def _attached(images: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": _ATTACHED}, *images]}


def _user_part(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "image":
        return {"type": "image_url", "image_url": {"url": data_url(block)}}
    return {"type": "text", "text": block["text"]}


def _assistant(message: Message) -> dict[str, Any] | None:
    """The answer as a message of the request; None if nothing of it can be sent."""
    blocks: list[dict[str, Any]] = message["content"]
    text = clean("".join(block["text"] for block in blocks if block["type"] == "text" and block["text"].strip()))
    calls = [block for block in blocks if block["type"] == "toolCall"]
    if not text and not calls:
        return None
    turn: dict[str, Any] = {"role": "assistant", "content": text or None}
    thinking = [block for block in blocks if block["type"] == "thinking"]
    details = next((found for block in thinking if (found := _details(block))), None)
    shown = [block for block in thinking if block["thinking"].strip()]
    if details is None and shown and shown[0].get("thinkingSignature") in _THINKING_FIELDS:
        turn[shown[0]["thinkingSignature"]] = clean("\n".join(block["thinking"] for block in shown))
    if calls:
        turn["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": js_json(call["arguments"])},
            }
            for call in calls
        ]
    if details is not None:
        turn["reasoning_details"] = details
    return turn


def _details(block: Mapping[str, Any]) -> list[Any] | None:
    """The ``reasoning_details`` that a gateway wants back, kept as JSON in the signature."""
    found = parsed_json(block.get("thinkingSignature"))
    return found if isinstance(found, list) and found and all(isinstance(one, dict) for one in found) else None


# The answer --------------------------------------------------------------------------------------------------------


class _ChatReader:
    """Puts the chunks of one answer together."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._text: dict[str, Any] | None = None
        self._thinking: dict[str, Any] | None = None
        self._details: list[dict[str, Any]] = []
        self._by_index: dict[int, ToolCallText] = {}
        self._by_id: dict[str, ToolCallText] = {}
        self._problem: str | None = None

    def feed(self, event: dict[str, Any]) -> None:
        """Take one chunk in."""
        message = self._draft.message
        error = event.get("error")
        if error:
            detail = error if isinstance(error, dict) else {"message": error}
            raise event_error(detail, str(detail.get("message") or js_json(detail)))
        if "responseId" not in message and isinstance(event.get("id"), str) and event["id"]:
            message["responseId"] = event["id"]
        model = event.get("model")
        if isinstance(model, str) and model and model != self._draft.info.id:
            message.setdefault("responseModel", model)
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        usage = event.get("usage") or choice.get("usage")  # some servers put it into the choice
        if isinstance(usage, dict):
            message["usage"] = priced(chat_usage(usage), self._draft.info)
        if reason := choice.get("finish_reason"):
            message["rawStopReason"] = reason
            known = _STOP_REASONS.get(reason) if isinstance(reason, str) else None
            message["stopReason"] = known or "error"
            self._problem = None if known else f"Provider finish_reason: {reason}"
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._delta(delta)

    def _delta(self, delta: dict[str, Any]) -> None:
        # Thinking first: gateways may put both into one chunk, and it came before the text.
        for field in _THINKING_FIELDS:
            piece = delta.get(field)
            if isinstance(piece, str) and piece:
                self._think(field)["thinking"] += piece
                break
        details = delta.get("reasoning_details")
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict):
                self._think("")
                self._add_detail(detail)
        piece = delta.get("content")
        if isinstance(piece, str) and piece:
            if self._text is None:
                self._text = self._draft.add({"type": "text", "text": ""})
            self._text["text"] += piece
            self._draft.tell(piece)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._call(call)

    def _think(self, signature: str) -> dict[str, Any]:
        if self._thinking is None:
            self._thinking = self._draft.add({"type": "thinking", "thinking": "", "thinkingSignature": signature})
        return self._thinking

    def _add_detail(self, detail: dict[str, Any]) -> None:
        last = self._details[-1] if self._details else {}
        for kind, field in (("reasoning.text", "text"), ("reasoning.summary", "summary")):
            if detail.get("type") == kind == last.get("type"):
                last[field] = str(last.get(field) or "") + str(detail.get(field) or "")
                for key, value in detail.items():
                    if last.get(key) in (None, ""):
                        last[key] = value
                return
        self._details.append(dict(detail))

    def _call(self, piece: dict[str, Any]) -> None:
        index, call_id = piece.get("index"), piece.get("id")
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call = self._by_index.get(index) if isinstance(index, int) else None
        if call is None and isinstance(call_id, str):
            call = self._by_id.get(call_id)
        if call is None:
            call = self._draft.add_call("", "")
        if isinstance(index, int):
            self._by_index[index] = call
        if isinstance(call_id, str) and call_id:
            self._by_id[call_id] = call
            call.block["id"] = call.block["id"] or call_id
        name = function.get("name")
        if isinstance(name, str):
            call.block["name"] = call.block["name"] or name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.append(arguments)
        elif isinstance(arguments, dict):  # some local servers send them decoded
            call.append(js_json(arguments))

    def finish(self) -> None:
        """The stream has ended."""
        if "rawStopReason" not in self._draft.message:
            raise ProviderError("Stream ended without finish_reason", retry=True)
        if self._problem is not None:
            raise ProviderError(self._problem)
        self._close_calls()
        self._sign()

    def close(self, *, aborted: bool) -> None:
        """The answer ends early. After an abort its calls are recorded as complete, as Pi does, so unusable if cut."""
        if aborted:
            self._close_calls()
        self._sign()

    def _close_calls(self) -> None:
        for call in self._draft.open_calls:
            call.block["id"] = call.block["id"] or f"call_{uuid4().hex[:24]}"  # some local servers give none
            self._draft.close_call(call)

    def _sign(self) -> None:
        """What the gateway wants back with the thinking."""
        if self._thinking is not None and self._details:
            self._thinking["thinkingSignature"] = js_json(self._details)


def chat_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """A chunk's usage as Pi records it: ``input`` without what came from or went into the cache."""
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    read = next(
        (
            count(value)
            for value in (
                details.get("cached_tokens"),
                usage.get("prompt_cache_hit_tokens"),
                usage.get("cached_tokens"),
            )
            if value is not None
        ),
        0,
    )
    written = count(details.get("cache_write_tokens"))
    output_details = usage.get("completion_tokens_details")
    thought = output_details.get("reasoning_tokens") if isinstance(output_details, dict) else None
    fresh = max(0, count(usage.get("prompt_tokens")) - read - written)
    output = count(usage.get("completion_tokens"))
    return {
        "input": fresh,
        "output": output,
        "cacheRead": read,
        "cacheWrite": written,
        "reasoning": count(thought) or count(usage.get("reasoning_tokens")),
        "totalTokens": fresh + output + read + written,
    }
