"""A stand-in for the campaign's own conftest, dropped when the two are merged."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Campaign:
    """Seed and length of a run, and where its figures go."""

    seed: int
    minutes: float

    def report(self, text: str) -> None:
        print(text)


@pytest.fixture(scope="session")
def campaign() -> Campaign:
    return Campaign(int(os.environ.get("CAMPAIGN_SEED", "1")), float(os.environ.get("CAMPAIGN_MINUTES", "5")))
