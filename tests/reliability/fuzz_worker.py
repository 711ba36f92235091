"""Looks at fuzzed session files, one for each order, and writes to copies of some; made to be killed when it hangs.

``fuzz_worker.py SEED DIRECTORY``. An order is a line with a number. Answers are lines of JSON: ``begun`` (what it does
now) any number of times, then ``done``. Where it hangs, its standard error says where it was.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib.metadata
import json
import os
import random
import resource
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.fuzz import Fuzzed, fuzzed
from support.fuzz_looks import look_once, standing
from support.fuzz_writes import write_once

SAY_WHERE = 4.0  # seconds on one file after which it says where it is
MEMORY = 4 << 30  # bytes: whoever wants more for a file of some kilobytes would take all there is
EVERY = 10  # so many files to one that is also written to


def say(**answer: Any) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def one_file(made: Fuzzed, number: int, directory: Path, draw: random.Random) -> dict[str, Any]:
    looked, written, out = (directory / name for name in ("looked", "written", "out"))
    for place in (looked, written, out):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    home = standing(directory / "home")

    def watch(what: str) -> None:
        say(begun=what)

    path = looked / "session.jsonl"
    path.write_bytes(made.data)
    answer: dict[str, Any] = asdict(look_once(path, out, draw, watch=watch))
    if standing(directory / "home") != home:
        answer["faults"].append("looking left something in the home directory")
    if number % EVERY == 0:
        copy = written / "session.jsonl"
        copy.write_bytes(made.data)
        answer["written"] = asdict(write_once(copy, out, draw, watch=watch))
    return answer


def main() -> None:
    seed, directory = int(sys.argv[1]), Path(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    say(ready=True)
    # Which packages are installed is read once: it takes most of the time of a command, and is nothing about a file.
    installed = functools.cache(importlib.metadata.entry_points)
    with patch.object(importlib.metadata, "entry_points", installed):
        for order in sys.stdin:
            do(int(order), seed, directory)


def do(number: int, seed: int, directory: Path) -> None:
    """One order: makes the file, does everything with it, and answers."""
    made = fuzzed(seed, number)
    faulthandler.dump_traceback_later(SAY_WHERE)
    started = time.perf_counter()
    answer = one_file(made, number, directory, random.Random(f"looks {seed} {number}"))
    seconds = time.perf_counter() - started
    faulthandler.cancel_dump_traceback_later()
    answer |= {"base": made.base, "mutations": made.mutations, "bytes": len(made.data), "seconds": seconds}
    say(done=answer)


if __name__ == "__main__":
    main()
