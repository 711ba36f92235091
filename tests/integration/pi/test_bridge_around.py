"""What goes on around the extension in a real Pi: sessions that are dropped without a word, extensions that are slow or
add odd entries, compactions that overlap, an environment that points Python elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.live_pi import PiHome, check_mirror, custom, helper, live_home, python_sides, read_entries
from support.model_server import say

SUBSESSION = """
import { createAgentSession, SessionManager } from "@earendil-works/pi-coding-agent";
export default function (pi: any) {
  pi.registerCommand("sub", { handler: async (milliseconds: string, ctx: any) => {
    const { session } = await createAgentSession({ cwd: ctx.cwd, sessionManager: SessionManager.inMemory(ctx.cwd) });
    await session.bindExtensions({});
    await new Promise((done) => setTimeout(done, Number(milliseconds)));
    session.dispose();
    ctx.ui.notify(`sub: disposed after ${milliseconds} ms`);
  } });
}
"""


def test_a_session_that_is_disposed_without_a_word_leaves_no_process_and_does_not_end_pi(tmp_path: Path) -> None:
    """As Pi's SDK ends sessions, and extensions end those of subagents that they run inside Pi."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.host_settings(pi={"heartbeatSeconds": 2})
        home.probe()
        home.install()
        (home.root / "sub.ts").write_text(SUBSESSION)
        with home.rpc(*helper(home), "-e", str(home.root / "sub.ts")) as pi:
            pi.prompt("Hello.")
            own = python_sides(pi.process.pid)
            assert len(own) == 1
            for milliseconds in (100, 1500):  # while its Python side is starting, and when it works
                assert pi.slash(f"/sub {milliseconds}") == f"sub: disposed after {milliseconds} ms"
                pi.until(lambda: python_sides(pi.process.pid) == own, "its Python side to end")
            pi.prompt("Still here?")
            check_mirror(pi)
            assert pi.errors() == []


SLOW = """
export default function (pi: any) {
  pi.on("session_tree", async () => { await new Promise((done) => setTimeout(done, 1000)); });
}
"""

CLOSING = """
    from contexthost import hookimpl

    @hookimpl
    def session_shutdown(event, ctx):
        ctx.append_entry("notes:closed", {"reason": event.reason})
"""


def test_a_move_that_another_extension_delays_and_an_entry_at_the_session_s_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in an environment in which Python would import from the project, and not start."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.plugin(CLOSING, "closing")
        extensions = home.install().parent
        (extensions / "a-slow.ts").write_text(SLOW)  # is asked before us
        strange = {**home.environment, "PYTHONHOME": "/nowhere", "PYTHONPATH": f":src:{home.packages}:."}
        monkeypatch.setattr(PiHome, "environment", strange)
        (home.project / "platformdirs.py").write_text("open('EXECUTED', 'w').close()\n")
        with home.rpc(*helper(home)) as pi:
            for text in ("One.", "Two.", "Three."):
                pi.prompt(text)
            assert not (home.project / "EXECUTED").exists()
            messages = [entry for entry in pi.entries() if entry["type"] == "message"]
            said = [entry["id"] for entry in messages if entry["message"]["role"] == "assistant"]
            pi.slash(f"/go {said[0]}")
            mark = pi.mark()
            going = pi.send("prompt", message=f"/go {said[2]}")  # forward, to a descendant
            pi.until(lambda: pi.slash("/leaf").endswith(f" {said[2]}"), "the move")
            pi.slash("/probe append on the way")
            pi.until(lambda: pi.answered(going) is not None, "the move's end")
            check_mirror(pi)
            pi.prompt("Four.")
            check_mirror(pi)
            assert pi.errors() == []
            assert not any("Python side" in note for note in pi.notes(after=mark))

            file = pi.file
            pi.slash("/again")
            assert custom(read_entries(file), "notes:closed") == [{"reason": "reload"}]
            pi.ask("new_session")
            assert custom(read_entries(file), "notes:closed") == [{"reason": "reload"}, {"reason": "new"}]


def test_after_two_compactions_at_once_plugins_messages_are_sent(tmp_path: Path) -> None:
    """Of the second one Pi tells no end."""
    with live_home(tmp_path, lambda _: say("Answer. " * 50)) as home:
        home.settings(compaction={"keepRecentTokens": 10, "reserveTokens": 16384})
        home.probe(compaction_seconds=1)
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            both = [pi.send("compact")]
            pi.until(lambda: bool(home.seen("session_before_compact")), "the first")
            both.append(pi.send("compact"))
            pi.until(lambda: all(pi.answered(one) is not None for one in both), "both answers")
            home.probe()
            count, mark = len(home.server.requests), pi.mark()
            pi.slash("/probe send Hello from the plugin")
            pi.event("agent_settled", after=mark)
            assert len(home.server.requests) == count + 1
            assert "a compaction is going on" not in pi.slash("/probe compact probe")


CIRCLE = """
export default function (pi: any) {
  pi.on("agent_start", () => {
    const details: any = { number: 1 };
    details.itself = details;
    pi.sendMessage({ customType: "odd", content: "odd", display: true, details }, { triggerTurn: false });
  });
}
"""


def test_another_extension_s_message_that_is_no_json_is_no_failure_of_ours(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe(**{"from": {"turn_end": 50_000, "agent_before_settle": 50_000}})
        home.install()
        (home.root / "circle.ts").write_text(CIRCLE)
        done = home.run("text", "--no-session", "-e", str(home.root / "circle.ts"), "-p", "one", "two")
        assert (done.returncode, done.stderr, len(home.server.requests)) == (0, "", 2)
