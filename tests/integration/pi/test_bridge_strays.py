"""Another extension looks at an input while its session is replaced by another one. Pi runs it in the session that has
gone, whose context never grows: a model that calls a tool would call it again and again, until Pi is ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.live_pi import helper, live_home, texts
from support.model_server import Answer, Received, call, say

LOOKS = """
export default function (pi: any) {
  const shared: any = ((globalThis as any).looking ??= {});
  pi.registerCommand("looked", { handler: async () => shared.looked() });
  pi.on("input", async (event: any, ctx: any) => {
    if (!event.text.startsWith("Stray")) return;
    const looked = new Promise((resolve) => { shared.looked = resolve; });
    ctx.ui.notify("looking");
    await looked;
    return { action: "continue" };
  });
}
"""


def answer(request: Received) -> Answer:
    """Calls a tool, and answers when it has a result."""
    return say("Done.") if request.body["messages"][-1]["role"] == "tool" else call("read", {"path": "a.txt"})


@pytest.mark.parametrize(("name", "asked"), [("a-before", 0), ("z-behind", 1)])
def test_a_run_in_a_session_that_has_gone_does_not_go_on_without_end(tmp_path: Path, name: str, asked: int) -> None:
    with live_home(tmp_path, answer) as home:
        (home.project / "a.txt").write_text("words\n")
        home.probe()
        (home.install().parent / f"{name}.ts").write_text(LOOKS)
        with home.rpc(*helper(home)) as pi:
            pi.prompt("Hello.")
            pi.send("prompt", message="Stray.")
            pi.note("looking")
            pi.ask("new_session")
            pi.slash("/looked")
            pi.until(lambda: len(home.server.requests) == 2 + asked, "what Pi asks in the session that has gone")
            for count in range(1, 6):
                pi.prompt(f"Again, {count}.")
                assert texts(home.server.requests[-1], "user")[-1] == f"Again, {count}."
            assert len(home.server.requests) == 2 + asked + 10
            assert [note for note in pi.notes() if "too late" in note] == [
                "contexthost: a message came too late for its session, and was not sent: Stray."
            ][asked:]
