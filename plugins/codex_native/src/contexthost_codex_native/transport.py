"""Where a compaction request goes and with which headers. What is missing is refused here, before anything is sent."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

from contexthost_codex_native.eligibility import Kind, ineligible_because, kind_of
from contexthost_codex_native.errors import Refused

if TYPE_CHECKING:
    from contexthost.context import ModelInfo

__all__ = ["FEATURE", "FEATURE_HEADER", "Target", "endpoint", "has_authorization", "resolve", "with_feature"]

CODEX_BASE_URL: Final = "https://chatgpt.com/backend-api"
"""Where Codex is unless the model says otherwise."""
FEATURE_HEADER: Final = "x-codex-beta-features"
FEATURE: Final = "remote_compaction_v2"
_ACCOUNT_CLAIM: Final = "https://api.openai.com/auth"
_ACCOUNT_KEY: Final = "chatgpt_account_id"
# What templates and languages print for a value that is not there; none of them is anybody's key.
_NOTHING: Final = frozenset({"", "none", "null", "undefined"})
# The client counts and frames the body itself.
_FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_SECRET_MIN: Final = 8
"""Characters of a header's value that may be a secret; shorter ones are words, and taking them out garbles texts."""

CredentialKind = Literal["ChatGPT account token", "authorization header", "API key", "cf-aig-authorization header"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where to post and with which headers (names in lower case; they hold credentials, hence no ``repr``)."""

    kind: Kind
    url: str
    headers: Mapping[str, str] = field(repr=False)
    credential: CredentialKind
    secrets: tuple[str, ...] = field(repr=False)
    """What must never be shown: the credential and the values of the user's own headers."""


def resolve(model: ModelInfo, key: str | None, session_id: str, *, base_url: str = "") -> Target:
    """The target of a compaction request.

    Args:
        model: an eligible model, with its base URL and the user's own headers.
        key: the provider's key (Codex: the JWT); None when there is none.
        session_id: ties requests of one session together for the provider's cache.
        base_url: SubAPI's, for a model that does not say it.

    Raises:
        Refused: not an eligible model, or no usable address or credential; nothing was sent.
    """
    kind = kind_of(model)
    if kind is None:
        raise Refused(ineligible_because(model))
    url = endpoint(kind, model.base_url or "", fallback=base_url)
    own = _own_headers(model.headers)
    if kind == "codex":
        headers, credential, used = _codex_headers(own, _present(key), session_id)
    else:
        headers, credential, used = _sub_api_headers(own, _present(key))
    headers |= {"accept": "text/event-stream", "content-type": "application/json"}
    headers[FEATURE_HEADER] = with_feature(headers.get(FEATURE_HEADER))
    return Target(kind, url, headers, credential, _secrets(used, own))


def endpoint(kind: Kind, base_url: str, *, fallback: str = "") -> str:
    """The address of a provider's ordinary Responses endpoint.

    Raises:
        Refused: SubAPI without a base URL, or one that is no address.
    """
    base = base_url.strip() or (CODEX_BASE_URL if kind == "codex" else fallback.strip())
    if not base:
        raise Refused(
            "SubAPI has no base URL here: set baseUrl at the model, or subApiBaseUrl in codex_native.json for session "
            "files"
        )
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise Refused("the model's base URL is no address such as https://gateway.example/v1")
    if "@" in parts.netloc:
        raise Refused("the model's base URL holds a user or a password: set up a key instead")
    path = parts.path.rstrip("/")
    if kind == "codex":
        path += (
            ""
            if path.endswith("/codex/responses")
            else "/responses"
            if path.endswith("/codex")
            else ("/codex/responses")
        )
    elif not path.endswith("/responses"):
        path += "/responses"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def with_feature(present: str | None) -> str:
    """A feature header's value with our feature in it, once; the others stay in their order."""
    names = [name.strip() for name in (present or "").split(",")]
    return ",".join(dict.fromkeys([*(name for name in names if name), FEATURE]))


def has_authorization(headers: Mapping[str, Any]) -> bool:
    """Whether the user's own headers hold an Authorization that says something; SubAPI then needs no key."""
    values = [value for name, value in headers.items() if name.strip().lower() == "authorization"]
    return any(isinstance(value, str) and _present(_without_empty_scheme(value)) for value in values)


def _codex_headers(
    own: dict[str, str], token: str | None, session_id: str
) -> tuple[dict[str, str], CredentialKind, str]:
    """Codex: the JWT and its account, always. A header of the user's cannot stand in for it."""
    if token is None:
        raise Refused("Codex needs its account token, and there is none: log in to openai-codex again")
    account = _account_id(token)
    headers = {
        **own,
        "authorization": f"Bearer {token}",
        "chatgpt-account-id": account,
        "originator": "pi",
        "openai-beta": "responses=experimental",
    }
    if _is_sendable(session_id):  # a session of somebody else's making may have any id
        headers |= {"session-id": session_id, "x-client-request-id": session_id}
    return headers, "ChatGPT account token", token


def _account_id(token: str) -> str:
    """The account that a JWT is for; the signature is the provider's to check."""
    parts = token.split(".")
    claim: Any = None
    if len(parts) == 3 and all(re.fullmatch(r"[A-Za-z0-9_=-]+", part) for part in parts):
        try:
            payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            claim = payload.get(_ACCOUNT_CLAIM) if isinstance(payload, dict) else None
        except (ValueError, RecursionError):
            claim = None
    account = claim.get(_ACCOUNT_KEY) if isinstance(claim, dict) else None
    if not isinstance(account, str) or not _is_sendable(account) or not account.strip():
        raise Refused("the Codex credential is no account token (a JWT that names an account): log in again")
    return account.strip()


def _sub_api_headers(own: dict[str, str], key: str | None) -> tuple[dict[str, str], CredentialKind, str]:
    """SubAPI: the user's own Authorization, else the key, else the proxy's own header."""
    if "authorization" in own:
        return dict(own), "authorization header", own["authorization"]
    if key is not None:
        if not _is_sendable(key):
            raise Refused("the SubAPI key holds characters that no header can carry: set it up again")
        return {**own, "authorization": f"Bearer {key}"}, "API key", key
    if "cf-aig-authorization" in own:
        return dict(own), "cf-aig-authorization header", own["cf-aig-authorization"]
    raise Refused(
        "SubAPI has no credential: set SUB_API_API_KEY (or credentials.sub-api in host.json), or an Authorization or "
        "cf-aig-authorization header at the model"
    )


def _own_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    """The headers that the user set up, names in lower case, without those that say nothing.

    Of two names that differ in case only, the last that says something counts.
    """
    kept: dict[str, str] = {}
    for name, value in headers.items():
        lowered = name.strip().lower()
        if not isinstance(value, str) or lowered in _FRAMING or not _HEADER_NAME.fullmatch(lowered):
            continue
        is_credential = lowered.endswith("authorization")
        present = _present(_without_empty_scheme(value)) if is_credential else value.strip()
        if not present:
            continue
        if not _is_sendable(present):
            raise Refused(f"the header {lowered} of the model holds characters that no header can carry")
        kept[lowered] = present
    return kept


def _without_empty_scheme(value: str) -> str:
    """An authorization value, or nothing when there is a scheme and no credential behind it."""
    scheme, _, credential = value.strip().partition(" ")
    if scheme.lower() in ("bearer", "basic") and _present(credential) is None:
        return ""
    return value


def _present(value: object) -> str | None:
    """A text that says something, stripped; None for blanks and for the names of nothing."""
    text = value.strip() if isinstance(value, str) else ""
    return None if text.lower() in _NOTHING else text


def _is_sendable(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _secrets(used: str, own: Mapping[str, str]) -> tuple[str, ...]:
    values = [used, *(value for value in own.values() if len(value) >= _SECRET_MIN)]
    values += [value.partition(" ")[2] for value in values if " " in value]
    return tuple(sorted({value for value in values if value}, key=len, reverse=True))
