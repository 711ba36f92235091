"""Held input in the real Pi at a terminal: with a switch in between it goes back into the editor, and nowhere else."""

from __future__ import annotations

from pathlib import Path

from support.live_pi import custom, live_home, read_entries
from support.model_server import say
from support.terminal import terminal


def test_held_input_goes_back_into_the_editor_when_the_session_is_switched(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(compaction={"keepRecentTokens": 10, "reserveTokens": 16384}, quietStartup=True)
        home.probe(session_before_compact="hang")
        home.install()
        with terminal(home) as pi:
            pi.until(lambda: bool(home.seen("session_start")), "the start")
            for number in (1, 2):
                pi.enter(f"Question {number}. " * 20)
                pi.until(lambda number=number: len(home.seen("agent_settled")) == number, "an answer")  # type: ignore[misc]
            pi.enter("hold: keep me")
            pi.until(lambda: bool(home.seen("session_before_compact")), "the compaction")
            pi.enter("typed meanwhile")
            mark = len(pi.text)
            pi.enter("/new")
            pi.until(lambda: "a held message was not sent: it is in the editor." in pi.text[mark:], "the warning")
            pi.until(lambda: "New session started" in pi.text[mark:], "the new session")
            pi.until(lambda: len(home.seen("session_start")) == 2, "its Python side")
            shown = pi.text[pi.text.index("a held message was not sent") :]
            assert "hold: keep me" in shown
            assert "typed meanwhile" in shown
        assert len(home.server.requests) == 2
        (path,) = home.sessions.rglob("*.jsonl")  # the new session has no message, and so no file
        held, (sent,) = custom(read_entries(path), "contexthost:held"), custom(read_entries(path), "contexthost:sent")
        assert [one["text"] for one in held] == ["hold: keep me", "typed meanwhile"]
        assert sent == {"ids": [one["id"] for one in held], "returned": True}
