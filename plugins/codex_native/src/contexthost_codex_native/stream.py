"""Sending a compaction request and reading its one answer: retries, abort, deadline."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx
import httpx_sse

from contexthost.models.retry import DelayTooLong, ProviderError, RetryPolicy, delay_before, may_retry, refusal
from contexthost.models.transport import encode
from contexthost.text import one_line, shorten
from contexthost_codex_native.checkpoint import COMPACTION_TYPES
from contexthost_codex_native.errors import Aborted, NativeFailure, UnsupportedGateway

if TYPE_CHECKING:
    from contexthost.context import AbortSignal
    from contexthost_codex_native.transport import Target

__all__ = ["Compacted", "request_compaction"]

RETRY: Final = RetryPolicy(max_retries=2, base_seconds=1.0, max_seconds=60.0)
"""Two more attempts, after 1 s and 2 s unless the provider says when."""
_CONNECT_SECONDS: Final = 10.0
_ERROR_BODY_MAX: Final = 64 * 1024
"""Bytes read of the body of a refusal."""
_SHOWN: Final = 300
"""Characters of what a provider says about a failure that the user is shown."""
_NOT_KNOWN: Final = frozenset({400, 404, 405, 415, 422, 501})
"""Statuses with which a gateway says that it does not know the trigger."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The provider's answer: the opaque item as received, and the usage it reports, if it does."""

    item: dict[str, Any]
    usage: Mapping[str, Any] | None


class _Unsupported(ProviderError):
    """The gateway answered, and not with a compaction."""


async def request_compaction(
    target: Target,
    body: Mapping[str, Any],
    *,
    signal: AbortSignal | None,
    timeout_seconds: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Compacted:
    """Ask for the compaction; all attempts together take no longer than ``timeout_seconds``.

    Raises:
        Aborted: by the signal, at once.
        UnsupportedGateway: the answer was complete and held no compaction.
        NativeFailure: anything else; the text names the endpoint and what happened, credentials taken out.
    """
    if signal is not None and signal.aborted:
        raise Aborted("aborted")
    work = asyncio.ensure_future(_attempts(target, body, timeout_seconds, sleep))
    remove = signal.on_abort(lambda: _cancel(work)) if signal is not None else None
    host = urlsplit(target.url).hostname
    problem: NativeFailure
    try:
        async with asyncio.timeout(timeout_seconds):
            return await work
    except TimeoutError:
        problem = NativeFailure(
            f"{host} gave no compaction within {timeout_seconds:g} s; try again, or raise timeoutSeconds in "
            "codex_native.json"
        )
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if signal is None or not signal.aborted or (task is not None and task.cancelling()):
            raise
        problem = Aborted("aborted")
    except _Unsupported as error:
        problem = UnsupportedGateway(f"{host} {_told(error, target)}")
    except ProviderError as error:
        problem = NativeFailure(f"{host} {_told(error, target)}")
    finally:
        work.cancel()
        if remove is not None:
            remove()
    raise problem  # here, so that the provider's own words are not its context


def _cancel(work: asyncio.Future[Compacted]) -> None:
    work.cancel()


def _told(error: ProviderError, target: Target) -> str:
    text = error.text
    for secret in target.secrets:
        text = text.replace(secret, "***")
    return shorten(one_line(text), _SHOWN)


async def _attempts(
    target: Target, body: Mapping[str, Any], timeout_seconds: float, sleep: Callable[[float], Awaitable[None]]
) -> Compacted:
    content = encode(body)
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_seconds
    # Redirects are not followed: they would carry the credential elsewhere.
    async with httpx.AsyncClient(follow_redirects=False) as client:
        attempt = 1
        while True:
            try:
                return await _attempt(client, target, content, timeout_seconds)
            except ProviderError as error:
                if attempt > RETRY.max_retries or not may_retry(error):
                    raise _again(error, attempt) from None
                try:
                    seconds = delay_before(attempt, error, RETRY)
                except DelayTooLong as too_long:
                    raise ProviderError(f"{error.text} ({too_long})") from None
                if clock() + seconds >= deadline:
                    raise _again(error, attempt) from None
            attempt += 1
            await sleep(seconds)


def _again(error: ProviderError, attempts: int) -> ProviderError:
    if attempts == 1:
        return error
    return ProviderError(f"{error.text} ({attempts} attempts)")


async def _attempt(client: httpx.AsyncClient, target: Target, content: bytes, timeout_seconds: float) -> Compacted:
    timeout = httpx.Timeout(timeout_seconds, connect=_CONNECT_SECONDS)
    try:
        async with client.stream(
            "POST", target.url, headers=dict(target.headers), content=content, timeout=timeout
        ) as response:
            if not response.is_success:
                raise await _refused(response)
            return await _read(response)
    except (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.ProxyError) as error:
        raise ProviderError(f"could not be asked: {str(error) or type(error).__name__}") from None
    except httpx.TransportError as error:
        reason = str(error) or type(error).__name__
        raise ProviderError(f"broke the connection off or could not be reached: {reason}", retry=True) from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx_sse.SSEError, UnicodeError) as error:
        raise ProviderError(f"gave an answer that cannot be read: {str(error) or type(error).__name__}") from None


async def _refused(response: httpx.Response) -> ProviderError:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) >= _ERROR_BODY_MAX:
            break
    error = refusal(response, bytes(body[:_ERROR_BODY_MAX]), None)
    status = response.status_code
    if status in _NOT_KNOWN and b"compaction_trigger" in body:
        return _Unsupported(f"does not support native compaction (status {error.text})")
    advice = ""
    if status in (401, 403):
        advice = "check the credential"
    elif status == 404:
        advice = "check the base URL"
    elif status == 429:
        advice = "try again later"
    text = f"refused the request with status {error.text}{f'; {advice}' if advice else ''}"
    return ProviderError(text, retry=error.retry, headers=error.headers)


async def _read(response: httpx.Response) -> Compacted:
    """The compaction that the stream brings, up to its end."""
    kind = response.headers.get("content-type", "nothing").partition(";")[0]
    if kind != "text/event-stream":
        raise ProviderError(f"answered with {kind}, not with a stream of events; check the base URL")
    found: list[dict[str, Any]] = []
    async with aclosing(httpx_sse.EventSource(response).aiter_sse()) as events:
        async for event in events:
            data = event.data.strip()
            if not data:
                continue
            if data == "[DONE]":
                break
            value = _decoded(data)
            item = value.get("item")
            match value.get("type"):
                case "response.output_item.done":
                    if isinstance(item, dict) and item.get("type") in COMPACTION_TYPES:
                        found.append(item)
                case "response.completed" | "response.done":
                    return _compacted(found, value.get("response"))
                case "response.incomplete":
                    raise ProviderError("ended the answer before it was complete (response.incomplete)", retry=True)
                case "response.failed":
                    raise ProviderError(f"failed (response.failed): {_message(value.get('response')) or 'no reason'}")
                case "error":
                    message = _message(value)
                    if message is None:
                        raise ProviderError("reported an error without a message", retry=True)
                    raise ProviderError(f"reported an error: {message}")
    raise ProviderError("closed the stream before the answer was complete", retry=True)


def _decoded(data: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ProviderError("sent an event that is not JSON") from None
    return value if isinstance(value, dict) else {}


def _compacted(found: list[dict[str, Any]], response: object) -> Compacted:
    if not found:
        raise _Unsupported(
            "does not support native compaction: it answered with an ordinary message and no compaction item. It is "
            "not asked again in this session"
        )
    if len(found) > 1:
        raise ProviderError(f"sent {len(found)} compaction items where there must be one")
    content = found[0].get("encrypted_content")
    if not isinstance(content, str) or not content:
        raise ProviderError("sent a compaction item without its encrypted content")
    usage = response.get("usage") if isinstance(response, dict) else None
    return Compacted(found[0], usage if isinstance(usage, dict) else None)


def _message(value: object) -> str | None:
    """What an error event or a failed response says: its own message, or that of its ``error``."""
    if not isinstance(value, dict):
        return None
    detail = value.get("error")
    for place in (detail if isinstance(detail, dict) else {}, value):
        message = place.get("message")
        if isinstance(message, str) and message.strip():
            code = place.get("code")
            return f"{code}: {message}" if isinstance(code, str) and code else message
    return detail if isinstance(detail, str) and detail.strip() else None
