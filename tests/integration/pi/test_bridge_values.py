"""Values that plugins give a real Pi and that it looks at nowhere itself: a wrong one counts as no answer, its plugin
is named, and neither the run nor the session is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contexthost.diagnosis import examine, plan_rescue, write_rescue
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.builder import USAGE_ZERO, SessionBuilder
from support.live_pi import live_home
from support.model_server import say
from support.terminal import terminal

SMALL = {"compaction": {"keepRecentTokens": 10, "reserveTokens": 16384}}
COMPACTS = """
from contexthost import CompactionResult, hookimpl

@hookimpl
async def session_before_compact(event, ctx):
    made = event.preparation
    return CompactionResult(
        summary="What was before.", first_kept_entry_id=made.first_kept_entry_id, tokens_before=1, usage=USAGE
    )
"""


TEXT = {**USAGE_ZERO, "cost": {**USAGE_ZERO["cost"], "total": "y"}}


@pytest.mark.parametrize("usage", [{"input": 1}, TEXT], ids=["without a cost", "with a text for a number"])
def test_a_compaction_whose_usage_pi_cannot_add_up_is_not_made(tmp_path: Path, usage: dict[str, Any]) -> None:
    """The plugin is named, Pi makes its own summary, and a terminal opens the session."""
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(quietStartup=True, **SMALL)
        home.plugin(COMPACTS.replace("USAGE", repr(usage)))
        home.install()
        with home.rpc() as pi:
            pi.prompt("First.")
            pi.prompt("Second.")
            assert pi.ask("compact")["success"]
            told = pi.note("plugin probe, hook session_before_compact: its answer cannot be used")
            assert "a compaction's usage is not as Pi records it" in told
            (made,) = [entry for entry in pi.entries() if entry["type"] == "compaction"]
            assert made["summary"].startswith("Answer.")
            file = pi.file
            pi.prompt("Third.")
        assert examine(ProjectionAuthority(Session.open(file))).findings == ()
        with terminal(home, "--session", str(file)) as screen:
            screen.until(lambda: "Third." in screen.text and "faux-1" in screen.text, "the session")


def damaged(how: str, directory: Path) -> SessionBuilder:
    """A session of that directory, for a place that is not there Pi asks before it shows anything."""
    build = SessionBuilder(header={"cwd": str(directory)})
    first = build.user("Hello there.")
    build.assistant("First answer.", usage={"input": 7} if how == "answer" else USAGE_ZERO)
    if how == "compaction":
        build.compaction("What was before.", first, usage={"input": 7})
    if how == "branch summary":
        build.branch_summary("What was tried.", first, usage={"input": 7, "cost": {"total": "y"}})
    if how == "cache":
        build.entry("usage", kind="cache_warm", provider="faux", model="faux-1", usage={"input": 7})
    build.user("Go on.")
    build.assistant("Last answer.")
    return build


@pytest.mark.parametrize("how", ["answer", "compaction", "branch summary", "cache"])
def test_doctor_finds_the_usage_that_a_terminal_ends_with_and_rescues_the_session(tmp_path: Path, how: str) -> None:
    """What Pi's terminal cannot open it shows whole after a rescue, which keeps the numbers that were there."""
    with live_home(tmp_path) as home:
        home.settings(quietStartup=True)
        file, saved = damaged(how, home.project).write(home.root / "broken.jsonl"), home.root / "saved.jsonl"
        (finding,) = examine(ProjectionAuthority(Session.open(file))).problems
        assert (finding.kind, finding.mend) == ("bad-usage", "rescue")
        with terminal(home, "--session", str(file)) as screen:
            assert screen.ended() != 0
            assert "TypeError" in screen.text
        authority, after = write_rescue(plan_rescue(file), saved)
        assert after.findings == ()
        kept = [entry.read_usage() or entry.read().get("usage") for entry in authority.session.entries]
        assert [usage["input"] for usage in kept if usage and usage["input"]] == [7]
        with terminal(home, "--session", str(saved)) as screen:
            screen.until(lambda: "Last answer." in screen.text and "faux-1" in screen.text, "the session")
            assert screen.process.poll() is None
