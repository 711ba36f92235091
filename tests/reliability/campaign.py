"""What one run of the campaign was asked for."""

from __future__ import annotations

import random
from dataclasses import dataclass

from support.figures import report

__all__ = ["MINUTES", "Campaign"]

MINUTES = 5.0
"""How long the whole campaign takes by default, with two workers."""


@dataclass(frozen=True)
class Campaign:
    """One run of the campaign.

    ``minutes`` is what the whole directory should take, at the default of 5; a test does in proportion to it what it
    does in many rounds. ``seed`` is the same in every worker and is printed.
    """

    seed: int
    minutes: float

    def report(self, text: str) -> None:
        """Takes a figure to be printed at the end of the run, of whichever worker."""
        report(text)

    def draw(self, purpose: str) -> random.Random:
        """A source of random numbers of this run's seed, a different one for each purpose."""
        return random.Random(f"{self.seed} {purpose}")

    def rounds(self, usual: int) -> int:
        """How many rounds to do where ``usual`` are due in the default time; at least 1."""
        return max(1, round(usual * self.minutes / MINUTES))
