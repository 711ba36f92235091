"""The client against a server on this machine: the protocol, every fault, and that the key shows nowhere."""

from __future__ import annotations

import asyncio
import copy
import email.utils
import logging
import pickle
import time
import traceback
from typing import Any

import pytest

from contexthost_jev.client import JevClient, model_name
from contexthost_jev.core import Answer, compact
from contexthost_jev.errors import JevFailure
from contexthost_jev.keys import Key, find_key, key_from_environment
from contexthost_jev.options import JevOptions
from jev.histories import turns
from jev.jev_server import SECRET, JevServer, Reply

QUESTIONS = {
    "call_t1": {"type": "noul", "instructions": "Stay?"},
    "result_t1": {"type": "noul", "instructions": "Whole?"},
}
STATE = {"context": "c", "goal": "猫 \ud83d", "history": []}


def ask(server: JevServer, **options: Any) -> Answer:
    async def main() -> Answer:
        options.setdefault("retry_seconds", 0.01)
        async with JevClient(Key("typesafe", SECRET), base_url=server.url, **options) as client:
            return await client.ask(STATE, QUESTIONS)

    return asyncio.run(main())


def failure(server: JevServer, caplog: pytest.LogCaptureFixture, **options: Any) -> JevFailure:
    """The failure; its whole chain and the logs at every level are searched for the key."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(JevFailure) as caught:
        ask(server, **options)
    error: BaseException | None = caught.value
    while error is not None:
        assert isinstance(error, JevFailure), "nothing of a library's error is carried along"
        told = [str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)]
        assert all(SECRET not in text for text in told)
        error = error.__cause__ or error.__context__
    assert SECRET not in caplog.text
    assert all(SECRET not in repr(vars(record)) for record in caplog.records)
    return caught.value


# The protocol ----------------------------------------------------------------------------------------------------


def test_a_request_is_as_the_protocol_has_it(server: JevServer) -> None:
    server.probability = lambda name: {"call_t1": 0.87, "result_t1": 0}[name]
    assert ask(server) == Answer({"call_t1": 0.87, "result_t1": 0}, "jev-1.13.0", 100, 4)
    (seen,) = server.seen
    assert seen.path == "/v1/systemone"
    assert seen.headers["authorization"] == f"Bearer {SECRET}"
    assert seen.headers["content-type"] == "application/json"
    # A lone surrogate cannot be sent; everything else arrives as it is.
    assert seen.body == {"model": "jev-latest", "state": {**STATE, "goal": "猫 ?"}, "questions": QUESTIONS}


def test_an_answer_may_leave_out_its_type_and_hold_more_than_was_asked(server: JevServer) -> None:
    body = b'{"answers":{"call_t1":{"noul":1},"result_t1":{"noul":0.5},"more":{"noul":7}},"extra":[]}'
    server.default = Reply(body=body)
    assert ask(server) == Answer({"call_t1": 1, "result_t1": 0.5})


@pytest.mark.parametrize(
    ("provider", "model", "sent"),
    [
        ("typesafe", "jev-latest", "jev-latest"),
        ("typesafe", "jev-1.13", "jev-1.13"),
        ("openrouter", "jev-latest", "~typesafe/jev-latest"),
        ("openrouter", "jev-1.13", "typesafe/jev-1.13"),
        ("openrouter", "other/jev-2", "other/jev-2"),
        ("openrouter", "~typesafe/jev-latest", "~typesafe/jev-latest"),
    ],
)
def test_openrouter_knows_the_models_by_other_names(provider: Any, model: str, sent: str) -> None:
    assert model_name(provider, model) == sent


def test_openrouter_is_asked_with_its_own_name_for_the_model(server: JevServer) -> None:
    async def main() -> None:
        async with JevClient(Key("openrouter", "sk-or-1"), base_url=server.url) as client:
            await client.ask(STATE, QUESTIONS)

    asyncio.run(main())
    assert server.seen[0].body["model"] == "~typesafe/jev-latest"
    assert server.seen[0].headers["authorization"] == "Bearer sk-or-1"


@pytest.mark.parametrize(
    ("provider", "secret", "endpoint"),
    [
        ("typesafe", "sk-1", "https://api.typesafe.ai/v1/systemone"),
        ("openrouter", "sk-or-1", "https://openrouter.ai/api/alpha/decisions"),
        ("typesafe", "sk-or-1", "https://openrouter.ai/api/alpha/decisions"),  # not sent to TypeSafe by mistake
    ],
)
def test_each_provider_has_its_endpoint(provider: Any, secret: str, endpoint: str) -> None:
    assert JevClient(Key(provider, secret))._url == endpoint


@pytest.mark.parametrize(
    "url",
    ["http://example.com/v1", "ftp://127.0.0.1/", "api.typesafe.ai", "", "https://user:pass@example.com/", "http://["],
)
def test_the_key_is_not_sent_to_an_address_that_is_not_safe(url: str) -> None:
    with pytest.raises(JevFailure, match="baseUrl") as caught:
        JevClient(Key("typesafe", SECRET), base_url=url or "/")
    assert caught.value.kind == "configuration"


# Faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "requests"),
    [
        (400, "refused", 1),
        (401, "authentication", 1),
        (403, "authentication", 1),
        (404, "refused", 1),
        (413, "refused", 1),
        (301, "refused", 1),
        (429, "busy", 2),
        (500, "busy", 2),
        (503, "busy", 2),
    ],
)
def test_only_429_and_5xx_are_tried_once_more(
    server: JevServer, caplog: pytest.LogCaptureFixture, status: int, kind: str, requests: int
) -> None:
    server.default = Reply(status=status, body=SECRET.encode(), headers={"location": "/elsewhere"})
    found = failure(server, caplog)
    assert (found.kind, len(server.seen)) == (kind, requests)
    assert str(status) in str(found)


@pytest.mark.parametrize("status", [429, 500, 599])
def test_a_second_attempt_that_works_is_as_good_as_a_first(server: JevServer, status: int) -> None:
    server.script = [Reply(status=status)]
    assert ask(server).probabilities == {"call_t1": 1.0, "result_t1": 1.0}
    assert len(server.seen) == 2


def test_retry_after_is_waited_for(server: JevServer) -> None:
    server.script = [Reply(status=429, headers={"retry-after": "1"})]
    started = time.monotonic()
    ask(server)
    assert 1.0 <= time.monotonic() - started < 5


def test_retry_after_may_be_a_date_and_a_past_one_means_now(server: JevServer) -> None:
    server.script = [Reply(status=503, headers={"retry-after": email.utils.formatdate(time.time() - 60, usegmt=True)})]
    started = time.monotonic()
    ask(server, retry_seconds=30)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("value", ["soon", "-5", "", "9" * 400, "Thu, 99 Foo"])
def test_a_retry_after_without_sense_is_ignored_or_too_long(
    server: JevServer, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    server.script = [Reply(status=429, headers={"retry-after": value})]
    if value.startswith("9"):
        assert failure(server, caplog).kind == "busy"
    else:
        ask(server)


def test_a_server_that_wants_minutes_is_not_asked_again(server: JevServer, caplog: pytest.LogCaptureFixture) -> None:
    server.default = Reply(status=429, headers={"retry-after": "21"})
    found = failure(server, caplog)
    assert (found.kind, str(found)) == ("busy", "the service answered 429 and wants 21 s of patience")
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "reply",
    [Reply(delay=10), Reply(drip=10)],
    ids=["slow to answer", "slow in the middle of the body"],
)
def test_the_deadline_covers_the_whole_answer(
    server: JevServer, caplog: pytest.LogCaptureFixture, reply: Reply
) -> None:
    server.default = reply
    found = failure(server, caplog, timeout_seconds=0.3)
    assert (found.kind, str(found)) == ("network", "no whole answer came within 0.3 s")
    assert len(server.seen) <= 1  # perhaps it has not even come there


@pytest.mark.parametrize("reply", [Reply(half=True), Reply(hang_up=True)], ids=["half an answer", "no answer"])
def test_a_closed_connection_is_a_network_failure(
    server: JevServer, caplog: pytest.LogCaptureFixture, reply: Reply
) -> None:
    server.default = reply
    found = failure(server, caplog)
    assert (found.kind, str(found)) == ("network", "the connection failed (RemoteProtocolError)")


def test_nobody_at_the_address_is_a_network_failure(caplog: pytest.LogCaptureFixture) -> None:
    with JevServer() as gone:
        pass
    assert failure(gone, caplog).kind == "network"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"answers"',
        b"{}",
        b'{"answers":null}',
        b'{"answers":[{"noul":1},{"noul":1}]}',
        b'{"answers":{"call_t1":{"noul":1}}}',
        b'{"answers":{"call_t1":{"noul":1},"result_t1":0.5}}',
        b'{"answers":{"call_t1":{"noul":1},"result_t1":[0.5]}}',
        b'{"answers":{"call_t1":{"noul":1},"result_t1":{"type":"choice","noul":1}}}',
        b'{"answers":{"call_t1":{"noul":1},"result_t1":{"type":null,"noul":1}}}',
        b"[" * 100_000,
        b'{"answers":"' + SECRET.encode() + b'"}',
        b" " * (5 * 1024 * 1024),
    ],
    ids=lambda body: repr(body[:60]),
)
def test_what_is_not_an_answer_is_malformed(server: JevServer, caplog: pytest.LogCaptureFixture, body: bytes) -> None:
    server.default = Reply(body=body)
    assert failure(server, caplog).kind == "malformed-answer"
    assert len(server.seen) == 1


@pytest.mark.parametrize("number", [b"1.5", b"-1", b"NaN", b"Infinity", b'"1"', b"true", b"null", b"1e999"])
def test_numbers_out_of_range_fail_the_compaction(server: JevServer, number: bytes) -> None:
    answers = b'{"answers":{"call_t1":{"noul":1},"result_t1":{"noul":' + number + b"}}}"
    server.default = Reply(body=answers)

    async def main() -> None:
        async with JevClient(Key("typesafe", SECRET), base_url=server.url) as client:
            await compact(turns(1), client)

    with pytest.raises(JevFailure) as caught:
        asyncio.run(main())
    assert caught.value.kind == "malformed-answer"


def test_at_most_four_requests_are_under_way_and_a_failure_stops_the_rest(server: JevServer) -> None:
    small = JevOptions(max_state_tokens=5000, max_request_tokens=1300)  # ten requests for thirty calls
    server.script = [Reply(delay=1.5)] * 4  # they wait for each other

    async def main() -> None:
        async with JevClient(Key("typesafe", SECRET), base_url=server.url) as client:
            await compact(turns(30), client, small)

    asyncio.run(main())
    assert (len(server.seen), server.most_at_once) == (10, 4)
    server.seen.clear()
    server.script = [Reply(status=400, delay=0.05)]
    server.default = Reply(delay=10)
    with pytest.raises(JevFailure):
        asyncio.run(main())
    assert len(server.seen) <= 4


def test_the_client_itself_never_has_more_than_four_under_way(server: JevServer) -> None:
    server.script = [Reply(delay=1.5)] * 4

    async def main() -> None:
        async with JevClient(Key("typesafe", SECRET), base_url=server.url) as client:
            await asyncio.gather(*(client.ask(STATE, QUESTIONS) for _ in range(9)))

    asyncio.run(main())
    assert (len(server.seen), server.most_at_once) == (9, 4)


# The key ---------------------------------------------------------------------------------------------------------


def test_neither_key_nor_client_show_the_key() -> None:
    key = Key("typesafe", SECRET)
    client = JevClient(key)
    for thing in (key, client, vars(client), [key]):
        assert SECRET not in repr(thing)
        assert SECRET not in str(thing)
    for keep in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not to be stored"):
            keep(key)
    assert key.reveal() == SECRET


@pytest.mark.parametrize("secret", ["", "a b", "a\nb", "schlüssel", "a\x00"])
def test_what_no_header_can_carry_is_refused_without_being_quoted(secret: str) -> None:
    with pytest.raises(JevFailure) as caught:
        Key("typesafe", secret)
    assert str(caught.value) == "the key of typesafe holds characters that no key has"


def test_a_model_name_that_echoes_the_key_is_not_recorded(server: JevServer) -> None:
    server.model = f"jev-{SECRET}"
    assert ask(server).model is None
    server.model = "jev\n" * 3
    assert ask(server).model is None


def test_the_environment_comes_first_and_typesafe_before_openrouter(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def credentials(provider: str) -> str | None:
        asked.append(provider)
        return "sk-or-command" if provider == "openrouter" else None

    def found() -> tuple[str, str]:
        key = asyncio.run(find_key(credentials))
        assert key is not None
        return key.provider, key.reveal()

    assert key_from_environment() is None
    assert found() == ("openrouter", "sk-or-command")
    assert asked == ["typesafe", "openrouter"]
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-env")
    assert found() == ("openrouter", "sk-or-env")
    monkeypatch.setenv("TYPESAFE_API_KEY", " sk-env\n")
    assert found() == ("typesafe", "sk-env")
    assert len(asked) == 2, "no command is run when the environment has a key"
