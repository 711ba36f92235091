"""One compaction over a real connection: what is taken for an answer, what is tried again, what ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

import pytest

from contexthost.context import AbortSignal
from contexthost_codex_native.errors import Aborted, NativeFailure, UnsupportedGateway
from contexthost_codex_native.stream import Compacted, request_compaction
from contexthost_codex_native.transport import resolve
from support.asking import Waits
from support.codex import CREATED, KEY, compacted, end, sealed, sub_api
from support.model_server import Answer, ModelServer, refuse, say

BODY = {"model": "gpt-5", "stream": True, "store": False, "input": [{"type": "compaction_trigger"}]}


def ask(
    server: ModelServer, waits: Waits | None = None, *, timeout: float = 20.0, signal: AbortSignal | None = None
) -> Compacted:
    target = resolve(sub_api(server.base_url), KEY, "s1")
    return asyncio.run(request_compaction(target, BODY, signal=signal, timeout_seconds=timeout, sleep=waits or Waits()))


def events(*parts: Any, **more: Any) -> Answer:
    return Answer(events=[CREATED, *parts], **more)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("write_bytes", [0, 1, 7], ids=["whole events", "byte by byte", "seven bytes"])
@pytest.mark.parametrize("last", ["response.completed", "response.done"])
def test_the_item_and_the_usage_arrive_however_the_stream_is_cut(line_end: str, write_bytes: int, last: str) -> None:
    text = "gesiegelt \u2028 \u00fc \U0001f512"  # split within characters too; U+2028 is no line end here
    with ModelServer([events(sealed(text), end(last), "[DONE]", line_end=line_end, write_bytes=write_bytes)]) as server:
        found = ask(server)
    assert found.item == {"type": "compaction", "id": "cmp_1", "encrypted_content": text}
    assert found.usage is not None
    assert found.usage["input_tokens"] == 9_000


def test_the_older_name_of_the_item_is_taken_as_it_is() -> None:
    with ModelServer([compacted("old", type="compaction_summary")]) as server:
        assert ask(server).item == {"type": "compaction_summary", "id": "cmp_1", "encrypted_content": "old"}


def test_an_answer_without_usage_or_done_mark_is_an_answer() -> None:
    with ModelServer([events(sealed(), end(usage=None))]) as server:
        assert ask(server).usage is None


def test_fifty_megabytes_of_noise_change_nothing() -> None:
    noise = {"type": "response.output_text.delta", "delta": "x" * 50_000}
    with ModelServer([events(*[noise] * 1_000, sealed(), *[noise] * 10, end())]) as server:
        started = time.monotonic()
        assert ask(server, timeout=60).item["encrypted_content"] == "sealed-1"
    assert time.monotonic() - started < 30


FINAL: dict[str, tuple[Answer, str]] = {
    "a failed response": (
        events({"type": "response.failed", "response": {"error": {"code": "bad", "message": "no room"}}}),
        r"failed \(response.failed\): bad: no room",
    ),
    "an error with a message": (events({"type": "error", "message": "went wrong"}), "reported an error: went wrong"),
    "an error with a message inside": (
        events({"type": "error", "error": {"message": "went wrong"}}), "reported an error: went wrong",
    ),
    "an event that is not JSON": (events("{nonsense"), "an event that is not JSON"),
    "two items": (events(sealed("a"), sealed("b"), end()), "2 compaction items"),
    "an item without its content": (events(sealed(None), end()), "without its encrypted content"),
    "an item with empty content": (events(sealed(""), end()), "without its encrypted content"),
    "an item whose content is a number": (events(sealed(7), end()), "without its encrypted content"),
    "no stream": (Answer(body="{}", headers={"content-type": "application/json"}), "answered with application/json"),
    "400": (refuse(400, "bad shape"), "status 400"),
    "401": (refuse(401, "who"), "status 401.*check the credential"),
    "403": (refuse(403, "no"), "status 403.*check the credential"),
    "404": (refuse(404, "where"), "status 404.*check the base URL"),
    "a redirect": (Answer(status=307, headers={"location": "http://127.0.0.1:1/"}, body=""), "status 307"),
    "a spent quota": (refuse(429, "x", code="insufficient_quota"), "status 429.*try again later"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FINAL)
def test_what_would_come_out_the_same_is_not_tried_again(fault: str) -> None:
    answer, says = FINAL[fault]
    waits = Waits()
    with ModelServer([answer, compacted()]) as server, pytest.raises(NativeFailure, match=says) as caught:
        ask(server, waits)
    assert len(server.requests) == 1
    assert waits.seconds == []
    assert not isinstance(caught.value, UnsupportedGateway)
    assert str(caught.value).startswith("127.0.0.1 ")


PASSING: dict[str, Answer] = {
    "an incomplete response": events(sealed(), {"type": "response.incomplete", "response": {}}),
    "an error without a message": events({"type": "error"}),
    "a stream that ends early": events(sealed()),
    "a stream with only a done mark": events(sealed(), "[DONE]"),
    "a connection that breaks off": events(sealed(), end(), close_after=2),
    "408": refuse(408),
    "409": refuse(409),
    "429": refuse(429),
    "500": refuse(500),
    "503": refuse(503),
}


@pytest.mark.parametrize("fault", PASSING)
def test_what_may_pass_is_tried_twice_more_after_one_and_two_seconds(fault: str) -> None:
    waits = Waits()
    with ModelServer([PASSING[fault], PASSING[fault], compacted()]) as server:
        assert ask(server, waits).item["encrypted_content"] == "sealed-1"
    assert waits.seconds == [1.0, 2.0]
    assert [one.body for one in server.requests] == [BODY] * 3


@pytest.mark.parametrize("fault", PASSING)
def test_and_no_more_than_twice(fault: str) -> None:
    with ModelServer([PASSING[fault]] * 3) as server, pytest.raises(NativeFailure, match=r"\(3 attempts\)"):
        ask(server)
    assert len(server.requests) == 3
    assert server.surplus == []


def test_a_server_that_is_not_there_is_tried_three_times() -> None:
    with ModelServer() as server:
        base = server.base_url
    target = resolve(sub_api(base), KEY, "s1")
    waits = Waits()
    with pytest.raises(NativeFailure, match="could not be reached"):
        asyncio.run(request_compaction(target, BODY, signal=None, timeout_seconds=20, sleep=waits))
    assert waits.seconds == [1.0, 2.0]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250"}, [0.25]),
        ({"retry-after": "3"}, [3.0]),
        ({"retry-after-ms": "250", "retry-after": "3"}, [0.25]),
        ({"retry-after": "nonsense"}, [1.0]),
    ],
)
def test_the_provider_says_when(headers: dict[str, str], seconds: Sequence[float]) -> None:
    waits = Waits()
    with ModelServer([refuse(429, headers=headers), compacted()]) as server:
        ask(server, waits)
    assert waits.seconds == seconds


def test_the_provider_may_say_it_as_a_date() -> None:
    waits = Waits()
    when = formatdate(time.time() + 15, usegmt=True)
    with ModelServer([refuse(503, headers={"retry-after": when}), compacted()]) as server:
        ask(server, waits)
    assert 5 < waits.seconds[0] <= 15


@pytest.mark.parametrize("seconds", ["61", "15"])
def test_a_wait_beyond_a_minute_or_beyond_the_deadline_is_not_begun(seconds: str) -> None:
    waits = Waits()
    with (
        ModelServer([refuse(429, headers={"retry-after": seconds}), compacted()]) as server,
        pytest.raises(NativeFailure, match="status 429"),
    ):
        ask(server, waits, timeout=10)
    assert waits.seconds == []


UNSUPPORTED = {
    "an ordinary message": say("Here is a summary."),
    "nothing at all": events(end()),
    "an unknown item": refuse(400, "Invalid value: 'compaction_trigger'"),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_a_gateway_that_cannot_compact_is_named_as_such(kind: str) -> None:
    with ModelServer([UNSUPPORTED[kind]]) as server, pytest.raises(UnsupportedGateway) as caught:
        ask(server)
    assert "does not support native compaction" in str(caught.value)
    assert len(server.requests) == 1


def test_the_deadline_ends_an_answer_that_hangs() -> None:
    with ModelServer([events(sealed(), end(), hold_after=1)]) as server:
        started = time.monotonic()
        with pytest.raises(NativeFailure, match=r"gave no compaction within 0\.3 s"):
            ask(server, timeout=0.3)
        assert time.monotonic() - started < 5


def test_an_abort_ends_it_at_once() -> None:
    async def run(server: ModelServer) -> None:
        signal = AbortSignal()
        target = resolve(sub_api(server.base_url), KEY, "s1")
        work = asyncio.ensure_future(request_compaction(target, BODY, signal=signal, timeout_seconds=20))
        await asyncio.to_thread(server.reached.wait, 10)
        signal.abort()
        with pytest.raises(Aborted):
            await work

    with ModelServer([events(sealed(), end(), hold_after=1)]) as server:
        started = time.monotonic()
        asyncio.run(run(server))
        assert time.monotonic() - started < 5


def test_an_abort_beforehand_sends_nothing() -> None:
    signal = AbortSignal()
    signal.abort()
    with ModelServer([compacted()]) as server, pytest.raises(Aborted):
        ask(server, signal=signal)
    assert server.requests == []


def test_an_abort_ends_a_wait_between_two_attempts() -> None:
    async def run(server: ModelServer) -> None:
        signal = AbortSignal()
        target = resolve(sub_api(server.base_url), KEY, "s1")

        async def sleep(seconds: float) -> None:
            signal.abort()
            await asyncio.sleep(30)

        with pytest.raises(Aborted):
            await request_compaction(target, BODY, signal=signal, timeout_seconds=40, sleep=sleep)

    with ModelServer([refuse(500), compacted()]) as server:
        asyncio.run(run(server))
    assert len(server.requests) == 1


def test_a_refusal_that_repeats_the_credential_is_told_without_it() -> None:
    answer = refuse(401, f"Incorrect API key provided: {KEY} (Bearer {KEY})")
    with ModelServer([answer]) as server, pytest.raises(NativeFailure) as caught:
        ask(server)
    assert "***" in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:  # the whole chain, as a log would print it
        assert KEY not in repr(error)
        error = error.__cause__ or error.__context__
