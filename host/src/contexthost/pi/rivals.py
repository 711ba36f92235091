"""Other extensions that take part in compactions, as far as their text shows; none of it is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contexthost.pi.loaded import loaded_extensions
from contexthost.pi.settings import read_file, read_json

__all__ = ["Rivals", "find_rivals"]

_HOOK: Final = b"session_before_compact"
_IMPORT: Final = re.compile(rb"""\b(?:from|import|require)\s*\(?\s*["'](\.{1,2}/[^"'\n]*)["']""")
_MOST_FILES: Final = 200
_ENDINGS: Final = (
    "", ".ts", ".js", ".mts", ".mjs", ".cts", ".cjs", ".tsx", "/index.ts", "/index.js", "/index.mts", "/index.mjs",
)  # fmt: skip


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
    loaded, unknown = loaded_extensions(agent_dir, project)
    ours = os.path.realpath(own)
    found = [path for path in loaded if os.path.realpath(path) != ours and _takes_part(path, unknown)]
    return Rivals(tuple(sorted(found)), tuple(dict.fromkeys(unknown)))


def _takes_part(extension: Path, unknown: list[str]) -> bool:
    left = list(_module(extension) if extension.is_dir() else [extension])
    seen = set(left)
    while left:
        file = left.pop()
        try:
            text = read_file(file)
        except ValueError as error:
            unknown.append(f"{file} {error}: whether it takes part in compactions is not known")
            continue
        if _HOOK in text:
            return True
        for match in _IMPORT.finditer(text):
            for imported in _files(os.path.normpath(file.parent / os.fsdecode(match[1]))):
                if imported not in seen and len(seen) < _MOST_FILES:
                    seen.add(imported)
                    left.append(imported)
    return False


def _files(name: str) -> Iterator[Path]:
    """What an import may mean; TypeScript is imported as what it becomes, too."""
    for stem in dict.fromkeys((name, os.path.splitext(name)[0])):  # noqa: PTH122 - `Path` has no empty names
        for ending in _ENDINGS:
            if os.path.isfile(stem + ending):  # noqa: PTH113 - that of `Path` raises errors
                yield Path(stem + ending)


def _module(directory: Path) -> Iterator[Path]:
    """What a directory is as a module: what its package.json calls main, or its index."""
    try:
        manifest = read_json(directory / "package.json")
    except ValueError:
        manifest = None
    main = manifest.get("main") if isinstance(manifest, dict) else None
    if isinstance(main, str):
        yield from _files(str(directory / main))
    yield from _files(f"{directory}/index")
