"""Writes host/docs/commands.md and host/docs/settings.md from the commands and settings of the installed packages.

    uv run python host/tools/make_reference.py

A test compares the pages with what this would write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from contexthost.cli import root
from contexthost.cli.config import known_settings
from contexthost.config import schema

__all__ = ["PAGES"]

DOCS = Path(__file__).parents[1] / "docs"
MADE = "<!-- Written by host/tools/make_reference.py; change the sources, not this page. -->"
WIDTH = 100

ABOUT_COMMANDS = (
    "Every command under its own help text, those of the four plugins included. `SESSION` is a path, a session id or "
    "its unique beginning, or `latest`. Exit codes: 0 when all went well, 1 when something failed or doctor found "
    "damage, 2 when the command line is wrong."
)
ABOUT_SETTINGS = (
    "One JSON file per package in your configuration directory (`contexthost config path`). What is not in it has its "
    "default; a value that does not fit is ignored with a warning that names the file and the key. An environment "
    "variable comes before the file: `CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS` is `mask.triggerTokens` of "
    "`masking.json`. `contexthost config init` writes the files, `contexthost config show` says what is in force and "
    "where from, `contexthost config schema PACKAGE` prints the JSON Schema for your editor. Keys and tokens of "
    "providers are never taken from these files."
)


def commands_page() -> str:
    """The help text of every command, as ``--help`` prints it in a terminal of 100 columns."""
    parts = [
        "# Commands",
        MADE,
        ABOUT_COMMANDS,
    ]
    context = click.Context(root, info_name="contexthost", terminal_width=WIDTH, **root.context_settings)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        parts += help_of(command, name, context, "##")
    return "\n\n".join(parts) + "\n"


def help_of(command: click.Command, name: str, parent: click.Context, heading: str) -> Iterator[str]:
    """A command's heading and help, then those of the commands below it."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH)
    yield f"{heading} {context.command_path}"
    yield f"```\n{command.get_help(context).rstrip()}\n```"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from help_of(found, below, context, f"{heading}#")


def settings_page() -> str:
    """A table of the keys of every settings file."""
    parts = [
        "# Settings",
        MADE,
        ABOUT_SETTINGS,
    ]
    for package, spec in known_settings().items():
        made = schema(spec.model)
        rows = "\n".join(rows_of(made, made, ""))
        parts += [f"## {package}.json", f"| key | default | | what it sets |\n|---|---|---|---|\n{rows}"]
        if spec.environment:
            named = [f"`{name}` ({f'`{key}`'})" for name, key in spec.environment.items()]
            parts.append(f"Also read: {', '.join(named)}.")
    return "\n\n".join(parts) + "\n"


def rows_of(node: Mapping[str, Any], whole: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The rows of one object of a JSON Schema, and of the objects below it."""
    for key, told in node["properties"].items():
        below = group_of(told, whole)
        open_ended = isinstance(told.get("additionalProperties"), Mapping)
        if below is not None and "default" in told and told["default"] is not None and not open_ended:
            yield from rows_of(below, whole, f"{prefix}{key}.")
            continue
        default = f"`{json.dumps(told['default'])}`" if "default" in told else "`{}`" if open_ended else ""
        yield f"| `{prefix}{key}` | {default} | {bounds_of(told)} | {' '.join(told['description'].split())} |"
        if below is not None:
            yield from rows_of(below, whole, f"{prefix}{key}.{'NAME.' if open_ended else ''}")


def group_of(told: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The object that a key holds, where it holds one."""
    for place in (told, told.get("additionalProperties"), *told.get("anyOf", ())):
        reference = place.get("$ref") if isinstance(place, Mapping) else None
        if reference is not None:
            found: Mapping[str, Any] = whole["$defs"][reference.removeprefix("#/$defs/")]
            return found
    return None


def bounds_of(told: Mapping[str, Any]) -> str:
    """What may stand there."""
    for one in (told, *told.get("anyOf", ())):
        if "enum" in one:
            return " or ".join(f"`{json.dumps(value)}`" for value in one["enum"])
        low, high = one.get("minimum", one.get("exclusiveMinimum")), one.get("maximum")
        if low is not None:
            above = f"{'more than' if 'exclusiveMinimum' in one else 'from'} {low:,}"
            return f"{above} to {high:,}" if high is not None and high < 2**53 - 1 else above
    return ""


PAGES = {DOCS / "commands.md": commands_page, DOCS / "settings.md": settings_page}
"""Where each page is, and what makes it."""


if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
