"""What plugins register and Pi, or a provider, cannot take: in a real Pi it is left out alone and told of, and Pi and
the other plugins work as without it."""

from __future__ import annotations

from pathlib import Path

from support.live_pi import LivePi, PiHome, change_extension, live_home, texts
from support.model_server import Answer, Received, say

ODD = """
from contexthost import Command, Tool, ToolResult, hookimpl

async def handler(*_): ...

def tool(name, parameters):
    return Tool(name=name, description="", parameters=parameters, handler=handler)

OBJECT = {"type": "object"}

@hookimpl
def register_tools():
    return [tool("odd_good", OBJECT), *BAD]

@hookimpl
def register_commands():
    return [Command(name=name, description="", handler=handler) for name in ("odd-good", "", "two words")]
"""
"""A plugin with one good tool and command, and with bad ones besides."""

BAD = """
BAD = [
    tool("odd.name", OBJECT), tool(["odd"], OBJECT), tool("odd_none", None), tool("odd_set", {"enum": {1}, **OBJECT}),
    tool("odd_array", {"type": "array"}), tool("odd_schema", {"properties": 7, **OBJECT}),
]
"""


def answer(request: Received) -> Answer:
    return say("Answer.")


def offered(home: PiHome) -> set[str]:
    """The tools of plugins in the last request that the model server got."""
    names = {tool["function"]["name"] for tool in home.server.requests[-1].body["tools"]}
    return {name for name in names if name.startswith(("odd", "probe"))}


def commands(pi: LivePi) -> set[str]:
    """Those that extensions have brought."""
    found = pi.ask("get_commands")["data"]["commands"]
    return {command["name"] for command in found if command["source"] == "extension"}


def works(home: PiHome, pi: LivePi) -> None:
    """A run, and a command of the other plugin."""
    pi.prompt("Hello.")
    assert texts(home.server.requests[-1], "user") == ["Hello."]
    assert pi.slash("/probe entries").startswith("probe: ")
    assert pi.errors() == []


def test_bad_items_of_one_plugin_are_left_out_alone(tmp_path: Path) -> None:
    """Pi starts, the model is offered the good tools of that plugin and of the other one, no provider gets a name or
    a schema that it refuses, and the user is told which plugin has bad ones."""
    with live_home(tmp_path, answer) as home:
        home.plugin(ODD + BAD, "odd")
        home.probe()
        home.install()
        with home.rpc() as pi:
            works(home, pi)
            assert offered(home) == {"odd_good", "probe_look"}
            assert {"odd-good", "probe", "context"} <= commands(pi)
            assert commands(pi).isdisjoint({"", "two words"})
            name = "providers only take names of 1 to 64 letters (a-z, A-Z), digits, _ and -"
            assert [note for note in pi.notes() if "plugin" in note] == [
                f"contexthost: plugin odd, hook register_tools: Tool 'odd.name': {name}",
                "contexthost: plugin odd, hook register_commands: Command '': the name is empty",
            ]


def test_bad_items_of_a_plugin_that_comes_after_the_installation_cost_nothing(tmp_path: Path) -> None:
    """The Python side starts and serves the others; it could not say what its manifest is."""
    with live_home(tmp_path, answer) as home:
        home.probe()
        home.install()
        home.plugin(ODD + BAD, "odd")
        with home.rpc() as pi:
            works(home, pi)
            assert offered(home) == {"probe_look"}
            assert "plugin odd, hook register_tools: Tool 'odd.name': " in pi.note("register_tools")
            pi.note("plugins have changed; run `contexthost pi install` and /reload.")  # the good ones are new
            assert not any("Python side" in note for note in pi.notes())


def test_what_pi_itself_refuses_is_told_once_and_pi_starts(tmp_path: Path) -> None:
    """Whatever a later Pi finds wrong: here a file that an older version of contexthost has written."""
    with live_home(tmp_path, answer) as home:
        home.probe()
        home.install()
        change_extension(home, "  commands: [", '  commands: [{"name": "", "description": ""}, ')
        change_extension(home, "  tools: [", '  tools: [{"name": "odd", "description": "", "parameters": null}, ')
        with home.rpc() as pi:
            works(home, pi)
            assert offered(home) == {"probe_look"}
            (told,) = [note for note in pi.notes() if "does not take" in note]
            assert told.startswith('contexthost: Pi does not take odd (Tool "odd" registered by extension "')
            assert told.endswith(". The rest of the plugins works.")
            assert "; / (Command registered by extension " in told
            pi.prompt("Again.")
            assert len([note for note in pi.notes() if "does not take" in note]) == 1
