"""Every test of jev has its own contexthost directories and an environment without keys, settings and proxies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import contexthost_jev
from jev.jev_server import JevServer


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(("PI_JEV_", "CONTEXTHOST_", "TYPESAFE_", "OPENROUTER_")):
            monkeypatch.delenv(name)
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(contexthost_jev, "_process", contexthost_jev._Process())


@pytest.fixture
def server() -> Iterator[JevServer]:
    with JevServer() as running:
        yield running
