"""host/docs/writing-plugins.md shows the files of the example plugin, which `test_packages` builds, installs and runs:
each file whole, none left out."""

from __future__ import annotations

import re
from pathlib import Path

from contexthost import hookspecs

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "integration" / "example_plugin"
TEXT = (ROOT / "host" / "docs" / "writing-plugins.md").read_text(encoding="utf-8")


def test_the_code_of_the_tutorial_is_the_example_plugin() -> None:
    shown = re.findall(r"^```(?:toml|python)\n(.*?)^```", TEXT, re.M | re.S)
    files = ["pyproject.toml", "src/contexthost_bookmarks/__init__.py", "tests/test_bookmarks.py"]
    assert shown == [(EXAMPLE / name).read_text(encoding="utf-8") for name in files]
    found = [path for path in EXAMPLE.rglob("*") if path.suffix in (".py", ".toml")]
    assert sorted(path.relative_to(EXAMPLE).as_posix() for path in found) == files


def test_the_number_of_hooks_is_right() -> None:
    hooks = [value for value in vars(hookspecs).values() if hasattr(value, "contexthost_spec")]
    assert f"There are {len(hooks)}: see the [reference](hooks.md)" in TEXT
