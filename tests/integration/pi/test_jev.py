"""Jev in the real Pi, against a server that speaks its protocol: what it compacts by hand, at the threshold and after
an overflow; what happens when it cannot; its commands; a reload. The key is searched for in everything that is left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contexthost_jev.summary import MARKER
from jev.jev_server import SECRET, JevServer, Reply, by_number
from support.live_pi import Json, LivePi, PiHome, helper, live_home, texts
from support.model_server import Answer, Received, call, refuse, say

BUILT_IN = "## Goal\nMend the parser."
TOO_LONG = refuse(400, "prompt is too long: 210000 tokens > 200000 maximum")
FULL = (120_000, 0, 10, 0)  # over 128,000 - 16,384
BODY = "x" * 3_000
SUMMARY = f"""{MARKER}
What users and the assistant wrote is here word for word. Some old tool calls were left out, and the output of others \
was cut where it says so. Numbers in headings count characters.

[user, 6]
First.

[assistant]

[call read, input 16, result 3003]
{{"path":"a.txt"}}
a: {BODY}

[assistant]

[call read, input 16, result 373, cut]
{{"path":"b.txt"}}
b: {BODY[:297]}
[… 2,703 more characters were cut here; run the tool again to have them]

[end of the verbatim history]"""


class Model:
    """The model's answers in order; Pi's own requests for a summary offer no tools, and get the same answer always."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[Received] = []
        self.summaries = 0

    def __call__(self, request: Received) -> Answer:
        if not request.body.get("tools"):
            self.summaries += 1
            return say(BUILT_IN)
        self.asked.append(request)
        return self.answers.pop(0)


@pytest.fixture
def jev(monkeypatch: pytest.MonkeyPatch) -> Iterator[JevServer]:
    for name in list(os.environ):
        if name.upper().startswith(("TYPESAFE_", "OPENROUTER_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    with JevServer() as server:
        server.probability = by_number(lambda n: float(n < 3), lambda n: float(n == 1))
        yield server


def reads(number: int, **last: object) -> list[Answer]:
    """Three files read one after the other, and an answer."""
    calls = [call("read", {"path": f"{name}.txt"}, f"call_{number}{name}") for name in "abc"]
    return [*calls, say(f"Read, {number}.", **last)]


def compactions(pi: LivePi) -> list[Json]:
    return [entry for entry in pi.entries() if entry["type"] == "compaction"]


@contextmanager
def home_with(root: Path, model: Model, jev: JevServer) -> Iterator[PiHome]:
    """Pi with jev in it, a context that is cut behind the newest message, and three files to read."""
    with live_home(root, model, plugins=["jev"]) as home:
        home.settings(compaction={"keepRecentTokens": 10, "reserveTokens": 16384})
        for name in "abc":
            (home.project / f"{name}.txt").write_text(f"{name}: {BODY}")
        (home.host / "config" / "jev.json").write_text(json.dumps({"baseUrl": jev.url}))
        home.install()
        yield home


def told(pi: LivePi, after: int) -> list[str]:
    """What jev said."""
    return [note for note in pi.notes(after=after) if note.startswith("jev")]


def decisions(entry: Json) -> dict[str, str]:
    return {one["toolCallId"]: one["action"] for one in entry["details"]["decisions"]}


def role(message: Json) -> str:
    return str(message["role"])


def summary_in(request: Received) -> str:
    (text,) = [text for text in texts(request, "user") if text.startswith("The conversation history before this")]
    return text


def test_jev_compacts_by_hand_at_the_threshold_and_after_an_overflow_or_leaves_it_to_pi(
    tmp_path: Path, jev: JevServer
) -> None:
    model = Model()
    with home_with(tmp_path, model, jev) as home:
        with home.rpc(*helper(home)) as pi:
            pi.note("jev: ready (TYPESAFE_API_KEY)")
            guide = pi.slash("/jev-setup")
            assert guide.startswith("1. Get a key of your own at ")
            assert "key: detected (TYPESAFE_API_KEY)" in guide
            asked = pi.send("prompt", message=f'/jev-setup {{"preserveRecentMessages": 2, "apiKey": "{SECRET}"}}')
            question = pi.event("extension_ui_request", method="confirm")
            assert (question["title"], question["message"].splitlines()) == (
                "Write jev.json?",
                ["  preserveRecentMessages = 2", "  apiKey looks like a secret and is left out"],
            )
            pi.send("extension_ui_response", confirmed=True, id=question["id"])
            pi.note("1 setting was written to ")
            pi.until(lambda: pi.answered(asked) is not None, "the end of the set-up")
            written = json.loads((home.host / "config" / "jev.json").read_text())
            assert written == {"baseUrl": jev.url, "preserveRecentMessages": 2}

            # By hand.
            model.answers = [*reads(1), say("Two.")]
            pi.prompt("First.")
            pi.prompt("Second.")
            mark = pi.mark()
            answer = pi.ask("compact", customInstructions="Mind the dates.")
            assert answer["success"], answer
            pi.note("jev: its verbatim summary was saved.", after=mark)
            assert told(pi, mark)[0].startswith(
                "jev, manual compaction: 1 calls kept, 1 truncated, 1 dropped; about 62% less, in "
            )
            (entry,) = compactions(pi)
            assert entry["fromHook"] is True
            assert entry["summary"] == answer["data"]["summary"] == SUMMARY
            assert decisions(entry) == {"call_1a": "keep", "call_1b": "truncate", "call_1c": "drop"}
            assert "Mind the dates." in jev.seen[0].body["state"]["goal"]
            assert SECRET in jev.seen[0].headers["authorization"]

            # At the threshold, after a run; the request after the first compaction showed its summary, and no output
            # that was dropped. What was decided there is not asked about again.
            model.answers = reads(3, usage=FULL)
            mark = pi.mark()
            pi.prompt("Third.")
            third = model.asked[5]
            assert SUMMARY in summary_in(third)
            assert texts(third, "tool") == []
            assert texts(third, "user")[1:] == ["Second.", "Third."]
            pi.note("jev: its verbatim summary was saved.", after=mark)
            assert told(pi, mark)[0].startswith("jev, threshold compaction: 1 calls kept, 0 truncated, 2 dropped;")
            assert decisions(compactions(pi)[1]) == {"summary:1": "keep", "call_3a": "drop", "call_3b": "drop"}

            # After an overflow; the request is made again with the new summary.
            model.answers = [*reads(4)[:3], TOO_LONG, say("Four.")]
            mark = pi.mark()
            pi.prompt("Fourth.")
            pi.note("jev: its verbatim summary was saved.", after=mark)
            assert told(pi, mark)[0].startswith("jev, overflow compaction: 1 calls kept, 0 truncated, 3 dropped;")
            assert compactions(pi)[2]["summary"] in summary_in(model.asked[-1])
            assert compactions(pi)[2]["summary"].count(MARKER) == 1
            assert [role(one) for one in model.asked[-1].body["messages"]] == ["system", "user", "assistant", "tool"]
            assert model.summaries == 0
            made = compactions(pi)[2]["id"]

            # An abort is told in a few words, and nothing is saved.
            jev.default = Reply(delay=3)
            mark, requests, before = pi.mark(), len(jev.seen), pi.file.read_bytes()
            model.answers = reads(5)
            pi.prompt("Fifth.")
            before = pi.file.read_bytes()
            number = pi.send("compact")
            pi.until(lambda: len(jev.seen) > requests, "Jev to be asked")
            assert pi.ask("abort")["success"]
            pi.until(lambda: pi.answered(number) is not None, "the end of the compaction")
            pi.note("jev, manual compaction: aborted.", after=mark)
            assert told(pi, mark) == ["jev, manual compaction: aborted."]
            assert pi.file.read_bytes() == before

            # When Jev fails, Pi makes its own summary, and the user is told once why.
            jev.default = Reply(status=401)
            mark = pi.mark()
            assert pi.ask("compact")["success"]
            pi.note("jev: the built-in summary was saved.", after=mark)
            assert told(pi, mark)[0] == (
                "jev, manual compaction: the key was refused: the service refused the key (401). "
                "The built-in summary is made instead."
            )
            assert len(told(pi, mark)) == 2

            jev.default = Reply(body=b"<html>" + SECRET.encode())
            model.answers = reads(6, usage=FULL)
            mark = pi.mark()
            pi.prompt("Sixth.")
            pi.note("jev: the built-in summary was saved.", after=mark)
            assert told(pi, mark)[0] == (
                "jev, threshold compaction: malformed answer: the answer is not JSON. "
                "The built-in summary is made instead."
            )
            assert len(told(pi, mark)) == 2

            jev.default = Reply(hang_up=True)
            model.answers = [*reads(7)[:3], TOO_LONG, say("Seven.")]
            mark = pi.mark()
            pi.prompt("Seventh.")
            pi.note("jev: the built-in summary was saved.", after=mark)
            assert told(pi, mark)[0] == (
                "jev, overflow compaction: network failure: the connection failed (RemoteProtocolError). "
                "The built-in summary is made instead."
            )
            assert len(told(pi, mark)) == 2
            assert BUILT_IN in summary_in(model.asked[-1])
            found = compactions(pi)
            assert [one["fromHook"] for one in found] == [True, True, True, False, False, False]
            assert all(one["summary"].startswith(BUILT_IN) for one in found[3:])
            assert model.answers == []

            # The status, before and after a reload, which is no news.
            lines = pi.slash("/jev-status").splitlines()
            assert lines[0] == "key: detected (TYPESAFE_API_KEY)"
            assert lines[1] == f"settings: {home.host / 'config' / 'jev.json'}"
            assert {"  preserveRecentMessages = 2 (file)", "  keepThreshold = 0.5 (default)"} <= set(lines)
            assert lines[-1].startswith("last compaction: jev, overflow compaction: network failure: ")
            mark = pi.mark()
            pi.slash("/again")
            lines = pi.slash("/jev-status").splitlines()
            assert lines[-1] == f"last compaction: {made}: 1 kept, 0 truncated, 3 dropped; 72% less (model jev-1.13.0)"
            pi.ask("new_session")
            assert pi.slash("/jev-status").endswith("last compaction: none by jev in this session")
            assert not any("jev: ready" in note for note in pi.notes(after=mark))
            assert pi.errors() == []
            assert SECRET not in json.dumps(pi.events)
        assert home.server.problems == []
        assert home.holding(SECRET) == []


def test_without_a_key_pi_goes_on_and_the_user_is_told_how_to_get_one(
    tmp_path: Path, jev: JevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY")
    model = Model()
    with home_with(tmp_path, model, jev) as home, home.rpc() as pi:
        pi.note("jev: no key, so compactions are left to others.")
        model.answers = reads(1)
        pi.prompt("First.")
        mark = pi.mark()
        assert pi.ask("compact")["success"]
        pi.note("jev: the built-in summary was saved.", after=mark)
        assert told(pi, mark)[0].startswith("jev, manual compaction: no key: get a key at ")
        assert pi.slash("/jev-status").startswith("key: missing; get a key at ")
        assert jev.seen == []
