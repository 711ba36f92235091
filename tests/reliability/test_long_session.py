"""A long day's work in the real Pi with all four plugins on: tasks that read files, pasted logs, masks and relays that
come by themselves, compactions by hand through Jev and through a provider, a model switch, a killed Python side, a
fork, a session opened again. Every request is valid; the file only grows; every file that was read comes back."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from contexthost_masking.cli_query import tree_query
from jev.jev_server import SECRET, JevServer
from support.codex import KEY, compacted, is_compaction
from support.live_pi import Json, LivePi, PiHome, helper, live_home, texts
from support.model_server import CHAT, Answer, Received, call, say

WINDOW = 60_000
TASKS = 24
FILE_LINES = 260
PASTED = "2026-11-30 10:00:00 worker[4242]: nothing to do, sleeping for a while\n" * 1_000


def fact(task: int, name: str) -> str:
    """A line that stands in one file only."""
    return f"fact-{task}-{name} is {task * 7919 + ord(name)}"


class Worker:
    """The model: reads the files that a task names, one after the other, and then answers; looks up what it is asked
    for with the plugins' tools. Its usage is what the request's length comes to."""

    def __init__(self) -> None:
        self.calls = 0
        self.summaries = 0
        self.native = 0

    def __call__(self, request: Received) -> Answer:
        if is_compaction(request):
            self.native += 1
            return compacted(f"sealed-{self.native}")
        usage = (len(json.dumps(request.body)) // 4, 0, 20, 0)
        if not request.body.get("tools"):
            self.summaries += 1
            return say("## Goal\nTasks.", usage=usage)
        if request.api != CHAT:
            return say("Answered over Responses.", usage=usage)
        said = texts(request, "user")[-1]
        roles = [one["role"] for one in request.body["messages"]]
        behind = roles[::-1].index("user")  # the messages after it
        left = wanted(said)[roles[len(roles) - behind :].count("tool") :]
        if not left:
            return say(f"Done: {said[:40]}", usage=usage)
        self.calls += 1
        name, arguments = left[0]
        return call(name, arguments, f"call_{self.calls}", usage=usage)


def wanted(said: str) -> list[tuple[str, Json]]:
    """The calls that a message makes the model do."""
    files = [("read", {"path": name}) for name in re.findall(r"[a-z]-\d+\.txt", said)]
    found = re.search(r"which number was (fact-\d+-\w)\?", said)
    if found is None:
        return files
    return [("recall", {"query": found[1], "limit": "all"}), ("context_tree_query", {"text": found[1]})]


@pytest.fixture
def jev(monkeypatch: pytest.MonkeyPatch) -> Iterator[JevServer]:
    for name in list(os.environ):
        if name.upper().startswith(("TYPESAFE_", "OPENROUTER_", "SUB_API_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    monkeypatch.setenv("GATEWAY_KEY", KEY)
    with JevServer() as server:
        server.probability = lambda name: 0.1  # nothing needs to stay whole
        yield server


def settle(home: PiHome, jev: JevServer) -> None:
    """Files for every task, and settings under which each plugin gets its turn in a window of 60,000 tokens."""
    for task in range(TASKS):
        for name in "ab":
            lines = [f"line {line} of task {task}, file {name}: the usual words" for line in range(FILE_LINES)]
            lines[FILE_LINES // 2] = fact(task, name)
            (home.project / f"{name}-{task}.txt").write_text("\n".join(lines))
    mask = {"triggerTokens": 22_000, "targetTokens": 12_000, "minClearTokens": 2_000, "keepRecentTurns": 3}
    relay = {"gitTimeoutMs": 0, "auto": {"inputMinTokens": 30_000, "minGrowthTokens": 5_000, "beforeExpiry": False}}
    masking = {"mask": mask, "summary": {"ratio": 0.95}}
    for package, settings in {"masking": masking, "relay": relay, "jev": {"baseUrl": jev.url}}.items():
        (home.host / "config" / f"{package}.json").write_text(json.dumps(settings))
    model = {"contextWindow": WINDOW, "maxTokens": 1000, "input": ["text", "image"]}
    home.provider("sub-api", {"id": "gpt-5", **model}, api="openai-responses", apiKey="$GATEWAY_KEY")
    home.settings(compaction={"keepRecentTokens": 3_000, "reserveTokens": 8_000}, cacheWarming="off")
    home.host_settings(compaction={"keepRecentTokens": 3_000, "reserveTokens": 8_000})
    home.install()


class Day:
    """Prompts, and what must hold after each of them."""

    def __init__(self, home: PiHome, pi: LivePi) -> None:
        self.home, self.pi = home, pi
        self._file, self._before = pi.file, b""

    def prompt(self, text: str) -> None:
        self.pi.prompt(text)
        now = self._file.read_bytes()
        assert now.startswith(self._before)
        self._before = now
        assert self.home.server.problems == []

    def kinds(self) -> set[str]:
        return {entry["type"] for entry in self.pi.entries()}


def compactors(pi: LivePi) -> list[str]:
    """Who made the compactions, by what they left in them."""
    found = []
    for entry in pi.entries():
        if entry["type"] == "compaction":
            details = entry.get("details") or {}
            marks = {"relay": "relay", "decisions": "jev", "replacementHistory": "codex_native"}
            found.append(next((plugin for key, plugin in marks.items() if key in details), "built-in"))
    return found


def contexthost(home: PiHome, *arguments: str) -> str:
    return home.contexthost(*arguments).stdout


def test_a_long_day_with_all_plugins(tmp_path: Path, jev: JevServer) -> None:
    worker = Worker()
    plugins = ["relay", "codex_native", "jev", "masking"]
    with live_home(tmp_path, worker, window=WINDOW, plugins=plugins) as home:
        settle(home, jev)
        with home.rpc(*helper(home)) as pi:
            day = Day(home, pi)
            for task in range(8):
                day.prompt(f"Task {task}: look at a-{task}.txt and b-{task}.txt.")
            assert "context_edit" in day.kinds()  # masks came by themselves
            assert "[pi-compaction]" in "".join(texts(home.server.requests[-1], "tool"))

            day.prompt(f"This is in the log:\n{PASTED}")  # text that masks do not touch
            day.prompt(f"And then:\n{PASTED}")
            day.prompt("Go on.")  # after a batch of masks nobody knows the usage for sure until the next answer
            day.prompt("Have you seen it?")
            assert compactors(pi) == ["relay"]  # it came before that message, which was sent once
            assert texts(home.server.requests[-1], "user").count("Have you seen it?") == 1

            python = pi.python_side()
            assert python is not None
            os.kill(python, signal.SIGKILL)
            for task in range(8, 10):
                day.prompt(f"Task {task}: look at a-{task}.txt and b-{task}.txt.")
            assert "tokens" in pi.slash("/context")  # there again
            for task in range(10, 14):
                day.prompt(f"Task {task}: look at a-{task}.txt and b-{task}.txt.")

            assert pi.ask("compact")["success"]
            assert compactors(pi) == ["relay", "jev"]

            assert pi.ask("set_model", provider="sub-api", modelId="gpt-5")["success"]
            day.prompt("Think about it. " * 1_000)
            assert pi.ask("compact")["success"]
            day.prompt("And again.")
            assert compactors(pi) == ["relay", "jev", "codex_native"]
            assert worker.native == 1
            assert pi.ask("set_model", provider="faux", modelId="faux-1")["success"]
            for task in range(14, 18):
                day.prompt(f"Task {task}: look at a-{task}.txt and b-{task}.txt.")
            day.prompt("Tell me: which number was fact-2-a?")
            for found in texts(home.server.requests[-1], "tool")[-2:]:
                assert fact(2, "a") in found
            context = pi.slash("/context")
            file = pi.file
            assert pi.errors() == []
        assert "masked" in context

        with home.rpc("--session", str(file), *helper(home)) as pi:  # opened again
            day = Day(home, pi)
            for task in range(18, 21):
                day.prompt(f"Task {task}: look at a-{task}.txt and b-{task}.txt.")
            asked = [entry for entry in pi.entries() if entry.get("message", {}).get("role") == "user"]
            early = next(e for e in asked if "Task 19" in json.dumps(e["message"]))
            assert pi.ask("fork", entryId=early["id"])["success"]  # another session, from before that message
            fork = Day(home, pi)
            for task in range(21, TASKS):
                fork.prompt(f"Task {task}: look at a-{task}.txt and b-{task}.txt.")
            forked = pi.file
            assert forked != file
            assert pi.errors() == []
            assert [note for note in pi.notes() if "contexthost" in note] == []
        assert worker.summaries == 0  # no plugin left a compaction to a model
        assert home.server.problems == []
        assert "Healthy" in contexthost(home, "doctor", str(file))
        assert "Healthy" in contexthost(home, "doctor", str(forked))
        for where, tasks in ((file, range(21)), (forked, [*range(19), *range(21, TASKS)])):
            for task in tasks:
                for name in "ab":
                    assert brought_back(home, where, task, name), (where.name, task, name)
        assert home.holding(SECRET) == []
        assert home.holding(KEY) == []


def brought_back(home: PiHome, session: Path, task: int, name: str) -> bool:
    """Whether the whole file that the task read comes back, as the tool returned it."""
    found = query(session, "--path", f"{name}-{task}.txt")
    (entry,) = [one["entryId"] for one in found["results"] if one["kind"] == "tool result"]
    page = query(session, "--entry", entry)
    pages = [page["text"]]
    while page["continue"] is not None:
        page = query(session, "--continue", page["continue"])
        pages.append(page["text"])
    return "".join(pages) == (home.project / f"{name}-{task}.txt").read_text()


def query(session: Path, *arguments: str) -> Json:
    """``contexthost tree-query``, in this process: it is asked a few hundred times."""
    result = CliRunner().invoke(tree_query, [str(session), *arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: Json = json.loads(result.stdout)
    return found
