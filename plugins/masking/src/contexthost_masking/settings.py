"""The settings of the plugin: ``masking.json``, keys in camelCase as the file has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contexthost.config import Settings, SettingsGroup, TokenCount

__all__ = ["PACKAGE", "MaskSettings", "MaskingSettings", "Price", "SummarySettings"]

PACKAGE = "masking"
"""Names the file (``masking.json``) and the environment variables (``CONTEXTHOST_MASKING__…``)."""

_Threshold = Annotated[TokenCount, Field(ge=1)]
_Share = Annotated[float, Field(gt=0, le=1)]
_Dollars = Annotated[float, Field(ge=0, le=1_000_000)]


class MaskSettings(SettingsGroup):
    """``mask``: when old tool results are masked, down to where, and which never are.

    A threshold in force is the smaller of its tokens and of its share of the context window, rounded down.
    """

    triggerTokens: _Threshold = 80_000
    """Effective usage, in tokens, at which masking starts."""
    triggerRatio: _Share = 0.5
    """The same as a share of the window; the smaller of the two is in force."""
    targetTokens: TokenCount = 40_000
    """Effective usage, in tokens, down to which it masks; below the trigger."""
    targetRatio: _Share = 0.25
    """The same as a share of the window; the smaller of the two is in force."""
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
    urgentRatio: _Share = 0.9
    """The share of the window above which masking does not wait for the end of the run, but only for that of a turn."""
    order: Literal["superseded", "age"] = "superseded"
    """What goes first: results that a later call has overtaken, or simply the oldest."""
    policy: Literal["threshold", "economic"] = "threshold"
    """Whether a batch must also pay for the prompt cache that it rewrites."""
    breakEvenTurns: Annotated[float, Field(ge=0, le=1_000_000)] = 8
    """With the economic policy: turns within which a batch must have paid for itself."""


class SummarySettings(SettingsGroup):
    """``summary``: when whole stretches are summarised; the smaller of its tokens and of its share is in force."""

    tokens: _Threshold = 160_000
    """Effective usage, in tokens, at which a summary is asked for when the session is idle."""
    ratio: _Share = 0.8
    """The same as a share of the window; the smaller of the two is in force."""
    retryGrowthTokens: TokenCount = 20_000
    """After an attempt that failed or was cancelled: tokens by which the context must grow before the next."""


class Price(SettingsGroup):
    """What a provider or model charges; what is left out is taken from the model, the session or the defaults."""

    input: _Dollars | None = None
    """Dollars per million tokens that are neither read from the cache nor written to it."""
    cacheRead: _Dollars | None = None
    """Dollars per million tokens that are read from the prompt cache."""
    cacheWrite: _Dollars | None = None
    """Dollars per million tokens that are written to it."""
    cacheSeconds: Annotated[float, Field(ge=0, le=31_536_000)] | None = None
    """How long the prompt cache lives after its last use, in seconds."""


class MaskingSettings(Settings):
    """``masking.json``."""

    enabled: bool = True
    """Whether live sessions are masked and summarised; the commands and the tool work all the same."""
    mask: MaskSettings = MaskSettings()
    """When old tool results are masked, down to where, and which never are."""
    summary: SummarySettings = SummarySettings()
    """When whole stretches are summarised."""
    pricing: dict[str, Price] = Field(default_factory=dict)
    """Prices by ``provider/model`` or ``provider``."""
