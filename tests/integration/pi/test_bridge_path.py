"""The whole way once, in the real Pi: what happens in the session reaches a plugin, and what it drafts reaches the
model and the session file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from support.live_masking import SCRIPT, masked, prepare
from support.live_pi import custom, live_home, read_entries, texts, wait_gone
from support.model_server import call, say

MASKING = """
    from contexthost import Boundary, hookimpl
    from contexthost.projection import ContextEditDraft

    @hookimpl
    def session_start(event, ctx):
        ctx.ui.notify(f"probe: {event.reason} with {len(ctx.session.entries)} entries")

    @hookimpl
    def agent_before_settle(event, ctx):
        results = [entry.source for entry in event.context.entries if entry.source.role == "toolResult"]
        edits = [
            ContextEditDraft(target_id=entry.id, replacement={"content": "[pi-compaction] Earlier read"})
            for entry in results
            if not event.context.find(entry.id).masked
        ]
        return Boundary(drafts=tuple(edits))
"""


def test_what_a_plugin_drafts_when_a_run_settles_is_what_the_model_sees_next(tmp_path: Path) -> None:
    script = [call("read", {"path": "notes.txt"}), say("It says hello."), say("You are welcome.")]
    with live_home(tmp_path, script) as home:
        (home.project / "notes.txt").write_text("hello from the file")
        home.plugin(MASKING)
        home.install()
        with home.rpc() as pi:
            pi.prompt("What do my notes say?")
            assert texts(home.server.requests[1], "tool") == ["hello from the file"]
            pi.prompt("Thank you.")
            assert texts(home.server.requests[2], "tool") == ["[pi-compaction] Earlier read"]
            assert pi.errors() == []
            file, python = pi.file, pi.python_side()
            assert any(note.startswith("probe: startup with") for note in pi.notes())
            assert python is not None
            if sys.platform == "linux":  # it pushes Pi off no processor
                assert os.sched_getscheduler(python) == os.SCHED_BATCH
        wait_gone(python)
        edits = [entry for entry in read_entries(file) if entry["type"] == "context_edit"]
        (result,) = [
            entry
            for entry in read_entries(file)
            if entry["type"] == "message" and entry["message"]["role"] == "toolResult"
        ]
        assert [edit["targetId"] for edit in edits] == [result["id"]]
        assert edits[0]["replacement"] == {"content": [{"type": "text", "text": "[pi-compaction] Earlier read"}]}
        assert home.server.problems == []


OTHER = """
export default function (pi: any) {
  for (const hook of ["turn_end", "agent_before_settle"]) {
    const draft = { type: "custom", customType: NAME, data: { hook } };
    pi.on(hook, (event: any) => ({ entries: [...event.entries, draft] }));
  }
}
"""


def test_what_other_extensions_draft_stays(tmp_path: Path) -> None:
    with live_home(tmp_path, [say("Answer.")]) as home:
        home.probe(draft={"made": "here"})
        extensions = home.install().parent
        (extensions / "a-first.ts").write_text(OTHER.replace("NAME", '"first"'))  # extensions are asked in some order,
        (extensions / "z-last.ts").write_text(OTHER.replace("NAME", '"last"'))  # so that one of them is before us
        with home.rpc() as pi:
            pi.prompt("Hello.")
            entries = pi.entries()
            assert pi.errors() == []
        for kind in ("first", "last"):
            assert custom(entries, kind) == [{"hook": "turn_end"}, {"hook": "agent_before_settle"}]
        assert custom(entries, "probe:draft") == [{"made": "here"}]


def test_the_masking_plugin_masks_a_batch_and_everybody_gives_the_same_figures(tmp_path: Path) -> None:
    with live_home(tmp_path, SCRIPT, plugins=["masking"]) as home:
        prepare(home)
        home.install()
        with home.rpc() as pi:
            pi.prompt("Read the three files.")
            assert all(text.startswith("the words of") for text in texts(home.server.requests[3], "tool"))
            told = pi.slash("/context")
            pi.prompt("Thank you.")
            assert masked(home, 4) == [True, True, False]
            assert "2 tool results are masked; that saves " in told
            file = pi.file
            assert pi.errors() == []
        entries = read_entries(file)
        edits = [place for place, entry in enumerate(entries) if entry["type"] == "context_edit"]
        assert edits == [edits[0], edits[0] + 1]  # one batch
        seen = json.loads(home.contexthost("context", str(file), "--json").stdout)
        saved = f"that saves {seen['reclaimedTokens']:,} tokens."
        assert seen["maskedResults"] == 2
        assert saved in told
        assert home.server.problems == []


def test_masks_in_a_session_that_has_no_file(tmp_path: Path) -> None:
    with live_home(tmp_path, SCRIPT, plugins=["masking"]) as home:
        prepare(home)
        home.install()
        with home.rpc("--no-session") as pi:
            pi.prompt("Read the three files.")
            pi.prompt("Thank you.")
            assert masked(home, 4) == [True, True, False]
            assert "2 tool results are masked; that saves " in pi.slash("/context")
            assert pi.errors() == []
        assert list(home.agent.rglob("*.jsonl")) == []
        assert home.server.problems == []
