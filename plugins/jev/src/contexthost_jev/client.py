"""Jev over HTTP: TypeSafe's endpoint or OpenRouter's."""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import httpx

from contexthost_jev.core import PARALLEL_REQUESTS, Answer
from contexthost_jev.errors import JevFailure
from contexthost_jev.estimate import to_json
from contexthost_jev.keys import Key, Provider
from contexthost_jev.questions import Questions

__all__ = ["DEFAULT_MODEL", "ENDPOINTS", "JevClient", "model_name"]

ENDPOINTS: Final[Mapping[Provider, str]] = {
    "typesafe": "https://api.typesafe.ai/v1/systemone",
    "openrouter": "https://openrouter.ai/api/alpha/decisions",
}
DEFAULT_MODEL: Final = "jev-latest"
TIMEOUT_SECONDS: Final = 15.0
"""For one attempt, from connecting to the last byte of the answer."""
RETRY_SECONDS: Final = 1.0
"""Before the second attempt when the server does not say."""
LONGEST_RETRY_SECONDS: Final = 20.0
"""A server that wants to be left alone for longer is not asked again: the compaction has 120 s in all."""
LARGEST_ANSWER: Final = 4 * 1024 * 1024
"""Bytes; an answer to a request of 30,000 tokens has some ten thousand."""
_MODEL: Final = re.compile(r"[\w~./:@-]{1,100}", re.ASCII)


def model_name(provider: Provider, model: str) -> str:
    """The model's name as the provider knows it; a name with a slash is sent as given."""
    if provider == "typesafe" or "/" in model:
        return model
    return f"~typesafe/{model}" if model.endswith("-latest") else f"typesafe/{model}"


class JevClient:
    """Asks Jev. At most 4 requests are under way at once, each for at most ``timeout_seconds``, body included.

    A failed request is not repeated, but for one second attempt after 429 or 5xx, when ``retry-after`` says or after
    ``retry_seconds``. Close it, or use it as an asynchronous context manager.
    """

    def __init__(
        self,
        key: Key,
        *,
        model: str = DEFAULT_MODEL,
        base_url: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """``base_url`` replaces the provider's endpoint. Raises JevFailure (``configuration``) when it is not https
        (http is fine on this machine) or holds a user name or password."""
        self._key = key
        self._url = _checked_url(base_url or ENDPOINTS[key.provider])
        self._model = model_name(key.provider, model)
        self._timeout = timeout_seconds
        self._retry = retry_seconds
        self._slots = asyncio.Semaphore(PARALLEL_REQUESTS)
        # Our own deadline covers the whole attempt, which httpx's do not.
        self._http = httpx.AsyncClient(timeout=None, follow_redirects=False)

    def __repr__(self) -> str:
        return f"JevClient({self._key.provider}, {self._model})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, state: Mapping[str, Any], questions: Questions) -> Answer:
        """See `JevAsker`. Numbers are checked by the core; the shape of the answer here."""
        body = to_json({"model": self._model, "state": state, "questions": questions}).encode("utf-8", "replace")
        async with self._slots:
            status, retry_after, content = await self._attempt(body)
            if _is_busy(status):
                delay = self._retry if retry_after is None else retry_after
                if delay > LONGEST_RETRY_SECONDS:
                    raise JevFailure("busy", f"the service answered {status} and wants {delay:.0f} s of patience")
                await asyncio.sleep(delay)
                status, _, content = await self._attempt(body)
        if not 200 <= status < 300:
            _refused(status)
        answer = _answer(content, questions)
        # The name goes into the session's details: nothing that a server echoes may carry the key there.
        return answer if answer.model is None or not self._key.within(answer.model) else replace(answer, model=None)

    async def _attempt(self, body: bytes) -> tuple[int, float | None, bytes]:
        """Status, ``retry-after`` in seconds, and the body of a good answer."""
        try:
            async with asyncio.timeout(self._timeout), self._stream(body) as response:
                if not response.is_success:
                    return response.status_code, _retry_after(response.headers.get("retry-after")), b""
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > LARGEST_ANSWER:
                        break
                return response.status_code, None, bytes(content)
        except TimeoutError:
            problem = f"no whole answer came within {self._timeout:g} s"
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            problem = f"the connection failed ({type(error).__name__})"
        # Out here, so that the exception does not carry that of httpx, whose request holds the key.
        raise JevFailure("network", problem)

    def _stream(self, body: bytes) -> Any:
        headers = {"authorization": f"Bearer {self._key.reveal()}", "content-type": "application/json"}
        return self._http.stream("POST", self._url, content=body, headers=headers)


def _checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.userinfo:
        raise JevFailure("configuration", "baseUrl must not hold a user name or password")
    if not parsed.host or not (parsed.scheme == "https" or (parsed.scheme == "http" and _is_this_machine(parsed.host))):
        raise JevFailure("configuration", "baseUrl must be an https address, since the key is sent there")
    return url


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_busy(status: int) -> bool:
    return status == 429 or status >= 500


def _refused(status: int) -> NoReturn:
    if status in (401, 403):
        raise JevFailure("authentication", f"the service refused the key ({status})")
    if _is_busy(status):
        raise JevFailure("busy", f"the service answered {status} twice")
    raise JevFailure("refused", f"the service answered {status}")


def _retry_after(value: str | None) -> float | None:
    """Seconds from now; the header holds seconds or a date. None when it is missing or makes no sense."""
    if value is None:
        return None
    try:
        seconds = float(value) if value.strip().isdigit() else _until(value)
    except (ValueError, OverflowError):
        return None
    return max(seconds, 0.0)


def _until(date: str) -> float:
    return email.utils.parsedate_to_datetime(date).timestamp() - time.time()


def _answer(content: bytes, questions: Questions) -> Answer:
    """The answer's probabilities for exactly the questions that were asked. Nothing of a bad answer is quoted."""
    decoded: Any = None
    problem = ""
    try:
        decoded = json.loads(content)
    except (ValueError, RecursionError):
        problem = "the answer is not JSON"
    if problem:
        raise JevFailure("malformed-answer", problem)
    answers = decoded.get("answers") if isinstance(decoded, dict) else None
    if not isinstance(answers, dict):
        raise JevFailure("malformed-answer", "the answer holds no object `answers`")
    probabilities: dict[str, Any] = {}
    for name in questions:
        one = answers.get(name)
        if not isinstance(one, dict) or one.get("type", "noul") != "noul":
            raise JevFailure("malformed-answer", f"the answer to {name} is missing or of another type")
        probabilities[name] = one.get("noul")
    model = decoded.get("model")
    usage = decoded.get("usage")
    return Answer(
        probabilities,
        model=model if isinstance(model, str) and _MODEL.fullmatch(model) else None,
        input_tokens=_count(usage, "input_tokens"),
        output_tokens=_count(usage, "output_tokens"),
    )


def _count(usage: object, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
