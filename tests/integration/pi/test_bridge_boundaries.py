"""In the real Pi, boundaries are listened to only while a plugin wants them: plugins say from how many tokens of
context on they have something to do, and are asked at every boundary at which the context has so many; below it, as a
rule, they are not, and Pi builds no previews."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.live_pi import LivePi, PiHome, live_home
from support.model_server import Answer, call, say

WINDOW = 128_000
TURN_END, SETTLE = 5_000, 4_000
FROM = {"turn_end": TURN_END, "agent_before_settle": SETTLE}


def asked(home: PiHome, after: int = 0) -> list[str]:
    """The boundaries at which the probe was asked."""
    return [one["hook"] for one in home.seen()[after:] if one["hook"] in FROM]


def prompt(home: PiHome, pi: LivePi, text: str = "Go on.") -> list[str]:
    """Runs a prompt; the boundaries at which the probe was asked."""
    mark = len(home.seen())
    pi.prompt(text)
    return asked(home, mark)


def used(tokens: int) -> Answer:
    """An answer, after which the context has so many tokens by the provider's word."""
    return say("Answer.", usage=(tokens - 10, 0, 10, 0))


def test_a_boundary_is_asked_from_its_number_on(tmp_path: Path) -> None:
    answers = [used(tokens) for tokens in (1_000, SETTLE - 1, SETTLE, TURN_END - 1, TURN_END, 1_000)]
    with live_home(tmp_path, answers) as home:
        home.probe(**{"from": FROM})
        home.install()
        with home.rpc() as pi:
            pi.slash("/probe entries")  # the bridge has started
            seen = [prompt(home, pi) for _ in answers]
            assert pi.errors() == []
    settle, both = ["agent_before_settle"], ["turn_end", "agent_before_settle"]
    assert seen == [[], [], settle, settle, both, []]


def test_who_names_no_number_is_always_asked_and_new_numbers_hold_from_the_next_run_on(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: used(1_000)) as home:
        entry = {"id": "faux-1", "contextWindow": WINDOW, "maxTokens": 1000}
        home.provider("faux", entry, {**entry, "id": "faux-2"}, apiKey="x")
        home.probe(**{"from": {"turn_end": TURN_END}})
        home.install()
        with home.rpc() as pi:
            pi.slash("/probe entries")
            assert prompt(home, pi) == ["agent_before_settle"]
            home.probe(**{"from": FROM})
            assert prompt(home, pi) == []
            home.probe(**{"from": {"turn_end": 1_000, "agent_before_settle": 1_001}})
            assert prompt(home, pi) == ["turn_end"]
            home.probe(**{"from": {"turn_end": "many", "agent_before_settle": 2**70}})  # nonsense counts as no answer
            assert prompt(home, pi) == ["turn_end"]
            home.probe(**{"from": FROM})
            assert prompt(home, pi) == []
            home.probe(**{"from": {"turn_end": 1, "agent_before_settle": -1}})
            assert pi.ask("set_model", provider="faux", modelId="faux-2")["success"]
            assert prompt(home, pi) == ["turn_end", "agent_before_settle"]
            assert pi.errors() == []


def test_a_plugin_that_cannot_say_is_asked_everywhere(tmp_path: Path) -> None:
    for fault in ("raise", "hang"):
        (tmp_path / fault).mkdir()
        with live_home(tmp_path / fault, lambda _: used(1_000)) as home:
            home.probe(boundary_threshold=fault, **{"from": FROM})
            home.install()
            with home.rpc() as pi:
                pi.slash("/probe entries")
                assert prompt(home, pi) == ["turn_end", "agent_before_settle"]
                assert pi.errors() == []


def test_after_a_compaction_nobody_knows_until_the_provider_has_answered(tmp_path: Path) -> None:
    failing = say("", usage=None, status=400, body='{"error": {"message": "no"}}')
    with live_home(tmp_path, [used(1_000), used(1_000), failing, used(1_000)]) as home:
        home.settings(compaction={"keepRecentTokens": 1})
        home.probe(**{"from": FROM})
        home.install()
        with home.rpc() as pi:
            pi.slash("/probe entries")
            assert [prompt(home, pi), prompt(home, pi)] == [[], []]
            assert pi.slash("/probe compact").startswith("probe: compacted to ")
            assert prompt(home, pi) == ["turn_end", "agent_before_settle"]
            assert prompt(home, pi) == []


ALPHABETS = ("the words of a file are many\n", "日本語のテキスト", "🙂🙃", "\x01\x02\"\\", "ꙮ𒐫")


def random_rounds(home: PiHome, draw: random.Random) -> list[Answer]:
    """Runs of one to four turns: files are read, answers tell of usage, or do not."""
    answers: list[Answer] = []
    for number in range(25):
        for turn in range(draw.randrange(4)):
            name = f"{number}-{turn}.txt"
            unit, length = draw.choice(ALPHABETS), draw.choice([1, 100, 1_000, 4_000])
            (home.project / name).write_text(unit * (length // len(unit)), encoding="utf-8")
            tokens = draw.choice([0, draw.randrange(500, 6_000)])
            usage = (tokens - 10, 0, 10, 0) if tokens else (0, 0, 0, 0)
            answers.append(call("read", {"path": name}, f"call_{number}_{turn}", usage=usage))
        answers.append(used(draw.randrange(500, 6_000)))
    return answers


def usage_behind(lines: list[bytes], count: int, path: Path) -> int:
    """The tokens of the context with so many of the file's lines, as plugins are told."""
    path.write_bytes(b"".join(lines[:count]))
    return ProjectionAuthority(Session.open(path), window=WINDOW).snapshot().usage.tokens


def test_no_boundary_is_missed_whatever_comes(tmp_path: Path) -> None:
    draw = random.Random(20261130)
    script: list[Answer] = []
    with live_home(tmp_path, lambda _: script.pop(0)) as home:
        script.extend(random_rounds(home, draw))
        home.probe(**{"from": FROM})
        home.install()
        with home.rpc() as pi:
            pi.slash("/probe entries")
            while script:
                pi.prompt("Go on.")
                if draw.random() < 0.3:
                    pi.slash("/probe append something")
            file = pi.file
            assert pi.errors() == []
        seen = [(one["hook"], one["leaf"]) for one in home.seen() if one["hook"] in FROM]
    lines = file.read_bytes().splitlines(keepends=True)
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
    wanted, others = [], 0
    for place, entry in enumerate(entries):
        role = entry.get("message", {}).get("role")
        following = next((one["message"]["role"] for one in entries[place + 1 :] if one["type"] == "message"), "user")
        ends = (role == "assistant" and following == "user") or (role == "toolResult" and following != "toolResult")
        for hook in FROM if ends else ():
            if hook == "agent_before_settle" and role != "assistant":
                continue
            if usage_behind(lines, place + 1, tmp_path / "part.jsonl") >= FROM[hook]:
                wanted.append((hook, entry["id"]))
            elif (hook, entry["id"]) not in seen:
                others += 1
    assert [one for one in wanted if one not in seen] == []
    assert {hook for hook, _ in wanted} == set(FROM)
    assert len(wanted) > 10
    assert others > 10
