"""Relays in the real Pi: by hand, before a new message, before the prompt cache expires; what becomes of them when
the Python side dies or the session is left half-way; and sessions that are nobody's to relay."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

from support.live_pi import Json, LivePi, PiHome, custom, live_home, read_entries, texts
from support.model_server import Answer, Received, call, say

SMALL = {"compaction": {"keepRecentTokens": 10, "reserveTokens": 16384}, "cacheWarming": "off"}
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "data": IMAGE, "mimeType": "image/png"}
LONG = "and so on " * 60

# Other plugins may add to the note; this one makes a relay last as long as the file `closed` is there.
GATE = """
    import asyncio
    import os
    from pathlib import Path

    from contexthost import hookimpl

    @hookimpl(optionalhook=True)
    async def relay_note_sections(event, ctx):
        home = Path(os.environ["CONTEXTHOST_HOME"])
        (home / "reached").touch()
        while (home / "closed").exists():
            await asyncio.sleep(0.01)
"""


def relay_settings(home: PiHome, **auto: Any) -> None:
    (home.host / "config" / "relay.json").write_text(json.dumps({"gitTimeoutMs": 0, "auto": auto}))


def close_gate(home: PiHome) -> None:
    (home.host / "closed").touch()
    (home.host / "reached").unlink(missing_ok=True)


def open_gate(home: PiHome) -> None:
    (home.host / "closed").unlink()


def wait_at_gate(home: PiHome, pi: LivePi) -> None:
    pi.until((home.host / "reached").exists, "the relay")


def relay_log(home: PiHome) -> list[Json]:
    path = home.host / "data" / "plugins" / "relay" / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def notes_on_disk(home: PiHome) -> list[Path]:
    return sorted((home.host / "data" / "plugins" / "relay").glob("*/*"))


def compactions(entries: list[Json]) -> list[Json]:
    return [entry for entry in entries if entry["type"] == "compaction"]


def conversation(request: Received) -> list[tuple[str, str]]:
    return [(message["role"], "".join(texts_of(message))) for message in request.body["messages"]]


def texts_of(message: Json) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]


def images(request: Received) -> int:
    blocks = [block for message in request.body["messages"] for block in message["content"] or ()]
    return sum(1 for block in blocks if isinstance(block, dict) and block.get("type") == "image_url")


def tools(request: Received) -> list[str]:
    return [tool["function"]["name"] for tool in request.body.get("tools", ())]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_by_hand_the_next_request_is_system_note_and_tail_and_recall_brings_back_the_rest(tmp_path: Path) -> None:
    script = [
        say(f"The port is 4711. {LONG}"),
        say("The second answer."),
        say("After the relay."),
        call("recall", {"query": "port 4711", "limit": "all"}),
        call("recall", {"entryId": "note:1"}, "call_2"),
        say("It was 4711."),
    ]
    with live_home(tmp_path, script, plugins=["relay"]) as home:
        home.settings(**SMALL)
        home.install()
        with home.rpc() as pi:
            mark = pi.mark()
            assert pi.slash("/relay").startswith("context-relay: nothing to relay: ")
            assert [event["notifyType"] for event in pi.events[mark:] if event.get("method") == "notify"] == ["error"]

            pi.prompt("The first request: which port?")
            pi.prompt("The second request.")
            told = pi.slash("/relay")
            assert told.startswith("context-relay: relay "), told
            assert len(home.server.requests) == 2  # no model was asked
            pi.prompt("The third request.")

            (request,) = home.server.requests[2:]
            (system, _), (note_role, note), *tail = conversation(request)
            assert (system, note_role) == ("system", "user")
            assert tail == [
                ("user", "The second request."),
                ("assistant", "The second answer."),
                ("user", "The third request."),
            ]
            assert "# Relay note 1\n" in note
            assert "The first request: which port?" in note
            (path,) = notes_on_disk(home)
            (entry,) = compactions(pi.entries())
            assert entry["details"] == {"relay": True, "version": 1, "notePath": str(path)}
            assert entry["fromHook"] is True
            assert entry["summary"] == path.read_text()
            assert entry["summary"] in note
            (line,) = [line for line in relay_log(home) if line["ok"]]
            assert (line["trigger"], line["keptFrom"]) == ("manual", entry["firstKeptEntryId"])
            assert line["noteChars"] == len(entry["summary"])

            pi.prompt("Which port was it?")
            found, read = [
                texts_of(message)[0]
                for message in home.server.requests[5].body["messages"]
                if message["role"] == "tool"
            ]
            first = next(e for e in pi.entries() if e["type"] == "message" and e["message"]["role"] == "assistant")
            assert f"[{first['id']}] assistant · " in found
            assert "compacted away\nThe port is 4711. and so on" in found
            assert entry["summary"] in read
            assert pi.errors() == []
        assert home.server.problems == []
        assert home.server.surplus == []


def test_a_new_message_waits_for_its_relay_and_is_sent_once_whatever_becomes_of_that(tmp_path: Path) -> None:
    def large(request: Received) -> Answer:
        return say(f"Answer {len(home.server.requests)}. {LONG}", usage=(60_000, 0, 10, 0))

    with live_home(tmp_path, large, plugins=["relay"]) as home:
        home.settings(**SMALL)
        home.plugin(GATE, "gate")
        relay_settings(home, inputMinTokens=50_000, minGrowthTokens=0)
        home.install()
        with home.rpc() as pi:
            pi.prompt("The first request.")
            close_gate(home)
            mark = pi.mark()
            answer = pi.ask("prompt", message="look at these", images=[PICTURE, PICTURE])
            assert answer["data"]["disposition"] == "handled"
            wait_at_gate(home, pi)
            assert pi.ask("follow_up", message="and at this", images=[PICTURE])["success"]
            pi.until(lambda: len(custom(pi.entries(), "contexthost:held")) == 2, "the second message to be held")
            open_gate(home)
            pi.event("agent_settled", after=mark)

            (request,) = home.server.requests[1:]
            said = conversation(request)
            assert [role for role, _ in said] == ["system", "user", "user", "assistant", "user"]
            assert "# Relay note 1\n" in said[1][1]
            assert [text for _, text in said[2:]] == [
                "The first request.",
                f"Answer 1. {LONG}",
                "look at these\n\nand at this",
            ]
            assert images(request) == 3
            entries = pi.entries()
            kinds = [entry.get("customType") or entry["type"] for entry in entries]
            assert kinds[kinds.index("compaction") :] == [
                "compaction",
                "context-relay:resend",
                "contexthost:sent",
                "message",
                "message",
            ]
            assert custom(entries, "context-relay:resend") == [
                {
                    "trigger": "input",
                    "items": [
                        {"sha256": sha256("look at these"), "images": 2},
                        {"sha256": sha256("and at this"), "images": 1},
                    ],
                }
            ]
            done = pi.note("context-relay: auto relay (new message) 60k → ~", after=mark)
            assert done.endswith(" tokens")
            assert [(line["trigger"], line["ok"]) for line in relay_log(home)] == [("input", True)]

            # A relay that the user stops, and one whose note cannot be written: the message goes out, and is told so.
            close_gate(home)
            mark = pi.mark()
            assert pi.ask("prompt", message="after a stop")["data"]["disposition"] == "handled"
            wait_at_gate(home, pi)
            assert pi.ask("abort")["success"]
            pi.event("agent_settled", after=mark)
            assert pi.notes(after=mark)[-1] == (
                "context-relay: the relay was cancelled; your message is sent all the same"
            )
            open_gate(home)
            blocker = notes_on_disk(home)[0].with_name("2.md")
            blocker.mkdir()
            mark = pi.mark()
            assert pi.ask("prompt", message="after a failure")["data"]["disposition"] == "handled"
            pi.event("agent_settled", after=mark)
            failed = pi.note("context-relay: the relay failed: ", after=mark)
            assert "Is a directory" in failed
            assert failed.endswith("; your message is sent all the same")
            blocker.rmdir()
            assert [texts(request, "user")[-1] for request in home.server.requests[2:]] == [
                "after a stop",
                "after a failure",
            ]
            assert [line["ok"] for line in relay_log(home)] == [True, False, False]

            # The Python side is killed in the middle: the message goes out, and no model writes a summary instead.
            close_gate(home)
            mark = pi.mark()
            python = pi.python_side()
            assert python is not None
            assert pi.ask("prompt", message="after a death")["data"]["disposition"] == "handled"
            wait_at_gate(home, pi)
            os.kill(python, signal.SIGKILL)
            pi.event("agent_settled", after=mark)
            (request,) = home.server.requests[4:]
            assert texts(request, "user")[-1] == "after a death"
            assert len(compactions(pi.entries())) == 1
            assert [path.name for path in notes_on_disk(home)] == ["1.md"]

            # It comes back, and so do relays.
            open_gate(home)
            pi.prompt("it is started again")
            assert "tokens" in pi.slash("/context")
            told = pi.slash("/relay")
            assert "context-relay: relay " in told, told
            assert [path.name for path in notes_on_disk(home)] == ["1.md", "2.md"]

            # Killed in the middle of one by hand: nothing is changed, and Pi goes on.
            pi.prompt("before the second death")
            asked = len(home.server.requests)
            close_gate(home)
            python = pi.python_side()
            assert python is not None
            number = pi.send("prompt", message="/relay")
            wait_at_gate(home, pi)
            os.kill(python, signal.SIGKILL)
            pi.until(lambda: pi.answered(number) is not None, "the end of the command")
            pi.prompt("after the second death")
            assert len(home.server.requests) == asked + 1
            assert len(compactions(pi.entries())) == 2
            assert [path.name for path in notes_on_disk(home)] == ["1.md", "2.md"]
            assert pi.errors() == []


def test_a_switch_during_a_relay_and_sessions_of_subagents(tmp_path: Path) -> None:
    def large(request: Received) -> Answer:
        return say(f"Answer. {LONG}", usage=(60_000, 0, 10, 0))

    with live_home(tmp_path, large, plugins=["relay"]) as home:
        home.settings(**SMALL)
        home.plugin(GATE, "gate")
        relay_settings(home, inputMinTokens=50_000, minGrowthTokens=0)
        home.install()
        with home.rpc() as pi:
            pi.prompt("The first request.")
            first = pi.file
            close_gate(home)
            pi.ask("prompt", message="for this session", images=[PICTURE])
            wait_at_gate(home, pi)
            assert pi.ask("new_session")["data"] == {"cancelled": False}
            open_gate(home)
            pi.prompt("In the new session.")
            assert [texts(request, "user") for request in home.server.requests] == [
                ["The first request."],
                ["In the new session."],
            ]
            assert compactions(read_entries(first)) == []
            assert notes_on_disk(home) == []
            # Named like a subagent's, the session is left alone at once; opened anew, it has no tool either.
            second = pi.file
            assert "recall" in tools(home.server.requests[-1])
            assert pi.ask("set_session_name", name="reviewer#0123abcd")["success"]
            assert pi.slash("/relay") == "/relay: not available in this session"

            mark = pi.mark()
            pi.ask("switch_session", sessionPath=str(first))
            note = pi.note("held back when this session ended", after=mark)
            assert note.endswith("for this session\n1 image must be attached again.")
            pi.ask("switch_session", sessionPath=str(second))
            pi.prompt("a large context, and no relay")
            request = home.server.requests[-1]
            assert texts(request, "user") == ["In the new session.", "a large context, and no relay"]
            assert "recall" not in tools(request)
            assert "read" in tools(request)
            assert pi.slash("/relay") == "/relay: not available in this session"

            pi.ask("switch_session", sessionPath=str(first))
            mark = pi.mark()
            assert pi.ask("prompt", message="back in the first")["data"]["disposition"] == "handled"
            pi.event("agent_settled", after=mark)
            request = home.server.requests[-1]
            assert texts(request, "user")[-2:] == ["The first request.", "back in the first"]
            assert "recall" in tools(request)
            assert [line["sessionId"] for line in relay_log(home) if line["ok"]] == [first.stem.split("_")[-1]]
            assert len(notes_on_disk(home)) == 1
            assert pi.errors() == []


def test_before_the_prompt_cache_expires_the_session_is_relayed_and_nothing_sent(tmp_path: Path) -> None:
    def cached(request: Received) -> Answer:
        return say(f"Answer. {LONG}", usage=(60_000, 50_000, 10, 0))

    with live_home(tmp_path, cached, plugins=["relay"], promptCache={"short": 24}) as home:
        home.settings(**SMALL)
        relay_settings(home, onInput=False, expiryMinTokens=50_000, minGrowthTokens=0)
        home.install()
        with home.rpc() as pi:
            pi.prompt("The first request.")
            pi.prompt("The second request.")  # it takes the timer of the first away
            assert compactions(pi.entries()) == []
            told = pi.note("context-relay: auto relay (cache expiry) 60k → ~")
            assert told.endswith(" tokens")
            (entry,) = compactions(pi.entries())
            assert entry["details"]["relay"] is True
            answer = [e for e in pi.entries() if e["type"] == "message" and e["message"]["role"] == "assistant"][-1]
            (line,) = relay_log(home)
            assert (line["trigger"], line["ok"]) == ("expiry", True)
            waited = datetime.fromisoformat(line["at"]).timestamp() - answer["message"]["timestamp"] / 1000
            assert 4 <= waited < 15, waited  # 20 of the cache's 24 seconds are left
            assert answer["message"]["usage"]["cacheRead"] == 50_000
            assert len(home.server.requests) == 2
            pi.prompt("The third request.")
            said = conversation(home.server.requests[-1])
            assert "# Relay note 1\n" in said[1][1]
            assert [text for _, text in said[2:]] == ["The second request.", f"Answer. {LONG}", "The third request."]
            assert pi.errors() == []
