"""Putting the extension into Pi's extensions directory, taking it out again, and looking what is there."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from contexthost import paths
from contexthost.config import HostSettings, load_settings
from contexthost.errors import ContexthostError
from contexthost.pi.commands import HostCommands
from contexthost.pi.greeting import greet
from contexthost.pi.manifest import manifest_digest, manifest_of
from contexthost.pi.protocol import PROTOCOL_VERSION
from contexthost.pi.rivals import Rivals, find_rivals
from contexthost.plugins import PluginFailure, PluginManager
from contexthost.runtime import load_plugins

__all__ = [
    "FILE_NAME",
    "Installed",
    "NotOurs",
    "Status",
    "extension_path",
    "install",
    "plugin_warnings",
    "read_installed",
    "rivals",
    "status",
    "uninstall",
]

FILE_NAME: Final = "contexthost.ts"

_FILLED: Final = re.compile(r"/\*@installed\*/\n.*?/\*@end\*/", re.DOTALL)
_SIGNATURE: Final = re.compile(r"// contexthost-digest: ([0-9a-f]{64})\n\Z")


class NotOurs(ContexthostError):
    """The file in the extensions directory is not, or no longer, what ``contexthost pi install`` wrote."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What an installed extension says of itself.

    ``digest`` tells its manifest, the tools and commands of the plugins, from another; ``start_seconds`` is how long it
    waits for Python to start, None where it does not say so; ``intact`` is whether the file is as it was written.
    """

    path: Path
    version: str
    command: tuple[str, ...]
    digest: str
    start_seconds: float | None
    protocol: int
    intact: bool


@dataclass(frozen=True, slots=True)
class Status:
    """How the bridge stands in Pi.

    ``installed`` is None where it is not there. ``problem`` says why the Python side does not answer; None: it does.
    ``current`` is whether version, manifest and the time to start are those of the Python that Pi starts, which need
    not be this one; None: it does not answer, so nobody knows. ``own`` is whether it is this one. ``rivals`` are other
    extensions that take part in compactions, and what of that is not known. ``told`` is what the Python side tells the
    user when it starts, such as the plugins that have failed.
    """

    installed: Installed | None
    problem: str | None
    current: bool | None
    own: bool
    rivals: Rivals
    told: tuple[str, ...] = ()


def extension_path(agent_dir: Path | None = None) -> Path:
    """Where the extension is written; the directory may not exist yet."""
    return (agent_dir or paths.pi_agent_dir()) / "extensions" / FILE_NAME


def _plugins(report: Callable[[PluginFailure], None] | None = None) -> PluginManager:
    return load_plugins(load_settings(HostSettings, "host").values, extra=[HostCommands()], report=report)


def plugin_warnings() -> list[str]:
    """What is wrong with the plugins that would run in Pi, and with what they register."""
    failures: list[str] = []
    plugins = _plugins(lambda failure: failures.append(str(failure)))
    manifest_of(plugins)
    return [*plugins.warnings, *failures]


def _command() -> list[str]:
    # -P: the directory that Pi runs in must not be a place that modules are imported from.
    return [sys.executable, "-P", "-m", "contexthost", "pi", "serve"]


def _text() -> str:
    """The extension as it would be written now: by this interpreter, for the plugins and settings that it has."""
    manifest = manifest_of(_plugins())
    values = {
        "version": importlib.metadata.version("contexthost"),
        "digest": manifest_digest(manifest),
        "command": _command(),
        "startSeconds": load_settings(HostSettings, "host").values.pi.startSeconds,
        **manifest,
    }
    lines = "".join(f"  {key}: {json.dumps(value)},\n" for key, value in values.items())
    source = (files("contexthost.pi") / "extension.ts").read_text(encoding="utf-8")
    filled = _FILLED.sub(lambda _: f"/*@installed*/\n{lines}  /*@end*/", source, count=1)
    return f"{filled}// contexthost-digest: {hashlib.sha256(filled.encode()).hexdigest()}\n"


def install(agent_dir: Path | None = None, *, force: bool = False) -> Path:
    """Writes the extension, or writes it anew; returns its path.

    Raises:
        NotOurs: a file of that name is there which this did not write, or which was edited since, and not ``force``.
        ContexthostError: it cannot be written.
    """
    path = extension_path(agent_dir)
    if not force:
        _check_ours(path, "replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.write_private(path, _text().encode())
    except OSError as error:
        raise ContexthostError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def uninstall(agent_dir: Path | None = None, *, force: bool = False) -> Path | None:
    """Removes the extension; returns where it was, None if it was not installed.

    Raises:
        NotOurs: the file there is not as it was written, and not ``force``.
        ContexthostError: it cannot be removed.
    """
    path = extension_path(agent_dir)
    if not path.exists():
        return None
    if not force:
        _check_ours(path, "remove")
    try:
        target = path.resolve()  # what was written, where the name is a link (dotfile managers use them)
        path.unlink()
        target.unlink(missing_ok=True)
    except OSError as error:
        raise ContexthostError(f"{path} cannot be removed: {error.strerror or error}") from error
    return path


def _check_ours(path: Path, what: str) -> None:
    if not path.exists():
        return
    if not _is_intact(_read(path)):
        raise NotOurs(
            f"{path} was not written by `contexthost pi install`, or was edited since; --force to {what} it anyway"
        )


def _read(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise ContexthostError(f"{path} cannot be read: it is not a file")  # a pipe would be waited for
        return path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise ContexthostError(f"{path} cannot be read: {error.strerror or error}") from error


def _is_intact(text: str) -> bool:
    signature = _SIGNATURE.search(text)
    return signature is not None and hashlib.sha256(text[: signature.start()].encode()).hexdigest() == signature[1]


def read_installed(agent_dir: Path | None = None) -> Installed | None:
    """The extension that is installed; None when there is none.

    Raises:
        ContexthostError: the file cannot be read.
    """
    path = extension_path(agent_dir)
    if not path.exists():
        return None
    text = _read(path)

    def value(key: str) -> Any:
        found = re.search(rf"^  {key}: (.*),$", text, re.MULTILINE)
        try:
            return json.loads(found[1]) if found else None
        except ValueError:
            return None

    command = value("command")
    protocol = re.search(r"^const PROTOCOL = (\d{1,9});$", text, re.MULTILINE)
    return Installed(
        path=path,
        version=str(value("version") or "?"),
        command=tuple(map(str, command)) if isinstance(command, list) else (),
        digest=str(value("digest") or ""),
        start_seconds=start if isinstance(start := value("startSeconds"), (int, float)) else None,
        protocol=int(protocol[1]) if protocol else PROTOCOL_VERSION,
        intact=_is_intact(text),
    )


def status(agent_dir: Path | None = None) -> Status:
    """Looks at the extension, and starts its Python side as Pi would to see whether it answers (20 s at most).

    Raises:
        ContexthostError: the file cannot be read.
    """
    installed = read_installed(agent_dir)
    if installed is None:
        return Status(None, None, None, False, rivals(agent_dir))
    greeting = asyncio.run(greet(installed.command, installed.protocol))
    own = list(installed.command) == _command()
    current = _greets_as(greeting.answer, installed) if greeting.answer is not None else None
    if own and installed.intact and _read(installed.path) != _text():
        current = False  # the rest of the file is only known for this Python's version
    return Status(installed, greeting.problem, current, own, rivals(agent_dir), greeting.told)


def _greets_as(answer: Mapping[str, Any], installed: Installed) -> bool:
    """Whether the extension has no reason to tell the user to install it again: it compares the same."""
    theirs = (answer.get("version"), answer.get("manifest"), answer.get("startSeconds"))
    return theirs == (installed.version, installed.digest, installed.start_seconds)


def rivals(agent_dir: Path | None = None) -> Rivals:
    """Other extensions that take part in compactions, in a session that is started in this directory: see
    `contexthost.pi.rivals`."""
    directory = Path(os.path.abspath(agent_dir or paths.pi_agent_dir()))  # noqa: PTH100 - as Pi does, links stay
    return find_rivals(directory, Path.cwd(), extension_path(agent_dir))
