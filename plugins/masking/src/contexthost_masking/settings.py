"""The settings of the plugin: ``masking.json``, keys in camelCase as the file has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contexthost.config import Settings, SettingsGroup, TokenCount

__all__ = ["PACKAGE", "MaskSettings", "MaskingSettings"]

PACKAGE = "masking"
"""Names the file (``masking.json``) and the environment variables (``CONTEXTHOST_MASKING__…``)."""

_Threshold = Annotated[TokenCount, Field(ge=1)]
_Share = Annotated[float, Field(gt=0, le=1)]


class MaskSettings(SettingsGroup):
    """``mask``: when old tool results are masked, down to where, and which never are.

    A threshold in force is the smaller of its tokens and of its share of the context window, rounded down.
    """

    triggerTokens: _Threshold = 80_000
    """Effective usage, in tokens, at which masking starts."""
    triggerRatio: _Share = 0.5
    targetTokens: TokenCount = 40_000
    """Effective usage, in tokens, down to which it masks; below the trigger."""
    targetRatio: _Share = 0.25
    minClearTokens: TokenCount = 10_000
    """A batch that frees fewer tokens, net of its placeholders, is left alone: it would not pay for the cache."""
    keepRecentTurns: TokenCount = 10
    """Turns at the end that are never touched; a turn is one assistant message with its tool results."""
    minEntryTokens: TokenCount = 400
    """Smaller results stay."""
    excludeTools: tuple[str, ...] = ()
    """Tools whose results are never masked, by their exact names."""
    maskErrors: bool = False
    """Whether results of failed calls may be masked as well."""


class MaskingSettings(Settings):
    """``masking.json``."""

    enabled: bool = True
    """Whether live sessions are masked; ``contexthost mask`` works all the same."""
    mask: MaskSettings = MaskSettings()
