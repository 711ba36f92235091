"""The settings of the plugin: ``relay.json``, keys in camelCase as the file has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contexthost.config import Settings, SettingsGroup, TokenCount

__all__ = ["PACKAGE", "AutoSettings", "LightModel", "Limits", "RelaySettings"]

PACKAGE = "relay"
"""Names the file (``relay.json``) and the environment variables (``CONTEXTHOST_RELAY__…``)."""


class Limits(SettingsGroup):
    """``limits``: the length of a note and its sections, headings included, in characters (code points).

    The defaults of the sections, the frame of the note and a long path fit into ``total`` together.
    """

    total: Annotated[TokenCount, Field(ge=500)] = 9_500
    """The whole note."""
    userMessages: TokenCount = 3_000
    """All instructions of the user since the last compaction; newer ones keep more."""
    userMessageEach: TokenCount = 700
    """One instruction."""
    chain: TokenCount = 500
    """The line with instructions from before the last compaction."""
    answer: TokenCount = 1_500
    """The last answer before what is kept."""
    subagents: TokenCount = 1_300
    """What subagents were asked and answered."""
    files: TokenCount = 800
    """The files that were changed and read."""
    git: TokenCount = 800
    """Branch, last commits and what is not committed."""
    extra: TokenCount = 700
    """What other plugins and the written section add, all together."""


class LightModel(SettingsGroup):
    """``auto.lightModel``: who writes the section when the prompt cache is cold."""

    provider: str
    """The provider's name; its key comes from the environment or ``credentials`` in host.json."""
    id: str
    """The model's id."""
    api: str = "openai-completions"
    """How it is spoken to: ``openai-completions`` or ``openai-responses``."""
    baseUrl: str | None = None
    """Where it is, when not at its provider's usual address."""


class AutoSettings(SettingsGroup):
    """``auto``: relays that start by themselves."""

    onInput: bool = True
    """Before a new message, when the context is large."""
    inputMinTokens: TokenCount = 100_000
    """How large: effective usage, in tokens."""
    beforeExpiry: bool = True
    """Shortly before the prompt cache expires, when the context is larger still."""
    expiryMinTokens: TokenCount = 140_000
    """How large: effective usage, in tokens."""
    minGrowthTokens: TokenCount = 30_000
    """After a relay none starts by itself until the context has grown by so many tokens."""
    writtenSection: bool = False
    """Whether a model adds open questions and decisions to the note."""
    lightModel: LightModel | None = None
    """Who writes it when the prompt cache is cold; without one it is written only while the cache is warm."""


class RelaySettings(Settings):
    """``relay.json``."""

    enabled: bool = True
    """Whether the plugin does anything in live sessions."""
    tailMaxChars: TokenCount = 48_000
    """Characters of text from the last user message on; with more, the usual cut is taken where it keeps less."""
    gitTimeoutMs: TokenCount = 4_000
    """For all of the git section; 0 leaves it out."""
    limits: Limits = Limits()
    """How long the note and its sections may become."""
    auto: AutoSettings = AutoSettings()
    """Relays that start by themselves."""
