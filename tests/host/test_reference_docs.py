"""host/docs/commands.md and host/docs/settings.md are what host/tools/make_reference.py makes of the code; every
setting is explained; and the tables of settings in the plugins' READMEs name the keys and defaults that there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contexthost.cli.config import known_settings
from contexthost.config import default_file, schema

ROOT = Path(__file__).parents[2]
MAKER = ROOT / "host" / "tools" / "make_reference.py"
MAKE = """
import runpy, sys
for page, make in runpy.run_path(sys.argv[1])["PAGES"].items():
    if page.name == sys.argv[2]:
        sys.stdout.write(make())
"""


@pytest.mark.parametrize("page", ["commands.md", "settings.md"])
def test_the_page_is_what_the_code_says(page: str, tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", MAKE, str(MAKER), page],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={"CONTEXTHOST_HOME": str(tmp_path), "PATH": "", "PYTHONUTF8": "1"},
    ).stdout
    assert made == (ROOT / "host" / "docs" / page).read_text(encoding="utf-8"), f"run host/tools/{MAKER.name}"


@pytest.mark.parametrize("package", ["host", "relay", "codex_native", "jev", "masking"])
def test_every_key_is_explained_in_the_schema(package: str) -> None:
    made = schema(known_settings()[package].model)
    objects = [made, *made.get("$defs", {}).values()]
    unexplained = [key for one in objects for key, told in one["properties"].items() if not told.get("description")]
    assert unexplained == []


@pytest.mark.parametrize("package", ["relay", "codex_native", "jev", "masking"])
def test_the_readme_names_every_setting_at_its_default(package: str) -> None:
    text = (ROOT / "plugins" / package / "README.md").read_text(encoding="utf-8")
    told: dict[str, Any] = {}
    for keys, defaults in re.findall(r"^\| (`[^|]+`) \| ([^|]*) \|", text.split("## Settings")[1], flags=re.M):
        named, values = (re.findall(r"`([^`]+)`", cell) for cell in (keys, defaults))
        told |= dict(zip(named, map(json.loads, values), strict=True))
    assert told == flat(default_file(known_settings()[package].model))


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key → value."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return found
