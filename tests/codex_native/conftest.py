"""Settings, locks and keys of these tests are their own; no proxy of the machine comes between them and a server."""

from __future__ import annotations

from pathlib import Path

import pytest

import contexthost_codex_native


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    monkeypatch.setenv("CONTEXTHOST_HOME", str(directory))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("SUB_API_API_KEY", "OPENAI_CODEX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(contexthost_codex_native, "_settings", None)
    monkeypatch.setattr(contexthost_codex_native, "_memories", {})
    return directory
