"""The program in host/docs/embedding.md runs as it stands: it talks, calls its tool, is reopened and compacts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from contexthost.session import Session
from support.model_server import ModelServer, call, say

TEXT = (Path(__file__).parents[2] / "host" / "docs" / "embedding.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
SETTINGS = {"CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS": "4", "CONTEXTHOST_HOST__DISABLED": '["relay", "jev"]'}


def test_the_program_of_the_guide_runs(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text("\n".join(BLOCKS), encoding="utf-8")
    script = [call("weather", {"city": "Bergen"}), say("Take an umbrella."), say("## Goal\nPack for Bergen.")]
    with ModelServer([*script, say("The turn so far.")]) as server:
        environment = {
            **os.environ,
            **SETTINGS,
            "CONTEXTHOST_HOME": str(tmp_path / "home"),
            "BASE_URL": server.base_url,
            "MODEL": "m",
        }
        run = subprocess.run(
            [sys.executable, "-W", "error", str(program)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.stderr == ""
        assert server.problems == []
        assert server.surplus == []
        assert "weather" in str(server.requests[1].body["messages"])
        assert "Keep what is to be packed." in str(server.requests[2].body)
    assert "[weather {'city': 'Bergen'}]\nTake an umbrella." in run.stdout
    assert re.search(r"^\d+ % of the window$", run.stdout, re.M)
    assert "reopened with 6 entries" in run.stdout
    session = Session.open(tmp_path / "trip.jsonl")
    assert [entry.role or entry.type for entry in session.entries] == [
        "model_change",
        "system",
        "user",
        "assistant",
        "toolResult",
        "assistant",
        "compaction",
    ]
