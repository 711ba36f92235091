"""Which failures of a request are worth another attempt, and how long to wait before it."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

from contexthost.messages import js_json

__all__ = ["DelayTooLong", "ProviderError", "RetryPolicy", "delay_before", "event_error", "may_retry", "refusal"]

_ERROR_TEXT_MAX: Final = 4000
"""Characters of what a provider says about a failure that are kept; Pi's limit."""
_RETRIED: Final = frozenset({408, 409, 429})
# Refusals that come as a 429 and last for hours: waiting does not help.
_EXHAUSTED: Final = re.compile(
    r"insufficient_quota|quota exceeded|billing|out of budget|usage.?limit.?(?:reached|exceeded|error)"
    r"|available balance",
    re.IGNORECASE,
)
_PASSING_CODES: Final = frozenset(
    {"server_error", "rate_limit_exceeded", "overloaded", "overloaded_error", "internal_error", "timeout"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often to try again and how long to wait in between, in seconds; the defaults are Pi's.

    The wait before retry n is what the provider asks for, else ``base_seconds`` * 2 ** (n - 1), at most
    ``max_seconds``. A provider that asks for more than ``max_seconds`` is not waited for.
    """

    max_retries: int = 3
    base_seconds: float = 2.0
    max_seconds: float = 60.0


class ProviderError(Exception):
    """A request that failed: ``text`` is what the answer's ``errorMessage`` says of it (credentials not taken out).

    Never leaves ``contexthost.models``. ``retry``: the failure may pass by itself.
    """

    def __init__(self, text: str, *, retry: bool = False, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.retry = retry
        self.headers: Mapping[str, str] = headers or {}


class DelayTooLong(Exception):
    """The provider asks for a longer wait than the policy allows."""


def may_retry(error: ProviderError) -> bool:
    """Whether the failure may pass by itself."""
    return error.retry and not _EXHAUSTED.search(error.text)


def delay_before(
    attempt: int, error: ProviderError, policy: RetryPolicy, now: Callable[[], float] | None = None
) -> float:
    """Seconds to wait before retry number ``attempt`` (from 1). Raises DelayTooLong."""
    asked = _asked_for(error.headers, now or time.time)
    if asked is None:
        # The exponent is bounded so that a large max_retries cannot overflow.
        return min(policy.base_seconds * 2.0 ** min(attempt - 1, 60), policy.max_seconds)
    if asked > policy.max_seconds:
        raise DelayTooLong(
            f"The provider asks for a wait of {math.ceil(asked)} s (at most {policy.max_seconds:g} s are waited)."
        )
    return asked


def _asked_for(headers: Mapping[str, str], now: Callable[[], float]) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds, 0.0) / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return None if seconds is None else max(seconds, 0.0)
    try:
        return max(parsedate_to_datetime(text).timestamp() - now(), 0.0)
    except (ValueError, OverflowError, OSError):
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def refusal(response: httpx.Response, body: bytes, prefix: str | None) -> ProviderError:
    """What an HTTP status other than success means: Pi's texts, which overflow is recognised by."""
    status = response.status_code
    headers = {name.lower(): value for name, value in response.headers.items()}
    wish = headers.get("x-should-retry")
    retry = wish == "true" or (wish != "false" and (status in _RETRIED or status >= 500))
    detail, is_body = _detail(body)
    if is_body:
        text = f"{status}: {detail}" if prefix is None else f"{prefix} ({status}): {detail}"
    else:
        text = f"{status} {detail}" if detail else f"{status} status code (no body)"
        text = text if prefix is None else f"{prefix} ({status}): {text}"
    return ProviderError(text, retry=retry, headers=headers)


def _detail(body: bytes) -> tuple[str, bool]:
    """What the body says, and whether that is the ``error`` object which providers put it in."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return shortened(text), False
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and error:
        return shortened(js_json(error)), True
    return shortened(error if isinstance(error, str) else js_json(value)), False


def event_error(error: Mapping[str, Any], text: str) -> ProviderError:
    """A failure that is reported within the stream."""
    code = error.get("code")
    kind = error.get("type")
    if isinstance(code, int):  # gateways put the status of the provider behind them there
        return ProviderError(shortened(text), retry=code in _RETRIED or code >= 500)
    return ProviderError(shortened(text), retry=code in _PASSING_CODES or kind in _PASSING_CODES)


def shortened(text: str) -> str:
    """At most 4,000 characters, with a note of how many more there are."""
    more = len(text) - _ERROR_TEXT_MAX
    return text if more <= 0 else f"{text[:_ERROR_TEXT_MAX]}... [truncated {more} chars]"
