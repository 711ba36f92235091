"""Shows that a provider's key is in the one header it belongs into and nowhere else.

Not in a repr, a log at any level, an answer, a word to the user or an exception, even when the provider repeats it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from contexthost.context import AbortSignal, ModelRequest
from contexthost.errors import SettingsError, Unsupported
from contexthost.messages import Message
from contexthost.models import ChatModel, Transport, open_model
from support.asking import HELLO, ask, model_info
from support.model_server import CHAT, RESPONSES, Answer, ModelServer, refuse, say

KEY = "sk-very-secret-0123456789"
OTHER = "token-of-a-header-42"


@pytest.mark.parametrize("api", [CHAT, RESPONSES])
def test_a_key_is_nowhere_but_in_its_header(api: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    faults = [
        refuse(500, f"the key {KEY} and {OTHER}"),
        refuse(401, f"Incorrect key: {KEY}, Bearer {KEY}, {OTHER}"),
        Answer(events=[f"no json {KEY}"]),
        say("fine"),
    ]
    with ModelServer(faults) as server:
        info = model_info(api, server.base_url, headers={"X-Api-Key": OTHER})
        request = ModelRequest(messages=HELLO, on_retry=said.append)
        answers = [ask(info, request, api_key=KEY), ask(info, request, api_key=KEY)]
        assert {received.headers["authorization"] for received in server.requests} == {f"Bearer {KEY}"}
        assert {received.headers["x-api-key"] for received in server.requests} == {OTHER}
        assert len(server.requests) == 4
    assert [answer["stopReason"] for answer in answers] == ["error", "stop"]
    assert "Incorrect key: ***, ***, ***" in answers[0]["errorMessage"]
    assert len(said) == 2
    shown = "\n".join([*said, *map(repr, answers), caplog.text, *map(repr, caplog.records), repr(info), repr(request)])
    assert KEY not in shown
    assert OTHER not in shown


def test_clients_and_transports_do_not_show_the_key() -> None:
    model = open_model(model_info(CHAT), api_key=KEY)
    assert KEY not in repr(model) + str(model) + repr(Transport(api_key=KEY)) + str(Transport(api_key=KEY))


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingsError) as caught:
        open_model(model_info(CHAT), api_key=KEY + "\n")
    assert KEY not in str(caught.value) + repr(caught.value)


def test_without_a_key_nothing_is_authorised() -> None:
    with ModelServer([say("yes")]) as server:
        ask(model_info(CHAT, server.base_url), api_key=None)
        assert "authorization" not in server.requests[0].headers


def test_the_headers_of_the_model_win_over_the_key() -> None:
    with ModelServer([say("yes")]) as server:
        ask(model_info(CHAT, server.base_url, headers={"Authorization": "Basic abc"}), api_key=KEY)
        assert server.requests[0].headers["authorization"] == "Basic abc"


def test_redirects_do_not_carry_the_key_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked(base_url: str) -> Message:
        model = open_model(model_info(CHAT, base_url), api_key=KEY)
        try:
            return await model.respond(ModelRequest(messages=HELLO), AbortSignal())
        finally:
            await model.aclose()

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ModelServer([say("stolen")]) as elsewhere:
        target = f"{elsewhere.base_url}/chat/completions"
        with ModelServer([Answer(status=307, headers={"location": target}, body="")]) as server:
            message = asyncio.run(asked(server.base_url))
        assert elsewhere.requests == []
    assert (message["stopReason"], message["errorMessage"]) == ("error", "307 status code (no body)")


@pytest.mark.parametrize("base_url", [None, "", "localhost:8080", "ftp://host/v1", "http://"])
def test_a_base_url_that_is_none_is_refused(base_url: Any) -> None:
    with pytest.raises(SettingsError, match="needs a base URL"):
        ChatModel(model_info(CHAT, base_url))


def test_a_password_in_the_base_url_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingsError, match="user or password") as caught:
        ChatModel(model_info(CHAT, f"http://me:{KEY}@host/v1"))
    assert KEY not in str(caught.value)


def test_a_protocol_without_a_client_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="anthropic-messages"):
        open_model(model_info("anthropic-messages"))


def test_a_key_and_a_transport_are_not_both_given() -> None:
    with pytest.raises(ValueError, match="key of its own"):
        open_model(model_info(CHAT), api_key=KEY, transport=Transport())
