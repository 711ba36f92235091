"""``contexthost status`` and ``/compaction-status``: what they say, worked out by hand.

One token is one character, the window is 100,000 tokens and the host keeps 10,000 free.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from contexthost_masking.cli_query import status, tree_query
from contexthost_masking.settings import MaskingSettings
from contexthost_masking.status import Status, status_line, status_of
from support.builder import SessionBuilder, usage_of
from support.masking import masks, project, turn

MASK = "[pi-compaction] Earlier x"  # 25 tokens


def of(build: SessionBuilder, **options: Any) -> Status:
    settings = options.pop("settings", MaskingSettings())
    return status_of(project(build).snapshot(), settings, reserve=10_000, **options)


def session(usage: int = 60_000) -> SessionBuilder:
    build = SessionBuilder()
    first, second, third = turn(build), turn(build), turn(build)
    build.edit(first, MASK)
    build.user("more")
    build.edit(second, MASK)
    build.edit(third, MASK)
    build.assistant("done", usage=usage_of(usage))
    return build


def test_thresholds_in_force_with_the_distance_to_each() -> None:
    assert of(session()).data()["thresholds"] == {
        "masking": {"tokens": 50_000, "distance": -10_000},  # half of the window
        "summary": {"tokens": 80_000, "distance": 20_000},  # 0.8 of it
        "urgent": {"tokens": 86_000, "distance": 26_000},  # 4,000 before the host's own limit
        "host": {"tokens": 90_000, "distance": 30_000},
    }


def test_the_last_batch_is_what_was_appended_side_by_side() -> None:
    data = of(session()).data()
    assert (data["maskedResults"], data["reclaimedTokens"]) == (3, 3 * 975)
    assert data["lastBatch"] == {"results": 2, "timestamp": "2026-01-05T09:00:10.000Z", "reclaimedTokens": 2 * 975}


def test_a_mask_that_is_no_longer_in_force_is_no_batch() -> None:
    build = SessionBuilder()
    result = turn(build)
    build.edit(result, MASK)
    build.edit(result, "replaced")
    assert of(build).data()["lastBatch"] is None


def test_the_compaction_in_force_its_maker_and_its_kind() -> None:
    build = session()
    assert of(build).data()["compaction"] is None
    entry = build.compaction("what was", None)
    made = of(build).data()["compaction"]
    assert (made["entryId"], made["by"], made["kind"]) == (entry, "the built-in summary", "summary")
    entry = build.compaction("what was", None, fromHook=True, details={"kind": "native", "version": 1})
    made = of(build).data()["compaction"]
    assert (made["by"], made["kind"]) == ("a plugin", "native")
    assert of(build, compacted_by={entry: "codex_native"}).data()["compaction"]["by"] == "codex_native"


def test_the_next_batch_and_what_it_costs() -> None:
    build = SessionBuilder()
    turn(build)
    paid = {"input": 3e-6, "cacheRead": 3e-7, "cacheWrite": 3.75e-6}
    used = {**usage_of(60_000), "input": 1, "cacheRead": 1, "cacheWrite": 1, "cost": paid}
    build.assistant("done", usage=used)
    found = of(build, settings=MaskingSettings(mask=masks()))
    data = found.data()
    batch, costs = data["nextBatch"], data["costs"]
    assert (batch["results"], batch["reason"]) == (1, None)
    turns = batch["rewrittenTokens"] * 3.45 / (batch["reclaimedTokens"] * 0.3)
    assert round(costs["breakEvenTurns"], 9) == round(turns, 9)
    assert round(costs["rewriteDollars"], 12) == round(batch["rewrittenTokens"] * 3.45e-6, 12)
    assert round(costs["dollarsPerTurn"], 12) == round(batch["reclaimedTokens"] * 0.3e-6, 12)
    assert f"it has paid for itself after {turns:,.1f} turns ($0.0004 once, $0.0003 less each turn)" in found.text()


def test_the_text_says_it_line_by_line() -> None:
    lines = of(session()).text().splitlines()
    assert lines == [
        "usage        60,000 of 100,000 tokens, 60.0 % (the provider's last count and what came since)",
        "masking      at 50,000 tokens: reached",
        "summary      at 80,000 tokens: 20,000 tokens to go",
        "urgent       at 86,000 tokens: 26,000 tokens to go",
        "host's limit at 90,000 tokens: 30,000 tokens to go",
        "masked       3 results; that saves 2,925 tokens",
        "last batch   2 results, 1,950 tokens, 2026-01-05T09:00:10.000Z",
        "compaction   none",
        "cache        not known (it lives 300 s)",
        "next batch   no tool result may be masked: all are recent, small, protected or masked already",
    ]


def test_switched_off_is_said() -> None:
    assert of(session(), settings=MaskingSettings(enabled=False)).text().endswith("enabled is false in masking.json")


def test_the_status_line_tells_an_estimate_from_a_provider_figure() -> None:
    assert status_line(project(session()).snapshot()) == "60k/100k 60 % · 3 masked"
    build = SessionBuilder()
    build.user("x" * 700)
    assert status_line(project(build).snapshot()) == "~700/100k 1 %"


def test_the_command_prints_both_and_writes_nothing(tmp_path: Path) -> None:
    path = session().write(tmp_path / "session.jsonl")
    before = path.read_bytes()
    data = json.loads(CliRunner().invoke(status, [str(path), "--json", "--context-window", "100000"]).stdout)
    assert list(data) == [
        "sessionId", "enabled", "usage", "tokens", "thresholds", "maskedResults", "reclaimedTokens", "lastBatch",
        "compaction", "nextBatch", "costs",
    ]  # fmt: skip
    assert (data["usage"]["tokens"], data["maskedResults"]) == (60_000, 3)
    text = CliRunner().invoke(status, [str(path)]).stdout
    assert text.startswith("usage        60,000 of 200,000 tokens")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_tree_query_on_the_command_line(tmp_path: Path) -> None:
    path = session().write(tmp_path / "session.jsonl")
    before = path.read_bytes()
    found = CliRunner().invoke(tree_query, [str(path), "--tool", "bash"])
    assert found.exit_code == 0
    assert found.stdout.count("tool result bash") == 3
    missing = CliRunner().invoke(tree_query, [str(path), "--entry", "none"])
    assert (missing.exit_code, missing.stdout) == (1, "There is no entry none here.\n")
    nothing = CliRunner().invoke(tree_query, [str(path)])
    assert nothing.exit_code == 2
    assert "say what to look for" in nothing.stderr
    data = json.loads(CliRunner().invoke(tree_query, [str(path), "--entry", "none", "--json"]).stdout)
    assert data == {"found": False}
    assert path.read_bytes() == before
