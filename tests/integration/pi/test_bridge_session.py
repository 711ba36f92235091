"""One Pi session after the other: tools and slash commands of plugins, a switch, a fork, the tree, a reload, a session
without a file, print and JSON mode, another model. After each, what Python has is what Pi has."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from support.live_pi import (
    check_mirror,
    custom,
    helper,
    is_alive,
    live_home,
    offered,
    python_sides,
    read_entries,
    texts,
    wait_gone,
)
from support.model_server import Answer, Received, call, say


def said_by_user(event: dict[str, Any]) -> str | None:
    """The user's message that an event of Pi's tells of, once it is in the session."""
    message = event.get("message")
    if event.get("type") != "message_end" or not isinstance(message, dict) or message["role"] != "user":
        return None
    return "".join(block.get("text", "") for block in message["content"])


def test_tools_commands_and_what_plugins_start_by_themselves(tmp_path: Path) -> None:
    script = [
        call("probe_look", {"what": "you"}),
        call("probe_look", {"fail": True}),
        say("Done."),
        say("You are welcome."),
        say("Once."),
        say("Twice."),
        say("HELLO to you."),
    ]
    with live_home(tmp_path, script) as home:
        home.probe()
        home.install()
        with home.rpc(*helper(home)) as pi:
            pi.prompt("Look around.")
            requests = home.server.requests
            assert all("probe_look" in offered(one) and "probe_hidden" not in offered(one) for one in requests)
            assert texts(requests[1], "tool")[-1].startswith("looked at you among ")
            assert texts(requests[2], "tool")[-1] == "LookupError: nothing there"
            results = [
                entry["message"]
                for entry in pi.entries()
                if entry["type"] == "message" and entry["message"]["role"] == "toolResult"
            ]
            assert [(one["isError"], one.get("details", {}).get("n")) for one in results] == [(False, 1), (True, None)]

            assert pi.slash("/context").startswith("110 of 128,000 tokens, 0.1 %")
            assert "LookupError: the probe fails" in pi.slash("/probe fail")
            pi.slash("/probe status three masked")
            assert pi.event("extension_ui_request", method="setStatus", statusKey="contexthost-probe")[
                "statusText"
            ] == ("three masked")
            pi.slash("/probe append a note")
            pi.until(lambda: custom(pi.entries(), "probe:entry") == [{"text": "a note"}], "the entry")
            mark = pi.mark()
            pi.slash("/probe later")
            pi.note("probe: later", after=mark)

            number = pi.send("prompt", message="/probe confirm really")
            question = pi.event("extension_ui_request", method="confirm")
            assert (question["title"], question["message"]) == ("Sure?", "really")
            pi.send("extension_ui_response", confirmed=True, id=question["id"])
            pi.note("probe: True")
            assert number

            mark = pi.mark()
            pi.slash("/probe send Thank you.")
            pi.event("agent_settled", after=mark)
            assert texts(requests[3], "user")[-1] == "Thank you."
            assert home.seen("input")[-1]["event"]["source"] == "extension"

            # The same words twice are two messages, not one that was tried twice.
            mark = pi.mark()
            pi.slash("/probe send-twice Again.")
            pi.until(lambda: [said_by_user(one) for one in pi.events[mark:]].count("Again.") == 2, "both")
            last = [place for place, one in enumerate(pi.events) if said_by_user(one) == "Again."][-1]
            pi.event("agent_settled", after=last)  # each may have had a run of its own
            assert texts(requests[-1], "user")[-2:] == ["Again.", "Again."]
            assert pi.slash("/probe key faux") == "probe: x"
            assert pi.slash("/probe key nobody") == "probe: None"

            handled = pi.ask("prompt", message="handled: this")
            assert handled["data"]["disposition"] == "handled"
            pi.prompt("transform: hello")
            assert texts(requests[-1], "user")[-1] == "HELLO"
            check_mirror(pi)
            assert pi.errors() == []
            file, told = pi.file, pi.slash("/context")
        # With Pi gone the command line says the same, to the letter.
        home.host_settings(contextWindow=128_000)
        assert home.contexthost("run", str(file), "/context").stdout == f"{told}\n"


def test_what_a_plugin_sends_during_a_run_comes_after_it(tmp_path: Path) -> None:
    script = [call("bash", {"command": "sleep 2"}), say("Done."), say("Now that.")]
    with live_home(tmp_path, script) as home:
        home.probe()
        home.install()
        with home.rpc() as pi:
            mark = pi.mark()
            pi.send("prompt", message="Sleep.")
            pi.event("tool_execution_start", after=mark)
            pi.ask("prompt", message="/probe send And then this.")
            pi.event("agent_settled", after=mark)
            assert pi.errors() == []
        asked = [texts(request, "user") for request in home.server.requests]
        assert asked == [["Sleep."], ["Sleep."], ["Sleep.", "And then this."]]


SLOW = """
export default function (pi: any) {
  const shared = globalThis as any;
  pi.on("input", async (event: any, ctx: any) => {
    if (event.text !== "Slowly.") return;
    const looked = new Promise((resolve) => { shared.looked = resolve; });
    ctx.ui.notify("looking");
    await looked;
  });
  pi.registerCommand("looked", { handler: async () => shared.looked() });
}
"""
"""Is loaded before our own."""


def test_a_switch_a_fork_the_tree_and_a_reload(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.host_settings(pi={"answerSeconds": 30})
        home.probe()
        (home.install().parent / "a.ts").write_text(SLOW)
        with home.rpc(*helper(home)) as pi:
            pi.prompt("First.")
            pi.prompt("Second.")
            check_mirror(pi)
            first, python = pi.file, pi.python_side()
            users = [
                entry["id"]
                for entry in pi.entries()
                if entry["type"] == "message" and entry["message"]["role"] == "user"
            ]
            refused = home.contexthost("run", str(first), "/probe", "append", "x", check=False)
            assert refused.returncode == 1, refused
            assert "locked by a live Pi session" in refused.stderr
            assert "use its slash commands" in refused.stderr

            pi.slash(f"/go {users[1]}")
            check_mirror(pi)  # asks the Python side, which by then has seen the move: that is only told, not awaited
            tree = home.seen("session_tree")[-1]
            assert tree["leaf"] == tree["event"]["new_leaf_id"]
            pi.prompt("Another second.")
            check_mirror(pi)
            assert texts(home.server.requests[-1], "user") == ["First.", "Another second."]

            pi.ask("fork", entryId=users[0])
            check_mirror(pi)
            pi.prompt("In the fork.")
            check_mirror(pi)
            assert texts(home.server.requests[-1], "user") == ["In the fork."]  # which begins before the first
            assert pi.file != first
            assert python is not None
            assert not is_alive(python)  # each session has a Python side of its own

            pi.ask("switch_session", sessionPath=str(first))
            check_mirror(pi)
            pi.prompt("Back.")
            assert texts(home.server.requests[-1], "user") == ["First.", "Another second.", "Back."]
            pi.slash("/again")
            check_mirror(pi)
            pi.prompt("Reloaded.")
            assert texts(home.server.requests[-1], "user") == ["First.", "Another second.", "Back.", "Reloaded."]
            assert texts(home.server.requests[-1], "assistant") == ["Answer."] * 3
            pi.ask("new_session")
            check_mirror(pi)
            reasons = [one["event"]["reason"] for one in home.seen("session_start")]
            assert reasons == ["startup", "startup", "fork", "resume", "reload", "new"]  # the second: the command's own
            ends = [one["event"]["reason"] for one in home.seen("session_shutdown")]
            assert [end for end in ends if end != "quit"] == ["fork", "resume", "reload", "new"]
            assert pi.errors() == []

            # Of two reloads at once Pi starts one instance twice.
            both = [pi.send("prompt", message="/again") for _ in range(2)]
            pi.until(lambda: None not in map(pi.answered, both), "both reloads")
            check_mirror(pi)
            assert len(python_sides(pi.process.pid)) == 1
            # An input that plugins still look at stays with its session, and is not run where nothing of it is kept.
            home.probe(slow_seconds=20)
            pi.prompt("Before.")
            assert texts(home.server.requests[-1], "user") == ["Before."]  # of the new session
            assert texts(home.server.requests[-1], "assistant") == []
            file, sent = pi.file, len(home.server.requests)
            pi.send("prompt", message="slowly")
            pi.until(lambda: home.seen("input")[-1]["event"]["text"] == "slowly", "the plugin's look")
            pi.ask("new_session")
            pi.ask("switch_session", sessionPath=str(file))
            pi.note("not sent: slowly")
            assert len(home.server.requests) == sent
            check_mirror(pi)
            # Nor is one that another extension still looks at: Pi would run it without end, if the model calls tools.
            late = pi.send("prompt", message="Slowly.")
            pi.note("looking")
            pi.ask("new_session")
            pi.slash("/looked")
            assert pi.note("too late").endswith("a message came too late for its session, and was not sent: Slowly.")
            pi.until(lambda: pi.answered(late) is not None, "the answer")
            assert (pi.answered(late) or {})["data"] == {"disposition": "handled"}
            assert len(home.server.requests) == sent
            pi.prompt("After.")
            check_mirror(pi)
            assert [error["event"] for error in pi.errors() if "contexthost" in error["extensionPath"]] == []
        # With Pi gone the lock has gone too.
        assert home.contexthost("run", str(first), "/probe", "append", "x").returncode == 0
        assert custom(read_entries(first), "probe:entry") == [{"text": "x"}]


ODD = """
export default function (pi: any) {
  const odd: any = { n: 10n };
  odd.again = [odd, { twice: 1 }, { twice: 1 }];
  pi.on("turn_end", (event: any) => ({
    entries: [...event.entries, { type: "custom", customType: "odd", data: odd }], continue: event.continue,
  }));
}
"""
"""Leaves what is not JSON in the session, which is allowed where Pi does not write it."""


def test_a_session_without_a_file_and_another_model(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        models = json.loads((home.agent / "models.json").read_text())
        entry = models["providers"]["faux"]["models"][0]
        models["providers"]["faux"]["models"].append({**entry, "id": "faux-2", "contextWindow": 64_000})
        (home.agent / "models.json").write_text(json.dumps(models))
        (home.root / "odd.ts").write_text(ODD)
        odd = ["-e", str(home.root / "odd.ts")]
        with home.rpc("--no-session", *helper(home), *odd) as pi:
            pi.prompt("First.")
            check_mirror(pi)
            assert pi.ask("set_model", provider="faux", modelId="faux-2")["success"]
            check_mirror(pi, window=64_000)
            pi.prompt("Second.")
            check_mirror(pi, window=64_000)
            assert [texts(home.server.requests[-1], role) for role in ("user", "assistant")] == [
                ["First.", "Second."],
                ["Answer."],
            ]
            assert home.server.requests[-1].body["model"] == "faux-2"
            assert pi.errors() == []
            python = pi.python_side()
        assert list(home.sessions.rglob("*.jsonl")) == []
        assert python is not None
        wait_gone(python)


def read_and_say(request: Received) -> Answer:
    """Reads the file that is asked for, once the test lets it; the result is large enough to be masked when it ends."""
    last = request.body["messages"][-1]
    if last["role"] == "tool":
        return say("Read.", usage=(6_000, 0, 10, 0))
    name = texts(request, "user")[-1][-1]
    return call("read", {"path": f"{name}.txt"}, f"call_{name}", hold_after=0) if name in "ab" else say("Welcome.")


def test_two_sessions_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    mask = {"triggerTokens": 5_000, "targetTokens": 1_000, "minClearTokens": 500, "keepRecentTurns": 1}
    with live_home(tmp_path, read_and_say, plugins=["masking"]) as home:
        (home.host / "config" / "masking.json").write_text(json.dumps({"mask": {"minEntryTokens": 100, **mask}}))
        home.probe()
        home.install()
        long = {name: "\n".join(f"{name}: line {line}" for line in range(1, 301)) for name in "ab"}
        for name, text in long.items():
            (home.project / f"{name}.txt").write_text(text)
        with home.rpc(*helper(home)) as one, home.rpc(*helper(home)) as two:
            both = {"a": one, "b": two}
            for name, pi in both.items():
                pi.send("prompt", message=f"Read {name}")
            one.until(lambda: len(home.server.requests) == 2, "both runs under way")
            home.server.release()
            for pi in both.values():
                pi.event("agent_settled")
            marks = [pi.mark() for pi in both.values()]
            for pi in both.values():
                pi.send("prompt", message="Thank you.")
            for pi, mark in zip(both.values(), marks, strict=True):
                pi.event("agent_settled", after=mark)

            for name, pi in both.items():
                requests = [request for request in home.server.requests if texts(request, "user")[0] == f"Read {name}"]
                assert [texts(request, "user")[1:] for request in requests] == [[], [], ["Thank you."]]
                assert texts(requests[1], "tool") == [long[name]]
                (result,) = (entry["id"] for entry in pi.entries() if entry.get("message", {}).get("toolCallId"))
                (edit,) = (entry for entry in pi.entries() if entry["type"] == "context_edit")
                placeholder = edit["replacement"]["content"][0]["text"]
                assert placeholder.startswith(f'[pi-compaction] Earlier read "{name}.txt" result masked (')
                assert placeholder.endswith(f', 300 lines); get it: context_tree_query entry "{result}"')
                assert edit["targetId"] == result
                assert texts(requests[2], "tool") == [placeholder]
                said = [entry["message"] for entry in pi.entries() if entry["type"] == "message"]
                roles = ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
                assert [message["role"] for message in said if message["role"] != "system"] == roles
                check_mirror(pi)
            assert len(home.server.requests) == 6
            assert one.python_side() != two.python_side()

            # Both in one file is what Pi does not prevent: who comes second is told, and who came first has it still.
            two.ask("switch_session", sessionPath=str(one.file))
            note = two.note("Until then others can write to this session too.")
            assert "locked by a live Pi session" in note, note
            check_mirror(one)
            assert [text for text in one.notes() if text.startswith("contexthost")] == []
            assert one.errors() == two.errors() == []


def test_print_and_json_mode(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe(draft={"made": "at turn_end"})
        home.install()
        run = home.run("text", "-p", "Hello.")
        assert (run.returncode, run.stdout) == (0, "Answer.\n"), run.stderr
        run = home.run("json", "Hello again.")
        events = [json.loads(line) for line in run.stdout.splitlines()]
        assert "agent_settled" in [event["type"] for event in events]
        assert [texts(request, "user") for request in home.server.requests] == [["Hello."], ["Hello again."]]
        assert all("probe_look" in offered(request) for request in home.server.requests)
        for path in home.sessions.rglob("*.jsonl"):
            assert custom(read_entries(path), "probe:draft") == [{"made": "at turn_end"}]
        pids = {one["pid"] for one in home.seen()}
        assert len(pids) == 2
        for pid in pids:
            wait_gone(pid)
        assert [one["event"]["reason"] for one in home.seen("session_shutdown")] == ["quit", "quit"]


def test_a_message_that_a_plugin_sends_does_not_keep_pi_from_ending(tmp_path: Path) -> None:
    """In print mode Pi ends when no timer is left: that which gives the message up came 50 s later."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        began = time.monotonic()
        run = home.run("text", "-p", "Hello.", "/probe send one more")
        assert (run.returncode, run.stdout) == (0, "Answer.\n"), run.stderr
        assert [texts(request, "user")[-1] for request in home.server.requests] == ["Hello.", "one more"]
        assert time.monotonic() - began < 40
