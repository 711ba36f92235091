"""The patterns in Pi's settings and in package manifests, as far as Pi's use of them goes: minimatch with its defaults,
globs on the disk, and what a ``.gitignore`` says of the names in its own directory."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["NotUnderstood", "expand", "ignored", "is_glob", "matches"]

_MOST_BRACES: Final = 200
_MOST_ENTRIES: Final = 20_000
"""Entries that a glob may look at: one over a whole disk must not keep anybody waiting."""


class NotUnderstood(ValueError):
    """A pattern that says more than is understood here, or would take too long."""


def is_glob(pattern: str) -> bool:
    """What Pi takes for a glob, rather than for a path."""
    return "*" in pattern or "?" in pattern


def matches(path: str, pattern: str) -> bool:
    """Whether minimatch says so: ``*`` and ``?`` within a part of the path, ``**`` for whole parts, ``[a-z]``,
    ``{a,b}``; none of them stands for a dot at the beginning of a part.

    Raises:
        NotUnderstood: there are other special forms in it.
    """
    if pattern.startswith("#"):
        return False
    bare = pattern.lstrip("!")
    parts = re.split("/+", path)
    found = any(_parts_match(parts, _parts_of(option)) for option in _braces(bare))
    return found != bool((len(pattern) - len(bare)) % 2)


def expand(pattern: str, root: Path) -> list[Path]:
    """What a glob of a manifest finds below (or beside) its package, without what has a dot before its name.

    Raises:
        NotUnderstood: as `matches`, or it has looked at too much.
    """
    found: set[str] = set()
    budget = [_MOST_ENTRIES]
    for option in _braces(pattern):
        found.update(_walk("/" if option.startswith("/") else str(root), option.split("/"), budget))
    relative = {path: os.path.relpath(path, root).split("/") for path in found}
    return [Path(path) for path in sorted(found) if all(p == ".." or p[:1] != "." for p in relative[path])]


def ignored(name: str, is_directory: bool, rules: Sequence[str]) -> bool:
    """Whether the lines of ignore files leave out this entry of their own directory; the last that fits counts."""
    out = False
    for line in rules:
        rule = line.rstrip()
        if not rule or rule.startswith("#"):
            continue
        negated = rule.startswith("!")
        rule = rule.removeprefix("!").removeprefix("\\").removeprefix("/")
        if rule.endswith("/") and not is_directory:
            continue
        rule = rule.rstrip("/").removeprefix("**/")
        # Pi takes one directory at a time, so a rule with a slash left in it is about what is further down.
        if "/" not in rule and re.fullmatch(_segment(rule, dots=True), name, re.IGNORECASE | re.DOTALL):
            out = not negated
    return out


def _parts_of(pattern: str) -> list[str]:
    """Its parts; ``..`` takes away the part before it, whatever that could stand for."""
    parts: list[str] = []
    for part in re.split("/+", pattern):
        if part == ".." and parts and parts[-1] not in ("", ".", "..", "**"):
            parts.pop()
        else:
            parts.append(part)
    return parts


def _parts_match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    @functools.cache
    def fits(at: int, wanted: int) -> bool:
        if wanted == len(pattern):
            return at == len(parts)
        if pattern[wanted] == "**":
            last = wanted + 1 == len(pattern)
            if not last and fits(at, wanted + 1):
                return True
            if at == len(parts) or parts[at].startswith("."):
                return False
            return (last and at + 1 == len(parts)) or fits(at + 1, wanted)
        return at < len(parts) and _part_matches(parts[at], pattern[wanted]) and fits(at + 1, wanted + 1)

    return fits(0, 0)


def _part_matches(part: str, pattern: str) -> bool:
    if pattern in ("", ".", ".."):
        return part == pattern
    return part not in ("", ".", "..") and re.fullmatch(_segment(pattern), part, re.DOTALL) is not None


@functools.lru_cache(maxsize=512)
def _segment(pattern: str, *, dots: bool = False) -> str:
    """A regular expression for one part of a path."""
    made, at = "", 0
    while at < len(pattern):
        character = pattern[at]
        if character in "?*+@!" and pattern[at + 1 : at + 2] == "(":
            raise NotUnderstood(pattern)
        if character == "*":
            made += "[^/]*"
        elif character == "?":
            made += "[^/]"
        elif character == "\\" and at + 1 < len(pattern):
            at += 1
            made += re.escape(pattern[at])
        elif character == "[" and (end := pattern.find("]", at + 2)) > 0:
            made += _class(pattern[at + 1 : end])
            at = end
        else:
            made += re.escape(character)
        at += 1
    return made if dots or pattern[:1] not in ("*", "?", "[") else rf"(?!\.){made}"


def _class(inside: str) -> str:
    if "[" in inside or "\\" in inside:  # [:alpha:] and the like
        raise NotUnderstood(inside)
    negated, inside = inside[0] in "!^", inside.lstrip("!^") if inside[0] in "!^" else inside
    ranges = "".join(re.escape(one) if one != "-" else "-" for one in inside)
    try:
        re.compile(f"[{ranges}]")
    except re.error:
        raise NotUnderstood(inside) from None
    return f"[{'^/' if negated else ''}{ranges}]"


def _braces(pattern: str) -> list[str]:
    """The patterns that ``{a,b}`` stands for."""
    done: list[str] = []
    left = [pattern]
    while left:
        now = left.pop(0)
        found = _first_braces(now)
        if found is None:
            done.append(now)
        else:
            start, end, options = found
            left[:0] = [now[:start] + option + now[end:] for option in options]
        if len(done) + len(left) > _MOST_BRACES:
            raise NotUnderstood(pattern)
    return done


def _first_braces(pattern: str) -> tuple[int, int, list[str]] | None:
    """Where the first braces with a comma stand, and what is between the commas."""
    for opening in re.finditer(r"\{", pattern):
        start = opening.start()
        if pattern[:start].endswith(("\\", "$")):
            raise NotUnderstood(pattern)
        depth, cuts = 0, [start]
        for at in range(start, len(pattern)):
            depth += {"{": 1, "}": -1}.get(pattern[at], 0)
            if pattern[at] == "," and depth == 1:
                cuts.append(at)
            if depth == 0:
                if ".." in pattern[start:at] and len(cuts) == 1:  # {1..9}
                    raise NotUnderstood(pattern)
                if len(cuts) == 1:
                    break  # no choice: the braces are meant as they stand
                cuts.append(at)
                return start, at + 1, [pattern[one + 1 : two] for one, two in itertools.pairwise(cuts)]
    return None


def _walk(directory: str, wanted: Sequence[str], budget: list[int]) -> Iterator[str]:
    if not wanted:
        yield directory
        return
    part, rest = wanted[0], wanted[1:]
    if part in ("", "."):
        yield from _walk(directory, rest, budget)
    elif part == "..":
        yield from _walk(os.path.dirname(directory), rest, budget)  # noqa: PTH120 - these are texts, as Pi has them
    elif part != "**" and not re.search(r"[*?\[\\]", part):
        there = os.path.join(directory, part)  # noqa: PTH118 - the same
        if _exists(there):
            yield from _walk(there, rest, budget)
    else:
        if part == "**" and rest:
            yield from _walk(directory, rest, budget)
        for entry in _entries(directory, budget):
            if part == "**":
                if not rest:
                    yield entry.path
                if _is_directory(entry, links=False):
                    yield from _walk(entry.path, wanted, budget)
            elif _part_matches(entry.name, part) and (not rest or _is_directory(entry, links=True)):
                yield from _walk(entry.path, rest, budget)


def _entries(directory: str, budget: list[int]) -> list[os.DirEntry[str]]:
    """What is in a directory, but for names with a dot first; nothing where it cannot be read."""
    try:
        with os.scandir(directory) as found:
            entries = [entry for entry in found if not entry.name.startswith(".")]
    except (OSError, ValueError):
        return []
    budget[0] -= len(entries)
    if budget[0] < 0:
        raise NotUnderstood("it finds too much")
    return entries


def _is_directory(entry: os.DirEntry[str], *, links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=links)
    except OSError:  # a link to itself
        return False


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)  # noqa: PTH110 - the same
    except ValueError:  # a null character
        return False
