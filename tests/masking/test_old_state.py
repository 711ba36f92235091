"""State of earlier extensions is neither read nor migrated: it changes nothing, and nothing changes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import contexthost_masking
from contexthost.config import load_settings
from contexthost.paths import settings_file
from contexthost.session import Session
from contexthost_masking.plan import plan_mask
from contexthost_masking.settings import PACKAGE, MaskingSettings
from support.builder import SessionBuilder
from support.masking import answer, masks, project, turn


def session(*, old_state: bool) -> SessionBuilder:
    build = SessionBuilder()
    result = turn(build)
    if old_state:
        build.custom("context-prune-summary", {"toolCallIds": ["call-1"], "text": "pruned"})
        build.custom("context-prune-frontier", {"entryId": result})
        build.custom("segment-summary", {"from": result, "to": result, "summary": "pruned"})
        build.custom("openai-codex-native-compaction", {"version": 1})
    turn(build)
    answer(build)
    return build


def test_old_entries_change_no_plan() -> None:
    with_state = plan_mask(project(session(old_state=True)).snapshot(), masks())
    without = plan_mask(project(session(old_state=False)).snapshot(), masks())
    assert with_state.reclaimed_tokens == without.reclaimed_tokens
    assert [one.argument for one in with_state.candidates] == [one.argument for one in without.candidates]


def test_old_entries_stay_as_they_are_and_no_custom_entry_is_written(tmp_path: Path) -> None:
    path = session(old_state=True).write(tmp_path / "session.jsonl")
    before = path.read_bytes()
    authority = project(session(old_state=True))
    plan = plan_mask(authority.snapshot(), masks())
    with Session.open(path) as opened:
        opened.append(
            [
                {"type": "context_edit", "targetId": draft.target_id, "replacement": draft.replacement}
                for draft in plan.drafts
            ]
        )
    added = path.read_bytes()[len(before) :]
    assert path.read_bytes().startswith(before)
    assert {json.loads(line)["type"] for line in added.splitlines()} == {"context_edit"}


def test_old_settings_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    file = settings_file(PACKAGE)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"contextPrune": {"enabled": False}, "enabled": True}))
    (file.parent / "pi-compaction.json").write_text(json.dumps({"enabled": False}))
    loaded = load_settings(MaskingSettings, PACKAGE)
    assert loaded.values == MaskingSettings()
    assert ["contextPrune" in str(warning) for warning in loaded.warnings] == [True]


def test_no_module_knows_the_old_names() -> None:
    source = Path(contexthost_masking.__file__).parent
    text = "".join(path.read_text("utf-8") for path in source.glob("*.py"))
    for name in ("context-prune", "contextPrune", "segment-summary", "openai-codex-native-compaction"):
        assert name not in text
