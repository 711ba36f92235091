"""Who is eligible, where a request goes and which credential goes with it: every rule of the specification's
authentication paragraph is a row, and what is refused is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.context import ModelInfo
from contexthost_codex_native.eligibility import ineligible_because, kind_of, model_key
from contexthost_codex_native.errors import Refused
from contexthost_codex_native.transport import endpoint, resolve, with_feature
from support.codex import ACCOUNT, KEY, codex, jwt, sub_api

URL = "https://gateway.example/v1"


def model(provider: str, api: str) -> ModelInfo:
    return ModelInfo(provider=provider, id="m", api=api)


@pytest.mark.parametrize(
    ("provider", "api", "kind"),
    [
        ("openai-codex", "openai-codex-responses", "codex"),
        ("sub-api", "openai-responses", "sub-api"),
        ("openai-codex", "openai-responses", None),
        ("sub-api", "openai-codex-responses", None),
        ("sub-api", "openai-completions", None),
        ("sub-api", "", None),
        ("openai", "openai-responses", None),
        ("Sub-API", "openai-responses", None),
        ("anthropic", "anthropic-messages", None),
    ],
)
def test_two_pairs_of_provider_and_api_are_eligible_and_no_others(provider: str, api: str, kind: str | None) -> None:
    assert kind_of(model(provider, api)) == kind


def test_no_model_is_not_eligible() -> None:
    assert kind_of(None) is None
    assert ineligible_because(None) == "no model is known"


def test_the_model_key_names_provider_api_and_model() -> None:
    assert model_key(sub_api(URL, id="a:b")) == "sub-api:openai-responses:a:b"


@pytest.mark.parametrize(
    ("kind", "base", "url"),
    [
        ("codex", "", "https://chatgpt.com/backend-api/codex/responses"),
        ("codex", "  ", "https://chatgpt.com/backend-api/codex/responses"),
        ("codex", "https://x.example/api", "https://x.example/api/codex/responses"),
        ("codex", "https://x.example/api///", "https://x.example/api/codex/responses"),
        ("codex", "https://x.example/api/codex", "https://x.example/api/codex/responses"),
        ("codex", "https://x.example/api/codex/", "https://x.example/api/codex/responses"),
        ("codex", "https://x.example/api/codex/responses/", "https://x.example/api/codex/responses"),
        ("codex", "https://x.example", "https://x.example/codex/responses"),
        ("sub-api", "https://x.example/v1", "https://x.example/v1/responses"),
        ("sub-api", "https://x.example/v1//", "https://x.example/v1/responses"),
        ("sub-api", "https://x.example", "https://x.example/responses"),
        ("sub-api", "https://x.example/v1/responses", "https://x.example/v1/responses"),
        ("sub-api", "http://127.0.0.1:8080/v1?tenant=7", "http://127.0.0.1:8080/v1/responses?tenant=7"),
    ],
)
def test_the_address_follows_from_the_base_url(kind: Any, base: str, url: str) -> None:
    assert endpoint(kind, base) == url


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("", "no base URL"),
        ("   ", "no base URL"),
        ("gateway.example/v1", "no address"),
        ("ftp://gateway.example", "no address"),
        ("https://", "no address"),
        ("https://x.example:port/v1", "no address"),
        ("https://user:hunter22@x.example/v1", "holds a user or a password"),
    ],
)
def test_sub_api_has_no_default_address_and_an_unusable_one_is_refused(base: str, says: str) -> None:
    with pytest.raises(Refused, match=says) as caught:
        resolve(sub_api(base), KEY, "s1")
    assert "hunter22" not in str(caught.value)


def test_a_session_file_gets_the_address_from_the_settings_but_a_models_own_goes_before_it() -> None:
    assert resolve(sub_api(None), KEY, "s1", base_url=URL).url == f"{URL}/responses"
    assert resolve(sub_api("https://own.example"), KEY, "s1", base_url=URL).url == "https://own.example/responses"


NO_CREDENTIAL = "SubAPI has no credential"

AUTHENTICATION: dict[str, tuple[dict[str, Any], Any, str | None]] = {
    # what the row shows: (the model's headers, the key, the Authorization that is sent; None: refused)
    "an explicit header wins over the key": ({"Authorization": "Bearer own"}, KEY, "Bearer own"),
    "in lower case": ({"authorization": "Bearer own"}, KEY, "Bearer own"),
    "in upper case": ({"AUTHORIZATION": "Bearer own"}, KEY, "Bearer own"),
    "in mixed case": ({"aUthOrization": "Bearer own"}, KEY, "Bearer own"),
    "whatever its scheme": ({"Authorization": "Basic dTpw"}, KEY, "Basic dTpw"),
    "without a scheme": ({"Authorization": "own-token"}, KEY, "own-token"),
    "without a key: none has to be made up": ({"Authorization": "Bearer own"}, None, "Bearer own"),
    "with white space around it": ({"Authorization": "  Bearer own "}, None, "Bearer own"),
    "an empty header leaves it to the key": ({"Authorization": ""}, KEY, f"Bearer {KEY}"),
    "a blank header leaves it to the key": ({"Authorization": " \t "}, KEY, f"Bearer {KEY}"),
    "a scheme with nothing behind it is blank": ({"Authorization": "Bearer "}, KEY, f"Bearer {KEY}"),
    "so is the text of a missing value": ({"Authorization": "Bearer undefined"}, KEY, f"Bearer {KEY}"),
    "so is Python's": ({"authorization": "Bearer None"}, KEY, f"Bearer {KEY}"),
    "so is JSON's": ({"Authorization": "null"}, KEY, f"Bearer {KEY}"),
    "a header without a value is missing": ({"Authorization": None}, KEY, f"Bearer {KEY}"),
    "of two spellings the one that says something": (
        {"Authorization": "Bearer own", "authorization": " "},
        KEY,
        "Bearer own",
    ),
    "no header: the key as Bearer": ({}, KEY, f"Bearer {KEY}"),
    "the key goes before the proxy's header": ({"cf-aig-authorization": "Bearer cf"}, KEY, f"Bearer {KEY}"),
    "white space around the key is not sent": ({}, f"  {KEY}\n", f"Bearer {KEY}"),
    "the proxy's header alone is accepted": ({"cf-aig-authorization": "Bearer cf"}, None, ""),
    "in any case": ({"CF-AIG-Authorization": "Bearer cf"}, "  ", ""),
    "a blank proxy header is none": ({"cf-aig-authorization": "  "}, None, None),
    "a proxy scheme with nothing behind it is none": ({"cf-aig-authorization": "Bearer "}, None, None),
    "a blank proxy header does not hide the key": ({"cf-aig-authorization": ""}, KEY, f"Bearer {KEY}"),
    "nothing at all is refused": ({}, None, None),
    "an empty key is refused": ({}, "", None),
    "a blank key is refused": ({}, " \n\t", None),
    "the text of a missing key is refused": ({}, "undefined", None),
    "Python's too": ({}, "None", None),
    "everything blank is refused": ({"Authorization": " ", "cf-aig-authorization": ""}, " ", None),
    "other headers are no credential": ({"x-api-key": "k-123456789"}, None, None),
    "a key that no header can carry is refused": ({}, "sk-\u00fcber-secret", None),
    "and one with a line break in it": ({}, "sk-1\r\nx-evil: 1", None),
}


@pytest.mark.parametrize("rule", AUTHENTICATION)
def test_sub_api_authentication(rule: str) -> None:
    headers, key, sent = AUTHENTICATION[rule]
    asked = sub_api(URL, headers=headers)
    if sent is None:
        with pytest.raises(Refused) as caught:
            resolve(asked, key, "s1")
        assert not [secret for secret in ("sk-", "x-evil") if secret in str(caught.value)]
        return
    made = resolve(asked, key, "s1").headers
    assert made.get("authorization", "") == sent
    assert {name for name in made if name.lower() != name} == set()  # one spelling, so one header
    if not sent:
        assert made["cf-aig-authorization"] == "Bearer cf"


CODEX: dict[str, tuple[dict[str, Any], Any, bool]] = {
    "a token with its account": ({}, jwt(), True),
    "a header cannot stand in for it": ({"Authorization": f"Bearer {jwt()}"}, None, False),
    "nor can the proxy's": ({"cf-aig-authorization": "Bearer cf"}, None, False),
    "a header does not replace it either": ({"Authorization": "Bearer own"}, jwt(), True),
    "an ordinary key is none": ({}, KEY, False),
    "two parts are none": ({}, ".".join(jwt().split(".")[:2]), False),
    "four parts are none": ({}, f"{jwt()}.x", False),
    "an empty part is none": ({}, jwt(signature=""), False),
    "a payload that is no JSON is none": ({}, "a.bm90IGpzb24.c", False),
    "a payload that is no object is none": ({}, jwt([1]), False),
    "no account claim": ({}, jwt({"sub": "me"}), False),
    "a claim without the account": ({}, jwt({"https://api.openai.com/auth": {}}), False),
    "a claim that is a text": ({}, jwt({"https://api.openai.com/auth": "acct"}), False),
    "a blank account": ({}, jwt({"https://api.openai.com/auth": {"chatgpt_account_id": " "}}), False),
    "an account that is a number": ({}, jwt({"https://api.openai.com/auth": {"chatgpt_account_id": 7}}), False),
    "blank": ({}, "  ", False),
    "missing": ({}, None, False),
    "the text of a missing value": ({}, "undefined", False),
}


@pytest.mark.parametrize("rule", CODEX)
def test_codex_authentication(rule: str) -> None:
    headers, token, accepted = CODEX[rule]
    if not accepted:
        with pytest.raises(Refused) as caught:
            resolve(codex(headers=headers), token, "s1")
        assert not token or not token.strip() or token in ("undefined",) or token not in str(caught.value)
        return
    made = resolve(codex(headers=headers), token, "s1").headers
    assert made["authorization"] == f"Bearer {token}"
    assert made["chatgpt-account-id"] == ACCOUNT


def test_the_headers_of_codex_are_these() -> None:
    made = resolve(codex(headers={"X-Codex-Beta-Features": "other_thing, x", "X-Team": "blue"}), jwt(), "s1")
    assert dict(made.headers) == {
        "accept": "text/event-stream",
        "authorization": f"Bearer {jwt()}",
        "chatgpt-account-id": "acct-77",
        "content-type": "application/json",
        "openai-beta": "responses=experimental",
        "originator": "pi",
        "session-id": "s1",
        "x-client-request-id": "s1",
        "x-codex-beta-features": "other_thing,x,remote_compaction_v2",
        "x-team": "blue",
    }
    assert made.credential == "ChatGPT account token"


def test_the_headers_of_sub_api_are_the_users_and_ours_and_no_account() -> None:
    made = resolve(sub_api(URL, headers={"X-Team": "blue", "Accept": "*/*", "Content-Length": "5"}), KEY, "s1")
    assert dict(made.headers) == {
        "accept": "text/event-stream",
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "x-codex-beta-features": "remote_compaction_v2",
        "x-team": "blue",
    }


@pytest.mark.parametrize(
    ("present", "merged"),
    [
        (None, "remote_compaction_v2"),
        ("", "remote_compaction_v2"),
        ("a", "a,remote_compaction_v2"),
        (" a , b,", "a,b,remote_compaction_v2"),
        ("remote_compaction_v2", "remote_compaction_v2"),
        ("remote_compaction_v2, a", "remote_compaction_v2,a"),
        ("a,remote_compaction_v2,remote_compaction_v2", "a,remote_compaction_v2"),
    ],
)
def test_the_feature_is_named_once_beside_others(present: str | None, merged: str) -> None:
    assert with_feature(present) == merged


def test_a_target_does_not_print_its_credential() -> None:
    made = resolve(sub_api(URL, headers={"X-Secret": "another-secret"}), KEY, "s1")
    assert KEY not in repr(made)
    assert "another-secret" not in repr(made)
