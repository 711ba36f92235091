"""Beside a plugin that hangs in the real Pi, or whose values cannot be sent, the others do their work, and whose fault
it was is told."""

from __future__ import annotations

import re
from pathlib import Path

from support.live_masking import SCRIPT, masked, prepare
from support.live_pi import change_extension, live_home, texts, wait_gone
from support.model_server import Answer, Received, call, say


def hanging(*hooks: str) -> str:
    """A plugin that is asked before all others and hangs in these hooks."""
    source = "import asyncio\nfrom contexthost import hookimpl\n"
    for hook in hooks:
        source += f"\n@hookimpl(tryfirst=True)\nasync def {hook}(event, ctx):\n    await asyncio.sleep(3600)\n"
    return source


def late(hook: str) -> str:
    return f"contexthost: plugin hangs, hook {hook}: no answer within "


def seconds(text: str) -> float:
    """How long a plugin had, as a note says: less than its share by what went by until it was asked."""
    found = re.search(r"no answer within ([\d.]+) s", text)
    assert found is not None, text
    return float(found[1])


def test_masking_masks_beside_a_plugin_that_hangs_everywhere(tmp_path: Path) -> None:
    hooks = ("session_start", "input", "agent_start", "context", "agent_before_settle", "session_shutdown")
    with live_home(tmp_path, SCRIPT, plugins=["masking"]) as home:
        prepare(home)
        home.host_settings(pi={"answerSeconds": 5})
        longer_end = "\nfrom contexthost.pi import bridge\nbridge._SHUTDOWN_SECONDS = 5.0\n"  # there is no setting
        home.plugin(hanging(*hooks) + longer_end, "hangs")
        home.probe()
        home.install()
        change_extension(home, "heartbeat: 5, end: 2 }", "heartbeat: 5, end: 10 }")
        with home.rpc() as pi:
            pi.prompt("Read the three files.")
            pi.prompt("Thank you.")
            assert masked(home, 4) == [True, True, False]
            for hook in hooks[:-1]:
                assert len([note for note in pi.notes() if note.startswith(late(hook))]) == 1, hook
            assert len(pi.notes()) == len(hooks) - 1
            assert [one["event"]["text"] for one in home.seen("input")] == ["Read the three files.", "Thank you."]
            assert pi.errors() == []
        assert [one["event"]["reason"] for one in home.seen("session_shutdown")] == ["quit"]


def answer(request: Received) -> Answer:
    said = texts(request, "user")[-1]
    if request.body["messages"][-1]["role"] == "user" and said.startswith("use the tool"):
        name, *rest = said.removeprefix("use the tool ").split()
        return call(name, dict(zip(["what"], rest, strict=False)))
    return say("Answer. " * 50)


def test_the_next_plugin_compacts_when_one_hangs_and_who_was_asked_for_by_name_alone_fails(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        home.settings(compaction={"keepRecentTokens": 10, "reserveTokens": 16384})
        home.host_settings(compactionTimeoutSeconds=10)
        home.plugin(hanging("session_before_compact"), "hangs")
        home.probe()
        home.install()
        with home.rpc() as pi:
            pi.prompt("Question. " * 50)
            pi.prompt("Question. " * 50)
            compacted = pi.ask("compact")
            assert compacted["success"], compacted
            assert compacted["data"]["summary"] == "probe: manual summary"
            (note,) = pi.notes()
            assert note.startswith(late("session_before_compact"))
            assert 5 < seconds(note) <= 6.75  # three quarters of 9 s

            home.probe(session_before_compact="hang")
            pi.prompt("Question. " * 50)
            requests = len(home.server.requests)
            mark = pi.mark()
            assert 7 < seconds(pi.slash("/probe compact probe")) <= 9  # all of them
            pi.prompt("Question. " * 50)
            assert len(home.server.requests) == requests + 1  # which is the prompt's: no model was asked to compact
            assert len([entry for entry in pi.entries() if entry["type"] == "compaction"]) == 1
            assert not any("Pi goes on without" in note for note in pi.notes(after=mark))
            assert pi.errors() == []


ODD = """
import asyncio
from pathlib import Path
from contexthost import Tool, ToolResult, hookimpl

def circle():
    made = {}
    made["itself"] = made
    return made

VALUES = {"key": lambda: {("a", 1): 2}, "circle": circle, "nan": lambda: {"path": Path("x"), "mean": float("nan")}}

async def odd(arguments, ctx):
    return ToolResult("Done.", details=VALUES[arguments["what"]]())

async def slow(arguments, ctx):
    ctx.compacting()
    await asyncio.sleep(1.5)
    return ToolResult("Slow but done.")

@hookimpl
def register_tools():
    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    return [
        Tool(name="odd", description="Gives odd values.", parameters=schema, handler=odd),
        Tool(name="slow", description="Takes its time.", parameters=schema, handler=slow),
    ]
"""


def test_a_tool_whose_result_cannot_be_sent_says_so_and_compacting_does_not_shorten_one(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        home.host_settings(compactionTimeoutSeconds=1, pi={"toolSeconds": 30})
        home.plugin(ODD, "odd")
        home.install()
        with home.rpc() as pi:
            for what in ("odd key", "odd circle", "odd nan", "slow"):
                pi.prompt(f"use the tool {what}")
            messages = [entry["message"] for entry in pi.entries() if entry["type"] == "message"]
            assert pi.errors() == []
        results = [message for message in messages if message["role"] == "toolResult"]
        assert [one["isError"] for one in results] == [True, True, False, False]
        said = ["".join(block["text"] for block in one["content"]) for one in results]
        assert said[0].startswith("TypeError: keys must be str")
        assert said[1].startswith("ValueError: Circular reference")
        assert said[2:] == ["Done.", "Slow but done."]
        assert results[2]["details"] == {"path": f"{type(Path()).__name__}('x')", "mean": None}


def test_pi_is_killed_while_a_plugin_is_imported(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        home.plugin("from contexthost import hookimpl\n@hookimpl\ndef session_start(event, ctx): pass\n", "slow")
        home.install()
        home.plugin("import pathlib, time\npathlib.Path(__file__).with_name('began').touch()\ntime.sleep(60)\n", "slow")
        pi = home.rpc()
        pi.until((home.packages / "began").exists, "the import")
        python = pi.python_side()
        assert python is not None
        pi.process.kill()
        wait_gone(python)
        pi.close()
