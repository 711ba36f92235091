"""What the READMEs show is true: the Python in them runs as it stands, the commands exist, the demo's figures are the
demo's, and no link leads nowhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md")), *sorted(ROOT.glob("plugins/*/README.md"))]
PAGES += sorted((ROOT / "host" / "docs").glob("*.md"))


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "CONTEXTHOST_HOME": str(tmp_path / "home"), "COLUMNS": "100"}


@pytest.mark.parametrize(
    ("page", "session", "printed", "roles"),
    [
        ("host/README.md", "sums", r"It is 3\. \d+\n", ["system", "user", "assistant", "toolResult", "assistant"]),
        ("README.md", "trip", r"Pack a raincoat\.\n", ["system", "user", "assistant"]),
    ],
)
def test_the_program_of_a_readme_runs(tmp_path: Path, page: str, session: str, printed: str, roles: list[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), flags=re.M | re.S)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        check=False,
    )
    assert done.stderr == ""
    assert re.fullmatch(printed, done.stdout)
    lines = [json.loads(line) for line in (tmp_path / f"{session}.jsonl").read_text().splitlines()]
    assert [line["message"]["role"] for line in lines if line["type"] == "message"] == roles


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "contexthost", "demo", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path), check=True)
    printed = {" ".join(line.split()) for line in done.stdout.splitlines()}
    (block,) = re.findall(r"^```\n(before .*?)^```", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    shown = [" ".join(line.split()) for line in block.splitlines() if line.strip() not in ("", "…")]
    # The last sentence is wrapped in the README; the program prints it in one line.
    assert [line for line in shown[:-2] if line not in printed] == []
    assert " ".join(shown[-2:]) in printed
    assert len((files("contexthost.data") / "demo.jsonl").read_bytes()) == 824_433


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target and not target.startswith("#"):
            assert (page.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_console_block_exists(page: Path) -> None:
    from contexthost.cli import known_commands

    known = known_commands()
    blocks = re.findall(r"^```(?:console|sh|bash)?\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    for name in re.findall(r"^\$? ?contexthost ([a-z-]+)", "\n".join(blocks), flags=re.M):
        assert name in known
