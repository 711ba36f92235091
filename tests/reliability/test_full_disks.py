"""Disks that fill up, in every writing path of host and plugins: a real small file system with no more than so many
pages or no inode left, and a limit that cuts files at any byte. The command says in a line what is wrong with which
file, or manages without; sessions keep their old bytes and can be opened, other files are the old ones or the new ones,
nothing is left lying about; and as soon as there is room, the same command succeeds."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from reliability.campaign import Campaign
from reliability.disks import PAGE, fill, take_all_names
from reliability.operations import OPERATIONS, Operation, check_place, litter, made_ready
from reliability.running import Outcome, Place, Runner
from support.durability import mounted

PAGES = 4
LIMITS = 4
"""How many different amounts of room are tried for each operation, in the default time."""

QUIET = {
    "a relay's note goes",
    "which gateways cannot compact",
    "the bridge's log",
    "the bridge's log, when it is full",
}
"""What is only for the plugin's own use; the command goes on without, or is no command line."""


def told_well(operation: Operation, place: Place, outcome: Outcome) -> bool:
    """Whether there was an error; then it says in one line what is wrong, and with what."""
    assert "Traceback" not in outcome.errors or operation.name in QUIET, outcome.errors
    assert "--- Logging error" not in outcome.errors, outcome.errors
    lacks = operation.stdin and b"And on." not in place.files().get(operation.session, b"")
    if (outcome.ended != 0 or lacks) and operation.name not in QUIET:
        assert outcome.ended in ((0, 1) if lacks else (1,)), outcome
        told = [line for line in outcome.errors.splitlines() if line.startswith(("Error: ", "· "))]
        assert told, outcome
        assert re.search(r"No space left|disk is full|disk full|File too large|size limit", told[-1]), outcome
        assert re.search(r"/|\.jsonl|page\.html|demo", told[-1]), outcome
    return outcome.ended != 0 or bool(lacks)


def then_with_room(
    runner: Runner,
    operation: Operation,
    place: Place,
    url: str,
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
) -> None:
    outcome = runner.run(place, operation.command(url), stdin=operation.stdin)
    if outcome.ended != 0:
        assert operation.done, outcome
        assert operation.done in outcome.errors, outcome
    assert set(after) - {operation.uncertain} <= set(place.files())
    check_place(operation, place, before, after)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_full_disk_is_told_and_costs_nothing(
    runner: Runner, url: str, tmp_path: Path, campaign: Campaign, operation: Operation
) -> None:
    draw = campaign.draw(f"full disks, {operation.name}")
    ready = made_ready(operation, tmp_path / "ready")
    before = ready.files()
    whole = ready.again(tmp_path / "whole")
    assert runner.run(whole, operation.command(url), stdin=operation.stdin).ended == 0
    after = whole.files()
    ends: Counter[str] = Counter()

    new = max((len(content) for name, content in after.items() if content != before.get(name)), default=1)
    for number in range(campaign.rounds(LIMITS)):
        limit = draw.randint(0, new + 100)
        place = ready.again(tmp_path / f"limit-{number}")
        outcome = runner.run(place, operation.command(url), stdin=operation.stdin, file_limit=limit)
        ends[check(operation, place, outcome, before, after, f"--campaign-seed {campaign.seed}, limit {limit}")] += 1
        then_with_room(runner, operation, place, url, before, after)

    rooms = [0, *(draw.randint(1, 12) for _ in range(campaign.rounds(PAGES) - 1))]
    with mounted(tmp_path / "disk", "size=6m,nr_inodes=300") as disk:
        for number, pages in enumerate(rooms):
            place = ready.again(disk / str(number))
            filler = fill(disk, pages * PAGE)
            outcome = runner.run(place, operation.command(url), stdin=operation.stdin)
            ends[
                check(operation, place, outcome, before, after, f"--campaign-seed {campaign.seed}, {pages} pages")
            ] += 1
            filler.unlink()
            then_with_room(runner, operation, place, url, before, after)
            shutil.rmtree(place.root)
        place = ready.again(disk / "inodes")
        inodes = take_all_names(disk)
        outcome = runner.run(place, operation.command(url), stdin=operation.stdin)
        ends[check(operation, place, outcome, before, after, "no inode left")] += 1
        for path in inodes:
            path.unlink()
        then_with_room(runner, operation, place, url, before, after)
    campaign.report(
        f"full disks, {operation.name}: {sum(ends.values())} runs, {ends['told']} told an error, {ends['done']} did it "
        "or did without"
    )


def check(
    operation: Operation,
    place: Place,
    outcome: Outcome,
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    fault: str,
) -> str:
    """Checks a place after a run in it; how the run ended: ``told`` or ``done``."""
    try:
        told = told_well(operation, place, outcome)
        check_place(operation, place, before, after)
        assert litter(place) == []
    except AssertionError as error:
        error.add_note(f"{operation.name}: {fault}: {outcome}")
        raise
    return "told" if told else "done"
