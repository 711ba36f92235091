"""The patterns in Pi's settings and in package manifests: minimatch with its defaults, and globs on the disk."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import Final

from wcmatch import glob
from wcmatch._wcparse import PatternLimitException  # which its documentation names, and no public module has

__all__ = ["NotUnderstood", "expand", "is_glob", "matches"]

_AS_PI: Final = glob.GLOBSTAR | glob.BRACE | glob.EXTGLOB | glob.NODOTDIR | glob.CASE | glob.FORCEUNIX

_SPECIAL: Final = re.compile(r"[^/.]/+\.\.|[*+]\(|(\*\*.*){5}", re.DOTALL)
"""What Pi reads in another way (``..`` after something else takes that away), or what could take for ever."""


class NotUnderstood(ValueError):
    """A pattern that is read in another way here than in Pi, or would take too long."""


def is_glob(pattern: str) -> bool:
    """What Pi takes for a glob, rather than for a path."""
    return "*" in pattern or "?" in pattern


def matches(path: str, pattern: str) -> bool:
    """Whether minimatch says so.

    Raises:
        NotUnderstood: this cannot be told.
    """
    bare = pattern.lstrip("!")
    negated = (len(pattern) - len(bare)) % 2 == 1
    return not pattern.startswith("#") and negated != _compiled(bare).match(path)


def expand(pattern: str, root: Path) -> list[Path]:
    """What a glob of a manifest finds in its package, without what has a dot before its name.

    Raises:
        NotUnderstood: this cannot be told; also of what is outside the package, which may be a whole disk.
    """
    if pattern.startswith("/") or ".." in pattern:
        raise NotUnderstood(pattern)
    _compiled(pattern)
    found = glob.glob(pattern, root_dir=root, flags=_AS_PI)
    return [root / path for path in sorted(found) if not any(part.startswith(".") for part in PurePath(path).parts)]


def _compiled(pattern: str) -> glob.WcMatcher[str]:
    if _SPECIAL.search(pattern):
        raise NotUnderstood(pattern)
    try:
        return glob.compile(pattern, flags=_AS_PI)
    except (PatternLimitException, RecursionError):
        raise NotUnderstood(pattern) from None
