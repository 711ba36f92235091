"""`kill -9` in every writing path of host and plugins: at random moments, before random lines of the functions that
write, and by the kernel in the middle of a write. Whatever the moment: sessions are a prefix of what was meant, with
the old bytes at their beginning, other files are the old ones or the new ones, nothing stays locked, and the same
command succeeds the next time and clears up.

The table of operations is compared with the source: a new function that changes files fails here until an operation
passes through it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reliability.campaign import Campaign
from reliability.operations import NOT_FILES, OPERATIONS, ROTATION, Operation, check_place, litter, made_ready
from reliability.running import Outcome, Place, Runner
from reliability.writers import writes_in, writing_functions

RANDOM, LINES, TORN = 1, 3, 1
"""Kills of each kind for each operation, in the default time."""
WATCHED = sorted({*writing_functions(), ROTATION} - NOT_FILES.keys())
OLD = 7200  # seconds; what lies there so long has nobody who writes it


def run(runner: Runner, operation: Operation, place: Place, url: str, **order: Any) -> Outcome:
    return runner.run(place, operation.command(url), stdin=operation.stdin, **order)


def undisturbed(runner: Runner, operation: Operation, root: Path, url: str) -> tuple[Place, Outcome]:
    """The operation in a place of its own, to its end."""
    place = made_ready(operation, root)
    outcome = run(runner, operation, place, url, watch=WATCHED)
    assert outcome.ended == 0, outcome
    assert "Traceback" not in outcome.errors, outcome.errors
    assert litter(place) == []
    return place, outcome


def afterwards(runner: Runner, operation: Operation, place: Place, url: str, after: dict[str, bytes]) -> None:
    """The next run of the same command: it succeeds, or has nothing left to do, and clears up what lies there."""
    for path in litter(place):
        os.utime(path, (path.stat().st_atime - OLD, path.stat().st_mtime - OLD))
    outcome = run(runner, operation, place, url)
    if outcome.ended != 0:
        assert operation.done, outcome
        assert operation.done in outcome.errors, outcome
    assert "Traceback" not in outcome.errors
    assert set(after) - {operation.uncertain} <= set(place.files())


def test_every_function_that_changes_files_is_passed_through_by_an_operation(
    runner: Runner, url: str, tmp_path: Path
) -> None:
    passed = {
        name
        for number, operation in enumerate(OPERATIONS)
        for name in undisturbed(runner, operation, tmp_path / str(number), url)[1].passed
    }
    assert set(WATCHED) - passed == set()
    assert set(NOT_FILES) <= set(writing_functions())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_kill_at_any_moment_costs_nothing(
    runner: Runner, url: str, tmp_path: Path, campaign: Campaign, operation: Operation
) -> None:
    draw = campaign.draw(operation.name)
    ready = made_ready(operation, tmp_path / "ready")
    before = ready.files()
    place, whole_run = undisturbed(runner, operation, tmp_path / "undisturbed", url)
    after = place.files()
    check_place(operation, place, before, after)

    orders: list[dict[str, Any]] = [
        {"kill_after": draw.random() * whole_run.seconds} for _ in range(campaign.rounds(RANDOM))
    ]
    orders += [{"watch": WATCHED, "die_at": draw.randint(1, whole_run.lines)} for _ in range(campaign.rounds(LINES))]
    sizes = [len(content) for name, content in after.items() if content != before.get(name)] or [1]
    orders += [{"file_limit": draw.randint(1, max(sizes)), "limit_kills": True} for _ in range(campaign.rounds(TORN))]
    ends: Counter[str] = Counter()
    for number, order in enumerate(orders):
        place = ready.again(tmp_path / str(number))
        outcome = run(runner, operation, place, url, **order)
        told = f"--campaign-seed {campaign.seed}: {order} {outcome}"
        assert outcome.killed or outcome.ended in (0, 1), told
        ends["killed" if outcome.killed else "done" if outcome.ended == 0 else "failed"] += 1
        ends["litter"] += bool(litter(place))
        check_place(operation, place, before, after)
        afterwards(runner, operation, place, url, after)
        check_place(operation, place, before, after)
        assert litter(place) == [] or operation.done, told
    assert ends["killed"] > 0
    campaign.report(
        f"kills, {operation.name}: {ends['killed']} of {len(orders)} runs killed ({ends['done']} had ended, "
        f"{ends['failed']} told an error), {ends['litter']} left a temporary file; a whole run takes "
        f"{whole_run.seconds:.2f} s"
    )


def test_the_search_for_functions_that_write_finds_them() -> None:
    source = """
import os, shutil, tempfile
from pathlib import Path
def reads(path):
    return open(path).read(), os.open(path, os.O_RDONLY), path.open("rb"), "a".replace("b", "c"), shutil.which("git")
def one(path):
    path.write_text("x")
class Two:
    def method(self, path):
        def inner():
            with open(path, mode="ab") as file:
                file.write(b"")
        return inner
def three(path):
    os.open(path, os.O_WRONLY | os.O_CREAT)
    Path(path).replace("other")
async def four(path):
    shutil.copy(path, "other")
    tempfile.mkstemp()
tempfile.mkdtemp()
"""
    assert set(writes_in(source)) == {
        ("one", "write_text"),
        ("Two.method.<locals>.inner", "open"),
        ("three", "os.open"),
        ("three", "replace"),
        ("four", "shutil.copy"),
        ("four", "tempfile.mkstemp"),
        ("<module>", "tempfile.mkdtemp"),
    }
