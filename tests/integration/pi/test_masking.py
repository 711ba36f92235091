"""Masking in the real Pi: masks at both boundaries, a summary of the whole, the original by the model's own call, and
the same numbers in Pi and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.live_pi import Json, LivePi, PiHome, live_home, texts
from support.model_server import call, refuse, say

WINDOW = 128_000
SMALL = {"compaction": {"keepRecentTokens": 10, "reserveTokens": 16384}}


def masking_settings(home: PiHome, **summary: Any) -> None:
    mask = {
        "triggerTokens": 5_000,
        "triggerRatio": 1,
        "targetTokens": 1_000,
        "minClearTokens": 500,
        "keepRecentTurns": 1,
        "minEntryTokens": 100,
        "excludeTools": ["context_tree_query"],
    }
    (home.host / "config" / "masking.json").write_text(json.dumps({"mask": mask, "summary": summary}))


def result_entry(pi: LivePi, call_id: str) -> Json:
    """The entry with the result of a tool call."""
    return next(entry for entry in pi.entries() if entry.get("message", {}).get("toolCallId") == call_id)


def masks(pi: LivePi) -> dict[str, str]:
    """The context edits: target → what stands in its place."""
    return {
        entry["targetId"]: entry["replacement"]["content"][0]["text"]  # Pi makes blocks of a text
        for entry in pi.entries()
        if entry["type"] == "context_edit"
    }


def compactions(pi: LivePi) -> list[Json]:
    return [entry for entry in pi.entries() if entry["type"] == "compaction"]


def on_the_command_line(home: PiHome, pi: LivePi) -> Json:
    """What the command line makes of the file that Pi has open."""
    answer = home.contexthost("context", str(pi.file), "--json", "--context-window", str(WINDOW))
    found: Json = json.loads(answer.stdout)
    return found


def usage_text(usage: Json) -> tuple[str, str]:
    head = f"{usage['tokens']:,} of {usage['window']:,} tokens, {usage['percent']:.1f} %"
    bounds = "" if usage["lower"] == usage["upper"] else f", between {usage['lower']:,} and {usage['upper']:,}"
    source = "the provider's last count and what came since" if usage["source"] == "provider" else "estimated"
    return head, f"{source}{bounds}"


def check_numbers(home: PiHome, pi: LivePi) -> Json:
    """Both commands and the status line in Pi say what the command line says of the same file."""
    data = on_the_command_line(home, pi)
    head, source = usage_text(data["usage"])
    masked, saved = data["maskedResults"], data["reclaimedTokens"]

    status = pi.slash("/compaction-status").splitlines()
    assert status[0] == f"usage        {head} ({source})"
    results = f"{masked} result{'' if masked == 1 else 's'}"
    assert f"masked       {results}" + (f"; that saves {saved:,} tokens" if masked else "") in status
    made = next(line for line in status if line.startswith("compaction "))
    assert made.split()[1] == (data["compaction"] or "none")

    first, *lines = pi.slash("/context").splitlines()
    assert first.startswith(head)
    numbers = [line.split() for line in lines if line.startswith("  ") and line.endswith("%")]
    assert [(row[-5], row[-4], row[-2]) for row in numbers] == [
        (f"{one['count']}", f"{one['tokens']:,}", f"{one['share'] * 100:.1f}") for one in data["categories"]
    ]
    assert [line.split()[-2] for line in lines if "all, as counted here" in line] == [f"{data['tokens']:,}"]
    largest = [(line.split()[0], line.split()[1]) for line in lines if line.split()[0] in ids(data)]
    assert largest == [(one["entryId"], f"{one['tokens']:,}") for one in data["largest"][:5]]
    told = [line for line in lines if "are masked" in line]
    assert told == ([f"{masked} tool results are masked; that saves {saved:,} tokens."] if masked else [])

    about = "" if data["usage"]["source"] == "provider" else "~"
    tokens = data["usage"]["tokens"]
    short = f"{tokens / 1000:,.0f}k" if tokens >= 1000 else str(tokens)
    more = f" · {masked} masked" if masked else ""
    line = f"{about}{short}/128k {data['usage']['percent']:.0f} %{more}"
    pi.until(lambda: status_line(pi) == line, f"the status line {line}")
    return data


def status_line(pi: LivePi) -> str:
    return str([event["statusText"] for event in pi.events if event.get("method") == "setStatus"][-1])


def ids(data: Json) -> set[str]:
    return {one["entryId"] for one in data["largest"]}


def test_masks_at_both_boundaries_the_original_again_and_one_summary(tmp_path: Path) -> None:
    script = [
        call("read", {"path": "a.txt"}, "call_a", usage=(3_000, 0, 20, 0)),
        call("read", {"path": "b.txt"}, "call_b", usage=(108_000, 0, 20, 0)),  # over the limit of Pi less 4,000
        say("Both read.", usage=(6_000, 0, 10, 0)),
    ]
    with live_home(tmp_path, script, plugins=["masking"], window=WINDOW) as home:
        home.settings(**SMALL)
        masking_settings(home, tokens=100_000, retryGrowthTokens=1_000)
        home.install()
        originals = {}
        for name in "ab":
            originals[name] = "\n".join(f"{name}: line {number} of the file" for number in range(1, 161))
            (home.project / f"{name}.txt").write_text(originals[name])
        with home.rpc() as pi:
            pi.prompt("Read both files.")
            first, second = (result_entry(pi, f"call_{name}")["id"] for name in "ab")

            # At the end of the turn, within the run: the window was nearly full.
            assert texts(home.server.requests[1], "tool") == [originals["a"]]
            placeholder, kept = texts(home.server.requests[2], "tool")
            assert placeholder.startswith('[pi-compaction] Earlier read "a.txt" result masked (')
            assert placeholder.endswith(f', 160 lines); get it: context_tree_query entry "{first}"')
            assert kept == originals["b"]
            # When the run settled.
            assert list(masks(pi)) == [first, second]
            home.server.script(
                call("context_tree_query", {"entry": first}, "call_q", usage=(3_000, 0, 20, 0)),
                say("There it is.", usage=(4_000, 0, 10, 0)),
            )
            pi.prompt("What was in the first?")
            shown = texts(home.server.requests[3], "tool")
            assert shown == list(masks(pi).values())
            answered = texts(home.server.requests[4], "tool")[-1]
            assert originals["a"] in answered
            assert len(masks(pi)) == 2

            data = check_numbers(home, pi)
            assert (data["maskedResults"], data["usage"]["tokens"], data["usage"]["source"]) == (2, 4_010, "provider")
            assert data["reclaimedTokens"] > 1_000

            # Masks are not enough any more: a summary of the whole, by Pi's own model, from an idle session. One that
            # fails is not tried again before the context has grown.
            home.server.script(
                say("Long.", usage=(105_000, 0, 10, 0)),
                refuse(400, "no summaries today"),
                say("Longer.", usage=(105_500, 0, 10, 0)),
                say("Long enough.", usage=(106_200, 0, 10, 0)),
                say("## Goal\nRead both files."),
                say("After the summary.", usage=(2_000, 0, 10, 0)),
            )
            mark = pi.mark()
            pi.prompt("A long one. " * 20)  # so long that the summary has whole turns
            assert "no summaries today" in pi.event("compaction_end", after=mark)["errorMessage"]
            mark = pi.mark()
            pi.prompt("A longer one. " * 20)
            pi.slash("/compaction-status")
            assert len(home.server.requests) == 8
            assert [event for event in pi.events[mark:] if event["type"] == "compaction_start"] == []
            mark = pi.mark()
            pi.prompt("Go on. " * 20)
            pi.event("compaction_end", after=mark)
            (entry,) = compactions(pi)
            assert entry["summary"].startswith("## Goal\nRead both files.")
            assert not entry.get("fromHook")
            assert pi.event("compaction_start", after=mark)["reason"] == "manual"
            pi.until(lambda: entry["id"] in pi.slash("/compaction-status"), "the compaction to be told")
            check_numbers(home, pi)
            pi.prompt("And now?")
            assert "## Goal\nRead both files." in texts(home.server.requests[-1], "user")[0]
            data = check_numbers(home, pi)
            assert data["compaction"] == entry["id"]
            assert len(compactions(pi)) == 1

            # In another session and back: everything is read from the file again.
            path = pi.file
            pi.ask("new_session")
            pi.ask("switch_session", sessionPath=str(path))
            assert check_numbers(home, pi) == data
            assert pi.errors() == []
        assert home.server.problems == []
        assert home.server.surplus == []
        assert len(home.server.requests) == 11
