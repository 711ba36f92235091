"""The client for a model, by the name of its protocol."""

from __future__ import annotations

from contexthost.context import ModelInfo
from contexthost.errors import Unsupported
from contexthost.models.chat import CHAT_API, ChatModel
from contexthost.models.responses import RESPONSES_API, ResponsesModel
from contexthost.models.transport import Transport

__all__ = ["open_model"]


def open_model(
    info: ModelInfo, *, api_key: str | None = None, transport: Transport | None = None
) -> ChatModel | ResponsesModel:
    """The client for ``info.api``, to be closed with ``aclose``. Give a key, or a transport that has one.

    Raises Unsupported for a protocol that there is no client for, SettingsError without a usable base URL or key.
    """
    if transport is not None and api_key is not None:
        raise ValueError("the transport has a key of its own")
    transport = transport or Transport(api_key=api_key)
    if info.api == CHAT_API:
        return ChatModel(info, transport)
    if info.api == RESPONSES_API:
        return ResponsesModel(info, transport)
    raise Unsupported(
        f"there is no client for the protocol {info.api} of {info.provider}/{info.id}; "
        f"those of {CHAT_API} and {RESPONSES_API} can be asked"
    )
