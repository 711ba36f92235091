"""Which extensions Pi loads: those in its directories, and those that its settings and the project's name.

It follows Pi 1.6.0's package manager, by what is on the disk. Nothing is fetched, installed or run, and nothing is
written; what cannot be told that way is said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from contexthost.pi.patterns import NotUnderstood, expand, ignored, is_glob, matches
from contexthost.pi.settings import PiSettings, read_json
from contexthost.pi.sources import Source, resolved, source_of, without_credentials

__all__ = ["Loaded", "loaded_extensions"]

Scope = Literal["project", "user"]

_RESOURCES: Final = ("extensions", "skills", "prompts", "themes")
_IGNORE_FILES: Final = (".gitignore", ".ignore", ".fdignore")


@dataclass(frozen=True, slots=True)
class Loaded:
    """``paths``: files, or directories that are loaded as a module, in no order. ``unknown``: sentences about what
    cannot be told."""

    paths: tuple[Path, ...]
    unknown: tuple[str, ...]


def loaded_extensions(agent_dir: Path, project: Path) -> Loaded:
    """The extensions of every session in a project; what a command line adds (``-e``) nobody can know."""
    looked = _Look(
        {
            "project": PiSettings.read(project / ".pi" / "settings.json"),
            "user": PiSettings.read(agent_dir / "settings.json"),
        }
    )
    looked.packages()
    looked.named("project")
    looked.named("user")
    looked.discovered("project")
    looked.discovered("user")
    return Loaded(tuple(looked.enabled()), tuple(dict.fromkeys(looked.unknown)))


class _Look:
    """Collects paths with whether they are loaded; what is said of a path first counts, as in Pi."""

    def __init__(self, settings: dict[Scope, PiSettings]) -> None:
        self._settings = settings
        self._found: dict[str, tuple[int, bool]] = {}  # path → its rank, and whether it is loaded
        self.unknown: list[str] = [problem for one in settings.values() for problem in one.problems]

    def enabled(self) -> list[Path]:
        """What is loaded: of several names of one file, the name of the best rank says whether it is."""
        best: dict[str, tuple[int, bool, str]] = {}
        for path, (rank, on) in self._found.items():
            known = best.setdefault(os.path.realpath(path), (rank, on, path))
            if rank < known[0]:
                best[os.path.realpath(path)] = (rank, on, path)
        return [Path(path) for _, on, path in best.values() if on]

    def _add(self, paths: Iterable[Path], rank: int, *, on: Iterable[Path]) -> None:
        chosen = set(on)
        for path in paths:
            self._found.setdefault(str(path), (rank, path in chosen))

    # What the settings name -------------------------------------------------------------------------------------------

    def named(self, scope: Scope) -> None:
        """``extensions``: paths, and patterns that choose among what the paths lead to."""
        settings = self._settings[scope]
        plain = [entry for entry in settings.extensions if not _is_pattern(entry)]
        patterns = [entry for entry in settings.extensions if _is_pattern(entry)]
        files = self._below(resolved(entry, settings.base) for entry in plain)
        self._add(files, 0 if scope == "project" else 2, on=self._chosen(files, patterns, settings.base))

    def discovered(self, scope: Scope) -> None:
        """The directory ``extensions``, less what the settings take away."""
        settings = self._settings[scope]
        files = self._in_directory(settings.base / "extensions")
        overrides = [entry for entry in settings.extensions if entry.startswith(("!", "+", "-"))]
        self._add(files, 1 if scope == "project" else 3, on=self._chosen(files, overrides, settings.base))

    def packages(self) -> None:
        """``packages``: what is installed of them. A package of the project's settings replaces the user's."""
        chosen: dict[tuple[str, str], list[tuple[Scope, str, dict[str, Any] | None]]] = {}
        for scope, settings in self._settings.items():
            for text, options in settings.packages:
                same = chosen.setdefault(self._identity(text, scope), [])
                delta = bool(same) and same[0][0] == "project" and _is_delta(same[0][2])
                if not same or (scope == "user" and delta and len(same) == 1):
                    same.append((scope, text, options))
                elif scope == "project":
                    same[0] = (scope, text, options)
        for same in chosen.values():
            # What is on top of the user's package only chooses among its files, and lies where that lies.
            lies = same[-1] if _is_delta(same[0][2]) else same[0]
            for _, _, options in same:
                self._package(lies[1], self._settings[lies[0]], options)

    def _identity(self, text: str, scope: Scope) -> tuple[str, str]:
        source = source_of(text)
        name = str(resolved(source.name, self._settings[scope].base)) if source.kind == "local" else source.name
        return source.kind, name

    def _package(self, text: str, settings: PiSettings, options: dict[str, Any] | None) -> None:
        source = source_of(text)
        place = source.directory(settings.base)
        if not _exists(place):
            if source.kind != "local":  # a path that leads nowhere is nothing for Pi either
                self.unknown.append(_not_installed(text, source, place, settings))
            return
        if source.kind == "local" and _is(place, Path.is_file):
            self._add([place], 4, on=[place])
            return
        patterns = None if options is None else self._filter(options, text, settings)
        delta = _is_delta(options)
        if delta and patterns is None:
            return
        files = self._of_package(place, filtered=options is not None, chosen_from=patterns is not None)
        if files is None:
            if source.kind == "local":
                self._add([place], 4, on=[place])  # a module, as it stands
        elif delta:
            self._add_delta(files, patterns or [], place)
        elif patterns is None:
            self._add(files, 4, on=files)
        else:
            self._add(files, 4, on=self._chosen(files, patterns, place) if patterns else [])

    def _filter(self, options: dict[str, Any], text: str, settings: PiSettings) -> list[str] | None:
        patterns = options.get("extensions")
        if patterns is None or (isinstance(patterns, list) and all(isinstance(one, str) for one in patterns)):
            return patterns
        shown = without_credentials(text)
        self.unknown.append(f"{settings.file}: `extensions` of {shown} is no list of texts and was passed over")
        return None

    def _add_delta(self, files: Sequence[Path], patterns: Sequence[str], base: Path) -> None:
        said: dict[Path, bool] = {}
        for pattern in patterns:
            bare = pattern[1:] if pattern.startswith(("!", "+", "-")) else pattern
            exact, on = pattern.startswith(("+", "-")), not pattern.startswith(("!", "-"))
            for file in files:
                if _is_exactly(file, bare, base) if exact else self._fits(file, bare, base, unknown=on):
                    said[file] = on
        self._add(said, 4, on=[file for file, on in said.items() if on])

    def _of_package(self, root: Path, *, filtered: bool, chosen_from: bool) -> list[Path] | None:
        """The extensions of a package's directory; None where it has nothing of what Pi packages have.

        ``filtered``: the settings say more of it than its source; ``chosen_from``: they choose among its extensions.
        """
        manifest = _manifest(root)
        entries = manifest.get("extensions")
        if entries or (entries is not None and not chosen_from):
            return self._of_manifest(entries, root)
        if not filtered and manifest:
            return []  # it names other things, and no extensions
        if not filtered and not any(_exists(root / name) for name in _RESOURCES):
            return None
        return self._in_directory(root / "extensions")

    def _of_manifest(self, entries: Sequence[str], root: Path) -> list[Path]:
        places: list[Path] = []
        for entry in entries:
            if entry.startswith(("!", "+", "-")):
                continue
            if not is_glob(entry):
                places.append(Path(os.path.normpath(root / entry)))
                continue
            try:
                places += expand(entry, root)
            except NotUnderstood:
                self.unknown.append(f"{root / 'package.json'}: what {entry!r} finds is not known")
        files = self._below(places)
        overrides = [entry for entry in entries if entry.startswith(("!", "+", "-"))]
        chosen = set(self._chosen(files, overrides, root))
        return [file for file in files if file in chosen]

    # Patterns --------------------------------------------------------------------------------------------------------

    def _chosen(self, files: Sequence[Path], patterns: Sequence[str], base: Path) -> list[Path]:
        """Plain patterns choose, ``!`` leaves out, ``+`` takes a file in all the same, ``-`` has the last word."""
        plain = [one for one in patterns if not one.startswith(("!", "+", "-"))]
        by_sign = {sign: [one[1:] for one in patterns if one.startswith(sign)] for sign in "!+-"}
        return [
            file
            for file in files
            if not any(_is_exactly(file, one, base) for one in by_sign["-"])
            and (
                any(_is_exactly(file, one, base) for one in by_sign["+"])
                or (
                    (not plain or any(self._fits(file, one, base) for one in plain))
                    and not any(self._fits(file, one, base, unknown=False) for one in by_sign["!"])
                )
            )
        ]

    def _fits(self, file: Path, pattern: str, base: Path, *, unknown: bool = True) -> bool:
        wanted = _unfolded(pattern)
        try:
            return any(matches(name, wanted) for name in (_relative(file, base), file.name, str(file)))
        except NotUnderstood:
            self.unknown.append(f"the pattern {pattern!r} for {base} is not understood: what it fits is not known")
            return unknown

    # Directories -----------------------------------------------------------------------------------------------------

    def _below(self, places: Iterable[Path]) -> list[Path]:
        found: dict[Path, None] = {}
        for place in places:
            if _is(place, Path.is_file):
                found[place] = None
            elif _is(place, Path.is_dir):
                found.update(dict.fromkeys(self._in_directory(place)))
        return list(found)

    def _in_directory(self, directory: Path) -> list[Path]:
        """What Pi loads from a directory of extensions: what it names itself, else its files and what its directories
        name."""
        named = _entry_points(directory)
        if named is not None:
            return named
        try:
            entries = sorted(directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError) as error:
            self.unknown.append(f"{directory} cannot be read: {getattr(error, 'strerror', None) or error}")
            return []
        rules = [line for name in _IGNORE_FILES for line in _text(directory / name).splitlines()]
        found: list[Path] = []
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "node_modules":
                continue
            is_directory = _is(entry, Path.is_dir)
            try:
                if ignored(entry.name, is_directory, rules):
                    continue
            except NotUnderstood as error:
                self.unknown.append(f"{directory}: the pattern {str(error)!r} of an ignore file is not understood")
            if is_directory:
                found += _entry_points(entry) or []
            elif entry.suffix in (".ts", ".js") and _is(entry, Path.is_file):
                found.append(entry)
        return found


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


def _not_installed(text: str, source: Source, place: Path, settings: PiSettings) -> str:
    more = " (npm's global directory, where older versions put it, is not asked for)" if source.kind == "npm" else ""
    shown = without_credentials(text)
    return f"{shown} of {settings.file} is not in {place}{more}: whether it takes part in compactions is not known"


def _is_pattern(entry: str) -> bool:
    return entry.startswith(("!", "+", "-")) or is_glob(entry)


def _is_delta(options: dict[str, Any] | None) -> bool:
    return options is not None and options.get("autoload") is False


def _is_exactly(file: Path, pattern: str, base: Path) -> bool:
    return _unfolded(pattern.removeprefix("./")) in (_relative(file, base), str(file))


def _unfolded(pattern: str) -> str:
    """A pattern with the user's directory in place of ``~``."""
    return str(resolved(pattern, Path("/"))) if pattern == "~" or pattern.startswith(("~/", "file://")) else pattern


def _relative(file: Path, base: Path) -> str:
    return os.path.relpath(file, base)


def _exists(path: Path) -> bool:
    return _is(path, Path.exists)


def _is(path: Path, question: Callable[[Path], bool]) -> bool:
    """`Path.exists` and the like; False for what has a null character in its name, or is hidden from us."""
    try:
        return question(path)
    except (OSError, ValueError):
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except (OSError, ValueError):
        return ""
