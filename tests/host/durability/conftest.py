"""What the tests of this directory share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """contexthost's own directories, for this test and the processes that it starts."""
    directory = tmp_path / "home"
    monkeypatch.setenv("CONTEXTHOST_HOME", str(directory))
    return directory
