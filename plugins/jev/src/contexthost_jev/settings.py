"""``jev.json``, its environment variables, and what they mean for the core."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from contexthost.config import Loaded, Ratio, Settings, TokenCount, load_settings
from contexthost_jev.options import JevOptions

__all__ = ["ENVIRONMENT", "PACKAGE", "JevSettings", "load", "options_of", "problems"]

PACKAGE: Final = "jev"

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PI_JEV_MODEL": "model",
    "PI_JEV_BASE_URL": "baseUrl",
    "PI_JEV_KEEP_THRESHOLD": "keepThreshold",
    "PI_JEV_PRESERVE_RECENT": "preserveRecentMessages",
    "PI_JEV_MIN_REDUCTION": "minReductionRatio",
    "PI_JEV_MAX_STATE_TOKENS": "maxStateTokens",
    "PI_JEV_MAX_REQUEST_TOKENS": "maxRequestTokens",
    "PI_JEV_TRUNCATE_HEAD": "truncateHeadChars",
    "PI_JEV_GOAL": "goal",
}
"""The environment variables of the Pi extension; ``CONTEXTHOST_JEV__…`` come before them."""


class JevSettings(Settings):
    """``jev.json``. Keys of Jev never stand here: they come from the environment or ``credentials`` in host.json."""

    keepThreshold: Ratio = 0.5
    """The least probability at which a call stays."""
    keepResultThreshold: Ratio | None = None
    """The same for a whole result; as keepThreshold when it is not set."""
    preserveRecentMessages: TokenCount = 6
    """The newest messages that are never touched; the first one never is."""
    minReductionRatio: Ratio = 0.25
    """A compaction that saves a smaller share of characters is left to others."""
    maxStateTokens: TokenCount = 25_000
    """Estimated tokens of the conversation in one request."""
    maxRequestTokens: TokenCount = 30_000
    """Estimated tokens of one request; the service refuses those of more than about 32,000."""
    truncateHeadChars: TokenCount = 300
    """Characters that stay of a truncated result."""
    model: Annotated[str, Field(min_length=1)] = "jev-latest"
    """The model that is asked."""
    baseUrl: str | None = None
    """Instead of the endpoint of TypeSafe or OpenRouter."""
    goal: str | None = None
    """What the session is after; the last three prompts when it is not set."""


def load() -> Loaded[JevSettings]:
    """The settings in force."""
    return load_settings(JevSettings, PACKAGE, environment=ENVIRONMENT)


def options_of(settings: JevSettings) -> JevOptions:
    """The core's options."""
    return JevOptions(
        keep_threshold=settings.keepThreshold,
        keep_result_threshold=settings.keepResultThreshold,
        preserve_recent_messages=settings.preserveRecentMessages,
        min_reduction_ratio=settings.minReductionRatio,
        max_state_tokens=settings.maxStateTokens,
        max_request_tokens=settings.maxRequestTokens,
        truncate_head_chars=settings.truncateHeadChars,
        goal=settings.goal,
    )


def problems(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with values for the settings' keys, one line each, without the values; unknown keys are fine."""
    found = []
    for key, value in values.items():
        info = JevSettings.model_fields.get(key)
        if info is None:
            continue
        annotation: Any = Annotated[info.annotation, info]
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        try:
            adapter.validate_json(json.dumps(value), strict=True)  # as strictly as the file is read
        except ValidationError as error:
            message = error.errors(include_url=False, include_input=False)[0]["msg"]
            found.append(f"{key}: {message.removeprefix('Input ')}")
    return found
