"""Where contexthost keeps its files, and how it writes private ones.

The directories are platformdirs' for "contexthost": on Linux they follow ``XDG_CONFIG_HOME``, ``XDG_STATE_HOME``,
``XDG_DATA_HOME`` and ``XDG_CACHE_HOME``. On macOS configuration, state and data share one directory
(``~/Library/Application Support/contexthost``), so nothing here may give two purposes the same file name.
``CONTEXTHOST_HOME`` moves all four below one directory of the caller's choice, on every system.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import platformdirs

from contexthost.errors import SettingsError

__all__ = [
    "cache_dir",
    "config_dir",
    "data_dir",
    "naming",
    "pi_agent_dir",
    "plugin_data_dir",
    "private_dir",
    "settings_file",
    "state_dir",
    "temporary_beside",
    "write_private",
]

_APP = "contexthost"
_HOME_VARIABLE = "CONTEXTHOST_HOME"
_PI_VARIABLE = "PI_CODING_AGENT_DIR"
_NAME_PART: Final = 50
"""Characters of a file's name that its temporary neighbour's name repeats: names are bounded, in bytes."""
_STALE_SECONDS: Final = 3600
"""A file that is written takes seconds; one that old has nobody any more."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def _under_home(purpose: str) -> Path | None:
    home = os.environ.get(_HOME_VARIABLE)
    return _expanded(_HOME_VARIABLE, home) / purpose if home else None


def _expanded(variable: str, value: str) -> Path:
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise SettingsError(f"{variable} is {value!r}, and there is no such user: give a whole path") from None


def config_dir() -> Path:
    """The directory of the settings files (``host.json``, ``masking.json``, …); it may not exist yet."""
    return _under_home("config") or Path(platformdirs.user_config_dir(_APP, appauthor=False))


def state_dir() -> Path:
    """The directory of what may be lost without harm to anybody's data (locks, logs); it may not exist yet."""
    return _under_home("state") or Path(platformdirs.user_state_dir(_APP, appauthor=False))


def data_dir() -> Path:
    """The directory of what must not be lost (plugins' own data); it may not exist yet."""
    return _under_home("data") or Path(platformdirs.user_data_dir(_APP, appauthor=False))


def cache_dir() -> Path:
    """The directory of what can be made again; it may not exist yet."""
    return _under_home("cache") or Path(platformdirs.user_cache_dir(_APP, appauthor=False))


def _checked_name(name: str, what: str) -> str:
    if not _SAFE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be a {what} name: letters, digits, '_', '-' and '.' only, 100 at most")
    return name


def settings_file(package: str) -> Path:
    """The settings file of a package: ``<config>/<package>.json``; it may not exist.

    Raises ValueError for a name that could leave the directory.
    """
    return config_dir() / f"{_checked_name(package, 'settings file')}.json"


def plugin_data_dir(plugin: str, *, make: bool = True) -> Path:
    """The data directory of one plugin, made with mode 0700 when it is missing; or, without ``make``, where it is.

    Raises ValueError for a name that could leave the directory, OSError when it cannot be made.
    """
    directory = data_dir() / "plugins" / _checked_name(plugin, "plugin")
    return private_dir(directory) if make else directory


def pi_agent_dir() -> Path:
    """Pi's directory of settings, extensions and sessions: ``PI_CODING_AGENT_DIR`` (``~`` expanded), else
    ``~/.pi/agent``; it may not exist."""
    configured = os.environ.get(_PI_VARIABLE)
    return _expanded(_PI_VARIABLE, configured) if configured else Path.home() / ".pi" / "agent"


def private_dir(path: Path) -> Path:
    """Make a directory that only its owner may enter (0700), with the parents that are missing; returns it.

    A directory that exists keeps its mode: it may be one that the user shares on purpose.
    """
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    return path


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Every OSError of the block is about this file: what the system says of a full disk names none, and what it says
    of a temporary neighbour names that."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def temporary_beside(path: Path) -> tuple[int, str]:
    """Makes a file (mode 0600) in the directory of ``path``, to be written and then given that name; its descriptor and
    its path.

    What killed writers of the same file left behind an hour ago or earlier is removed. Raises OSError.
    """
    prefix, suffix = f".{path.name[:_NAME_PART]}.contexthost-", ".tmp"
    descriptor, made = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=path.parent)
    now = os.fstat(descriptor).st_mtime  # by the clock of the file system, which may be another machine's
    with contextlib.suppress(OSError):  # litter only
        for found in path.parent.iterdir():
            is_ours = found.name.startswith(prefix) and len(found.name) == len(prefix) + 8 + len(suffix)
            if is_ours and now - found.lstat().st_mtime > _STALE_SECONDS:
                found.unlink()
    return descriptor, made


def write_private(path: Path, content: bytes) -> None:
    """Replace a file's content as a whole: mode 0600, in a directory of mode 0700 when that had to be made.

    Written to a neighbour, synced and renamed, so that a reader sees the old file or the new one. A symbolic link
    (dotfile managers use them) stays one: its target is replaced. Raises OSError (of ``path``), and then leaves nothing
    behind.
    """
    with naming(path):
        _replace(path.resolve(), content)


def _replace(target: Path, content: bytes) -> None:
    private_dir(target.parent)
    descriptor, temporary = temporary_beside(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
