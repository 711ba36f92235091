"""Asking a model in tests: one question, no real waiting, connections closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from contexthost.context import AbortSignal, ModelInfo, ModelRequest
from contexthost.messages import Message
from contexthost.models import RetryPolicy, Timeouts, Transport, open_model

HELLO: list[Message] = [{"role": "user", "content": "hello", "timestamp": 1}]
PRICES: Mapping[str, float] = {"input": 1, "output": 2, "cacheRead": 0.5, "cacheWrite": 0}
SKIPPED = {"timestamp", "durationMs"}  # keys of an answer that differ from run to run


def model_info(api: str, base_url: str = "http://127.0.0.1:1/v1", **more: Any) -> ModelInfo:
    """What Pi is told of its model in `pi_rpc`."""
    known: dict[str, Any] = {"context_window": 128_000, "max_tokens": 1000, "cost": PRICES}
    return ModelInfo(provider="faux", id="faux-1", api=api, base_url=base_url, **{**known, **more})


class Waits:
    """A sleep that takes no time and remembers how long it should have taken."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def ask(
    info: ModelInfo,
    request: ModelRequest | None = None,
    *,
    api_key: str | None = "k-0123456789abcdef",
    waits: Waits | None = None,
    retry: RetryPolicy | None = None,
    timeouts: Timeouts | None = None,
    now: Callable[[], float] | None = None,
    signal: AbortSignal | None = None,
    meanwhile: Callable[[AbortSignal], Any] | None = None,
) -> Message:
    """One answer. `meanwhile(signal)` gives a coroutine that runs beside the request."""

    async def run() -> Message:
        used = signal or AbortSignal()
        # Proxies of the machine's environment must not come between a test and its server.
        async with httpx.AsyncClient(trust_env=False) as client:
            transport = Transport(
                api_key=api_key,
                client=client,
                sleep=waits or Waits(),
                now=now,
                retry=retry or RetryPolicy(),
                timeouts=timeouts or Timeouts(),
            )
            model = open_model(info, transport=transport)
            asked = model.respond(request or ModelRequest(messages=HELLO), used)
            if meanwhile is None:
                return await asked
            answer, _ = await asyncio.gather(asked, meanwhile(used))
            return answer

    return asyncio.run(run())


def comparable(message: Message) -> Message:
    """The answer without what differs from run to run."""
    return {key: value for key, value in message.items() if key not in SKIPPED}
