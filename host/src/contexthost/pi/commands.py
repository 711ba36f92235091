"""The host's own slash commands in Pi."""

from __future__ import annotations

from collections.abc import Sequence

from contexthost.commands import OWN_COMMANDS
from contexthost.context import Command
from contexthost.hookspecs import hookimpl

__all__ = ["HostCommands"]


class HostCommands:
    """A plugin of the host's own, because Pi registers what plugins bring."""

    plugin_name = "contexthost"

    @hookimpl
    def register_commands(self) -> Sequence[Command]:
        """``/context``."""
        return OWN_COMMANDS
