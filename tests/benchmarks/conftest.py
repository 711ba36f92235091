"""Prints the figures that the benchmarks reported, in every log."""

from __future__ import annotations

import pytest

from support.figures import print_figures


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    print_figures(terminalreporter)
