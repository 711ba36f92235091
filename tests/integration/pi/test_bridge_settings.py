"""In the real Pi, Pi's own settings say when a session compacts and how much that keeps: global ones, the project's
over them, the model's over both; plugins see a change with the next run, and act on it."""

from __future__ import annotations

import json
from pathlib import Path

from support.live_pi import LivePi, live_home, texts
from support.model_server import call, say


def limits(pi: LivePi) -> str:
    return pi.slash("/probe limits").removeprefix("probe: ")


def test_plugins_see_the_settings_that_pi_goes_by(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        first = {"id": "faux-1", "contextWindow": 128_000, "maxTokens": 1000}
        home.provider("faux", first, {**first, "id": "faux-2"}, apiKey="x")
        overrides = {"faux/faux-2": {"reserveTokens": 5_000}}
        home.settings(
            defaultProjectTrust="always",
            compaction={"reserveTokens": 30_000, "keepRecentTokens": 9_000, "modelOverrides": overrides},
        )
        (home.project / ".pi").mkdir()
        (home.project / ".pi" / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 7_000}}))
        # Here Pi's are the truth.
        home.host_settings(compaction={"reserveTokens": 1, "keepRecentTokens": 2})
        home.probe()
        home.install()
        with home.rpc() as pi:
            assert limits(pi) == "True 30000 7000"
            assert pi.ask("set_model", provider="faux", modelId="faux-2")["success"]
            assert limits(pi) == "True 5000 7000"
            assert pi.ask("set_model", provider="faux", modelId="faux-1")["success"]
            assert limits(pi) == "True 30000 7000"
            assert pi.ask("set_auto_compaction", enabled=False)["success"]
            pi.prompt("Hello.")
            assert limits(pi) == "False 30000 7000"
            assert pi.errors() == []


def test_without_settings_pis_defaults_count(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.host_settings(compaction={"reserveTokens": 1, "keepRecentTokens": 2})
        home.probe()
        home.install()
        with home.rpc() as pi:
            assert limits(pi) == "True 16384 20000"


def test_masking_does_not_wait_where_pi_would_compact_soon(tmp_path: Path) -> None:
    read = call("read", {"path": "a.txt"}, "call_a", usage=(3_000, 0, 20, 0))
    full = call("read", {"path": "b.txt"}, "call_b", usage=(65_000, 0, 20, 0))
    script = [read, full, say("Both read.", usage=(6_000, 0, 10, 0))]
    with live_home(tmp_path, script, plugins=["masking"], window=128_000) as home:
        # Pi compacts from 68,000 tokens on; masking's own ratio would let the run go on until far later.
        home.settings(compaction={"reserveTokens": 60_000})
        mask = {"triggerTokens": 5_000, "triggerRatio": 1, "targetTokens": 1_000, "minClearTokens": 500}
        mask |= {"keepRecentTurns": 1, "minEntryTokens": 100}
        (home.host / "config" / "masking.json").write_text(json.dumps({"mask": mask}))
        for name in ("a.txt", "b.txt"):
            (home.project / name).write_text(f"{name}: words and more words\n" * 300)
        home.install()
        with home.rpc() as pi:
            pi.prompt("Read both.")
            before, last = (texts(request, "tool") for request in home.server.requests[1:])
            assert before[0].startswith("a.txt: words")
            assert "a.txt: words" not in last[0]  # within the run, before its last request
            assert last[1].startswith("b.txt: words")
            status = pi.slash("/compaction-status")
            assert "68,000" in status
            assert pi.errors() == []
