"""The options that name a model on the command line, and the client they lead to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from contexthost.config import HostSettings, load_settings
from contexthost.context import ModelInfo
from contexthost.credentials import credential_variable, resolve_credential
from contexthost.errors import SettingsError
from contexthost.models.chat import ChatModel
from contexthost.models.open import open_model
from contexthost.models.responses import ResponsesModel

__all__ = ["Client", "client", "model_options"]

Client = ChatModel | ResponsesModel

_APIS: Final = {"chat": "openai-completions", "responses": "openai-responses"}
_F = TypeVar("_F", bound=Callable[..., Any])


def model_options(function: _F) -> _F:
    """Adds ``--base-url``, ``--model``, ``--api``, ``--provider`` and ``--context-window``."""
    options = [
        click.option("--base-url", metavar="URL", help="Of an OpenAI-compatible server, up to and with /v1."),
        click.option("--model", metavar="ID", help="The model's id there."),
        click.option("--api", type=click.Choice(list(_APIS)), default="chat", show_default=True, help="Its protocol."),
        click.option(
            "--provider",
            default="openai",
            show_default=True,
            metavar="NAME",
            help="Whose key to use: NAME_API_KEY, or credentials.NAME of host.json.",
        ),
        click.option("--context-window", type=click.IntRange(min=1), metavar="N", help="Tokens; default: host.json's."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def client(
    base_url: str | None, model: str | None, api: str, provider: str, context_window: int | None
) -> Client | None:
    """The client for the options; None when no model is named. Keys never come from arguments.

    Raises:
        SettingsError: half of the options are missing, or there is no key.
    """
    if base_url is None and model is None:
        return None
    if base_url is None or model is None:
        raise SettingsError("a model needs both --base-url and --model")
    settings = load_settings(HostSettings, "host").values
    key = resolve_credential(provider, settings)
    if key is None:
        raise SettingsError(
            f"there is no key for {provider}: set {credential_variable(provider)}, or credentials.{provider} in "
            "host.json (`contexthost config path host`)"
        )
    window = context_window or settings.contextWindow
    info = ModelInfo(provider=provider, id=model, api=_APIS[api], base_url=base_url, context_window=window)
    return open_model(info, api_key=key)
