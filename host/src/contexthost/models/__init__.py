"""Models that can be asked: clients for OpenAI's two protocols, one that answers from a script, the built-in summary.

`Model`, `ModelInfo` and `ModelRequest` are in `contexthost.context`. The names are loaded when they are used: the HTTP
client takes a while to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from contexthost.models.chat import ChatModel
    from contexthost.models.open import open_model
    from contexthost.models.overflow import is_context_overflow, is_recoverable_length
    from contexthost.models.responses import ResponsesModel
    from contexthost.models.retry import RetryPolicy
    from contexthost.models.scripted import Reply, ScriptedCall, ScriptedModel, ScriptRanOut
    from contexthost.models.summarizer import summarize
    from contexthost.models.transport import Timeouts, Transport

__all__ = [
    "ChatModel",
    "Reply",
    "ResponsesModel",
    "RetryPolicy",
    "ScriptRanOut",
    "ScriptedCall",
    "ScriptedModel",
    "Timeouts",
    "Transport",
    "is_context_overflow",
    "is_recoverable_length",
    "open_model",
    "summarize",
]

_HOMES: Final = {
    "ChatModel": "chat",
    "Reply": "scripted",
    "ResponsesModel": "responses",
    "RetryPolicy": "retry",
    "ScriptRanOut": "scripted",
    "ScriptedCall": "scripted",
    "ScriptedModel": "scripted",
    "Timeouts": "transport",
    "Transport": "transport",
    "is_context_overflow": "overflow",
    "is_recoverable_length": "overflow",
    "open_model": "open",
    "summarize": "summarizer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
