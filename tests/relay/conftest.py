"""Settings, notes and locks of these tests lie in a directory of their own, a new one for each test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("CONTEXTHOST_HOME", str(path))
    monkeypatch.delenv("PI_CACHE_RETENTION", raising=False)
    return path
