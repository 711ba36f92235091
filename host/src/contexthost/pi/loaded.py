"""Which extensions Pi loads: those in its directories, and those that its settings and the project's name.

It follows Pi 1.6.0's package manager, by what is on the disk. Nothing is fetched, installed or run, and nothing is
written; what cannot be told that way is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

from pathspec import GitIgnoreSpec

from contexthost.pi.patterns import NotUnderstood, expand, is_glob, matches
from contexthost.pi.settings import Package, PiSettings, read_file, read_json, read_settings
from contexthost.pi.sources import resolved, source_of, without_credentials

__all__ = ["loaded_extensions"]

Scope = Literal["project", "user"]

_RESOURCES: Final = ("extensions", "skills", "prompts", "themes")
_IGNORE_FILES: Final = (".gitignore", ".ignore", ".fdignore")

# Those of `Path` raise errors where a directory may not be looked into.
_exists, _is_file, _is_directory = os.path.exists, os.path.isfile, os.path.isdir


def loaded_extensions(agent_dir: Path, project: Path) -> tuple[list[Path], list[str]]:
    """The extensions of every session in a project, files, or directories that are loaded as a module, in no order; and
    sentences about what cannot be told. What a command line adds (``-e``) nobody can know."""
    looked = _Look({"project": project / ".pi", "user": agent_dir})
    looked.packages()
    looked.named("project", rank=0)
    looked.named("user", rank=2)
    looked.discovered("project", rank=1)
    looked.discovered("user", rank=3)
    return looked.enabled(), looked.unknown


class _Look:
    """Collects paths with whether they are loaded; what is said of a path first counts, as in Pi."""

    def __init__(self, bases: dict[Scope, Path]) -> None:
        self._bases = bases
        self._found: dict[Path, tuple[int, bool]] = {}  # its rank, and whether it is loaded
        self.unknown: list[str] = []
        self._settings = {scope: self._read(base / "settings.json") for scope, base in bases.items()}

    def _read(self, file: Path) -> PiSettings:
        try:
            return read_settings(file)
        except ValueError as error:
            self.unknown.append(f"{file} {error}: which extensions it names is not known")
            return PiSettings()

    def enabled(self) -> list[Path]:
        """What is loaded: of several names of one file, the name of the best rank says whether it is."""
        best: dict[str, tuple[Path, bool]] = {}
        for path, (_, on) in sorted(self._found.items(), key=lambda found: found[1][0]):
            best.setdefault(os.path.realpath(path), (path, on))
        return [path for path, on in best.values() if on]

    def _add(self, paths: Iterable[Path], rank: int, on: Iterable[Path]) -> None:
        chosen = set(on)
        for path in paths:
            self._found.setdefault(path, (rank, path in chosen))

    # What the settings name -------------------------------------------------------------------------------------------

    def named(self, scope: Scope, rank: int) -> None:
        """``extensions``: paths, and patterns that choose among what the paths lead to."""
        base, entries = self._bases[scope], self._settings[scope].extensions or []
        patterns = [entry for entry in entries if _is_override(entry) or is_glob(entry)]
        files = self._below(resolved(entry, base) for entry in entries if entry not in patterns)
        self._add(files, rank, self._chosen(files, patterns, base))

    def discovered(self, scope: Scope, rank: int) -> None:
        """The directory ``extensions``, less what the settings take away."""
        base, entries = self._bases[scope], self._settings[scope].extensions or []
        files = self._in_directory(base / "extensions")
        self._add(files, rank, self._chosen(files, filter(_is_override, entries), base))

    def packages(self) -> None:
        """``packages``: what is installed of them. A package of the project's settings replaces the user's, or, if it
        says ``autoload: false``, chooses among the files of the user's, and lies where that lies."""
        own, users = self._by_identity("project"), self._by_identity("user")
        for identity, package in own.items():
            if _is_delta(package) and identity in users:
                self._package("user", _text(users[identity]), package)
            else:
                self._package("project", _text(package), package)
        for identity, package in users.items():
            if identity not in own or _is_delta(own[identity]):
                self._package("user", _text(package), package)

    def _by_identity(self, scope: Scope) -> dict[tuple[str, str], str | Package]:
        """The packages of one file; of two entries for one the project's last counts and the user's first, as in Pi."""
        found: dict[tuple[str, str], str | Package] = {}
        for package in self._settings[scope].packages or []:
            source = source_of(_text(package))
            name = str(source.directory(self._bases[scope])) if source.kind == "local" else source.name
            if scope == "project" or (source.kind, name) not in found:
                found[source.kind, name] = package
        return found

    def _package(self, scope: Scope, text: str, package: str | Package) -> None:
        """``text``: the source, of the user's or the project's settings."""
        source = source_of(text)
        root = source.directory(self._bases[scope])
        if not _exists(root) and source.kind != "local":  # a path that leads nowhere is nothing for Pi either
            more = " (npm's global directory, where older versions put it, is not asked for)" * (source.kind == "npm")
            self.unknown.append(
                f"{without_credentials(text)} of {self._bases[scope] / 'settings.json'} is not in {root}{more}: "
                "whether it takes part in compactions is not known"
            )
        if not _is_directory(root):
            self._add([root] if _is_file(root) else [], 4, [root])
            return
        patterns = package.extensions if isinstance(package, Package) else None
        manifest = _manifest(root)
        entries = manifest.get("extensions")
        plain = isinstance(package, str)  # the settings say no more of it
        if plain and not manifest and not any(_exists(root / name) for name in _RESOURCES):
            module = [root] if source.kind == "local" else []  # as it stands
            self._add(module, 4, module)
            return
        if entries or (entries is not None and patterns is None):
            files = self._of_manifest(entries, root)
        elif plain and manifest:
            files = []  # it names other things, and no extensions
        else:
            files = self._in_directory(root / "extensions")
        if _is_delta(package):
            self._add_delta(files, patterns or [], root)
        else:
            on = files if patterns is None else self._chosen(files, patterns, root) if patterns else []
            self._add(files, 4, on)

    def _add_delta(self, files: Sequence[Path], patterns: Sequence[str], base: Path) -> None:
        said: dict[Path, bool] = {}
        for pattern in patterns:
            bare = pattern[1:] if _is_override(pattern) else pattern
            exact, on = pattern.startswith(("+", "-")), not pattern.startswith(("!", "-"))
            for file in files:
                if _is_exactly(file, bare, base) if exact else self._fits(file, bare, base, unknown=on):
                    said[file] = on
        self._add(said, 4, [file for file, on in said.items() if on])

    def _of_manifest(self, entries: Sequence[str], root: Path) -> list[Path]:
        places: list[Path] = []
        for entry in entries:
            if _is_override(entry):
                continue
            try:
                places += expand(entry, root) if is_glob(entry) else [Path(os.path.normpath(root / entry))]
            except NotUnderstood:
                self.unknown.append(f"{root / 'package.json'}: what {entry!r} finds is not known")
        return self._chosen(self._below(places), filter(_is_override, entries), root)

    # Patterns --------------------------------------------------------------------------------------------------------

    def _chosen(self, files: Sequence[Path], patterns: Iterable[str], base: Path) -> list[Path]:
        """Plain patterns choose, ``!`` leaves out, ``+`` takes a file in all the same, ``-`` has the last word."""
        by_sign: dict[str, list[str]] = {"": [], "!": [], "+": [], "-": []}
        for pattern in patterns:
            sign = pattern[:1] if _is_override(pattern) else ""
            by_sign[sign].append(pattern.removeprefix(sign))

        def fits(file: Path) -> bool:
            if any(_is_exactly(file, one, base) for one in by_sign["-"]):
                return False
            if any(_is_exactly(file, one, base) for one in by_sign["+"]):
                return True
            chosen = not by_sign[""] or any(self._fits(file, one, base, unknown=True) for one in by_sign[""])
            return chosen and not any(self._fits(file, one, base, unknown=False) for one in by_sign["!"])

        return list(filter(fits, files))

    def _fits(self, file: Path, pattern: str, base: Path, *, unknown: bool) -> bool:
        wanted = os.path.expanduser(pattern)  # noqa: PTH111 - these are texts
        try:
            return any(matches(name, wanted) for name in (os.path.relpath(file, base), file.name, str(file)))
        except NotUnderstood:
            self.unknown.append(f"the pattern {pattern!r} for {base} is not understood: what it fits is not known")
            return unknown

    # Directories -----------------------------------------------------------------------------------------------------

    def _below(self, places: Iterable[Path]) -> list[Path]:
        found: dict[Path, None] = {}
        for place in places:
            found.update(dict.fromkeys([place] if _is_file(place) else self._in_directory(place)))
        return list(found)

    def _in_directory(self, directory: Path) -> list[Path]:
        """What Pi loads from a directory of extensions: what it names itself, else its files and what its directories
        name."""
        named = _entry_points(directory)
        if named is not None:
            return named
        if not _is_directory(directory):
            return []
        try:
            entries = sorted(directory.iterdir())
        except OSError as error:
            self.unknown.append(f"{directory} cannot be read: {error.strerror}")
            return []
        rules = self._ignore_rules(directory)
        found: list[Path] = []
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "node_modules":
                continue
            is_directory = _is_directory(entry)
            if rules.match_file(entry.name.lower() + "/" * is_directory):
                continue
            if is_directory:
                found += _entry_points(entry) or []
            elif entry.suffix in (".ts", ".js") and _is_file(entry):
                found.append(entry)
        return found

    def _ignore_rules(self, directory: Path) -> GitIgnoreSpec:
        """In lower case: Pi does not tell them apart."""
        try:
            texts = [read_file(directory / name).decode("utf-8", "replace") for name in _IGNORE_FILES]
            return GitIgnoreSpec.from_lines("\n".join(texts).lower().splitlines())
        except (ValueError, re.error):
            self.unknown.append(f"{directory}: what its ignore files leave out is not known")
            return GitIgnoreSpec([])


def _manifest(root: Path) -> dict[str, list[str]]:
    """What a package.json names for Pi, by kind; nothing where it cannot be used, as in Pi."""
    try:
        found = read_json(root / "package.json")
    except ValueError:
        return {}
    named = found.get("pi") if isinstance(found, dict) else None
    if not isinstance(named, dict):
        return {}
    fields = {name: named.get(name) for name in _RESOURCES}
    return {
        name: entries
        for name, entries in fields.items()
        if isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)
    }


def _entry_points(directory: Path) -> list[Path] | None:
    """What a directory names as its extensions, or its index; None without either."""
    entries = _manifest(directory).get("extensions", [])
    there = [place for entry in entries if _exists(place := Path(os.path.normpath(directory / entry)))]
    if there:
        return there
    return next(([index] for name in ("index.ts", "index.js") if _exists(index := directory / name)), None)


def _is_override(entry: str) -> bool:
    return entry.startswith(("!", "+", "-"))


def _text(package: str | Package) -> str:
    return package if isinstance(package, str) else package.source


def _is_delta(package: str | Package | None) -> bool:
    return isinstance(package, Package) and package.autoload is False


def _is_exactly(file: Path, pattern: str, base: Path) -> bool:
    wanted = os.path.expanduser(pattern.removeprefix("./"))  # noqa: PTH111 - these are texts
    return wanted in (os.path.relpath(file, base), str(file))
