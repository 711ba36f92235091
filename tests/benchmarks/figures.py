"""Puts the figures that the benchmarks print into host/docs/performance.md, with date, machine and command::

    uv run pytest tests/benchmarks -n 0 2>&1 | uv run python tests/benchmarks/figures.py

A figure is a line of four spaces, a name, a colon and the rest, as `support.figures.report` prints it.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "host" / "docs" / "performance.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def figures(log: str) -> list[tuple[str, str]]:
    """(what was measured, the figures) of each line that `report` printed, in order."""
    return re.findall(r"^    (?! )(.+?): (.*\d.*)$", log, re.M)


def section(log: str, *, date: str, machine: str) -> str:
    """What stands between the markers."""
    rows = [f"| {name.replace('|', '/')} | {told.replace('|', '/')} |" for name, told in figures(log)]
    head = f"Measured on {date}, {machine}, by `uv run pytest tests/benchmarks -n 0`:"
    return "\n".join([BEGIN, head, "", "| what | figures |", "|---|---|", *rows, END])


def filled(page: str, new: str) -> str:
    """The page with another section between its markers. Raises ValueError without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return before + new + after


def main() -> None:
    log = sys.stdin.read()
    sys.stdout.write(log)
    if not figures(log) or re.search(r"^(FAILED|ERROR)", log, re.M):
        raise SystemExit("no figures, or not all gates hold: the page was left as it was")
    cores = (
        f"{os.cpu_count()} shared cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )
    new = section(log, date=datetime.date.today().isoformat(), machine=cores)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), new), encoding="utf-8")


if __name__ == "__main__":
    main()
