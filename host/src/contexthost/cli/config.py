"""``contexthost config``: showing, writing and describing settings files."""

from __future__ import annotations

import json

import click

from contexthost.cli.output import echo_json, print_table
from contexthost.cli.warnings import tell_warnings
from contexthost.config import HostSettings, SettingsSpec, default_file, init_file, load_settings, schema
from contexthost.errors import SettingsError
from contexthost.paths import settings_file
from contexthost.runtime import load_plugins

__all__ = ["command", "known_settings"]


def known_settings() -> dict[str, SettingsSpec]:
    """The settings files of the host and of the installed plugins, by package."""
    specs = {"host": SettingsSpec("host", HostSettings)}
    manager = load_plugins(load_settings(HostSettings, "host").values)
    for _, spec in manager.items("register_settings", SettingsSpec):
        specs.setdefault(spec.package, spec)
    return specs


def _chosen(package: str | None) -> list[SettingsSpec]:
    specs = known_settings()
    if package is None:
        return list(specs.values())
    if package not in specs:
        raise SettingsError(f"there are no settings named {package!r}; there are: {', '.join(specs)}")
    return [specs[package]]


@click.group("config")
def command() -> None:
    """Show and write settings: one JSON file per package, in your configuration directory."""


@command.command("show")
@click.argument("package", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(package: str | None, as_json: bool) -> None:
    """Show the settings in force, and where each comes from."""
    loaded = {
        spec.package: load_settings(spec.model, spec.package, environment=spec.environment) for spec in _chosen(package)
    }
    if as_json:
        echo_json({name: found.to_json() for name, found in loaded.items()})
        return
    for found in loaded.values():
        values = found.to_json()["values"]
        rows = []
        for key, source in found.sources.items():
            value = values
            for part in key.split("."):
                value = value[part]
            rows.append((key, json.dumps(value), source))
        state = "" if found.file.exists() else " (not there: all defaults)"
        print_table([("key", "left"), ("value", "left"), ("from", "left")], rows, title=f"{found.file}{state}")
        tell_warnings(found.warnings)
        click.echo()


@command.command("path")
@click.argument("package", required=False)
def path(package: str | None) -> None:
    """Print the path of each settings file, or of PACKAGE's."""
    for spec in _chosen(package):
        click.echo(str(settings_file(spec.package)))


@command.command("init", short_help="Write settings files with every key at its default.")
@click.argument("package", required=False)
@click.option("--force", is_flag=True, help="Replace a file that is there by the defaults.")
def init(package: str | None, force: bool) -> None:
    """Write settings files with every key at its default; without PACKAGE, those that are not there yet."""
    specs = _chosen(package)
    missing = [spec for spec in specs if not settings_file(spec.package).exists()]
    for spec in specs:
        if force or spec in missing or not missing:  # an error of `init_file` when all of them are there
            click.echo(f"wrote {init_file(spec.model, spec.package, force=force)}")
        else:
            click.echo(f"kept  {settings_file(spec.package)}, which is there already")


@command.command("schema")
@click.argument("package")
@click.option("--defaults", is_flag=True, help="Print the defaults instead of the JSON Schema.")
def print_schema(package: str, defaults: bool) -> None:
    """Print the JSON Schema of PACKAGE's settings file."""
    (spec,) = _chosen(package)
    echo_json(default_file(spec.model) if defaults else schema(spec.model))
