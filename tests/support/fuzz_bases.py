"""What fuzzed files are made from: pieces of the bundled session and of recorded ones, and sessions made at random."""

from __future__ import annotations

import random
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from support.broken import KINDS, broken_session
from support.fuzz_values import decoded, encoded
from support.sessions import random_session
from support.talk import healthy_session

__all__ = ["base_lines"]

SHARED_SESSIONS: Final = Path(__file__).parents[3] / "shared" / "sessions"
PIECE_BYTES: Final = 10_000
"""About how much of a long session one file gets."""


@cache
def _long_sessions() -> dict[str, list[bytes]]:
    demo = files("contexthost.data").joinpath("demo.jsonl").read_bytes()
    found = {"demo": demo.splitlines()}
    for path in sorted(SHARED_SESSIONS.glob("*.jsonl")):
        found[path.stem] = path.read_bytes().splitlines()
    return found


def _piece(lines: list[bytes], draw: random.Random) -> list[bytes]:
    """The header and some lines in a row, of which the first begins the branch."""
    start = draw.randrange(1, len(lines))
    size = 0
    end = start
    while end < len(lines) and size < PIECE_BYTES:
        size += len(lines[end])
        end += 1
    first = decoded(lines[start])
    head = lines[start] if first is None else encoded({**first, "parentId": None}, draw)
    return [lines[0], head, *lines[start + 1 : end]]


def base_lines(draw: random.Random) -> tuple[str, list[bytes]]:
    """The name of a source and the lines of a session from it, without line feeds, header first."""
    name = draw.choice(["demo", "recorded", "random", "random", "talk", "broken"])
    seed = draw.randrange(100_000)
    if name == "random":
        return name, random_session(seed, size=draw.choice([3, 8, 15])).splitlines()
    if name == "talk":
        return name, healthy_session(seed).splitlines()
    if name == "broken":
        return name, broken_session(draw.choice(KINDS), seed).data.splitlines()
    known = _long_sessions()
    name = "demo" if name == "demo" else draw.choice(list(known))
    return name, _piece(known[name], draw)
