"""The demo session from beginning to end."""

from __future__ import annotations

import random
from pathlib import Path

from demo import act1_deposit, act2_retries, act3_doubles, act4_pages, act5_review, act6_waitlist
from demo.desk import Desk
from demo.tree import ROOT, Tree
from demo.writer import SessionWriter

START_MS = 1_772_528_400_000
"""3 March 2026, 09:00 UTC: a fixed moment, so that every run writes the same bytes."""


def tell(rng: random.Random, project: Path) -> str:
    """The whole file as text."""
    desk = Desk(SessionWriter(rng, start_ms=START_MS, cwd=ROOT), Tree(project), rng)
    for act in (act1_deposit, act2_retries, act3_doubles, act4_pages, act5_review, act6_waitlist):
        act.play(desk)
    return desk.writer.lines()
