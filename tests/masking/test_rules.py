"""Each test that `README.md` names for a rule exists."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_test_in_the_table_exists() -> None:
    named = re.findall(r"`([\w./]+\.py)::(\w+)`", (HERE / "README.md").read_text("utf-8"))
    assert len(named) > 40
    for file, test in named:
        assert f"def {test}(" in (HERE / file).read_text("utf-8"), f"{file}::{test}"
