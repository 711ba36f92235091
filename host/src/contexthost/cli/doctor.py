"""``contexthost doctor``: whether this installation is in order, or a session."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from contexthost import paths
from contexthost.cli.arguments import SESSION
from contexthost.cli.config import known_settings
from contexthost.cli.output import echo_json
from contexthost.config import HostSettings, load_settings
from contexthost.errors import ContexthostError, SettingsError
from contexthost.runtime import load_plugins
from contexthost.text import one_line
from contexthost.tokens import default_counter

__all__ = ["Check", "command", "installation_checks"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: ``ok``, or a ``warning`` (works, but not as you may think), or a ``problem``."""

    state: Literal["ok", "warning", "problem"]
    what: str
    text: str


@click.command("doctor")
@click.argument("session", type=SESSION, required=False)
@click.option("--repair", is_flag=True, help="Mend SESSION by appending to it; asks first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--rescue", type=click.Path(path_type=Path), metavar="NEWFILE", help="Save what can be in a new file.")
@click.option("--dry-run", is_flag=True, help="Show what --repair or --rescue would do; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(session: str | None, repair: bool, yes: bool, rescue: Path | None, dry_run: bool, as_json: bool) -> int:
    """Check SESSION for damage, or, without one, the settings, plugins, directories, the vocabulary and Pi's bridge.

    Exits 1 if there is a problem (left). SESSION is a path, an id or its unique beginning, or "latest".
    """
    if session is None:
        if repair or rescue is not None:
            raise click.UsageError("--repair and --rescue need a SESSION")
        _refuse_without_mending(yes=yes, dry_run=dry_run)
        return _check_installation(as_json)
    if repair and rescue is not None:
        raise click.UsageError("--repair mends the file by appending, --rescue writes a new one: give one of them")
    if not repair and rescue is None:
        _refuse_without_mending(yes=yes, dry_run=dry_run)
    from contexthost.cli.doctor_session import check_session, rescue_session

    if rescue is not None:
        return rescue_session(session, rescue, dry_run=dry_run, as_json=as_json)
    return check_session(session, repairs=repair, agreed=yes, dry_run=dry_run, as_json=as_json)


def _refuse_without_mending(*, yes: bool, dry_run: bool) -> None:
    if yes:
        raise click.UsageError("--yes answers what --repair asks: give that too")
    if dry_run:
        raise click.UsageError("--dry-run needs --repair or --rescue NEWFILE: without them nothing is written anyway")


def _check_installation(as_json: bool) -> int:
    checks = list(installation_checks())
    if as_json:
        echo_json([{"state": check.state, "what": check.what, "text": check.text} for check in checks])
    else:
        marks = {"ok": click.style("ok     ", fg="green"), "warning": click.style("warning", fg="yellow")}
        for check in checks:
            mark = marks.get(check.state, click.style("problem", fg="red"))
            click.echo(f"{mark}  {check.what}: {one_line(check.text)}")
    return 1 if any(check.state == "problem" for check in checks) else 0


def installation_checks() -> Iterator[Check]:
    """Looks at Python, plugins, every settings file, the vocabulary, the directories and what is installed in Pi;
    changes nothing."""
    yield Check("ok", "python", f"{platform.python_version()} on {platform.system()}")
    host = load_settings(HostSettings, "host")
    manager = load_plugins(host.values)
    for info in manager.plugins:
        state: Literal["ok", "problem"] = "problem" if info.state == "failed" else "ok"
        yield Check(state, f"plugin {info.name}", info.error or f"{info.version or 'no version'}, {info.state}")
    for warning in manager.warnings:
        yield Check("warning", "plugins", warning)
    for spec in known_settings().values():
        found = load_settings(spec.model, spec.package, environment=spec.environment)
        yield _looked(f"settings {spec.package}", found.file, _settings)
        for problem in found.warnings:
            yield Check("warning", f"settings {spec.package}", str(problem))
    yield _vocabulary(host.values.encoding)
    for name, directory in (("state", paths.state_dir()), ("data", paths.data_dir())):
        yield _looked(f"{name} directory", directory, _writable)
    yield _looked("Pi sessions", paths.pi_agent_dir() / "sessions", _sessions)
    yield from _bridge()


def _bridge() -> Iterator[Check]:
    """What is installed in Pi, if anything is: only then is its Python side started, which takes a second."""
    from contexthost.pi import install

    try:
        found = install.status()
    except ContexthostError as error:
        yield Check("problem", "Pi bridge", str(error))
        return
    except OSError as error:  # Pi's directory may not be looked into
        yield Check("problem", "Pi bridge", f"{error.filename}: {error.strerror}")
        return
    installed = found.installed
    if installed is None:
        yield Check("ok", "Pi bridge", "not installed; `contexthost pi install` puts it into Pi")
        return
    where = f"{installed.path}, version {installed.version}"
    if not installed.intact:
        yield Check("warning", "Pi bridge", f"{where}, was edited; `contexthost pi install --force` writes it anew")
    elif found.current is False:
        yield Check("warning", "Pi bridge", f"{where}, is out of date: run `contexthost pi install` again")
    else:
        yield Check("ok", "Pi bridge", where)
    if found.problem is None:
        yield Check("ok", "Pi bridge", "its Python side answers")
    else:
        yield Check("problem", "Pi bridge", f"its Python side does not answer: {found.problem}")
    for told in found.told:
        yield Check("warning", "Pi bridge", told)
    for rival in found.rivals.paths:
        text = f"{rival} takes part in compactions too; Pi takes the answer of the last extension"
        yield Check("warning", "Pi bridge", text)
    for unknown in found.rivals.unknown:
        yield Check("warning", "Pi bridge", unknown)


def _vocabulary(encoding: str) -> Check:
    try:
        tokens = default_counter(encoding).count("hello world")
    except SettingsError as error:
        return Check("problem", "vocabulary", str(error))
    return Check("ok", "vocabulary", f"{encoding} ('hello world' has {tokens} tokens)")


def _looked(what: str, path: Path, look: Callable[[str, Path], Check]) -> Check:
    """A look at a path; that it may not be looked at is something to tell, and the other checks go on."""
    try:
        return look(what, path)
    except OSError as error:
        return Check("problem", what, f"{path}: {error.strerror}")


def _settings(what: str, file: Path) -> Check:
    return Check("ok", what, str(file) if file.exists() else f"no {file}: all defaults")


def _sessions(what: str, directory: Path) -> Check:
    return Check("ok", what, str(directory) if directory.is_dir() else f"no {directory} (Pi has not run here)")


def _writable(what: str, directory: Path) -> Check:
    """Whether a directory exists and can be written to, or could be made; looks without writing."""
    at = directory
    while not at.exists() and at != at.parent:
        at = at.parent
    if not at.is_dir() or not os.access(at, os.W_OK | os.X_OK):
        return Check("problem", what, f"{directory} cannot be written to; set CONTEXTHOST_HOME")
    return Check("ok", what, f"{directory}{'' if directory.exists() else ' (made when needed)'}")
