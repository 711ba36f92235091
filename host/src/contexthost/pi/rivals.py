"""Other extensions that take part in compactions, as far as their text shows; none of it is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contexthost.pi.loaded import loaded_extensions
from contexthost.pi.settings import read_json

__all__ = ["Rivals", "find_rivals"]

_HOOK: Final = b"session_before_compact"
_IMPORT: Final = re.compile(rb"""\b(?:from|import|require)\s*\(?\s*["'](\.{1,2}/[^"'\n]*)["']""")
_MOST_FILES: Final = 200
_MOST_BYTES: Final = 16_000_000
_ENDINGS: Final = ("", ".ts", ".js", ".mts", ".mjs", ".cts", ".cjs", ".tsx", "/index.ts", "/index.js")
_TYPESCRIPT: Final = {".js": ".ts", ".mjs": ".mts", ".cjs": ".cts", ".jsx": ".tsx"}


@dataclass(frozen=True, slots=True)
class Rivals:
    """``paths`` are the extensions; ``unknown`` are sentences about what cannot be found out by looking."""

    paths: tuple[Path, ...]
    unknown: tuple[str, ...]


def find_rivals(agent_dir: Path, project: Path, own: Path) -> Rivals:
    """Looks through the extensions that Pi loads in a project, and the files of theirs that they import.

    Args:
        agent_dir: Pi's directory.
        project: where Pi is started.
        own: our extension, which is none.
    """
    loaded = loaded_extensions(agent_dir, project)
    unknown = list(loaded.unknown)
    ours = os.path.realpath(own)
    found = [path for path in loaded.paths if os.path.realpath(path) != ours and _takes_part(path, unknown)]
    return Rivals(tuple(sorted(found)), tuple(dict.fromkeys(unknown)))


def _takes_part(extension: Path, unknown: list[str]) -> bool:
    entry = _module(extension) if extension.is_dir() else extension
    left = [entry] if entry is not None else []
    seen = set(left)
    while left:
        file = left.pop()
        try:
            text = _content(file)
        except OSError as error:
            unknown.append(f"{file} cannot be read ({error.strerror}): whether it takes part is not known")
            continue
        if text is None:
            unknown.append(f"{file} is too large to be looked through")
            continue
        if _HOOK in text:
            return True
        for imported in _imports(text, file):
            if imported not in seen and len(seen) < _MOST_FILES:
                seen.add(imported)
                left.append(imported)
    return False


def _content(file: Path) -> bytes | None:
    """A file's bytes; nothing where it is no file (a pipe would be waited for), None where they are too many."""
    if not file.is_file():
        return b""
    return None if file.stat().st_size > _MOST_BYTES else file.read_bytes()


def _imports(text: bytes, file: Path) -> Iterator[Path]:
    for match in _IMPORT.finditer(text):
        named = file.parent / os.fsdecode(match[1])
        candidates = [Path(f"{named}{ending}") for ending in _ENDINGS]
        if named.suffix in _TYPESCRIPT:  # TypeScript is imported as what it becomes
            candidates.append(named.with_suffix(_TYPESCRIPT[named.suffix]))
        for candidate in candidates:
            if _is_file(candidate):
                yield Path(os.path.normpath(candidate))
                break


def _module(directory: Path) -> Path | None:
    """What a directory is as a module: what its package.json calls main, else its index."""
    try:
        manifest = read_json(directory / "package.json")
    except ValueError:
        manifest = None
    main = manifest.get("main") if isinstance(manifest, dict) else None
    names = [main] if isinstance(main, str) else []
    for name in (*names, "index.ts", "index.js", "index.mts", "index.mjs", "index.cjs"):
        if _is_file(directory / name):
            return directory / name
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a null character in its name
        return False
