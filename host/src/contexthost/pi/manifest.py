"""What the extension knows of the installed plugins: their tools and commands, which it registers at Pi's start-up
before this process runs, and what is wrong in the settings files."""

from __future__ import annotations

import hashlib
from typing import Any

from contexthost.config import HostSettings, Loaded, SettingsSpec, load_settings
from contexthost.context import Command, Tool
from contexthost.messages import js_json
from contexthost.plugins import PluginManager

__all__ = ["manifest_digest", "manifest_of", "settings_warnings"]


def manifest_of(plugins: PluginManager) -> dict[str, Any]:
    """The tools and commands of the loaded plugins, as JSON.

    Pi must know them when it starts: a tool that is added later changes the request's beginning, and with it the
    prompt cache is lost.
    """
    return {
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for _, tool in plugins.items("register_tools", Tool)
        ],
        "commands": [
            {"name": command.name, "description": command.description}
            for _, command in plugins.items("register_commands", Command)
        ],
    }


def manifest_digest(manifest: dict[str, Any]) -> str:
    """Tells two manifests apart: 16 hex digits."""
    return hashlib.sha256(js_json(manifest).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def settings_warnings(host: Loaded[HostSettings], plugins: PluginManager) -> list[str]:
    """What is wrong in the settings of host and plugins: this is where those who only ever see Pi are told."""
    loaded: list[Loaded[Any]] = [host]
    for _, spec in plugins.items("register_settings", SettingsSpec):
        loaded.append(load_settings(spec.model, spec.package, environment=spec.environment))
    return [str(warning) for settings in loaded for warning in settings.warnings]
