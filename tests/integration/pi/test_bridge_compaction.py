"""Compactions in the real Pi that a plugin answers: by hand, at the threshold, after an overflow, on a plugin's wish;
and those that are cancelled."""

from __future__ import annotations

from pathlib import Path

from support.live_pi import LivePi, live_home, texts
from support.model_server import Answer, Received, call, refuse, say

SMALL = {"compaction": {"keepRecentTokens": 10, "reserveTokens": 16384}}
PREFIX = "The conversation history before this point was compacted into the following summary"


def summaries(request: Received) -> list[str]:
    return [text for text in texts(request, "user") if text.startswith(PREFIX)]


def compactions(pi: LivePi) -> list[dict[str, object]]:
    return [
        {key: entry.get(key) for key in ("summary", "fromHook", "details", "firstKeptEntryId")}
        for entry in pi.entries()
        if entry["type"] == "compaction"
    ]


def test_a_plugin_answers_by_hand_at_the_threshold_and_after_an_overflow(tmp_path: Path) -> None:
    script = [
        say("One. " * 50),
        say("Two. " * 50),
        say("Three.", usage=(120_000, 0, 10, 0)),  # over 128,000 - 16,384
        refuse(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        say("Four."),
        say("Five."),
    ]
    with live_home(tmp_path, script) as home:
        home.settings(**SMALL)
        home.probe()
        home.install()
        with home.rpc() as pi:
            pi.prompt("First. " * 50)
            pi.prompt("Second. " * 50)
            answer = pi.ask("compact", customInstructions="Mind the gap")
            assert answer["success"], answer
            assert answer["data"]["summary"] == "probe: manual summary"

            pi.prompt("Third. " * 50)
            (request,) = home.server.requests[2:]
            assert "probe: manual summary" in summaries(request)[0]
            pi.event("compaction_end", reason="threshold")

            mark = pi.mark()
            pi.prompt("Fourth. " * 50)
            pi.event("compaction_end", after=mark, reason="overflow")
            overflown, retried = home.server.requests[3:]
            assert "probe: threshold summary" in summaries(overflown)[0]
            assert "probe: overflow summary" in summaries(retried)[0]
            pi.prompt("Fifth.")

            entries = pi.entries()
            found = compactions(pi)
            kept = [one["kept"] for one in home.seen("session_before_compact")]
            assert pi.errors() == []
        assert [one["summary"] for one in found] == [f"probe: {r} summary" for r in ("manual", "threshold", "overflow")]
        assert all(one["fromHook"] is True and one["details"] == {"probe": True} for one in found)
        assert [one["firstKeptEntryId"] for one in found] == kept
        asked = [one["event"] for one in home.seen("session_before_compact")]
        assert [(one["reason"], one["will_retry"]) for one in asked] == [
            ("manual", False),
            ("threshold", False),
            ("overflow", True),
        ]
        assert [one["custom_instructions"] for one in asked] == ["Mind the gap", None, None]
        told = home.seen("session_compact")
        assert [(one["event"]["reason"], one["event"]["plugin"]) for one in told] == [
            ("manual", "probe"),
            ("threshold", "probe"),
            ("overflow", "probe"),
        ]
        ids = [entry["id"] for entry in entries if entry["type"] == "compaction"]
        assert [one["leaf"] for one in told] == ids
        assert home.server.surplus == []


def test_two_compactions_with_the_same_summary_are_told_apart(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(**SMALL)
        home.probe(summary="the same")
        home.install()
        with home.rpc() as pi:
            for _ in range(2):
                pi.prompt("Question. " * 50)
                pi.prompt("Question. " * 50)
                assert pi.ask("compact")["success"]
            ids = [entry["id"] for entry in pi.entries() if entry["type"] == "compaction"]
        assert [one["leaf"] for one in home.seen("session_compact")] == ids


def test_what_a_plugin_cancels_and_what_it_cannot_do_changes_nothing(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(**SMALL)
        home.probe(compaction="cancel")
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            before = pi.file.read_bytes()
            requests = len(home.server.requests)

            answer = pi.ask("compact")
            assert (answer["success"], answer["error"]) == (False, "Compaction cancelled")
            pi.note("probe: not now")

            # Addressed to a plugin that gives nothing: nobody else may do it, and no model.
            for behaviour in ({"compaction": "nothing"}, {"session_before_compact": "raise"}):
                home.probe(**behaviour)
                mark = pi.mark()
                told = pi.slash("/probe compact probe")
                assert "/probe: probe did not compact" in told
                assert "contexthost: probe did not compact" in "\n".join(pi.notes(after=mark))
            assert "the probe fails in session_before_compact" in "\n".join(pi.notes())
            assert pi.file.read_bytes() == before
            assert len(home.server.requests) == requests
            pi.until(lambda: len(home.seen("session_compact_failed")) >= 3, "what is only told")
            failed = [one["event"] for one in home.seen("session_compact_failed")]
            assert [(one["aborted"], one["plugin"]) for one in failed] == [
                (True, "probe"),
                (True, "probe"),
                (True, "probe"),
            ]
            # Not addressed: Pi's own summary stands in for the plugin that fails.
            assert pi.ask("compact")["success"]
            assert len(home.server.requests) > requests


def test_a_plugin_asks_for_compactions(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(**SMALL)
        home.probe()
        home.install()
        with home.rpc() as pi:
            assert "Nothing to compact" in pi.slash("/probe compact probe")
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            told = pi.slash("/probe compact probe")
            (entry,) = [entry for entry in pi.entries() if entry["type"] == "compaction"]
            assert told == f"probe: compacted to {entry['id']}: probe: manual summary"
            asked = home.seen("session_before_compact")[-1]["event"]
            assert (asked["addressed_to"], asked["custom_instructions"]) == ("probe", None)
            assert "Already compacted" in pi.slash("/probe compact probe")
            # The second of two at once would crash in Pi; it is refused before.
            home.probe(compaction_seconds=0.5)
            pi.prompt("Question. " * 50)
            assert pi.slash("/probe compact-twice") == "probe: Entry; Unsupported"
            assert pi.errors() == []


def test_one_that_is_wanted_only_when_pi_is_idle_does_not_disturb_a_run(tmp_path: Path) -> None:
    def answer(request: Received) -> Answer:
        said = texts(request, "user")[-1]
        return call("probe_look", {"wait": True}) if said == "use the tool" else say("Answer. " * 50)

    with live_home(tmp_path, answer) as home:
        home.settings(**SMALL)
        home.probe()
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            mark = pi.mark()
            pi.send("prompt", message="use the tool")
            pi.event("tool_execution_start", after=mark)
            assert "/probe: Pi is not idle" in pi.slash("/probe compact-if-idle")
            kinds = [event["type"] for event in pi.events[mark:]]
            assert "compaction_start" not in kinds
            assert "tool_execution_end" not in kinds  # the tool still runs
            assert pi.ask("abort")["success"]
            pi.event("agent_settled", after=mark)
            # The end of an aborted run is told like any other: what comes next goes on from there.
            assert pi.slash("/probe compact-if-idle").startswith("probe: compacted to ")
            assert len(compactions(pi)) == 1
            assert pi.errors() == []
        assert "is asked for anew" not in (home.host / "state" / "pi-bridge.log").read_text()


def test_an_abort_ends_a_compaction_that_a_plugin_is_making(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(**SMALL)
        home.probe(session_before_compact="hang")
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            number = pi.send("compact")
            pi.until(lambda: bool(home.seen("session_before_compact")), "the plugin to be asked")
            assert pi.ask("abort")["success"]
            pi.until(lambda: pi.answered(number) is not None, "the end of the compaction")
            assert (pi.answered(number) or {})["error"] == "Compaction cancelled"
            pi.prompt("Still there?")
            assert [entry for entry in pi.entries() if entry["type"] == "compaction"] == []
