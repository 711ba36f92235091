"""An input of the real Pi and a compaction that is asked for in the same moment: whichever comes first, the other one
comes after it; nothing is lost, and no compaction meets a run or another compaction half-way."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.live_pi import LivePi, live_home, texts
from support.model_server import Answer, Received, say

QUESTION, ANSWER = "Question. " * 50, "Answer. " * 50
COMPACTED, NOT_IDLE = "probe: compacted to ", "/probe: Pi is not idle"
SLOW = """
export default function (pi: any) {
  let look: () => void;
  const looked = new Promise<void>((resolve) => { look = resolve; });
  pi.on("input", async (event: any, ctx: any) => {
    if (!event.text.startsWith("In between")) return;
    ctx.ui.notify("looking");
    await looked;
  });
  pi.registerCommand("looked", { handler: async () => look() });
}
"""


def answer(request: Received) -> Answer:
    """Waits for the test where the question says so."""
    return say(ANSWER, hold_after=0 if texts(request, "user")[-1].startswith("Wait") else None)


@contextlib.contextmanager
def racing(root: Path, slow: str | None = None, **how: Any) -> Iterator[LivePi]:
    """Pi with something to compact; ``slow`` names an extension that looks at "In between" until ``/looked``."""
    with live_home(root, answer) as home:
        home.settings(compaction={"keepRecentTokens": 10, "reserveTokens": 16384})
        home.host_settings(pi={"answerSeconds": 30})  # plugins may be slow here
        home.probe(**how)
        extensions = home.install().parent
        if slow is not None:
            (extensions / f"{slow}.ts").write_text(SLOW)
        with home.rpc() as pi:
            for _ in range(2):
                pi.prompt(QUESTION)
            yield pi
            assert pi.errors() == []
        assert home.server.problems == []


def finish(pi: LivePi, numbers: Sequence[str], after: int, *, runs: int) -> None:
    """Waits until all commands have been answered with success and so many runs have settled."""

    def settled() -> bool:
        return [event["type"] for event in pi.events[after:]].count("agent_settled") >= runs

    pi.until(lambda: all(map(pi.answered, numbers)) and settled(), "the end of all")
    assert [(pi.answered(number) or {}).get("success") for number in numbers] == [True] * len(numbers)


def order(events: Sequence[dict[str, Any]]) -> list[str]:
    """The runs and compactions that there were; fails when one began before another had ended."""
    going, found = "", []
    for event in events:
        kind = event["type"]
        if kind in ("agent_start", "compaction_start"):
            assert going == "", f"{kind} during {going}"
            going = kind.removesuffix("_start")
            found.append(going)
        elif kind in ("agent_settled", "compaction_end"):
            going = ""
    return found


def story(pi: LivePi) -> list[str]:
    """The session in one word per entry, without what was asked first."""
    found = []
    for entry in pi.entries():
        message = entry.get("message", {})
        text = "".join(block.get("text", "") for block in message.get("content", "") if isinstance(block, dict))
        if entry["type"] == "compaction" or (message.get("role") in ("user", "assistant") and text != QUESTION):
            found.append(entry["type"] if entry["type"] == "compaction" else "answer" if text == ANSWER else text)
    return found[2:]


def told(pi: LivePi, after: int) -> list[str]:
    """What the plugin said of its compactions."""
    return [note[: len(COMPACTED)] if note.startswith(COMPACTED) else note for note in pi.notes(after=after)]


@pytest.mark.parametrize("asked", ["by the plugin", "by the user"])
def test_a_compaction_that_begins_while_an_input_is_on_its_way_to_us_comes_first(tmp_path: Path, asked: str) -> None:
    with racing(tmp_path, "a-before", compaction_seconds=2) as pi:
        mark = pi.mark()
        first = pi.send("prompt", message="In between.")
        pi.note("looking", after=mark)  # it has got past Pi's own look for a compaction
        plugin = asked == "by the plugin"
        second = pi.send("prompt", message="/probe compact-if-idle") if plugin else pi.send("compact")
        pi.event("compaction_start", after=mark)
        finish(pi, [first, second, pi.send("prompt", message="/looked")], mark, runs=1)
        assert order(pi.events[mark:]) == ["compaction", "agent"]
        assert story(pi) == ["compaction", "In between.", "answer"]
        request = texts(pi.home.server.requests[-1], "user")
        assert "probe: manual summary" in request[0]
        assert request[-1] == "In between."


def test_a_compaction_of_pis_own_that_begins_while_our_plugins_look_comes_first(tmp_path: Path) -> None:
    with racing(tmp_path, slow_seconds=2, compaction_seconds=3) as pi:
        mark = pi.mark()
        first = pi.send("prompt", message="In between, slowly.")
        pi.until(lambda: len(pi.home.seen("input")) == 3, "the plugin to look at it")
        finish(pi, [first, pi.send("compact")], mark, runs=1)
        assert order(pi.events[mark:]) == ["compaction", "agent"]
        assert story(pi) == ["compaction", "In between, slowly.", "answer"]


@pytest.mark.parametrize("where", ["our plugins", "an extension behind us"])
def test_an_input_that_is_looked_at_comes_before_a_compaction_that_waits_for_pi_to_be_idle(
    tmp_path: Path, where: str
) -> None:
    behind = where == "an extension behind us"
    with racing(tmp_path, "z-behind" if behind else None, slow_seconds=2) as pi:
        mark = pi.mark()
        text = "In between." if behind else "In between, slowly."
        first = pi.send("prompt", message=text)
        if behind:
            pi.note("looking", after=mark)
        else:
            pi.until(lambda: len(pi.home.seen("input")) == 3, "the plugin to look at it")
        numbers = [first, pi.send("prompt", message="/probe compact-if-idle")]
        if behind:
            pi.note(NOT_IDLE, after=mark)
            numbers.append(pi.send("prompt", message="/looked"))
        finish(pi, numbers, mark, runs=1)
        assert order(pi.events[mark:]) == ["agent"]
        assert [note for note in told(pi, mark) if note != "looking"] == [NOT_IDLE]
        assert story(pi) == [text, "answer"]


def test_a_compaction_waits_for_each_input_that_comes_while_it_waits(tmp_path: Path) -> None:
    with racing(tmp_path, slow_seconds=2) as pi:
        mark = pi.mark()
        first = pi.send("prompt", message="handled: slowly")
        pi.until(lambda: len(pi.home.seen("input")) == 3, "the plugin to look at it")
        second = pi.send("prompt", message="/probe compact-if-idle")
        time.sleep(0.25)
        pi.home.probe(slow_seconds=4)  # the second look ends well after the first
        third = pi.send("prompt", message="handled: slowly again")
        pi.until(lambda: len(pi.home.seen("input")) == 4, "the plugin to look at that")
        pi.until(lambda: pi.answered(first) is not None, "the first answer")
        assert "compaction_start" not in [event["type"] for event in pi.events[mark:]]
        pi.until(lambda: pi.answered(third) is not None, "the other answer")
        finish(pi, [second], mark, runs=0)
        assert order(pi.events[mark:]) == ["compaction"]
        assert story(pi) == ["compaction"]


def test_a_compaction_that_ends_a_run_meets_no_input_that_was_on_its_way(tmp_path: Path) -> None:
    """The input was to be queued behind the run that the compaction aborts; then it must start one, after it."""
    with racing(tmp_path, "a-before", compaction_seconds=2) as pi:
        mark = pi.mark()
        number = pi.send("prompt", message="Wait.")
        assert pi.home.server.reached.wait(20)
        first = pi.send("prompt", message="In between.", streamingBehavior="followUp")
        pi.note("looking", after=mark)
        second = pi.send("prompt", message="/probe compact probe")
        pi.event("compaction_start", after=mark)
        finish(pi, [number, first, second, pi.send("prompt", message="/looked")], mark, runs=2)
        assert order(pi.events[mark:]) == ["agent", "compaction", "agent"]
        assert story(pi) == ["Wait.", "", "compaction", "In between.", "answer"]  # the answer was aborted


def test_whatever_the_moment_they_come_one_after_the_other(tmp_path: Path) -> None:
    draw = random.Random(20261130)
    with racing(tmp_path) as pi:
        begin, said, outcomes = pi.mark(), [], []
        for number in range(40):
            mark = pi.mark()
            text = draw.choice(["Input {}.", "Input {}, slowly.", "hold: input {}"]).format(number)
            pi.home.probe(slow_seconds=draw.choice([0, 0.002, 0.01]), compaction_seconds=draw.choice([0, 0.01]))
            prompts = [("prompt", text), ("prompt", "/probe compact-if-idle")]
            draw.shuffle(prompts)
            numbers = []
            for command, message in prompts:
                numbers.append(pi.send(command, message=message))
                time.sleep(draw.choice([0, 0, 0.001, 0.003, 0.01, 0.03]))
            prompted = numbers[prompts.index(("prompt", text))]
            pi.until(lambda numbers=numbers: all(map(pi.answered, numbers)), "both answers")  # type: ignore[misc]
            answer = pi.answered(prompted) or {}
            if answer["success"]:
                finish(pi, numbers, mark, runs=1)
                said.append(text)
            else:  # Pi compacts, and its client knows
                assert "while compaction is in progress" in answer["error"]
            outcomes.append((answer["success"], *order(pi.events[mark:])))
        order(pi.events[begin:])
        told_story = story(pi)
        assert [word for word in told_story if word not in ("compaction", "answer")] == said
        for place, word in enumerate(told_story):
            if word in said:
                assert told_story[place + 1] == "answer"  # and no compaction in between
        # The test is of something: each order has come up, and both have been refused.
        assert {("agent",), ("compaction", "agent")} <= {outcome[1:] for outcome in outcomes}
        assert len([event for event in pi.events[begin:] if event["type"] == "compaction_start"]) > 10
