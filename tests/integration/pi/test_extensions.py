"""Which extensions Pi loads, told by looking at its directories and settings, is what the real Pi resolves: over random
homes with packages, patterns, ignore files and links. Pi installs nothing here (PI_OFFLINE), and no npm is in its path.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from contexthost.pi.loaded import loaded_extensions
from contexthost.pi.sources import source_of
from support.pi import ORACLE_DIR, node, pi_home
from support.pi_settings import random_home

HOMES = 100
SOURCES = (
    "git:github.com/u/r", "git:github.com/u/r@v1", "git:u/r", "git:u/r#main", "git:gitlab.com/g/sub/r@v1",
    "git:git@github.com:u/r.git@v1", "git@github.com:u/r", "https://github.com/u/r.git@v3",
    "git:git@example.com:team/x/r.git@main", "https://github.com/u/r/tree/feature/x", "https://github.com/u/r#abc",
    "https://www.github.com/u/r/", "git:https://github.com/u/r", "https://me:word@example.com:8443/u/r@v1",
    "git:GitHub.com/u/R", "ssh://git@example.com:2222/u/r.git", "ssh://git@github.com/u/r", "git://example.com/u/r",
    "http://example.com/a/b/c", "git:localhost/a/b", "git: github.com/u/r", "github:u/r", "git:", "https://",
    "npm:foo", "npm:foo@1.2.3", "npm:@s/foo", "npm:@s/foo@^1", "npm: foo ", "npm:foo@npm:bar@1", "npm:",
    "./x", "x", "~/x", "../x", "builtin:mcp",
)  # fmt: skip


def test_what_is_loaded_is_what_pi_resolves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [random_home(seed, tmp_path / str(seed)) for seed in range(HOMES)]
    command = [str(node()), str(ORACLE_DIR / "extensions.mjs"), str(pi_home())]
    environment = {"HOME": str(tmp_path), "PI_OFFLINE": "1", "PATH": str(tmp_path / "nothing")}
    run = subprocess.run(
        command,
        input=json.dumps({"homes": asked, "sources": SOURCES}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    pis = json.loads(run.stdout)
    monkeypatch.setenv("HOME", str(tmp_path))
    ours = [loaded_extensions(Path(home["agentDir"]), Path(home["cwd"])) for home in asked]
    found = {seed: sorted(map(str, paths)) for seed, (paths, _) in enumerate(ours)}
    assert found == {seed: sorted(paths) for seed, paths in enumerate(pis["homes"])}
    assert sum(map(len, found.values())) > 2 * HOMES  # there was something to find

    assert {text: [source_of(text).kind, source_of(text).name] for text in SOURCES} == dict(
        zip(SOURCES, pis["sources"], strict=True)
    )
