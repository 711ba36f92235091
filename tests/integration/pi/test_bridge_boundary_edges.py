"""In the real Pi, no boundary is missed where the context's size is not known, or the numbers that plugins name change
while something else is going on."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.live_pi import LivePi, PiHome, kill_python, live_home
from support.model_server import Answer, refuse, say

WINDOW = 128_000
NUMBERS = {"turn_end": 5_000, "agent_before_settle": 4_000}
BOTH = ["turn_end", "agent_before_settle"]
MODEL = {"id": "faux-1", "contextWindow": WINDOW, "maxTokens": 1000}


def used(tokens: int, **more: Any) -> Answer:
    """An answer, after which the context has so many tokens by the provider's word."""
    return say("Answer.", usage=(tokens - 10, 0, 10, 0), **more)


def asked(home: PiHome, after: int = 0) -> list[str]:
    """The boundaries at which the probe was asked."""
    return [one["hook"] for one in home.seen()[after:] if one["hook"] in NUMBERS]


def prompt(home: PiHome, pi: LivePi, text: str = "Go on.") -> list[str]:
    """Runs a prompt; the boundaries at which the probe was asked."""
    mark = len(home.seen())
    pi.prompt(text)
    return asked(home, mark)


def begin(pi: LivePi) -> None:
    """Waits until the bridge has started, and Pi knows the numbers."""
    pi.slash("/probe entries")


def extension(home: PiHome, source: str, name: str) -> None:
    """One more extension of Pi's; they are loaded in the order of their names."""
    (home.agent / "extensions" / f"{name}.ts").write_text(textwrap.dedent(source))


BIG_TOOL = """
    export default function (pi: any) {
      pi.registerCommand("bigger", { handler: async () => {
        const parameters = { type: "object", properties: {} };
        const description = "words of a tool ".repeat(2_500);
        pi.registerTool({ name: "big", label: "big", description, parameters, execute: async () => ({ content: [] }) });
      } });
    }
"""


def test_an_answer_that_failed_leaves_open_what_came_since_the_one_before(tmp_path: Path) -> None:
    answers = [used(1_000), refuse(400), used(1_000), refuse(400)]
    with live_home(tmp_path, answers) as home:
        home.probe(**{"from": {**NUMBERS, "turn_end": 2**53}})
        home.install()
        extension(home, BIG_TOOL, "tool")
        with home.rpc() as pi:
            begin(pi)
            assert prompt(home, pi) == []
            pi.slash("/bigger")  # Pi declares it in a system message without content: 10,000 tokens
            assert prompt(home, pi) == ["agent_before_settle"]  # and no context is as large as the other number
            assert prompt(home, pi) == []
            assert prompt(home, pi) == ["agent_before_settle"]
            assert pi.errors() == []


def test_a_compaction_between_the_end_of_a_run_and_its_boundary_is_seen(tmp_path: Path) -> None:
    with live_home(tmp_path, [used(100), used(2_000)]) as home:
        home.settings(compaction={"keepRecentTokens": 1, "reserveTokens": WINDOW - 1_000})
        home.probe(summary="words of a summary " * 3_000, **{"from": NUMBERS})
        home.install()
        with home.rpc() as pi:
            begin(pi)
            assert prompt(home, pi) == []
            assert prompt(home, pi) == ["agent_before_settle"]  # 2,000 tokens became 13,000
            assert [entry["type"] for entry in pi.entries()][-1] == "compaction"
            assert pi.errors() == []


STRANGE_USAGE = """
    export default function (pi: any) {
      let count = 0;
      pi.on("message_end", ({ message }: any) => {
        const { usage } = message;
        if (usage?.totalTokens !== 1_000) return;
        const wrong = [{ ...usage, totalTokens: "10" }, { input: 990, output: 10 }, { ...usage, totalTokens: -1 }];
        return { message: { ...message, usage: wrong[count++] } };
      });
    }
"""


def test_usage_that_python_does_not_trust_counts_for_nothing(tmp_path: Path) -> None:
    with live_home(tmp_path, [used(3_900), used(1_000)] * 4) as home:
        home.probe(**{"from": NUMBERS})
        home.install()
        extension(home, STRANGE_USAGE, "before")
        with home.rpc() as pi:
            begin(pi)
            for _ in range(4):
                assert prompt(home, pi) == []
                assert "agent_before_settle" in prompt(home, pi, "words of a prompt " * 100)  # 400 more than 3,900
            assert pi.errors() == []


SLOW = """
    import { existsSync, writeFileSync } from "node:fs";

    export default function (pi: any) {
      pi.on("message_end", async (event: any) => {
        if (event.message.usage?.totalTokens !== 6_000) return;
        writeFileSync("looking", "");
        while (!existsSync("seen")) await new Promise((resolve) => setTimeout(resolve, 10));
      });
    }
"""


def test_a_message_that_another_extension_still_looks_at_counts(tmp_path: Path) -> None:
    with live_home(tmp_path, [used(1_000), used(6_000)]) as home:
        home.provider("faux", MODEL, {**MODEL, "id": "faux-2"}, apiKey="x")
        home.probe(**{"from": NUMBERS})
        home.install()
        extension(home, SLOW, "later")
        with home.rpc() as pi:
            begin(pi)
            assert prompt(home, pi) == []
            mark, at = len(home.seen()), pi.mark()
            assert pi.ask("prompt", message="Go on.")["success"]
            pi.until((home.project / "looking").exists, "the message that is looked at")
            known = len(home.seen("boundary_threshold"))
            assert pi.ask("set_model", provider="faux", modelId="faux-2")["success"]
            pi.until(lambda: len(home.seen("boundary_threshold")) == known + 2, "the new numbers")
            begin(pi)
            (home.project / "seen").touch()
            pi.event("agent_settled", after=at)
            assert asked(home, mark) == BOTH
            assert pi.errors() == []


# The numbers of this plugin take their time while a file says so.
NUMBERED = '''
    import asyncio
    from contexthost import hookimpl

    @hookimpl
    async def boundary_threshold(event, ctx):
        directory = ctx.data_dir
        wanted = int((directory / f"number-{ctx.model.id}-{ctx.compaction_settings.enabled}").read_text())
        note(f"{event.boundary} {wanted}", ctx)
        while event.boundary == "agent_before_settle" and (directory / f"wait-{wanted}").exists():
            await asyncio.sleep(0.01)
        return wanted

    @hookimpl
    def turn_end(event, ctx):
        note("asked", ctx)

    @hookimpl
    def agent_before_settle(event, ctx):
        note("asked", ctx)

    def note(text, ctx):
        with (ctx.data_dir / "noted").open("a") as file:
            file.write(text + "\\n")
'''


class Numbered:
    """That plugin in a home, and the probe, which wants no boundary."""

    def __init__(self, home: PiHome, **numbers: int) -> None:
        home.provider("faux", MODEL, {**MODEL, "id": "faux-2"}, apiKey="x")
        home.probe(**{"from": {"turn_end": 2**53, "agent_before_settle": 2**53}})
        home.plugin(NUMBERED, "numbered")
        self.data = home.host / "data" / "plugins" / "numbered"
        self.data.mkdir(parents=True)
        for name, number in numbers.items():
            self.set(name, number)
        home.install()

    def set(self, name: str, number: int) -> None:
        """What it says for a model, by whether Pi compacts by itself."""
        (self.data / f"number-{name.replace('_', '-')}").write_text(str(number))

    def wait(self, number: int) -> Path:
        """Makes it wait before it names this number."""
        path = self.data / f"wait-{number}"
        path.touch()
        return path

    def noted(self, text: str = "asked") -> int:
        """How often it noted something."""
        path = self.data / "noted"
        return path.read_text().splitlines().count(text) if path.exists() else 0


def settle(pi: LivePi, plugin: Numbered) -> None:
    """Runs prompts until it is not asked: Pi knows the number now."""

    def is_quiet() -> bool:
        before = plugin.noted()
        pi.prompt("Go on.")
        return plugin.noted() == before

    pi.until(is_quiet, "a run without a boundary")


def test_when_settings_of_pi_have_changed_everything_is_asked_until_there_are_new_numbers(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: used(1_000)) as home:
        plugin = Numbered(home, faux_1_True=1, faux_1_False=9_000)
        with home.rpc() as pi:
            assert pi.ask("set_auto_compaction", enabled=False)["success"]
            begin(pi)
            settle(pi, plugin)
            wait, before = plugin.wait(1), plugin.noted()
            assert pi.ask("set_auto_compaction", enabled=True)["success"]
            pi.prompt("Go on.")
            pi.until(lambda: plugin.noted("agent_before_settle 1") == 1, "the question")
            assert plugin.noted() == before + 2
            wait.unlink()
            assert pi.errors() == []


def test_numbers_that_were_found_for_the_model_before_do_not_count(tmp_path: Path) -> None:
    answers = [used(1_000)] * 20
    with live_home(tmp_path, lambda _: answers.pop()) as home:
        plugin = Numbered(home, faux_1_True=9_000, faux_2_True=1)
        with home.rpc() as pi:
            begin(pi)
            settle(pi, plugin)
            answers.append(used(1_000, hold_after=0))
            plugin.set("faux-1-True", 9_001)
            old, new, before = plugin.wait(9_001), plugin.wait(1), plugin.noted()
            at = pi.mark()
            assert pi.ask("prompt", message="Go on.")["success"]
            pi.until(lambda: plugin.noted("agent_before_settle 9001") == 1, "the question for the first model")
            assert pi.ask("set_model", provider="faux", modelId="faux-2")["success"]
            pi.until(home.server.reached.is_set, "the request")
            old.unlink()
            pi.until(lambda: plugin.noted("agent_before_settle 1") == 1, "the question for the second model")
            begin(pi)  # what was said to the first question has arrived
            home.server.release()
            pi.event("agent_settled", after=at)
            assert plugin.noted() == before + 2
            new.unlink()
            assert pi.errors() == []


def test_numbers_of_a_python_side_that_has_died_do_not_count(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: used(1_000)) as home:
        plugin = Numbered(home, faux_1_True=9_000)
        with home.rpc() as pi:
            begin(pi)
            settle(pi, plugin)
            plugin.set("faux-1-True", 1)
            wait, before = plugin.wait(1), plugin.noted()
            kill_python(pi)
            begin(pi)
            pi.prompt("Go on.")
            assert plugin.noted() == before + 2
            wait.unlink()
            assert pi.errors() == []


SLOW_START = """
    import asyncio
    from contexthost import hookimpl

    @hookimpl(tryfirst=True)
    async def session_start(event, ctx):
        (ctx.data_dir / "began").touch()
        while not (ctx.data_dir / "go").exists():
            await asyncio.sleep(0.01)
"""


def test_a_model_that_is_selected_while_python_starts_is_known(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: used(1_000)) as home:
        home.provider("faux", MODEL, {**MODEL, "id": "faux-2", "contextWindow": 32_000}, apiKey="x")
        home.probe(**{"from": NUMBERS})
        home.plugin(SLOW_START, "slow")
        home.install()
        data = home.host / "data" / "plugins" / "slow"
        with home.rpc() as pi:
            pi.until((data / "began").exists, "the start of the session in Python")
            assert pi.ask("set_model", provider="faux", modelId="faux-2")["success"]
            (data / "go").touch()
            pi.prompt("Go on.")
            assert pi.slash("/probe entries").endswith(", 32000")
            assert [one["event"]["source"] for one in home.seen("model_select")] == ["set"]
            assert pi.errors() == []


ANEW = """
    const models = (contextWindow: number) => [{ id: "faux-1", name: "faux-1", contextWindow, maxTokens: 1_000,
      reasoning: false, input: ["text"], cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 } }];
    export default function (pi: any) {
      const anew = (window: number) => pi.registerProvider("faux",
        { baseUrl: URL, apiKey: "x", api: "openai-completions", models: models(window) });
      pi.registerCommand("anew", { handler: async (window: string) => anew(Number(window)) });
      pi.on("message_end", ({ message }: any) => {
        if (message.role === "user" && JSON.stringify(message).includes("Shrink.")) anew(1_800);
      });
    }
"""
HALF_THE_WINDOW = """
    from contexthost import hookimpl

    @hookimpl
    def boundary_threshold(event, ctx):
        return ctx.model.context_window // 2

    @hookimpl
    def turn_end(event, ctx):
        with (ctx.data_dir / "windows").open("a") as file:
            file.write(f"{event.context.window}\\n")
"""


def test_a_model_that_is_registered_anew_with_another_window_is_known(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: used(1_000)) as home:
        home.probe(**{"from": {"turn_end": 2**53, "agent_before_settle": 2**53}})
        home.plugin(HALF_THE_WINDOW, "half")
        home.install()
        extension(home, ANEW.replace("URL", repr(home.server.base_url)), "anew")
        written = home.host / "data" / "plugins" / "half" / "windows"

        def windows() -> list[int]:
            return [int(line) for line in written.read_text().split()] if written.exists() else []

        with home.rpc() as pi:
            begin(pi)
            pi.until(lambda: prompt_tells(pi, windows) == [], "a run without a boundary")
            pi.slash("/anew 1900")
            assert pi.slash("/probe entries").endswith(", 1900")
            assert prompt_tells(pi, windows) == [1_900]
            assert prompt_tells(pi, windows) == [1_900]  # 1,000 tokens are more than half of that
            pi.slash("/anew 300000")
            pi.until(lambda: prompt_tells(pi, windows) == [], "a run without a boundary")
            assert prompt_tells(pi, windows, "Shrink.") == [1_800]  # in the middle of a run, and before it ends
            assert home.seen("model_select") == []
            assert pi.errors() == []


def prompt_tells(pi: LivePi, windows: Callable[[], list[int]], text: str = "Go on.") -> list[int]:
    """The windows that the plugin saw in the turns of one more prompt."""
    before = len(windows())
    pi.prompt(text)
    return windows()[before:]
