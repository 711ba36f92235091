"""Directories and files that may not be written to: every command that reads works as ever and changes nothing; every
command that writes either manages without, or says in a line what may not be written and what to do, and has changed
nothing. Root may write everywhere, so under root the commands run as nobody."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.campaign import Campaign
from reliability.operations import OPERATIONS, Operation, check_place, litter, made_ready
from reliability.running import NOBODY, Outcome, Place, Runner

CLOSED = {
    "the session's directory": ["work"],
    "the settings": ["home/config"],
    "the data": ["home/data"],
    "the state": ["home/state"],
    "the cache": ["home/cache"],
    "all of our own": ["home"],
    "Pi's": ["agent"],
    "everything": ["home", "agent", "work"],
}
"""What is closed → the directories, from the place's root."""

SOME = 3
"""How many of these are tried with each writing command, besides everything, in the default time."""

READING = (
    ("context", "s.jsonl"),
    ("context", "s.jsonl", "--json"),
    ("inspect", "s.jsonl"),
    ("doctor", "s.jsonl"),
    ("doctor", "s.jsonl", "--repair", "--dry-run"),
    ("doctor", "s.jsonl", "--rescue", "new.jsonl", "--dry-run"),
    ("mask", "s.jsonl", "--dry-run"),
    ("relay", "s.jsonl", "--dry-run", "--json"),
    ("compact", "s.jsonl", "--dry-run"),
    ("status", "s.jsonl"),
    ("recall", "s.jsonl", "request", "3"),
    ("recall", "s.jsonl", "--entry", "00000003"),
    ("tree-query", "s.jsonl", "--tool", "read"),
    ("tool", "s.jsonl", "context_tree_query", '{"tool": "read"}'),
    ("jev", "plan", "s.jsonl"),
    ("jev", "status"),
    ("codex", "status", "s.jsonl"),
    ("run", "s.jsonl", "/context"),
    ("sessions",),
    ("plugins",),
    ("config", "show"),
    ("config", "path"),
    ("config", "schema", "masking"),
)
"""Commands that change nothing."""

REFUSED = re.compile(r"Permission denied|may not write|cannot be written to", re.IGNORECASE)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        for path in Path(name).rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


def close(place: Place, directories: list[str]) -> None:
    """Takes everybody's right to write from directories and from everything in them."""
    for name in directories:
        (place.root / name).mkdir(parents=True, exist_ok=True)
    place.for_everybody()
    for name in directories:
        for path in [*(place.root / name).rglob("*"), place.root / name]:
            path.chmod(path.stat().st_mode & ~0o222)


def tree(place: Place) -> dict[str, bytes | None]:
    """Every file and directory: name → the bytes of a file."""
    return {
        str(path.relative_to(place.root)): path.read_bytes() if path.is_file() else None
        for path in sorted(place.root.rglob("*"))
    }


def comparable(text: str, place: Place) -> str:
    """An output without the place, the minute and white space."""
    return re.sub(r"\d\d:\d\d", "hh:mm", "".join(text.replace(str(place.root), "ROOT").split()))


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_what_reads_works_where_nothing_may_be_written(
    runner: Runner, open_to_all: Path, command: tuple[str, ...]
) -> None:
    ready = made_ready(OPERATIONS[0], open_to_all / "ready")
    place = ready.again(open_to_all / "usual")
    place.for_everybody()
    usual = runner.run(place, command, user=NOBODY)
    assert usual.ended in (0, 1), usual  # 1: nothing was found
    assert "Usage: " not in usual.errors
    place_closed = ready.again(open_to_all / "closed")
    close(place_closed, CLOSED["everything"])
    before = tree(place_closed)
    outcome = runner.run(place_closed, command, user=NOBODY)
    assert outcome.ended == usual.ended, outcome
    assert comparable(outcome.output, place_closed) == comparable(usual.output, place)
    assert comparable(outcome.errors, place_closed) == comparable(usual.errors, place)
    assert tree(place_closed) == before


def told_well(operation: Operation, outcome: Outcome) -> None:
    """Whether the error says in one line what may not be written, and what to do about it."""
    assert "Traceback" not in outcome.errors, outcome.errors
    told = [line for line in outcome.errors.splitlines() if line.startswith(("Error: ", "· "))]
    assert told, outcome
    assert REFUSED.search(told[-1]), outcome
    assert re.search(r"/|\.jsonl|page\.html|demo", told[-1]), outcome


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_what_writes_says_what_it_may_not_write(
    runner: Runner, url: str, open_to_all: Path, campaign: Campaign, operation: Operation
) -> None:
    draw = campaign.draw(f"read-only, {operation.name}")
    ready = made_ready(operation, open_to_all / "ready")
    before = ready.files()
    whole = ready.again(open_to_all / "whole")
    assert runner.run(whole, operation.command(url), stdin=operation.stdin).ended == 0
    after = whole.files()
    changed = {name for name, content in after.items() if content != before.get(name)} | (set(before) - set(after))
    others = [name for name in CLOSED if name != "everything"]
    names = ["everything", *draw.sample(others, min(campaign.rounds(SOME), len(others)))]
    ends: Counter[str] = Counter()
    for number, name in enumerate(names):
        place = ready.again(open_to_all / str(number))
        close(place, CLOSED[name])
        outcome = runner.run(place, operation.command(url), stdin=operation.stdin, user=NOBODY)
        told = f"{operation.name}, {name}: {outcome}"
        try:
            check_place(operation, place, before, after)
            assert litter(place) == []
            done = {found for found, content in place.files().items() if content != before.get(found)}
            missing = changed - done - {operation.uncertain} - (set(before) - set(place.files()))
            if outcome.ended != 0 or (operation.stdin and missing):
                told_well(operation, outcome)
                assert done <= {operation.uncertain, "work/demo/demo.jsonl"}, done  # the demo's copy may stay
            elif missing:
                # It did without what is only for its own use.
                assert all(one.startswith("home/") and not one.startswith("home/config") for one in missing), missing
            assert "Traceback" not in outcome.errors
        except AssertionError as error:
            error.add_note(told)
            raise
        ends["refused" if outcome.ended != 0 else "done"] += 1
        shutil.rmtree(place.root, ignore_errors=True)
    campaign.report(f"read-only, {operation.name}: {len(names)} runs, {ends['refused']} refused, {ends['done']} done")
