"""Held input in the real Pi at a terminal: with a switch in between it goes back into the editor, and nowhere else; and
what the user takes out of Pi's queue is theirs."""

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


def test_what_the_user_takes_back_from_the_queue_is_not_shown_again(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.", hold_after=0)) as home:
        home.settings(quietStartup=True)
        home.probe()
        home.install()
        with terminal(home) as pi:
            pi.until(lambda: bool(home.seen("session_start")), "the start")
            pi.enter("Wait for it.")
            pi.until(home.server.reached.is_set, "the request")
            pi.enter("keep: this")
            pi.until(lambda: len(home.seen("input")) == 2, "the message")
            pi.enter("/probe release")
            pi.until(lambda: "Follow-up: keep: this" in pi.text, "the message in the queue")
            pi.press(b"\x1b")  # ends the run, and puts what is queued into the editor
            (path,) = home.sessions.rglob("*.jsonl")
            pi.until(lambda: len(custom(read_entries(path), "contexthost:sent")) == 2, "the record")
        (held,) = custom(read_entries(path), "contexthost:held")
        sent = custom(read_entries(path), "contexthost:sent")
        assert sent == [{"ids": [held["id"]]}, {"ids": [held["id"]], "returned": True}]
        with home.rpc("--session", str(path)) as again:
            again.slash("/probe entries")
            assert not any("held back" in note for note in again.notes())
