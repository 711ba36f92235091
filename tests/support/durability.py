"""Processes that append to session files and are killed for it: what they write, how they are started and heard."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contexthost.session import Entry
from support.builder import SessionBuilder
from support.processes import Told

SCRIPTS = Path(__file__).parents[1] / "host" / "durability"
TEXT = 'line {}: caf\u00e9 \U0001f600 \u2028 "quoted" \\ tab\t\n'
"""Characters of one to four bytes, and such as JSON escapes: a write may be cut inside any of them."""


def numbered(number: int, size: int) -> dict[str, Any]:
    """A user message that says its own number and length, so that half of one can be told from a whole one."""
    start = f"{number} {size} "
    filler = TEXT.format(number)
    content = (start + filler * (size // len(filler) + 1))[: max(size, len(start))]
    return {"type": "message", "message": {"role": "user", "content": content, "timestamp": 1767603600000 + number}}


def is_whole(entry: Entry) -> bool:
    """Whether an entry is exactly what `numbered` made for the number and size that it begins with."""
    content = (entry.message or {})["content"]
    number, size, _ = content.split(" ", 2)
    return entry.message == dict(numbered(int(number), int(size))["message"])


def size_of_entry(draw: random.Random) -> int:
    """Characters: mostly 100 to 2,000, one in ten up to 30,000, one in a hundred up to 100,000."""
    lot = draw.random()
    return draw.randint(100, 2_000 if lot < 0.89 else 30_000 if lot < 0.99 else 90_000)


def digest(raw: bytes) -> str:
    """A short name for a line's bytes."""
    return hashlib.sha256(raw).hexdigest()[:16]


def old_session(path: Path, version: int, entries: int = 8) -> bytes:
    """Writes a session of that version with a blank and a malformed line in it; its bytes."""
    build = SessionBuilder(version=version)
    for number in range(entries):
        build.user(f"question {number}")
        if number == 1:
            build.raw(b'{"type":"message","torn')
            build.raw(b"")
    build.write(path)
    return path.read_bytes()


class Process(Told):
    """A script of `durability`, with a home of its own."""

    def __init__(self, script: str, home: Path) -> None:
        super().__init__(SCRIPTS / script, environment={**os.environ, "CONTEXTHOST_HOME": str(home)})

    def answers(self) -> Iterator[dict[str, Any]]:
        """The answers up to the one that says how the child ended, which is the last."""
        while True:
            answer = self.hear()
            yield answer
            if "ended" in answer:
                return


def acknowledged(answers: Iterator[dict[str, Any]]) -> dict[str, str]:
    """Id and digest of every line that a process said it had appended."""
    found: dict[str, str] = {}
    for answer in answers:
        assert "error" not in answer, answer
        for entry_id, name in answer.get("ack", ()):
            assert entry_id not in found
            found[entry_id] = name
    return found


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for the time of a block, for fixtures that outlive one test."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


@contextmanager
def size_limit(size: int) -> Iterator[None]:
    """No file may grow past `size` bytes by this process's writes; Python ignores the signal, so writes fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def mounted(where: Path, options: str) -> Iterator[Path]:
    """A file system in memory with these options, such as ``size=256k``; skips the test where it is not permitted."""
    if not sys.platform.startswith("linux"):
        pytest.skip("a small tmpfs can be mounted on Linux only")
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)
