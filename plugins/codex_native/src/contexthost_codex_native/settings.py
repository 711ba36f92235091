"""The settings of the plugin: ``codex_native.json``, keys in camelCase as the file has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contexthost.config import Settings

__all__ = ["PACKAGE", "CodexNativeSettings"]

PACKAGE = "codex_native"
"""Names the file (``codex_native.json``) and the environment variables (``CONTEXTHOST_CODEX_NATIVE__…``)."""


class CodexNativeSettings(Settings):
    """``codex_native.json``."""

    enabled: bool = True
    """Whether the plugin compacts at all; checkpoints that are there are sent to their model all the same."""
    autoCompact: bool = True
    """Whether it compacts within a run, at the end of a turn; a compaction that somebody asks for is made anyway."""
    thresholdRatio: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the context window at which it does; the host's reserve and 4,000 tokens more stay free in any case."""
    portableSummaryChars: Annotated[int, Field(ge=1_000, le=200_000)] = 12_000
    """The longest portable summary, in characters."""
    timeoutSeconds: Annotated[float, Field(gt=0, le=3600)] = 110.0
    """For one compaction, its retries included; below ``compactionTimeoutSeconds`` of ``host.json`` (120)."""
    subApiBaseUrl: str = ""
    """Where SubAPI is, for session files: they do not say it. A live session's model says it itself."""
