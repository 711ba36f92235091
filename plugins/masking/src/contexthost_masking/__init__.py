"""Masking: old tool results become one-line placeholders that can be brought back.

This module is the plugin; everything heavy is imported when a hook first needs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from contexthost.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from contexthost.config import SettingsSpec
    from contexthost.context import Context
    from contexthost.events import AgentBeforeSettleEvent, Boundary, SessionStartEvent
    from contexthost_masking.settings import MaskingSettings

__all__ = ["agent_before_settle", "register_cli", "register_settings", "session_start"]

_log = logging.getLogger(__name__)
_settings: MaskingSettings | None = None  # per user, hence the same for every session of the process


@hookimpl
def register_settings() -> Sequence[SettingsSpec]:
    """``masking.json``."""
    from contexthost.config import SettingsSpec
    from contexthost_masking.settings import PACKAGE, MaskingSettings

    return [SettingsSpec(PACKAGE, MaskingSettings)]


@hookimpl
def register_cli() -> Sequence[click.Command]:
    """``contexthost mask``."""
    from contexthost_masking.cli import mask

    return [mask]


@hookimpl
def session_start(event: SessionStartEvent) -> None:
    """Reads the settings."""
    _read_settings()


@hookimpl
def agent_before_settle(event: AgentBeforeSettleEvent, ctx: Context) -> Boundary | None:
    """Masks old tool results when the run ends with usage at the trigger or above."""
    settings = _settings if _settings is not None else _read_settings()
    if not settings.enabled:
        return None

    from contexthost.events import Boundary
    from contexthost_masking.plan import plan_mask

    plan = plan_mask(event.context, settings.mask)
    if plan.thresholds.warning is not None:
        _log.warning("%s", plan.thresholds.warning)
    if not plan.drafts:
        _log.debug("nothing masked: %s", plan.explanation)
        return None
    _log.info("%s", plan.explanation)
    return Boundary(drafts=plan.drafts)


def _read_settings() -> MaskingSettings:
    global _settings
    from contexthost.config import load_settings
    from contexthost_masking.settings import PACKAGE, MaskingSettings

    _settings = load_settings(MaskingSettings, PACKAGE).values
    return _settings
