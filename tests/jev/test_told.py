"""What jev says reaches the user once, and once with its name: at the command line and in a chat."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contexthost.text import said_by
from jev.sessions import small_session

NO_KEY = "get a key at https://console.typesafe.ai/settings/keys and set TYPESAFE_API_KEY (or OPENROUTER_API_KEY)"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "pi"))
    monkeypatch.setenv("CONTEXTHOST_HOST__DISABLED", '["relay", "codex_native", "masking"]')
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    (config / "host.json").write_text('{"compaction": {"keepRecentTokens": 200}}')
    return small_session(tmp_path / "s.jsonl")


def contexthost(*arguments: str | Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "contexthost", *map(str, arguments)]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=60, check=False)


def test_why_jev_made_no_compaction_is_one_line_that_names_it_once(path: Path) -> None:
    before = path.read_bytes()
    done = contexthost("compact", path, "--with", "jev")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: Compaction cancelled by jev: no key: {NO_KEY}; /jev-setup guides you. Nothing was compacted.\n"
    )
    assert path.read_bytes() == before


def test_a_chat_puts_jevs_name_before_its_words_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE_API_KEY", "any")
    # The port of nobody: nothing is sent, because nothing is asked.
    model = ("--base-url", "http://127.0.0.1:9", "--model", "m-1", "--api", "chat", "--provider", "mine")
    done = contexthost("chat", path, *model, typed="/jev-setup nonsense\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"· jev: no key, so compactions are left to others. To use it, {NO_KEY}; /jev-setup guides you.",
        "· /jev-setup: jev setup takes `defaults` or a JSON object with settings; a key belongs into the environment",
    ]


@pytest.mark.parametrize(
    ("plugin", "message", "shown"),
    [
        ("jev", "jev: ready", "jev: ready"),
        ("jev", "jev, manual compaction: no key", "jev, manual compaction: no key"),
        ("jev", "plugin jev, hook input: it failed", "plugin jev, hook input: it failed"),
        ("jev", "/jev-setup: no such key", "/jev-setup: no such key"),
        ("relay", "context-relay: 152k → ~9k tokens", "context-relay: 152k → ~9k tokens"),
        ("codex_native", "native compaction failed: 500", "codex_native: native compaction failed: 500"),
        ("jev", "compaction cancelled: no key", "jev: compaction cancelled: no key"),
        ("jev", "jevons: a paradox", "jev: jevons: a paradox"),
        ("jev", "jev is ready: nothing to do", "jev: jev is ready: nothing to do"),
        ("a.c", "abc: another plugin", "a.c: abc: another plugin"),
        ("", "the run ended early: no disk", "the run ended early: no disk"),
    ],
)
def test_who_says_it(plugin: str, message: str, shown: str) -> None:
    assert said_by(plugin, message) == shown
