"""The campaign's options reach the workers, the seed draws alike every time, and what workers report is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).with_name("conftest.py")
TEST = """
import pytest

@pytest.mark.parametrize("part", range(4))
def test_part(campaign, part):
    drawn = campaign.draw("part").random()
    campaign.report(f"part {part}: {campaign.seed} {campaign.minutes:g} {campaign.rounds(10)} {drawn}")
"""


def figures(directory: Path, *options: str) -> list[str]:
    """What a run of that test prints in its section of figures."""
    directory.mkdir()
    (directory / "conftest.py").write_text(CONFTEST.read_text())
    (directory / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "-o"]
    command += [f"pythonpath={CONFTEST.parents[1]}", "--rootdir", str(directory), str(directory), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.index("campaign: --campaign-seed") < run.stdout.index("4 passed")
    return sorted(re.findall(r"^    (part .*)$", run.stdout, re.M))


def test_every_worker_draws_from_one_seed_and_is_heard(tmp_path: Path) -> None:
    told = figures(tmp_path / "workers", "-n2", "--campaign-seed", "7", "--campaign-minutes", "10")
    assert [line.split()[:5] for line in told] == [["part", f"{part}:", "7", "10", "20"] for part in range(4)]
    assert len({line.split()[5] for line in told}) == 1
    assert figures(tmp_path / "again", "-n0", "--campaign-seed", "7", "--campaign-minutes", "10") == told


def test_a_seed_that_is_not_given_is_drawn_once_and_not_by_each_worker(tmp_path: Path) -> None:
    told = [line.split() for line in figures(tmp_path / "run", "-n2")]
    assert {tuple(line[3:5]) for line in told} == {("5", "10")}
    assert len({line[2] for line in told}) == 1
