"""A session in which values have types that Pi never writes, or are nested as deep as nothing sensible is: every
command that looks at it goes through, host's and plugins', and what would be sent is valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.builder import Literal, SessionBuilder, text_block, tool_call
from support.fuzz_looks import LOOKS, call, faults_of_request
from support.fuzz_writes import small_settings

READERS_OF_DETAILS = [look for look in LOOKS if look[0] in ("codex", "status") and "--json" not in look] + [
    ("run", "FILE", "/jev-status"), ("doctor", "FILE"),
]  # fmt: skip
DEPTH = 1_500  # Python recurses to 1,000
DEEP = Literal(b"[" * DEPTH + b"]" * DEPTH)
VALUES: dict[str, Any] = {
    "a list": ["x"],
    "an object": {"a": 1},
    "deep": DEEP,
    "infinite": Literal(b"1e999"),
    "half a character": Literal(b'"\\ud83d"'),
    "a number": 7,
}


def session_of(value: Any) -> SessionBuilder:
    """The value as everything that is shown, looked up or joined to a text somewhere."""
    build = SessionBuilder()
    build.model_change(value, value)
    build.thinking(value)
    build.user("go")
    build.edit(build.message({"role": value, "content": "by whom?"}), {"content": "by somebody"})
    build.assistant(
        "look", calls=[{**tool_call("c1", "read"), "name": value}, {**tool_call("c2", "edit"), "id": value}]
    )
    build.message({"role": "toolResult", "toolCallId": value, "toolName": value, "isError": True,
                   "content": [text_block("x" * 3_000)]})  # fmt: skip
    build.tool_result("c1", "found " * 300)
    build.assistant([text_block(value)], provider=value, model=value, stop_reason=value)
    build.assistant([{"type": "text", "text": value, "textSignature": value}], usage=value)
    build.bash(value, value)
    build.custom_message("note", [text_block(value)], details=value)
    build.edit(value, "[pi-compaction] Earlier x")
    build.custom("subagents:record", {"id": value, "result": value, "status": value})
    build.assistant("look", calls=[tool_call("c3", "edit", {"path": value})])
    build.tool_result("c3", "ok", tool="edit")
    return build


def details_of(value: Any) -> list[Any]:
    """The value in what plugins keep with a compaction."""
    native = {"kind": "contexthost-codex-native", "version": 1, "modelKey": "a:b:c"}
    return [
        {"plugin": "jev", "format": 1, "kept": value, "reductionRatio": value, "model": value},
        {**native, "replacementHistory": [{"type": value}, {"type": "compaction", "encrypted_content": "x"}]},
        {"readFiles": [value], "modifiedFiles": value},
    ]


@pytest.mark.parametrize("name", VALUES)
def test_every_look_at_it_goes_through(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = VALUES[name]
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    small_settings(tmp_path / "home")
    builds = [session_of(value)]
    for details in details_of(value):
        build = session_of(value)
        build.compaction("What was before.", None, details=details)
        build.user("on")
        builds.append(build)
    builds[-1].compaction("", None)  # which doctor replaces, and looks for a place to keep from
    for number, build in enumerate(builds):
        path = build.write(tmp_path / f"{number}.jsonl")
        before = path.read_bytes()
        names = {"FILE": str(path), "ID": "00000005"}
        for look in LOOKS if number == 0 else READERS_OF_DETAILS:
            _, _, faults = call([names.get(part, part).replace("OUT", str(tmp_path)) for part in look])
            assert faults == []
        assert faults_of_request(ProjectionAuthority(Session.open(path)).snapshot()) == []
        assert path.read_bytes() == before


def test_an_infinite_number_is_printed_as_javascript_prints_it(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.entry("thinking_level_change", thinkingLevel=VALUES["infinite"])
    build.user("go")
    path = build.write(tmp_path / "s.jsonl")
    _, printed, faults = call(["inspect", str(path), "--json"])
    assert faults == []
    assert json.loads(printed)["thinkingLevel"] is None


def test_a_relay_that_would_be_refused_is_said_so_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cut would come between a call and its late result."""
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    small_settings(tmp_path / "home")
    build = SessionBuilder()
    build.user("go " * 300)
    build.assistant("look " * 300, calls=[tool_call("c1", "read")])
    build.user("and?")
    build.tool_result("c1", "found")
    build.assistant("done " * 300)
    path, page = build.write(tmp_path / "s.jsonl"), tmp_path / "page.html"
    _, _, faults = call(["context", str(path), "--html", str(page)])
    assert faults == []
    assert "It would be refused: these drafts would leave an orphaned result for c1" in page.read_text(encoding="utf-8")


def test_a_deep_value_is_named_whole_by_doctor(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    build.message({"role": DEEP, "content": "x"})
    path = build.write(tmp_path / "s.jsonl")
    _, printed, faults = call(["doctor", str(path), "--json"])
    assert faults == []
    [finding] = json.loads(printed)["findings"]
    assert finding["kind"] == "unknown-role"
    assert "[" * DEPTH + "]" * DEPTH in finding["problem"]
