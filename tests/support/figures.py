"""Figures that tests report and that are printed at the end of a run, whether the tests passed or not."""

from __future__ import annotations

import pytest

__all__ = ["FIGURES", "print_figures", "report"]

FIGURES: list[str] = []
"""What was reported, in order; a directory's ``conftest.py`` has it printed."""


def report(text: str) -> None:
    """Takes a figure to be printed at the end of the run: what is printed meanwhile pytest captures."""
    FIGURES.append(text)


def print_figures(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints them in a section of their own; nothing when there are none."""
    if FIGURES:
        terminalreporter.section("figures")
        for figure in FIGURES:
            terminalreporter.write_line(f"    {figure}")
