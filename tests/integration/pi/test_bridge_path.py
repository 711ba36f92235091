"""The whole way once, in the real Pi: what happens in the session reaches a plugin, and what it drafts reaches the
model and the session file."""

from __future__ import annotations

from pathlib import Path

from support.live_pi import live_home, read_entries, texts, wait_gone
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
