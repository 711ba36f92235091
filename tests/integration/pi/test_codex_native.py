"""Native compaction in the real Pi, with a gateway on loopback as provider ``sub-api``: by hand, within a run, over
model switches and a resume; and a gateway that cannot do it. The key is Pi's own, from the environment; it is searched
for in everything that is left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.codex import KEY, compacted, is_compaction
from support.live_pi import Json, LivePi, PiHome, helper, live_home, texts
from support.model_server import CHAT, RESPONSES, Answer, Received, call, say

FEATURE = "x-codex-beta-features"
TRIGGER = {"type": "compaction_trigger"}
SHARED = ("model", "tools", "store", "stream", "prompt_cache_key")
WORDS = ("three", "four", "five", "six", "seven", "eight", "nine")
LOW = (100, 0, 10, 0)
FULL = (60_000, 0, 10, 0)  # over 0.4 of 128,000
BUILT_IN = "## Goal\nMend the parser."


class Gateway:
    """Compaction requests and ordinary ones are answered from a list each; Pi's own requests for a summary, which
    offer no tools, always in the same way."""

    def __init__(self) -> None:
        self.compactions: list[Answer] = []
        self.answers: list[Answer] = []
        self.compacting: list[Received] = []
        self.asked: list[Received] = []
        self.summaries: list[Received] = []

    def __call__(self, request: Received) -> Answer:
        if is_compaction(request):
            self.compacting.append(request)
            return self.compactions.pop(0)
        if not request.body.get("tools"):
            self.summaries.append(request)
            return say(BUILT_IN)
        self.asked.append(request)
        return self.answers.pop(0)


@contextmanager
def home_with(root: Path, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[PiHome]:
    """A Pi whose model is SubAPI's, with a second one of SubAPI's and one of another provider beside it."""
    monkeypatch.setenv("GATEWAY_KEY", KEY)
    for name in list(os.environ):
        if name.startswith("SUB_API_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    model = {"id": "gpt-5", "contextWindow": 128_000, "maxTokens": 1000, "input": ["text", "image"]}
    options = {"plugins": ["codex_native"], "provider": "sub-api", "api": "openai-responses", "api_key": "$GATEWAY_KEY"}
    with live_home(root, gateway, **options, **model) as home:
        home.provider("sub-api", model, {**model, "id": "gpt-6"}, api="openai-responses", apiKey="$GATEWAY_KEY")
        home.provider("faux", {**model, "id": "faux-1"}, apiKey="x")
        home.settings(compaction={"keepRecentTokens": 10, "reserveTokens": 16384})
        home.host_settings(compaction={"keepRecentTokens": 10})
        (home.host / "config" / "codex_native.json").write_text(json.dumps({"thresholdRatio": 0.4}))
        home.install()
        yield home


def long(text: str) -> str:
    return f"{text} " + "because " * 20


def said(text: str) -> Json:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def sealed(number: int) -> Json:
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": f"sealed-{number}"}


def items(request: Received) -> list[Json]:
    """The input of an ordinary request behind its system prompt."""
    system, *rest = request.body["input"]
    assert system["role"] == "system"
    return list(rest)


def kinds(found: list[Json]) -> list[str]:
    return [item.get("type") or item["role"] for item in found]


def compactions(pi: LivePi) -> list[Json]:
    return [entry for entry in pi.entries() if entry["type"] == "compaction"]


def switch(pi: LivePi, provider: str, model: str) -> None:
    assert pi.ask("set_model", provider=provider, modelId=model)["success"]


def test_by_hand_over_model_switches_resumed_and_within_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    with home_with(tmp_path, gateway, monkeypatch) as home:
        (home.project / "notes.txt").write_text("".join(f"{n}: {n * n} and {n * n * n}\n" for n in range(1_400)))
        events: list[Json] = []
        with home.rpc() as pi:
            # By hand.
            gateway.answers = [say("A." * 40, usage=LOW), say("B." * 40, usage=LOW), say("C.", usage=LOW)]
            gateway.compactions = [compacted("sealed-1")]
            pi.prompt(long("one"))
            pi.prompt(long("two"))
            ordinary = gateway.asked[1].body
            answer = pi.ask("compact")
            assert answer["success"], answer
            (request,) = gateway.compacting
            spoken = {"type": "output_text", "text": "B." * 40, "annotations": []}
            assert request.body["input"][:-2] == ordinary["input"][1:]
            assert request.body["input"][-2]["content"] == [spoken]
            assert request.body["input"][-1] == TRIGGER
            assert kinds(request.body["input"]).count("compaction_trigger") == 1
            assert request.body["instructions"] == ordinary["input"][0]["content"]
            assert {key: request.body[key] for key in SHARED} == {key: ordinary[key] for key in SHARED}
            (entry,) = compactions(pi)
            assert entry["fromHook"] is True
            assert entry["details"]["modelKey"] == "sub-api:openai-responses:gpt-5"
            assert entry["details"]["replacementHistory"] == [said(long("one")), said(long("two")), sealed(1)]
            assert (entry["usage"]["input"], entry["usage"]["cacheRead"], entry["usage"]["output"]) == (7000, 2000, 300)

            # The next ordinary request carries it, and what came after it.
            pi.prompt("three")
            assert items(gateway.asked[2]) == [said(long("one")), said(long("two")), sealed(1), said("three")]
            status = pi.slash("/codex-status")
            assert "native        yes" in status
            assert "credential    API key" in status
            assert f"checkpoint    {entry['id']} of " in status

            # Other models get the portable summary: another one of the same provider, and one of another protocol.
            gateway.answers = [say("D.", usage=LOW), say("E.", usage=LOW), say("F.", usage=LOW)]
            switch(pi, "sub-api", "gpt-6")
            pi.prompt("four")
            pi.note(f"the native checkpoint {entry['id']} is for sub-api:openai-responses:gpt-5 alone")
            switch(pi, "faux", "faux-1")
            pi.prompt("five")
            pi.prompt("six")
            other, chat, again = gateway.asked[3:]
            assert entry["summary"] in items(other)[0]["content"][0]["text"]
            assert other.headers[FEATURE] == "remote_compaction_v2"
            for one in (chat, again):
                assert (one.api, one.headers.get(FEATURE)) == (CHAT, None)
                assert entry["summary"] in texts(one, "user")[0]
            assert texts(again, "user")[-3:] == ["four", "five", "six"]
            assert "sealed" not in json.dumps([one.body for one in (other, chat, again)])
            assert len([note for note in pi.notes() if "native checkpoint" in note]) == 2  # one for each model

            # Back at its model, the checkpoint is in force again.
            switch(pi, "sub-api", "gpt-5")
            gateway.answers = [say("G.", usage=LOW)]
            pi.prompt("seven")
            assert items(gateway.asked[6])[:4] == items(gateway.asked[2])
            assert [item for item in items(gateway.asked[6])[4:] if item.get("role") == "user"] == [
                said("four"),
                said("five"),
                said("six"),
                said("seven"),
            ]
            file = pi.file
            assert pi.errors() == []
            events += pi.events

        # Resumed in another Pi.
        with home.rpc("--session", str(file), *helper(home)) as pi:
            gateway.answers = [say("H.", usage=LOW)]
            pi.prompt("eight")
            assert items(gateway.asked[7])[: len(items(gateway.asked[6]))] == items(gateway.asked[6])
            assert items(gateway.asked[7])[-1] == said("eight")

            # Within a run, between two turns: the results are part of it, and the run goes on. The provider may take
            # longer than the 2 s that a boundary has otherwise.
            read = {"path": "notes.txt"}
            gateway.answers = [call("read", read, usage=LOW), call("read", read, "call_2", usage=FULL)]
            gateway.answers += [call("bash", {"command": "echo on"}, "call_3", usage=LOW), say("I.", usage=LOW)]
            gateway.compactions = [compacted("sealed-2", delay_seconds=2.5)]
            mark = pi.mark()
            pi.prompt("nine")
            second = gateway.compacting[1]
            assert items(gateway.asked[9])[:3] == second.body["input"][:3] == [*items(gateway.asked[2])[:3]]
            assert second.body["input"][-2]["call_id"] == "call_2"
            assert second.body["input"][-2]["output"].startswith("0: 0 and 0\n1: 1 and 1\n")
            third = [said(long("one")), said(long("two")), *(said(text) for text in WORDS), sealed(2)]
            assert items(gateway.asked[10]) == third
            assert kinds(items(gateway.asked[11])[len(third) :]) == ["function_call", "function_call_output"]
            made = pi.entries()
            place = [entry["id"] for entry in made].index(compactions(pi)[1]["id"])
            assert made[place]["fromHook"] is True
            assert made[place - 1]["message"]["toolCallId"].startswith("call_2|")
            assert made[place + 1]["message"]["role"] == "assistant"
            assert made[-1]["message"]["content"][0]["text"] == "I."
            assert [event for event in pi.events[mark:] if event["type"] == "compaction_start"] == []
            assert [event["type"] for event in pi.events[mark:]].count("agent_start") == 1

            # An abort ends it together with the run.
            pi.ask("new_session")
            gateway.answers = [call("read", read, usage=FULL)]
            gateway.compactions = [compacted(hold_after=1)]
            mark = pi.mark()
            pi.ask("prompt", message="zero")
            pi.until(home.server.reached.is_set, "the compaction to begin")
            assert pi.ask("abort")["success"]
            pi.event("agent_settled", after=mark)
            home.server.release()
            *_, result, last = [entry["message"] for entry in pi.entries() if entry["type"] == "message"]
            assert (result["role"], last["stopReason"]) == ("toolResult", "aborted")
            assert compactions(pi) == []
            assert pi.notes(after=mark) == []

            # A gateway without support: Pi's own summary, told once, and it is not asked again in this session,
            # neither by hand nor within a run nor after a reload.
            gateway.answers = [say("J." * 40, usage=LOW), say("K." * 40, usage=LOW)]
            gateway.compactions = [say("I cannot do that.")]
            mark = pi.mark()
            pi.prompt(long("one"))
            pi.prompt(long("two"))
            assert pi.ask("compact")["success"]
            told = pi.note("native compaction with sub-api/gpt-5 failed: 127.0.0.1 does not support", after=mark)
            assert told.endswith("the conversation is summarised in the usual way instead")
            assert "It is not asked again in this session" in told
            (plain,) = compactions(pi)
            assert (plain["fromHook"], plain["summary"].startswith(BUILT_IN)) == (False, True)
            gateway.answers = [call("read", read, usage=FULL), say("L." * 40, usage=LOW), say("M." * 40, usage=LOW)]
            pi.prompt(long("three"))
            assert pi.ask("compact")["success"]
            assert len(pi.notes(after=mark)) == 1
            pi.slash("/again")
            pi.prompt(long("four"))
            assert pi.ask("compact")["success"]
            assert [entry["fromHook"] for entry in compactions(pi)] == [False] * 3
            assert len(gateway.compacting) == 4
            assert "does not support native compaction" in pi.slash("/codex-status")
            assert gateway.answers == gateway.compactions == []
            assert pi.errors() == []
            events += pi.events

        eligible = [one for one in home.server.requests if one.api == RESPONSES]
        assert {one.headers[FEATURE] for one in eligible} == {"remote_compaction_v2"}
        assert {one.headers["authorization"] for one in eligible} == {f"Bearer {KEY}"}
        assert {one.body["model"] for one in eligible if "sealed" in json.dumps(one.body)} == {"gpt-5"}
        assert home.server.problems == []
        assert KEY not in json.dumps(events)
        assert home.holding(KEY) == []


def test_headers_that_are_set_up_in_pi_are_sent_and_go_before_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    with home_with(tmp_path, gateway, monkeypatch) as home:
        headers = {"authorization": "Bearer $GATEWAY_KEY", "X-Tenant": "tenant-one"}
        model = {"id": "gpt-5", "contextWindow": 128_000, "maxTokens": 1000, "headers": {"X-Model": "model-one"}}
        home.provider("sub-api", model, api="openai-responses", apiKey="unused", headers=headers)
        with home.rpc() as pi:
            gateway.answers = [say("A." * 40, usage=LOW)]
            gateway.compactions = [compacted("sealed-1")]
            pi.prompt(long("one"))
            assert pi.ask("compact")["success"]
            pi.slash("/codex-status")
            (told,) = pi.notes()
            assert "credential    authorization header" in told
            assert KEY not in json.dumps(pi.events)
        names = ("authorization", "x-tenant", "x-model", FEATURE)
        sent = {tuple(one.headers.get(name) for name in names) for one in home.server.requests}
        assert sent == {(f"Bearer {KEY}", "tenant-one", "model-one", "remote_compaction_v2")}
        assert len(gateway.compacting) == 1
        assert home.holding(KEY) == []
