"""Native compaction in tests: models of the two eligible kinds, and answers with a compaction item."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from contexthost.context import ModelInfo
from support.model_server import Answer, Received

Json = dict[str, Any]
KEY = "sk-subapi-0123456789abcdef"
ACCOUNT = "acct-77"


def jwt(payload: object = None, *, header: str = "eyJhbGciOiJSUzI1NiJ9", signature: str = "c2lnbmF0dXJl") -> str:
    """A token as ChatGPT gives them; the signature is nobody's."""
    claims = {"https://api.openai.com/auth": {"chatgpt_account_id": ACCOUNT}} if payload is None else payload
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"{header}.{body}.{signature}"


def sub_api(base_url: str | None, *, headers: Mapping[str, str] | None = None, **more: Any) -> ModelInfo:
    known: Json = {"id": "gpt-5", "context_window": 20_000, "max_tokens": 1_000}
    return ModelInfo(
        provider="sub-api", api="openai-responses", base_url=base_url, headers=headers or {}, **{**known, **more}
    )


def codex(base_url: str | None = None, *, headers: Mapping[str, str] | None = None) -> ModelInfo:
    return ModelInfo(
        provider="openai-codex",
        api="openai-codex-responses",
        id="gpt-5-codex",
        base_url=base_url,
        headers=headers or {},
    )


def sealed(content: object = "sealed-1", *, type: str = "compaction") -> Json:
    """The event that brings the opaque item."""
    item = {"type": type, "id": "cmp_1", "encrypted_content": content}
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def end(kind: str = "response.completed", usage: tuple[int, int, int] | None = (9_000, 2_000, 300)) -> Json:
    """The event that ends an answer. Usage is (input tokens, of these cached, output tokens)."""
    response: Json = {"id": "resp_c", "status": "completed"}
    if usage is not None:
        sent, cached, made = usage
        response["usage"] = {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": made,
            "total_tokens": sent + made,
        }
    return {"type": kind, "response": response}


CREATED: Json = {"type": "response.created", "response": {"id": "resp_c", "status": "in_progress"}}


def compacted(content: object = "sealed-1", *, type: str = "compaction", **more: Any) -> Answer:
    """An answer with one compaction item."""
    return Answer(events=[CREATED, sealed(content, type=type), end(), "[DONE]"], **more)


def is_compaction(request: Received) -> bool:
    items = request.body.get("input") or [{}]
    return bool(items[-1].get("type") == "compaction_trigger")


def by_kind(*, compactions: list[Answer], answers: list[Answer]) -> Callable[[Received], Answer]:
    """A script for `ModelServer`: compaction requests and ordinary ones are answered from a list each; requests for
    the built-in summary, which no plugin touches, always with the same one."""

    def answer(request: Received) -> Answer:
        if "x-codex-beta-features" not in request.headers:
            return Answer(text="## Goal\nbuilt in")
        return (compactions if is_compaction(request) else answers).pop(0)

    return answer
