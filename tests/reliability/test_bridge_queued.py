"""A held message that Pi has in its queue behind a run of the real Pi, or that gets into the session with another text:
when Pi is killed before the message is in the session it is found again, once; what has got in is not."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.live_pi import LivePi, PiHome, change_extension, custom, helper, live_home, read_entries, texts
from support.model_server import Answer, Received, say
from support.stage import spoken

FOUND = "held back when this session ended"
TEMPLATE = "Wait, and look at $1 with care."
BEFORE, BEHIND = "a-before", "z-behind"  # extensions of these names see an input before ours does, and after it


def answer(request: Received) -> Answer:
    """Answers wait for the test where the question says so."""
    return say("Answer.", hold_after=0 if "wait" in texts(request, "user")[-1].lower() else None)


@contextlib.contextmanager
def queueing(
    root: Path, extensions: dict[str, str] | None = None, *, keep: str = "keep: ", **how: str
) -> Iterator[PiHome]:
    """A home with a prompt template ``/look``, the probe, which keeps what begins with ``keep``, and extensions."""
    with live_home(root, answer) as home:
        home.probe(keep=keep, **how)
        directory = home.install().parent
        for name, source in (extensions or {}).items():
            (directory / f"{name}.ts").write_text(source)
        (home.agent / "prompts").mkdir()
        (home.agent / "prompts" / "look.md").write_text(TEMPLATE)
        yield home


def input_handler(body: str, more: str = "") -> str:
    """An extension that changes what comes."""
    return f"export default function (pi: any) {{ pi.on('input', async (event: any) => {{ {body} }}); {more} }}"


def busy(pi: LivePi) -> None:
    """Has Pi in a run that goes on until `go_on`."""
    server = pi.home.server
    server.rearm()
    pi.send("prompt", message="Wait for it.")
    assert server.reached.wait(20)


def hold(pi: LivePi, *held: str) -> None:
    """Has messages held and released, which then are sent as one."""
    for text in held:
        asked = pi.ask("prompt", message=text, streamingBehavior="followUp")
        assert asked["data"]["disposition"] == "handled"
    pi.slash("/probe release")


def queue(pi: LivePi, *held: str) -> None:
    """The same while Pi is busy, until they are in its queue."""
    mark = pi.mark()
    hold(pi, *held)
    pi.event("queue_update", after=mark)


def go_on(pi: LivePi) -> None:
    """Lets the answer come that the run waits for, and waits until the next one is waited for."""
    pi.home.server.release_once()
    assert pi.home.server.reached.wait(20)


def finish(pi: LivePi) -> None:
    """Lets all answers come, until Pi has settled with nothing in its queue."""
    mark = pi.mark()
    pi.home.server.release()
    pi.event("agent_settled", after=mark)
    assert pi.ask("get_state")["data"]["pendingMessageCount"] == 0


def kill(pi: LivePi) -> Path:
    """``kill -9``; the session file."""
    file = pi.file
    pi.process.kill()
    pi.close()
    return file


def users(file: Path) -> list[str]:
    """The user's messages."""
    return [text for role, text in spoken(read_entries(file)) if role == "user"]


def records(file: Path) -> list[dict[str, object]]:
    """What is recorded of messages that were held and sent, but for their ids."""
    found = custom(read_entries(file), "contexthost:sent")
    return [{key: value for key, value in one.items() if key != "ids"} for one in found]


def role_of(entry: dict[str, Any]) -> str | None:
    role: str | None = entry["message"]["role"] if entry["type"] == "message" else None
    return role


def offered(pi: LivePi, *, after: int = 0) -> list[str]:
    """The texts that starts have found."""
    pi.slash("/probe entries")
    return [note.split(" and not sent: ", 1)[1] for note in pi.notes(after=after) if FOUND in note]


def found(home: PiHome, file: Path) -> list[str]:
    """What the next start of a session finds; the one after it finds nothing, and nobody sends anything."""
    asked = len(home.server.requests)
    with home.rpc("--session", str(file)) as pi:
        first = offered(pi)
        assert offered_again(pi, file) == []
    assert len(home.server.requests) == asked
    return first


def offered_again(pi: LivePi, file: Path) -> list[str]:
    """What is found when the session is left and opened again."""
    pi.ask("new_session")
    mark = pi.mark()
    assert pi.ask("switch_session", sessionPath=str(file))["data"] == {"cancelled": False}
    return offered(pi, after=mark)


def test_a_queued_message_is_found_again_although_other_ones_entries_came_first(tmp_path: Path) -> None:
    stopped = "const now = Date.now(); Date.now = () => now; export default function () {}"
    with queueing(tmp_path, {BEFORE: stopped}) as home:  # all within one millisecond: stamps tell nothing
        with home.rpc() as pi:
            busy(pi)
            assert pi.ask("steer", message="Wait, first this.")["success"]
            queue(pi, "keep: one", "keep: two")
            assert pi.ask("steer", message="Wait, then this.")["success"]
            go_on(pi)
            go_on(pi)
            file = kill(pi)
        assert users(file) == ["Wait for it.", "Wait, first this.", "Wait, then this."]
        assert found(home, file) == ["keep: one\n\nkeep: two"]
        assert records(file) == [{}, {"returned": True}]


def test_of_two_messages_with_the_same_text_the_one_that_is_missing_is_found(tmp_path: Path) -> None:
    with queueing(tmp_path, keep="Wait: ") as home:
        with home.rpc() as pi:
            busy(pi)
            queue(pi, "Wait: go on")
            queue(pi, "Wait: go on")
            go_on(pi)
            file = kill(pi)
        assert users(file) == ["Wait for it.", "Wait: go on"]
        assert found(home, file) == ["Wait: go on"]


def test_what_came_with_its_own_text_needs_no_further_record(tmp_path: Path) -> None:
    with queueing(tmp_path) as home:
        with home.rpc() as pi:
            busy(pi)
            queue(pi, "keep: one", "keep: two")
            finish(pi)
            hold(pi, "keep: idle")
            pi.until(lambda: users(pi.file)[-1] == "keep: idle", "the message")
            file = kill(pi)
        assert users(file) == ["Wait for it.", "keep: one\n\nkeep: two", "keep: idle"]
        assert records(file) == [{}, {}]
        assert found(home, file) == []


CHANGED = "return { action: 'transform', text: event.text + ' (seen)', images: event.images };"
SEEN = input_handler(CHANGED)
SLOWLY = input_handler(CHANGED, "pi.on('message_end', () => new Promise((done) => setTimeout(done, 50)));")
CHANGES = {
    "a template": ({}, {"keep": "/look"}, "/look this", "Wait, and look at this with care."),
    "a plugin": ({}, {"keep": "wait: ", "released": "transform"}, "wait: shout", "WAIT: SHOUT"),
    "an extension before ours": ({BEFORE: SEEN}, {"keep": "wait: "}, "wait: this", "wait: this (seen) (seen)"),
    "a slow extension behind ours": ({BEHIND: SLOWLY}, {"keep": "wait: "}, "wait: this", "wait: this (seen)"),
}


@pytest.mark.parametrize(
    ("change", "state"),
    [*((change, "busy") for change in CHANGES), ("a template", "idle"), ("an extension before ours", "idle")],
)
def test_what_came_with_another_text_is_recorded_as_soon_as_it_is_there(
    tmp_path: Path, change: str, state: str
) -> None:
    extensions, how, text, changed = CHANGES[change]
    with queueing(tmp_path, extensions, **how) as home:
        with home.rpc() as pi:
            if state == "busy":
                busy(pi)
                queue(pi, text)
                go_on(pi)
            else:
                pi.prompt("Hello.")
                home.server.rearm()
                hold(pi, text)
                assert home.server.reached.wait(20)
            pi.until(lambda: len(records(pi.file)) == 2, "the record")
            assert pi.errors() == []
            file = kill(pi)
        assert users(file)[1:] == [changed]  # once, and not tried again
        assert spoken(read_entries(file))[-1] == ("user", changed)  # the record came before the answer
        assert [texts(request, "user")[-1] for request in home.server.requests[1:]] == [changed]
        assert records(file) == [{}, {"arrived": True}]
        assert found(home, file) == []


def test_a_message_that_another_one_with_an_unknown_text_came_before_is_found(tmp_path: Path) -> None:
    with queueing(tmp_path, keep="/look") as home:
        with home.rpc() as pi:
            busy(pi)
            home.probe(keep="-")
            assert pi.ask("follow_up", message="/look there")["success"]
            assert pi.ask("follow_up", message="And then?")["success"]
            home.probe(keep="/look")
            queue(pi, "/look here")  # the last that has passed, as far as texts tell
            go_on(pi)
            file = kill(pi)
        assert users(file) == ["Wait for it.", "Wait, and look at there with care."]
        assert found(home, file) == ["/look here"]


def test_an_input_that_got_lost_on_its_way_is_not_taken_for_the_one_that_came(tmp_path: Path) -> None:
    lost = input_handler("if (event.text.startsWith('note: ')) return { action: 'handled' };")
    with queueing(tmp_path, {BEHIND: lost}, keep="/look") as home:
        with home.rpc() as pi:
            pi.prompt("Hello.")
            busy(pi)
            assert pi.ask("prompt", message="note: this", streamingBehavior="followUp")["success"]
            queue(pi, "/look here")
            go_on(pi)
            pi.until(lambda: records(pi.file) == [{}, {"arrived": True}], "the record")
            file = kill(pi)
        assert users(file)[2:] == ["Wait, and look at here with care."]


def test_what_was_in_the_queue_goes_into_no_other_session_and_is_found_in_its_own(tmp_path: Path) -> None:
    with queueing(tmp_path, keep="/look") as home:
        with home.rpc(*helper(home)) as pi:
            busy(pi)
            queue(pi, "/look this")
            file = kill(pi)
        with home.rpc("--fork", str(file), *helper(home)) as pi:
            assert pi.file != file
            assert offered(pi) == []
            pi.ask("switch_session", sessionPath=str(file))
            assert offered(pi) == ["/look this"]

            # A session is left while Pi has a message in its queue: Pi drops that.
            mark = pi.mark()
            busy(pi)
            queue(pi, "/look there")
            assert pi.ask("new_session")["data"] == {"cancelled": False}
            pi.prompt("In another session.")
            assert texts(home.server.requests[-1], "user") == ["In another session."]
            assert offered(pi, after=mark) == []
            pi.ask("switch_session", sessionPath=str(file))
            assert offered(pi, after=mark) == ["/look there"]

            # One that has come, with another text, is offered nowhere: neither there nor where it has not come.
            mark = pi.mark()
            busy(pi)
            queue(pi, "/look here")
            finish(pi)
            assert users(file)[-1] == "Wait, and look at here with care."
            assert offered_again(pi, file) == []
            last = next(entry["id"] for entry in reversed(pi.entries()) if role_of(entry) == "user")
            assert pi.ask("fork", entryId=last)["data"]["cancelled"] is False
            assert [one["text"] for one in custom(pi.entries(), "contexthost:held")][-1] == "/look here"
            assert records(pi.file)[-1] == {}
            assert offered(pi, after=mark) == []
            assert pi.errors() == []


def test_after_a_reload_pi_still_has_its_queue(tmp_path: Path) -> None:
    with queueing(tmp_path, keep="/look") as home:
        with home.rpc(*helper(home)) as pi:
            for text in ("/look this", "/look there"):
                busy(pi)
                queue(pi, text)
                assert pi.ask("abort")["success"]
                assert pi.ask("get_state")["data"]["pendingMessageCount"] == 1
                mark = pi.mark()
                pi.slash("/again")
                assert offered(pi, after=mark) == []
                if text == "/look there":
                    break
                pi.send("prompt", message="Hello.")
                pi.until(lambda: records(pi.file) == [{}, {"arrived": True}], "the record")
                finish(pi)
                mark = pi.mark()
                pi.slash("/again")
                assert offered(pi, after=mark) == []
            file = kill(pi)
        assert users(file) == ["Wait for it.", "Hello.", "Wait, and look at this with care.", "Wait for it."]
        assert found(home, file) == ["/look there"]


def test_what_the_user_takes_out_of_the_queue_is_not_offered_again(tmp_path: Path) -> None:
    with queueing(tmp_path) as home:
        with home.rpc() as pi:
            busy(pi)
            queue(pi, "keep: this")
            assert pi.ask("clear_queue")["data"]["followUp"] == ["keep: this"]
            finish(pi)
            pi.prompt("Something else.")
            assert records(pi.file) == [{}, {"returned": True}]
            hold(pi, "keep: this")  # once more, and it comes
            pi.until(lambda: users(pi.file)[-1] == "keep: this", "the message")
            file = kill(pi)
        assert users(file) == ["Wait for it.", "Something else.", "keep: this"]
        assert found(home, file) == []


def test_what_pi_did_not_take_after_all_is_shown(tmp_path: Path) -> None:
    dropped = input_handler("if (event.source === 'extension') return { action: 'handled' };")
    with queueing(tmp_path, {BEHIND: dropped}) as home:
        change_extension(home, "const STARTING = 5000;", "const STARTING = 500;")
        with home.rpc(*helper(home)) as pi:
            pi.prompt("Hello.")
            hold(pi, "keep: this")
            pi.until(lambda: home.seen("input")[-1]["event"]["source"] == "extension", "the message on its way")
            time.sleep(2)  # longer than a run may take to start, whenever the plugin's answer reaches Pi
            mark = pi.mark()
            pi.prompt("Something else.")
            assert pi.note("could not be sent", after=mark).endswith("(Pi did not take it): keep: this")
            hold(pi, "keep: that")
            mark = pi.mark()
            pi.slash("/again")  # with nothing in Pi's queue
            assert offered(pi, after=mark) == ["keep: that"]
            file = pi.file
        assert users(file) == ["Hello.", "Something else."]
        assert records(file) == [{}, {"returned": True}] * 2
        assert found(home, file) == []


TAKES_OVER = """
    export default function (pi: any) {
      const jobs: string[] = [];
      setInterval(() => jobs.length > 0 && pi.sendUserMessage(jobs.shift()), 20).unref();
      pi.on("input", (event: any) => {
        if (event.source !== "extension" || !event.text.startsWith("keep: ")) return;
        jobs.push(event.text.replace("keep: ", "Do "));
        return { action: "handled" };
      });
    }
"""


def test_what_an_extension_before_ours_makes_a_run_of_is_sent_once(tmp_path: Path) -> None:
    with queueing(tmp_path, {BEFORE: TAKES_OVER}) as home:
        change_extension(home, "const COMING = 50_000;", "const COMING = 3_000;")
        with home.rpc() as pi:
            pi.prompt("Hello.")
            mark = pi.mark()
            hold(pi, "keep: this")
            assert pi.note("could not be sent", after=mark).endswith("(Pi did not take it): keep: this")
            assert users(pi.file) == ["Hello.", "Do this"]
            assert len(home.server.requests) == 2


@pytest.mark.parametrize("options", [(), ("--no-session",)])
def test_what_is_held_in_a_session_without_a_file_is_shown_when_that_is_left(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with queueing(tmp_path) as home:
        with home.rpc(*options) as pi:
            for leave in ("new_session", "quit"):
                mark = pi.mark()
                for text in ("keep: one", "keep: two"):
                    assert pi.ask("prompt", message=text)["data"]["disposition"] == "handled"
                if leave == "quit":
                    break
                pi.ask(leave)
                assert pi.note(FOUND, after=mark).endswith("and not sent: keep: one\n\nkeep: two")
        assert [note.split(": ", 2)[2] for note in pi.notes(after=mark) if FOUND in note] == ["keep: one\n\nkeep: two"]
        assert home.server.requests == []
        assert list(home.sessions.rglob("*.jsonl")) == []


def test_what_is_on_its_way_when_a_session_without_a_file_is_left_is_shown(tmp_path: Path) -> None:
    taken = input_handler("if (event.source === 'extension') await new Promise(() => {});")
    with queueing(tmp_path, {BEFORE: taken}) as home, home.rpc(*helper(home)) as pi:
        assert pi.ask("prompt", message="keep: this")["data"]["disposition"] == "handled"
        mark = pi.mark()
        pi.slash("/probe release")
        pi.event("entry_appended", after=mark)
        mark = pi.mark()
        pi.ask("new_session")
        assert offered(pi, after=mark) == ["keep: this"]
        assert home.server.requests == []


def test_records_that_somebody_has_changed_do_no_harm(tmp_path: Path) -> None:
    with queueing(tmp_path) as home:
        with home.rpc() as pi:
            pi.prompt("Hello.")
            assert pi.ask("prompt", message="keep: this")["data"]["disposition"] == "handled"
            file = kill(pi)
        held = read_entries(file)[-1]
        changed = [{"ids": 5}, {"ids": {"0": "x"}}, {"ids": [None, held["data"]["id"] + "0"]}, None, "ids", []]
        sent = {**held, "customType": "contexthost:sent"}
        lines = [{**sent, "id": f"sent{place}", "data": data} for place, data in enumerate(changed)]
        lines += [{**held, "id": f"held{place}", "data": data} for place, data in enumerate((None, "a", {"text": 5}))]
        with file.open("a") as output:
            output.writelines(f"{json.dumps(line)}\n" for line in lines)
        with home.rpc("--session", str(file)) as pi:
            assert offered(pi) == ["keep: this"]
            assert pi.errors() == []


def test_a_message_that_cannot_be_written_is_shown_at_once_and_pi_lives_on(tmp_path: Path) -> None:
    with queueing(tmp_path) as home, home.rpc() as pi:
        pi.prompt("Hello.")
        hidden, file = tmp_path / "hidden", pi.file
        mark = pi.mark()
        assert pi.ask("prompt", message="keep: this")["data"]["disposition"] == "handled"
        home.sessions.rename(hidden)
        pi.slash("/probe release")
        shown = pi.note("could not be sent", after=mark)
        assert shown == "contexthost: a held message could not be sent (it could not be written): keep: this"
        assert sum("the session cannot be written: ENOENT" in note for note in pi.notes(after=mark)) == 1
        hidden.rename(home.sessions)
        pi.prompt("Again.")
        # The run that could not be written may settle only now.
        pi.until(lambda: users(file) == ["Hello.", "Again."] and len(home.server.requests) == 2, "the new message")
        assert [texts(request, "user")[-1] for request in home.server.requests] == ["Hello.", "Again."]
