"""Prints the figures that the benchmarks reported, in every log."""

from __future__ import annotations

import pytest

from support.gates import FIGURES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures")
        for figure in FIGURES:
            terminalreporter.write_line(f"    {figure}")
