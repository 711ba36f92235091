"""The fault campaign: how long it goes on, which seed it draws from, and the figures that it prints at the end.

``uv run pytest tests/reliability`` takes about 5 minutes; ``--campaign-minutes`` asks for more (or less), and
``--campaign-seed`` repeats what an earlier run drew. Tests take both from the fixture `campaign`.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from typing import Any

import pytest

from support.figures import FIGURES, print_figures, report

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


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("campaign")
    group.addoption("--campaign-minutes", type=float, default=MINUTES, help="How long the fault campaign may take.")
    group.addoption("--campaign-seed", type=int, default=None, help="Draw as an earlier run did.")


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("campaign_seed", config.getoption("--campaign-seed", None))
    config.option.campaign_seed = secrets.randbelow(2**32) if given is None else given


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker is about to start: it draws from our seed."""
    node.workerinput["campaign_seed"] = node.config.option.campaign_seed


@pytest.fixture(scope="session")
def campaign(pytestconfig: pytest.Config) -> Campaign:
    """What this run of the campaign was asked for."""
    return Campaign(pytestconfig.option.campaign_seed, pytestconfig.getoption("--campaign-minutes", MINUTES))


def pytest_report_header(config: pytest.Config) -> str:
    minutes = config.getoption("--campaign-minutes", MINUTES)
    return f"campaign: --campaign-seed {config.option.campaign_seed} --campaign-minutes {minutes:g}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = list(FIGURES)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """A worker has ended: its figures are printed with ours."""
    FIGURES.extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    print_figures(terminalreporter)
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"to draw the same again: --campaign-seed {config.option.campaign_seed}")
