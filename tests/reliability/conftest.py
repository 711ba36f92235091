"""The fault campaign: how long it goes on, which seed it draws from, and the figures that it prints at the end.

``uv run pytest tests/reliability`` takes about 7 minutes; ``--campaign-minutes`` asks for more (or less), and
``--campaign-seed`` repeats what an earlier run drew. Tests take both from the fixture `campaign`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from reliability.campaign import MINUTES, Campaign
from reliability.running import Runner
from support.figures import FIGURES, print_figures
from support.model_server import ModelServer, say


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


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """The process that runs commands and gets in their way."""
    with Runner(tmp_path_factory.mktemp("runner") / "warm") as process:
        yield process


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A model on loopback that always answers."""
    with ModelServer(lambda request: say("An answer. " * 20)) as server:
        yield server.base_url


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
