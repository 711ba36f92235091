"""The hooks of a live session come in the order of the real Pi's events.

The same scripted answers come from the same loopback server, once to Pi 1.6.0 with a recording extension and once to
`Host` with a recording plugin; the two logs are compared line by line. `WANTED` says where they differ on purpose.
Along the way every request of both must be one that a provider takes, and the session that the host wrote must open in
Pi with the projection that the host has of it.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from contexthost.cli.inspect import describe
from contexthost.context import Context, ModelInfo
from contexthost.errors import CompactionFailed, NothingToCompact
from contexthost.host import Host
from contexthost.models import open_model
from support.live import Recorder, Slow, echo, run, until
from support.model_server import CHAT, Answer, Call, ModelServer, call, refuse, say
from support.parity import differences
from support.pi import oracle
from support.pi_rpc import PiRpc, pi_rpc

EXTENSION = Path(__file__).parent / "pi" / "hooks" / "recorder.ts"
KEEP_RECENT = 2  # tokens: an answer of one letter and its question
FULL = (120_000, 0, 10, 0)
OVERFLOW = refuse(400, "This model's maximum context length is 128000 tokens.", code="context_length_exceeded")

Step = tuple[
    Literal["do", "prompt", "start", "held", "slow", "abort", "steer", "follow_up", "release", "settled", "compact"],
    str,
]


@dataclass(frozen=True)
class Scenario:
    """Answers of the server, and what the user does meanwhile, in order."""

    name: str
    answers: Sequence[Answer]
    steps: Sequence[Step]


def ask(*texts: str) -> list[Step]:
    return [("prompt", text) for text in texts]


def echo_call(text: str = "x", **more: Any) -> Answer:
    return call("echo", {"text": text}, **more)


SLOW = Answer(calls=(Call("slow", {}, "call_s"), Call("echo", {"text": "y"}, "call_e")))

SCENARIOS = (
    Scenario("a plain run", [say("a")], ask("one")),
    Scenario("a run with tools", [echo_call(), say("b")], ask("two")),
    Scenario(
        "queued inputs",
        [say("a", hold_after=2), say("b"), say("c")],
        [("start", "q1"), ("held", ""), ("follow_up", "later"), ("steer", "now"), ("release", ""), ("settled", "")],
    ),
    Scenario("a failed answer", [refuse(400, "no such thing")], ask("f1")),
    Scenario(
        "an abort while the answer arrives",
        [say("abc", hold_after=2), say("ok")],
        [("start", "s1"), ("held", ""), ("abort", ""), ("settled", ""), ("release", ""), *ask("s2")],
    ),
    Scenario(
        "an abort while tools run",
        [SLOW, say("ok")],
        [("start", "t1"), ("slow", ""), ("abort", ""), ("settled", ""), *ask("t2")],
    ),
    Scenario("a compaction by hand", [], [("compact", "done")]),
    Scenario("nothing to compact", [], [("compact", "failed")]),
    Scenario(
        "a compaction by hand that is cancelled",
        [say("a"), say("b")],
        [*ask("c1", "c2"), ("do", "compacting cancel"), ("compact", "failed")],
    ),
    Scenario(
        "a compaction by hand that fails",
        [refuse(400, "no summary today")],
        [("do", "compacting nothing"), ("compact", "failed")],
    ),
    Scenario(
        "a compaction by hand that is aborted",
        [],
        [("do", "compacting wait"), ("compact", "started"), ("slow", ""), ("abort", ""), ("compact", "ended")],
    ),
    Scenario(
        "a compaction by hand through the built-in summary",
        [say("## Goal\nall")],
        [("do", "compacting nothing"), ("compact", "done"), ("do", "compacting answer")],
    ),
    Scenario("the threshold after a run", [say("a"), say("b", usage=FULL)], ask("h1", "h2")),
    Scenario(
        "the threshold before a prompt",
        [say("a"), say("b", usage=FULL), say("c")],
        [*ask("p1"), ("do", "compacting cancel"), *ask("p2"), ("do", "compacting answer"), *ask("p3")],
    ),
    Scenario("the threshold between turns", [say("a"), echo_call(usage=FULL), say("b")], ask("m1", "m2")),
    Scenario(
        "an abort during a threshold compaction",
        [say("a"), echo_call(usage=FULL)],
        [
            *ask("w1"),
            ("do", "compacting wait"),
            ("start", "w2"),
            ("slow", ""),
            ("abort", ""),
            ("settled", ""),
            ("do", "compacting answer"),
        ],
    ),
    Scenario("an overflow that a compaction mends", [say("a"), OVERFLOW, say("b")], ask("o1", "o2")),
    Scenario("an overflow that a compaction does not mend", [say("a"), OVERFLOW, OVERFLOW], ask("v1", "v2")),
    Scenario(
        "an overflow whose compaction is cancelled",
        [say("a"), OVERFLOW],
        [*ask("x1"), ("do", "compacting cancel"), *ask("x2"), ("do", "compacting answer")],
    ),
    Scenario("an answer that is cut off", [say("a"), say("half", finish="length"), say("b")], ask("l1", "l2")),
    Scenario("a continuation before settling", [say("a"), say("b")], [("do", "go-on"), *ask("g1")]),
    Scenario(
        "a message sent once it has settled",
        [say("a"), say("b")],
        [("do", "settled send"), *ask("y1"), ("settled", "")],
    ),
    Scenario(
        "a compaction asked for once it has settled",
        [say("a"), say("b")],
        [*ask("z1"), ("do", "settled compact"), *ask("z2"), ("compact", "ended")],
    ),
    Scenario(
        "a compaction drafted at the end of a turn",
        [say("a"), echo_call(), say("b")],
        [*ask("d1"), ("do", "draft"), *ask("d2")],
    ),
)

WANTED = {
    # Where there is nothing to compact nothing begins: the caller is told (NothingToCompact), plugins are not.
    "nothing to compact": ["-compact_failed manual error"],
    # Before the next prompt Pi looks at the failed answer again, and tells of its failed recovery a second time.
    "an overflow whose compaction is cancelled": ["-compact_failed overflow error"],
    # Pi tells nobody of a compaction that is drafted at a boundary; here it is announced and told as any other.
    "a compaction drafted at the end of a turn": ["+before_compact threshold", "+compact threshold plugin"],
}
"""Scenario → the lines in which the host's log differs on purpose, as `difference` prints them."""


def difference(ours: Sequence[str], pis: Sequence[str]) -> list[str]:
    """The lines that only one of the two has, in order: ``+`` ours, ``-`` Pi's."""
    return [line.replace(" ", "", 1) for line in difflib.ndiff(pis, ours) if line[0] in "+-"]


# The real Pi -------------------------------------------------------------------------------------------------------


class InPi:
    """Goes through scenarios in the real Pi."""

    def __init__(self, rpc: PiRpc, server: ModelServer, log: Path) -> None:
        self._rpc, self._server, self._log = rpc, server, log
        self._seen = 0
        self._slow = 0

    def lines(self) -> list[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        new, self._seen = lines[self._seen :], len(lines)
        return new

    def respond(self, command: str) -> None:
        while self._rpc.wait_for("response").get("command") != command:
            pass

    def step(self, kind: str, text: str) -> None:
        rpc = self._rpc
        if kind in ("do", "prompt", "start"):
            rpc.send("prompt", message=f"/do {text}" if kind == "do" else text)
            if kind != "start":
                self.respond("prompt")
            if kind == "prompt":
                rpc.wait_for("agent_settled")
        elif kind in ("steer", "follow_up"):
            rpc.send(kind, message=text)
            self.respond(kind)
        elif kind == "abort":
            rpc.send("abort")
        elif kind == "settled":
            rpc.wait_for("agent_settled")
        elif kind == "held":
            assert self._server.reached.wait(30)
        elif kind == "release":
            self._server.release()
        elif kind == "slow":
            self._slow += 1
            marks = self._log.with_name(self._log.name + ".slow")
            deadline = time.monotonic() + 30
            while not marks.exists() or len(marks.read_text().splitlines()) < self._slow:
                assert time.monotonic() < deadline, "nothing waits"
                time.sleep(0.02)
        elif kind == "compact":
            if text != "ended":
                rpc.send("compact")
            if text in ("done", "failed"):
                self.respond("compact")
            elif text == "ended":
                rpc.wait_for("compaction_end")


def in_pi(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, list[str]], list[str]]:
    log = scratch / "recorder.log"
    monkeypatch.setenv("RECORDER_LOG", str(log))
    found: dict[str, list[str]] = {}
    options = {
        "extensions": [str(EXTENSION)],
        "compaction": {"keepRecentTokens": KEEP_RECENT},
        "retry": {"enabled": False},
    }
    with ModelServer() as server:
        with pi_rpc(scratch, server.base_url, CHAT, settings=options) as rpc:
            driver = InPi(rpc, server, log)
            for scenario in SCENARIOS:
                server.rearm()
                server.script(*scenario.answers)
                for step in scenario.steps:
                    driver.step(*step)
                time.sleep(0.05)  # for an event that follows the one waited for
                found[scenario.name] = driver.lines()
        found["the end"] = driver.lines()
        assert server.surplus == []
        return found, server.problems


# The host ----------------------------------------------------------------------------------------------------------


class InHost:
    """Goes through scenarios in `Host`."""

    def __init__(self, host: Host, recorder: Recorder, slow: Slow, server: ModelServer) -> None:
        self._host, self._recorder, self._slow, self._server = host, recorder, slow, server
        self._task: asyncio.Task[Any] | None = None

    async def step(self, kind: str, text: str) -> None:
        host = self._host
        if kind == "do":
            self._do(*text.split(" "))
        elif kind == "prompt":
            await host.prompt(text)
        elif kind == "start":
            self._task = asyncio.create_task(host.prompt(text))
        elif kind == "steer":
            await host.steer(text)
        elif kind == "follow_up":
            await host.follow_up(text)
        elif kind == "abort":
            host.abort()
        elif kind == "settled":
            await host.wait_idle()
        elif kind == "held":
            await until(self._server.reached.is_set)
            await asyncio.sleep(0.05)
        elif kind == "release":
            self._server.release()
        elif kind == "slow":
            await until(lambda: self._slow.reached.is_set() or self._recorder.waiting.is_set())
            self._slow.reached.clear()
            self._recorder.waiting.clear()
        elif kind == "compact":
            await self._compact(text)

    def _do(self, what: str, value: str = "") -> None:
        if what == "compacting":
            self._recorder.compacting = value  # type: ignore[assignment]  # one of the four words
        elif what == "go-on":
            self._recorder.go_on = 1
        elif what == "draft":
            self._recorder.draft = True
        elif value == "send":
            self._recorder.at["settled"] = lambda ctx: ctx.send_user_message("more")
        else:

            def compact(ctx: Context) -> None:
                ctx.compact()

            self._recorder.at["settled"] = compact

    async def _compact(self, text: str) -> None:
        if text == "done":
            await self._host.compact()
        elif text == "failed":
            with pytest.raises((CompactionFailed, NothingToCompact)):
                await self._host.compact()
        elif text == "started":
            self._task = asyncio.create_task(self._host.compact())
        else:
            await self._host.wait_idle()
            if self._task is not None:
                await asyncio.gather(self._task, return_exceptions=True)


async def in_host(path: Path) -> tuple[dict[str, list[str]], list[str], list[str]]:
    recorder, slow = Recorder("answer"), Slow()
    found: dict[str, list[str]] = {}
    told: list[str] = []
    with ModelServer() as server:
        info = ModelInfo(
            provider="faux", id="faux-1", api=CHAT, context_window=128_000, max_tokens=1000, base_url=server.base_url
        )
        model = open_model(info, api_key="x")
        host = Host.open(
            path, model=model, plugins=[recorder], tools=[echo(), slow.tool], system_prompt="Be brief.",
            installed_plugins=False,
        )  # fmt: skip
        host.watch(lambda event: told.append(getattr(event, "message", "")))
        async with host:
            driver = InHost(host, recorder, slow, server)
            for scenario in SCENARIOS:
                server.rearm()
                server.script(*scenario.answers)
                for step in scenario.steps:
                    await driver.step(*step)
                await host.wait_idle()
                found[scenario.name] = recorder.take()
        found["the end"] = recorder.take()
        await model.aclose()
        assert server.surplus == []
        return found, server.problems, told


def test_the_hooks_come_in_pis_order_and_every_request_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", str(KEEP_RECENT))
    theirs, their_problems = in_pi(tmp_path, monkeypatch)
    ours: dict[str, list[str]] = {}
    our_problems: list[str] = []
    path = tmp_path / "session.jsonl"

    async def go() -> None:
        nonlocal ours, our_problems
        ours, our_problems, _ = await in_host(path)

    run(go)
    found = {name: difference(ours[name], lines) for name, lines in theirs.items()}
    assert {name: lines for name, lines in found.items() if lines} == WANTED
    assert sum(map(len, theirs.values())) > 150  # the recorder has recorded
    assert our_problems == []
    assert their_problems == []

    # What the loop wrote is the same session to Pi.
    [pis] = oracle([path], keep_recent=300)
    assert "error" not in pis
    assert differences("session", describe(path, keep_recent=300), pis) == []
