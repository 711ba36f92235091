"""Shows which failures are tried again, how long is waited before, and that nothing is said twice.

No time passes: the waits are recorded instead. The servers are real ones on loopback.
"""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.context import ModelRequest
from contexthost.models import RetryPolicy
from contexthost.models.retry import DelayTooLong, ProviderError, delay_before
from support.asking import HELLO, Waits, ask, model_info
from support.model_server import CHAT, RESPONSES, Answer, ModelServer, refuse, say

BOTH = pytest.mark.parametrize("api", [CHAT, RESPONSES])


def asked(server: ModelServer, api: str = CHAT, **more: Any) -> tuple[str, list[float]]:
    """The stop reason, and the waits in seconds."""
    waits = Waits()
    return ask(model_info(api, server.base_url), waits=waits, **more)["stopReason"], waits.seconds


@BOTH
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_failures_that_pass_are_tried_again(api: str, status: int) -> None:
    with ModelServer([refuse(status), say("yes")]) as server:
        assert asked(server, api) == ("stop", [2])
        assert server.requests[0].body == server.requests[1].body


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_refusals_that_stay_are_not(status: int) -> None:
    with ModelServer([refuse(status), say("yes")]) as server:
        assert asked(server) == ("error", [])


@pytest.mark.parametrize(
    "message", ["insufficient_quota", "Monthly usage limit reached", "check your plan and billing details"]
)
def test_a_quota_that_is_used_up_is_not_waited_for(message: str) -> None:
    with ModelServer([refuse(429, message)]) as server:
        assert asked(server) == ("error", [])


def test_three_retries_are_made_with_growing_waits() -> None:
    with ModelServer([refuse(500)] * 4) as server:
        assert asked(server) == ("error", [2, 4, 8])
        assert (len(server.requests), server.surplus) == (4, [])


def test_waits_grow_to_a_minute_and_no_further() -> None:
    with ModelServer([refuse(500)] * 8) as server:
        assert asked(server, retry=RetryPolicy(max_retries=7)) == ("error", [2, 4, 8, 16, 32, 60, 60])


NOON = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:09 GMT"}, 9),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0),
        ({"retry-after": "tomorrow"}, 2),
        ({"retry-after": "nan"}, 2),
        ({"retry-after": "60"}, 60),
    ],
)
def test_the_wait_is_what_the_provider_asks_for(headers: dict[str, str], seconds: float) -> None:
    with ModelServer([refuse(429, headers=headers), say("yes")]) as server:
        assert asked(server, now=lambda: NOON) == ("stop", [seconds])


def test_a_wait_over_a_minute_is_told_instead_of_waited() -> None:
    with ModelServer([refuse(429, "later", headers={"retry-after": "3600"})]) as server:
        message = ask(model_info(CHAT, server.base_url))
    assert message["errorMessage"].startswith("The provider asks for a wait of 3600 s (at most 60 s are waited). 429: ")


def test_the_waits_of_a_large_number_of_retries_do_not_overflow() -> None:
    assert delay_before(5000, ProviderError("x"), RetryPolicy()) == 60
    with pytest.raises(DelayTooLong, match="61 s"):
        delay_before(1, ProviderError("x", headers={"retry-after": "60.5"}), RetryPolicy())


@pytest.mark.parametrize(("status", "wish", "stop"), [(400, "true", "stop"), (500, "false", "error")])
def test_the_provider_may_say_whether_to_try_again(status: int, wish: str, stop: str) -> None:
    with ModelServer([refuse(status, headers={"x-should-retry": wish}), say("yes")]) as server:
        assert asked(server)[0] == stop


@BOTH
def test_a_stream_that_breaks_before_anything_was_said_is_tried_again(api: str) -> None:
    with ModelServer([say("abc", close_after=1), say("yes")]) as server:
        assert asked(server, api) == ("stop", [2])


@BOTH
def test_nothing_is_tried_again_once_text_was_handed_on(api: str) -> None:
    pieces: list[str] = []
    request = ModelRequest(messages=HELLO, on_text=pieces.append)
    with ModelServer([say("abc", close_after=4), say("yes")]) as server:
        assert asked(server, api, request=request) == ("error", [])
    assert "".join(pieces) in ("ab", "abc")


@BOTH
def test_text_that_nobody_has_seen_is_thrown_away_and_asked_for_again(api: str) -> None:
    with ModelServer([say("abc", close_after=4), say("yes")]) as server:
        message = ask(model_info(api, server.base_url))
    assert [block["text"] for block in message["content"]] == ["yes"]


@pytest.mark.parametrize(
    ("event", "waits"),
    [
        ({"type": "error", "code": "server_error", "message": "m"}, [2]),
        ({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "m"}}}, [2]),
        ({"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "m"}}}, []),
    ],
)
def test_failures_within_a_stream_are_tried_again_if_they_may_pass(event: dict[str, Any], waits: list[float]) -> None:
    with ModelServer([Answer(events=[event]), say("yes")]) as server:
        assert asked(server, RESPONSES) == ("stop" if waits else "error", waits)


@pytest.mark.parametrize(("code", "waits"), [(502, [2]), (429, [2]), (400, []), ("overloaded", [2])])
def test_gateways_give_the_status_of_a_failure_within_a_stream(code: object, waits: list[float]) -> None:
    with ModelServer([Answer(events=[{"error": {"code": code, "message": "m"}}]), say("yes")]) as server:
        assert asked(server) == ("stop" if waits else "error", waits)


def test_the_user_is_told_before_each_wait() -> None:
    said: list[str] = []
    with ModelServer([refuse(503, "busy"), refuse(429, "slow", headers={"retry-after": "7"}), say("yes")]) as server:
        asked(server, request=ModelRequest(messages=HELLO, on_retry=said.append))
    assert said == [
        'The model did not answer (503: {"message":"busy","type":"test_error"}); attempt 2 of 4 in 2 s',
        'The model did not answer (429: {"message":"slow","type":"test_error"}); attempt 3 of 4 in 7 s',
    ]


def test_the_hooks_of_a_request_run_once_for_all_attempts() -> None:
    calls: list[str] = []

    async def headers(given: Any) -> Any:
        calls.append("headers")
        assert given["authorization"] == "Bearer k-0123456789abcdef"
        return {**given, "X-Mine": "1", "authorization": None}

    async def body(given: Any) -> Any:
        calls.append("body")
        return {**given, "seed": 5}

    request = ModelRequest(messages=HELLO, prepare_headers=headers, prepare_body=body)
    with ModelServer([refuse(500), say("yes")]) as server:
        assert asked(server, request=request) == ("stop", [2])
        for received in server.requests:
            assert received.body["seed"] == 5
            assert received.headers["x-mine"] == "1"
            assert "authorization" not in received.headers
    assert calls == ["headers", "body"]


def test_headers_of_a_hook_are_sent_as_latin_1() -> None:
    """All that HTTP allows there; a value beyond ASCII failed every request."""

    async def headers(given: Any) -> Any:
        return {**given, "X-Mine": "caf\xe9"}

    with ModelServer([say("yes")]) as server:
        assert asked(server, request=ModelRequest(messages=HELLO, prepare_headers=headers)) == ("stop", [])
        assert server.requests[0].headers["x-mine"] == "caf\xe9"


def test_what_a_hook_raises_is_raised() -> None:
    async def broken(_: Any) -> Any:
        raise RuntimeError("of the hook")

    with ModelServer() as server, pytest.raises(RuntimeError, match="of the hook"):
        asked(server, request=ModelRequest(messages=HELLO, prepare_body=broken))


def test_a_body_that_is_no_json_is_an_error_and_is_not_sent() -> None:
    async def broken(given: Any) -> Any:
        return {**given, "seed": float("nan")}

    with ModelServer() as server:
        message = ask(model_info(CHAT, server.base_url), ModelRequest(messages=HELLO, prepare_body=broken))
        assert server.requests == []
    assert message["errorMessage"].startswith("The request cannot be written as JSON: ")
