"""Input that a plugin holds in the real Pi: sent exactly once, with what arrived meanwhile, and never elsewhere."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from support.live_pi import LivePi, custom, live_home, read_entries, texts, wait_gone
from support.model_server import Received, say

SMALL = {"compaction": {"keepRecentTokens": 10, "reserveTokens": 16384}}
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "data": IMAGE, "mimeType": "image/png"}


def images(request: Received) -> int:
    blocks = [block for message in request.body["messages"] for block in message["content"] or () if message["content"]]
    return sum(1 for block in blocks if isinstance(block, dict) and block.get("type") == "image_url")


def test_held_input_is_sent_once_joined_with_what_arrived_meanwhile(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(**SMALL)
        home.probe(compaction="wait")
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            requests = len(home.server.requests)
            mark = pi.mark()
            answer = pi.ask("prompt", message="hold: look at these", images=[PICTURE, PICTURE])
            assert answer["data"]["disposition"] == "handled"
            pi.event("compaction_start", after=mark)
            assert pi.ask("follow_up", message="and at this", images=[PICTURE])["success"]
            home.probe()  # now the compaction ends
            pi.event("agent_settled", after=mark)

            (request,) = home.server.requests[requests:]
            assert texts(request, "user")[-1] == "hold: look at these\n\nand at this"
            assert images(request) == 3
            users = [
                entry["message"]
                for entry in pi.entries()
                if entry["type"] == "message" and entry["message"]["role"] == "user"
            ]
            assert len(users) == 3
            assert [block.get("text") or block["data"] for block in users[-1]["content"]] == [
                "hold: look at these\n\nand at this",
                *[IMAGE] * 3,
            ]
            kinds = [
                entry.get("customType") or entry["type"] for entry in pi.entries() if entry["type"] != "session_info"
            ]
            assert kinds[-6:] == [
                "contexthost:held",
                "contexthost:held",
                "compaction",
                "contexthost:sent",
                "message",
                "message",
            ]
            held, sent = (custom(pi.entries(), f"contexthost:{kind}") for kind in ("held", "sent"))
            assert [(one["text"], one["images"]) for one in held] == [("hold: look at these", 2), ("and at this", 1)]
            assert sent == [{"ids": [one["id"] for one in held]}]
            assert pi.errors() == []
            sources = [one["event"]["source"] for one in home.seen("input")]
            assert sources == ["rpc", "rpc", "rpc", "extension"]  # the follow-up joined without being asked about


def test_held_input_is_sent_when_its_compaction_fails_and_when_the_python_side_dies(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(**SMALL)
        home.probe(compaction="nothing")
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            mark = pi.mark()
            assert pi.ask("prompt", message="hold: one")["success"]
            pi.event("agent_settled", after=mark)
            pi.note("probe did not compact", after=mark)
            assert texts(home.server.requests[-1], "user")[-1] == "hold: one"

            home.probe(session_before_compact="hang")
            mark = pi.mark()
            python = pi.python_side()
            assert python is not None
            assert pi.ask("prompt", message="hold: two")["success"]
            pi.until(lambda: len(home.seen("session_before_compact")) == 2, "the compaction")
            pi.ask("follow_up", message="three")
            os.kill(python, signal.SIGKILL)
            pi.event("agent_settled", after=mark)
            assert texts(home.server.requests[-1], "user")[-1] == "hold: two\n\nthree"
            # The compaction was addressed to the plugin that has gone: it is cancelled, not handed to a model.
            assert [entry for entry in pi.entries() if entry["type"] == "compaction"] == []
            assert len(custom(pi.entries(), "contexthost:sent")) == 2


def test_held_input_never_gets_into_another_session_and_is_found_again_in_its_own(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(**SMALL)
        home.probe(session_before_compact="hang")
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            first = pi.file
            requests = len(home.server.requests)
            pi.ask("prompt", message="hold: for this session", images=[PICTURE])
            pi.until(lambda: bool(home.seen("session_before_compact")), "the compaction")
            assert pi.ask("new_session")["data"] == {"cancelled": False}
            pi.prompt("In the new session.")
            assert texts(home.server.requests[-1], "user") == ["In the new session."]
            assert len(home.server.requests) == requests + 1

            mark = pi.mark()
            pi.ask("switch_session", sessionPath=str(first))
            note = pi.note("held back when this session ended", after=mark)
            assert note.endswith("hold: for this session\n1 image must be attached again.")
            (held,) = custom(read_entries(first), "contexthost:held")
            assert custom(read_entries(first), "contexthost:sent") == [{"ids": [held["id"]], "returned": True}]
            mark = pi.mark()
            pi.ask("new_session")
            pi.ask("switch_session", sessionPath=str(first))
            pi.slash("/probe entries")
            assert not any("held back" in note for note in pi.notes(after=mark))
            assert len(home.server.requests) == requests + 1


def test_nothing_is_held_where_nobody_would_wait_for_it(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        run = home.run("text", "-p", "hold: this")
        assert (run.returncode, run.stdout) == (0, "Answer.\n")
        assert texts(home.server.requests[0], "user") == ["hold: this"]
        seen = home.seen()
        assert "agent_settled" in [one["hook"] for one in seen]
        wait_gone(seen[0]["pid"])


def parked(pi: LivePi, text: str) -> int:
    """Has a message held and released, whose own way through `input` does not come to an end; the Python side."""
    python = pi.python_side()
    assert python is not None
    known = len(pi.home.seen("input"))
    assert pi.ask("prompt", message=f"hold: {text}")["data"]["disposition"] == "handled"
    pi.until(lambda: len(pi.home.seen("input")) == known + 2, "the message on its way")
    return python


def test_a_message_that_was_on_its_way_when_pi_was_killed_is_found_again(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.host_settings(pi={"answerSeconds": 60})
        home.probe(released="hang")
        home.install()
        pi = home.rpc()
        pi.prompt("Question.")
        python, file = parked(pi, "nearly sent"), pi.file
        pi.process.kill()
        pi.close()
        wait_gone(python)
        (held,) = custom(read_entries(file), "contexthost:held")
        assert custom(read_entries(file), "contexthost:sent") == [{"ids": [held["id"]]}]
        assert len(home.server.requests) == 1

        home.probe()
        with home.rpc("--session", str(file)) as pi:
            assert pi.note("held back when this session ended").endswith(": hold: nearly sent")
            pi.prompt("Question.")
        with home.rpc("--session", str(file)) as pi:
            pi.prompt("Question.")
            assert pi.notes() == []
        assert [texts(request, "user")[-1] for request in home.server.requests] == ["Question."] * 3


def test_a_message_that_a_plugin_deals_with_when_it_is_released_is_not_found_again(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.probe(released="handle")
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question.")
            parked(pi, "dealt with")
            pi.until(lambda: len(custom(pi.entries(), "contexthost:sent")) == 2, "the record")
            file = pi.file
        with home.rpc("--session", str(file)) as pi:
            pi.prompt("Question.")
            assert pi.notes() == []
        assert [texts(request, "user")[-1] for request in home.server.requests] == ["Question."] * 2


def test_a_message_that_is_never_released_is_sent_after_its_time(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.host_settings(compactionTimeoutSeconds=0.5)
        home.probe()
        home.install()
        with home.rpc() as pi:
            mark, held = pi.mark(), time.monotonic()
            assert pi.ask("prompt", message="keep: this")["data"]["disposition"] == "handled"
            pi.event("agent_settled", after=mark)
            assert time.monotonic() - held > 10  # the compaction's time and 10 s more
            assert "contexthost: a message was held back too long; it is sent now." in pi.notes(after=mark)
            (one,) = custom(pi.entries(), "contexthost:held")
            assert custom(pi.entries(), "contexthost:sent") == [{"ids": [one["id"]]}]
        assert [texts(request, "user") for request in home.server.requests] == [["keep: this"]]


def test_what_a_session_held_when_pi_was_killed_is_not_shown_in_a_fork_of_it(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        pi = home.rpc()
        pi.prompt("Question.")
        assert pi.ask("prompt", message="keep: this")["data"]["disposition"] == "handled"
        file = pi.file
        pi.process.kill()
        pi.close()
        with home.rpc("--fork", str(file)) as pi:
            pi.prompt("In the fork.")
            assert len(custom(pi.entries(), "contexthost:held")) == 1  # it came along
            assert custom(pi.entries(), "contexthost:sent") == []
            assert pi.notes() == []
            assert pi.file != file
        with home.rpc("--session", str(file)) as pi:
            assert pi.note("held back when this session ended").endswith(": keep: this")


HASTY = """
import contexthost

@contexthost.hookimpl
def input(event, ctx):
    async def at_once():
        ctx.release_held()

    if event.source == "extension":
        return None
    if event.text == "within the hook":
        ctx.release_held()
    elif event.text == "in the next step":
        ctx.call_later(0, ctx.release_held)
    else:
        ctx.spawn(at_once())
    return contexthost.Hold()
"""
"""Has an input held for work that turns out to be none."""


def test_a_release_that_reaches_pi_before_the_input_is_held_is_not_lost(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.plugin(HASTY, "hasty")
        home.install()
        with home.rpc() as pi:
            for text in ("within the hook", "in the next step", "in a task"):
                pi.prompt(text)
            assert pi.notes() == []
            sent = custom(pi.entries(), "contexthost:sent")
            assert [one["ids"] for one in sent] == [[one["id"]] for one in custom(pi.entries(), "contexthost:held")]
        assert [texts(request, "user")[-1] for request in home.server.requests] == [
            "within the hook",
            "in the next step",
            "in a task",
        ]
