"""Values that plugins give a real Pi and that it looks at nowhere itself: a wrong one counts as no answer, its plugin
is named, and neither the run nor the session is lost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contexthost.diagnosis import examine, plan_rescue, write_rescue
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost.shapes import usage_breaks_pi, usage_problem, whole_usage
from support.builder import USAGE_ZERO, SessionBuilder
from support.live_pi import live_home, texts
from support.model_server import Answer, Received, call, say
from support.pi import node, pi_home
from support.terminal import terminal

SMALL = {"compaction": {"keepRecentTokens": 10, "reserveTokens": 16384}}
PATIENT = {"pi": {"answerSeconds": 30, "heartbeatSeconds": 30}}  # no answer may come too late here
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
            screen.until(lambda: "TypeError" in screen.text, "the reason")
        authority, after = write_rescue(plan_rescue(file), saved)
        assert after.findings == ()
        kept = [entry.read_usage() or entry.read().get("usage") for entry in authority.session.entries]
        assert [usage["input"] for usage in kept if usage and usage["input"]] == [7]
        with terminal(home, "--session", str(saved)) as screen:
            screen.until(lambda: "Last answer." in screen.text and "faux-1" in screen.text, "the session")
            assert screen.process.poll() is None


SUMS = """
const home = `${process.argv[1]}/node_modules/@earendil-works/pi-coding-agent/dist`;
const { addUsageToTotals, createUsageTotals } = await import(`${home}/core/usage-totals.js`);
const { formatTokens } = await import(`${home}/modes/interactive/components/footer.js`);
const fails = JSON.parse(process.argv[2]).map((usage) => {
  try {
    const { cost, ...counts } = createUsageTotals();
    const totals = { cost, ...counts };
    addUsageToTotals(totals, usage);
    for (const name of Object.keys(counts)) if (totals[name]) formatTokens(totals[name]);
    if (totals.cost) totals.cost.toFixed(3);
    return false;
  } catch {
    return true;
  }
});
console.log(JSON.stringify(fails));
process.exit();
"""
"""Sums up each usage as Pi's terminal does, and says whether that fails."""


def test_doctor_finds_just_the_usage_that_pi_fails_on() -> None:
    """Pi's own sum of every value in every place; what is whole, or made whole, never fails."""
    values: list[Any] = [None, True, 0, 1.5, "", "1", "y", [], ["y"], {}, {"total": "y"}]
    usages: list[Any] = [*values, *({"cost": value} for value in values)]
    usages += [{"cost": {"total": value}} for value in values]
    for name in USAGE_ZERO:
        usages += [{**USAGE_ZERO, name: value} for value in values]
    usages += [whole_usage(usage) for usage in usages]
    made = subprocess.run(
        [str(node()), "--input-type=module", "-e", SUMS, str(pi_home()), json.dumps(usages)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(made.stdout.splitlines()[-1]) == [usage_breaks_pi(usage) for usage in usages]
    assert all(usage_problem(usage) is None for usage in usages[len(usages) // 2 :])


RESULTS: list[tuple[str, str]] = [
    ('ToolResult([{"type": "text"}])', "a block of the type text without text"),
    ('ToolResult([{"type": "text", "text": 5}])', "a block of the type text without text"),
    ('ToolResult(["a"])', "a content block is not an object with a type"),
    ('ToolResult([{"text": "x"}])', "a content block is not an object with a type"),
    ('ToolResult([{"type": "image", "data": "AAAA"}])', "a block of the type image without mimeType"),
    ('ToolResult([{"type": "file", "data": "AAAA"}])', "a content block is neither text nor an image"),
    ("ToolResult(None)", "its content is neither text nor a list of blocks"),
    ('ToolResult("x", details=["a"])', "its details are not an object"),
    ('"x"', "a str, not a ToolResult"),
]
HALF_TOOL = """
from contexthost import Tool, ToolResult, hookimpl

async def half(arguments, ctx):
    return [RESULTS][arguments["number"]]

@hookimpl
def register_tools():
    return [Tool(name="half", description="Half.", parameters={"type": "object"}, handler=half)]
"""


def test_a_tool_result_that_pi_would_fail_on_is_an_error_that_names_the_plugin(tmp_path: Path) -> None:
    """Pi keeps results as they are, and would fail at every later prompt and at every opening of the session."""

    def answer(request: Received) -> Answer:
        """Calls the tool for each of its results, one after the other."""
        number = len(texts(request, "tool"))
        return call("half", {"number": number}, f"call_{number}") if number < len(RESULTS) else say("Done.")

    with live_home(tmp_path, answer) as home:
        home.settings(quietStartup=True)
        home.plugin(HALF_TOOL.replace("RESULTS", ", ".join(result for result, _ in RESULTS)))
        home.install()
        with home.rpc() as pi:
            pi.prompt("Hello.")
            pi.prompt("Go on.")
            told = "Tool half of plugin probe gave a result that cannot be used: "
            assert texts(home.server.requests[-1], "tool") == [told + problem for _, problem in RESULTS]
            results = [each["message"] for each in pi.entries() if each.get("message", {}).get("role") == "toolResult"]
            assert [result["isError"] for result in results] == [True] * len(RESULTS)
            assert pi.errors() == []
            file = pi.file
        with terminal(home, "--session", str(file)) as screen:
            screen.until(lambda: "Go on." in screen.text and "faux-1" in screen.text, "the session")


IMAGES: list[tuple[Any, str]] = [
    ([5], 'an image is not an object of the type "image"'),
    ([{"type": "image"}], "a block of the type image without data"),
    ([{"type": "image", "data": "AAAA", "mimeType": None}], "a block of the type image without mimeType"),
    ([{"type": "text", "text": "x"}], 'an image is not an object of the type "image"'),
    (5, "its images are no list"),
]
HALF_IMAGES = """
from contexthost import Command, Transform, hookimpl

IMAGES = [value for value, _ in GIVEN]

@hookimpl(tryfirst=True, specname="input")
async def on_input(event, ctx):
    number = event.text.removeprefix("image ")
    if number.isdigit():
        return Transform("changed", images=IMAGES[int(number)])
    return Transform(5) if event.text == "text" else None

async def run(arguments, ctx):
    ctx.send_user_message("sent", IMAGES[int(arguments)])

@hookimpl
def register_commands():
    return [Command(name="half", description="Half.", handler=run)]
"""
NEXT = """
from contexthost import Transform, hookimpl

@hookimpl(trylast=True, specname="input")
async def on_input(event, ctx):
    return Transform(event.text + ", seen")

@hookimpl(trylast=True)
async def before_provider_headers(event, ctx):
    return {"X-Next": "caf\xe9"}
"""


def test_an_input_that_pi_cannot_send_is_not_made_of_another(tmp_path: Path) -> None:
    """The answer counts as none: the input is sent as it was, and the next plugin still changes it."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.host_settings(**PATIENT)
        home.plugin(HALF_IMAGES.replace("GIVEN", repr(IMAGES)), "half")
        home.plugin(NEXT, "next")
        home.install()
        with home.rpc() as pi:
            prompts = [f"image {number}" for number in range(len(IMAGES))] + ["text"]
            for prompt in prompts:
                pi.prompt(prompt)
            assert texts(home.server.requests[-1], "user") == [f"{prompt}, seen" for prompt in prompts]
            told = "plugin half, hook input: its answer cannot be used: "
            assert [note for note in pi.notes() if "hook input" in note] == [f"contexthost: {told}{IMAGES[0][1]}"]
            for number, (_, problem) in enumerate(IMAGES):
                assert pi.slash(f"/half {number}") == f"/half: half: this message cannot be sent: {problem}"
            pi.prompt("Hello.")
            assert texts(home.server.requests[-1], "user")[-2:] == ["text, seen", "Hello., seen"]
            assert pi.errors() == []
        log = (home.host / "state" / "pi-bridge.log").read_text()
        assert [log.count(told + problem) for _, problem in (*IMAGES, (5, "its text is none"))] == [2, 1, 1, 2, 1, 1]


HEADERS = """
from contexthost import hookimpl

SECRET = "sk-" + "hidden"
HEADERS = [
    {"x-y": SECRET + "\\nb"}, {"x-y": "\\r" + SECRET}, {"x-y": SECRET + "\\0"}, {"x y": SECRET},
    {"Bearer " + SECRET: "x"}, {"": SECRET}, {"x-y": SECRET + "\u20ac"}, {"x-y": 5}, {5: "x"}, {"Content-Length": "5"},
]

@hookimpl(tryfirst=True)
async def before_provider_headers(event, ctx):
    number = len([entry for entry in ctx.session.entries if entry.role == "user"]) - 1
    return HEADERS[number] if number < len(HEADERS) else {"x-y": "good", "user-agent": None}
"""
COUNT = 10  # of those headers


def test_headers_that_http_does_not_allow_are_left_out_and_not_shown(tmp_path: Path) -> None:
    """No request would be sent with them. They may be secrets, or keys in the place of a name: nothing quotes them."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.host_settings(**PATIENT)
        home.plugin(HEADERS, "half")
        home.plugin(NEXT, "next")
        home.install()
        with home.rpc() as pi:
            for number in range(COUNT + 1):
                pi.prompt(f"Prompt {number}.")
            (note,) = [note for note in pi.notes() if "hook before_provider_headers" in note]
            assert note == (
                "contexthost: plugin half, hook before_provider_headers: its answer cannot be used: "
                "the value of the header x-y is not one that HTTP allows"
            )
            assert pi.errors() == []
        seen = [{name.lower(): value for name, value in each.headers.items()} for each in home.server.requests]
        assert [each.get("x-y") for each in seen] == [None] * COUNT + ["good"]
        assert [each.get("x-next") for each in seen] == ["caf\xe9"] * (COUNT + 1)
        assert home.holding("sk-hidden") == []


DEEP = """
from contexthost import Boundary, Command, CompactionResult, Tool, ToolResult, hookimpl
from contexthost.projection import CustomDraft, CustomMessageDraft

deep = []
for _ in range(6000):
    deep = [deep]
drafts = {
    "first": CustomDraft(custom_type="deep", data=deep),
    "second": CustomMessageDraft(custom_type="deep", content="x", details=deep),
}

async def half(arguments, ctx):
    return ToolResult("x", details={"deep": deep})

async def run(arguments, ctx):
    ctx.append_entry("deep", deep)

@hookimpl
async def turn_end(event, ctx):
    users = [entry for entry in ctx.session.branch() if entry.role == "user"]
    said = users[-1].message["content"][0]["text"]
    return Boundary(drafts=(drafts[said],)) if said in drafts else None

@hookimpl
async def session_before_compact(event, ctx):
    made = event.preparation
    return CompactionResult(
        summary="Deep.", first_kept_entry_id=made.first_kept_entry_id, tokens_before=1, details={"deep": deep}
    )

@hookimpl
def register_tools():
    return [Tool(name="half", description="Half.", parameters={"type": "object"}, handler=half)]

@hookimpl
def register_commands():
    return [Command(name="half", description="Half.", handler=run)]
"""


def test_what_is_nested_so_deep_that_pi_cannot_print_it_does_not_reach_it(tmp_path: Path) -> None:
    """Pi reads any depth, and failed in the middle of the run that it was to write it in: a call without its result."""

    def answer(request: Received) -> Answer:
        """Calls the tool once, when it is asked to."""
        asked = request.body["messages"][-1]["role"] == "user" and texts(request, "user")[-1] == "use the tool"
        return call("half", {}) if asked else say("Answer. " * 50)

    with live_home(tmp_path, answer) as home:
        home.settings(**SMALL)
        home.host_settings(**PATIENT)
        home.plugin(DEEP)
        home.install()
        with home.rpc() as pi:
            for prompt in ("first", "second", "use the tool"):
                pi.prompt(prompt)
            deep = "it is nested more than a thousand deep"
            told = f"Tool half of plugin probe gave a result that cannot be used: {deep}"
            assert texts(home.server.requests[-1], "tool") == [told]
            note = f"contexthost: plugin probe, hook turn_end: its answer cannot be used: {deep}"
            assert [each for each in pi.notes() if "turn_end" in each] == [note]
            assert pi.slash("/half") == f"/half: probe: this entry cannot be appended: {deep}"
            assert pi.ask("compact")["success"]
            assert pi.note("session_before_compact").endswith(f"its answer cannot be used: {deep}")
            pi.prompt("Go on.")
            entries = pi.entries()
            assert [entry["type"] for entry in entries if entry["type"].startswith("custom")] == []
            said = [each["message"] for each in entries if each.get("message", {}).get("role") == "assistant"]
            assert [message["stopReason"] for message in said] == ["stop", "stop", "toolUse", "stop", "stop"]
            assert pi.errors() == []
            file = pi.file
        assert examine(ProjectionAuthority(Session.open(file))).findings == ()
