"""Which models can be asked for a native compaction, and the key that ties a checkpoint to one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from contexthost.context import ModelInfo

__all__ = ["CODEX", "SUB_API", "Kind", "ineligible_because", "kind_of", "model_key"]

Kind: TypeAlias = Literal["codex", "sub-api"]
"""Which of the two transports serves a model."""

CODEX: Final = ("openai-codex", "openai-codex-responses")
SUB_API: Final = ("sub-api", "openai-responses")
"""Provider and API, as Pi names them. There is no third pair: other gateways answer an ordinary message."""


def kind_of(model: ModelInfo | None) -> Kind | None:
    """The transport for a model; None when it cannot be compacted natively."""
    if model is None:
        return None
    pair = (model.provider, model.api)
    return "codex" if pair == CODEX else "sub-api" if pair == SUB_API else None


def ineligible_because(model: ModelInfo | None) -> str:
    """Why a model without a transport has none: one sentence without its full stop."""
    if model is None:
        return "no model is known"
    api = model.api or "an unknown protocol"
    return (
        f"{model.provider}/{model.id} over {api} cannot compact natively; only {' over '.join(CODEX)} and "
        f"{' over '.join(SUB_API)} can"
    )


def model_key(model: ModelInfo) -> str:
    """``provider:api:model``: an opaque item is good for exactly this."""
    return f"{model.provider}:{model.api}:{model.id}"
