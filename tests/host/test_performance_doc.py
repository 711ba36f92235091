"""host/docs/performance.md names every benchmark, and the script that fills in its figures reads what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "host" / "docs" / "performance.md").read_text(encoding="utf-8")
SCRIPT = ROOT / "tests" / "benchmarks" / "figures.py"


def test_every_benchmark_is_in_the_table() -> None:
    found = {path.name for path in (ROOT / "tests" / "benchmarks").glob("test_*.py")}
    assert set(re.findall(r"^\| `(test_\w+\.py)`", PAGE, re.M)) == found


def test_the_script_makes_a_table_of_what_report_prints() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import figures\n"
        "log = 'x.py .\\n\\n    cache hit at 1000 entries: p95 1.5 µs (gate 2 ms)\\n.\\n        def f(x): 1\\n'\n"
        "print(figures.section(log, date='2026-01-05', machine='a machine'))\n"
        "print(figures.filled(figures.PAGE.read_text(), 'NEW').count('NEW'))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(SCRIPT.parent)],
        env={"PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines() == [
        "<!-- figures -->",
        "Measured on 2026-01-05, a machine, by `uv run pytest tests/benchmarks -n 0`:",
        "",
        "| what | figures |",
        "|---|---|",
        "| cache hit at 1000 entries | p95 1.5 µs (gate 2 ms) |",
        "<!-- end of figures -->",
        "1",
    ]
