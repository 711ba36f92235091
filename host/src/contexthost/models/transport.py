"""Sending a request and reading its events: timeouts, retries, aborts and errors, for every streaming client.

Nothing that a provider or the network does is raised; it becomes the answer's ``stopReason`` and ``errorMessage``. The
key is kept in one header and is taken out of every text that an answer may carry.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import httpx_sse

from contexthost.context import AbortSignal, ModelInfo, ModelRequest
from contexthost.errors import SettingsError
from contexthost.messages import Message
from contexthost.models.answer import ABORTED, AnswerReader, Draft
from contexthost.models.retry import DelayTooLong, ProviderError, RetryPolicy, delay_before, may_retry, refusal

__all__ = ["Timeouts", "Transport", "encode"]

_ERROR_BODY_MAX: Final = 64 * 1024
"""Bytes read of the body of an error."""
_SECRET_MIN: Final = 8
"""Characters; what is shorter protects nothing (local servers take any key), and taking it out would garble texts."""
_DRAIN_SECONDS: Final = 0.5
_AGENT: Final = "contexthost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds: until a connection stands, and without a byte from the provider (its keep-alive comments count)."""

    connect: float = 10.0
    idle: float = 120.0


@dataclass(slots=True, kw_only=True)
class Transport:
    """How a client reaches its provider.

    ``client`` is used as it is when given, and stays the caller's to close. ``sleep`` and ``now`` (seconds since 1970)
    are for tests. Without an ``api_key`` no ``Authorization`` is sent, unless the model's own headers have one.
    """

    api_key: str | None = field(default=None, repr=False)
    timeouts: Timeouts = field(default_factory=Timeouts)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    client: httpx.AsyncClient | None = field(default=None, repr=False)
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False)
    now: Callable[[], float] | None = field(default=None, repr=False)
    _own: httpx.AsyncClient | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.api_key is not None and (not self.api_key.isascii() or not self.api_key.isprintable()):
            raise SettingsError("the key holds characters that no HTTP header can carry; set it up again")

    async def aclose(self) -> None:
        """Close the connections that this transport has opened itself."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    async def answer(
        self,
        info: ModelInfo,
        path: str,
        body: Mapping[str, Any],
        request: ModelRequest,
        signal: AbortSignal,
        reader: Callable[[Draft], AnswerReader],
        *,
        error_prefix: str | None = None,
    ) -> Message:
        """Ask, and give the answer however it ends. What the request's own callbacks raise is raised.

        ``path`` is below the model's base URL. ``error_prefix`` stands before what a refusal says, as Pi's provider
        for that protocol has it.
        """
        started = time.monotonic()
        exchange = _Exchange(self, info, path, request, reader, error_prefix)
        if signal.aborted:
            exchange.stop("aborted", ABORTED)
            return exchange.draft.message
        work = asyncio.ensure_future(exchange.run(body))

        def cancel() -> None:
            work.cancel()

        remove = signal.on_abort(cancel)
        try:
            await work
            if signal.aborted:  # by a callback, while the last event was read
                exchange.stop("aborted", ABORTED)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not signal.aborted or (task is not None and task.cancelling()):
                raise
            exchange.stop("aborted", ABORTED)
        except ProviderError as error:
            if signal.aborted:  # whichever came first, the caller wanted it to end
                exchange.stop("aborted", ABORTED)
            else:
                exchange.stop("error", self.redact(error.text, exchange.secrets))
        finally:
            remove()
        message = exchange.draft.message
        message["durationMs"] = round((time.monotonic() - started) * 1000)
        if request.thinking_level is not None:
            message["thinkingLevel"] = request.thinking_level
        return message

    def redact(self, text: str, secrets: list[str]) -> str:
        """The text without the key and the values of headers that carry credentials."""
        found = {secret for secret in [self.api_key, *secrets] if secret and len(secret) >= _SECRET_MIN}
        for secret in sorted(found, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def http(self) -> httpx.AsyncClient:
        """The client to send with."""
        if self.client is not None:
            return self.client
        if self._own is None or self._own.is_closed:
            # Redirects are not followed: they would carry the key elsewhere.
            self._own = httpx.AsyncClient(follow_redirects=False)
        return self._own


class _Exchange:
    """One call of `Transport.answer`: its attempts, and the draft of the latest."""

    def __init__(
        self,
        transport: Transport,
        info: ModelInfo,
        path: str,
        request: ModelRequest,
        reader: Callable[[Draft], AnswerReader],
        error_prefix: str | None,
    ) -> None:
        self.transport = transport
        self.info = info
        self.url = endpoint(info, path)
        self.request = request
        self.make_reader = reader
        self.error_prefix = error_prefix
        self.secrets: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self.draft = Draft(self.info, self.request.on_text)
        self.reader = self.make_reader(self.draft)

    def stop(self, stop_reason: str, text: str) -> None:
        """End the answer early with what has arrived."""
        self.reader.close(aborted=stop_reason == "aborted")
        self.draft.fail(stop_reason, text)

    async def run(self, body: Mapping[str, Any]) -> None:
        """Attempt after attempt until one succeeds; raises the ProviderError of the last."""
        headers = await self._headers()
        if self.request.prepare_body is not None:
            body = await self.request.prepare_body(body)
        content = encode(body)
        policy = self.transport.retry
        for attempt in range(1, policy.max_retries + 2):
            try:
                await self._attempt(headers, content)
            except ProviderError as error:
                # What was shown to somebody must not come a second time in other words.
                if attempt > policy.max_retries or self.draft.delivered or not may_retry(error):
                    raise
                try:
                    seconds = delay_before(attempt, error, policy, self.transport.now)
                except DelayTooLong as too_long:
                    raise ProviderError(f"{too_long} {error.text}") from None
                if self.request.on_retry is not None:
                    text = self.transport.redact(error.text, self.secrets).partition("\n")[0][:200]
                    self.request.on_retry(
                        f"The model did not answer ({text}); attempt {attempt + 1} of {policy.max_retries + 1} "
                        f"in {seconds:.3g} s"
                    )
                self._begin()
                await self.transport.sleep(seconds)
            else:
                return

    async def _headers(self) -> dict[str, str]:
        headers = {"accept": "text/event-stream", "content-type": "application/json", "user-agent": _AGENT}
        if self.transport.api_key:
            headers["authorization"] = f"Bearer {self.transport.api_key}"
        merge_headers(headers, self.info.headers)
        if self.request.prepare_headers is not None:
            headers = merge_headers({}, await self.request.prepare_headers(dict(headers)))
        self.secrets = [value for name, value in headers.items() if _is_secret(name)]
        self.secrets += [value.partition(" ")[2] for value in self.secrets if " " in value]
        return headers

    async def _attempt(self, headers: Mapping[str, str], content: bytes) -> None:
        times = self.transport.timeouts
        timeout = httpx.Timeout(times.idle, connect=times.connect, pool=times.connect)
        try:
            async with self.transport.http().stream(
                "POST", self.url, headers=httpx.Headers(dict(headers), "latin-1"), content=content, timeout=timeout
            ) as response:
                if not response.is_success:
                    raise refusal(response, await _error_body(response), self.error_prefix)
                async with aclosing(_events(response)) as events:
                    async for event in events:
                        self.reader.feed(event)
                self.reader.finish()
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.ProxyError) as error:
            raise ProviderError(f"Request failed: {str(error) or type(error).__name__}") from None
        except httpx.ConnectTimeout:
            raise ProviderError(f"Connection error: no connection within {times.connect:g} s", retry=True) from None
        except httpx.TimeoutException:
            raise ProviderError(f"Request timed out: nothing arrived for {times.idle:g} s", retry=True) from None
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise ProviderError(f"Connection error: {reason}", retry=True) from None
        except (httpx.InvalidURL, httpx.HTTPError, UnicodeEncodeError, httpx_sse.SSEError) as error:
            raise ProviderError(f"Request failed: {str(error) or type(error).__name__}") from None


def endpoint(info: ModelInfo, path: str) -> str:
    """The address to post to. Raises SettingsError if the model has no usable base URL."""
    base = (info.base_url or "").rstrip("/")
    try:
        url = httpx.URL(base)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError(f"the model {info.id} needs a base URL such as http://127.0.0.1:8080/v1")
    if url.userinfo:
        raise SettingsError(f"the base URL of the model {info.id} holds a user or password; set up a key instead")
    return f"{base}/{path}"


def encode(body: Mapping[str, Any]) -> bytes:
    """The body as JSON. Raises ProviderError if it cannot be written as such."""
    try:
        try:
            return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:  # a lone surrogate: only an escape can carry it
            return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProviderError(f"The request cannot be written as JSON: {error}") from None


def merge_headers(headers: dict[str, str], more: Mapping[str, str | None]) -> dict[str, str]:
    """Set ``more`` in ``headers``, whatever their case; None takes one away."""
    for name, value in more.items():
        headers.pop(name.lower(), None)
        if value is not None:
            headers[name.lower()] = value
    return headers


def _is_secret(name: str) -> bool:
    return any(word in name for word in ("authorization", "key", "token", "secret", "cookie"))


async def _error_body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) >= _ERROR_BODY_MAX:
            break
    return bytes(body[:_ERROR_BODY_MAX])


async def _events(response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
    """The JSON objects of the stream, up to ``[DONE]``; events without data are keep-alives."""
    kind = response.headers.get("content-type", "nothing").partition(";")[0]
    if kind != "text/event-stream":
        raise ProviderError(f"The answer is {kind}, not a stream of events; is the base URL right?")
    # Closed here and now: left to the garbage collector, the connection would not be free for the next request.
    async with aclosing(httpx_sse.EventSource(response).aiter_sse()) as events:
        async for event in events:
            data = event.data.strip()
            if data == "[DONE]":
                await _drain(events)
                return
            if not data:
                continue
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                raise ProviderError(f"The stream holds an event that is not JSON: {data[:200]}", retry=True) from None
            if isinstance(value, dict):
                yield value


async def _drain(events: AsyncIterator[httpx_sse.ServerSentEvent]) -> None:
    """Read to the end of the response, so that its connection can be used again; a server may leave it open."""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in events:
                pass
