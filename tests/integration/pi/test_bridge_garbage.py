"""Whatever the Python side of a real Pi sends, Pi goes on: lines that are no messages, messages with wrong values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.live_pi import LivePi, PiHome, at_start, change_extension, live_home, texts, wait_gone
from support.model_server import Answer, Received, call, say

NO_MESSAGES = [
    "Loading…",
    "null",
    "1",
    '"x"',
    "[]",
    "{}",
    '[{"method": "ui/notify"}]',
    '{"id": null, "result": null}',
    '{"method": 5, "params": 5}',
    '{"method": "no/such", "params": null}',
    '{"method": "session/abort", "params": "x"}',
]

SIDE = """
import json, sys
from pathlib import Path

here = Path(__file__).parent.parent
greeting = {"answerSeconds": 20, "compactionSeconds": 20, "toolSeconds": 20, "heartbeatSeconds": 20, "warnings": []}
usual = {
    "session/start": {"wants": ["input"], "unavailableTools": []},
    "tool/call": {"content": [{"type": "text", "text": "looked"}], "isError": False, "details": None},
    "command/run": {"text": "ran"},
}
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method is None:
        with (here / "refused").open("a") as file:
            file.write(json.dumps(message.get("error", {}).get("message")) + "\\n")
        continue
    if number is None:
        continue
    if method == "initialize":
        usual["initialize"] = {**greeting, "version": message["params"]["event"]["version"], "manifest": ""}
    plan = json.loads((here / "plan.json").read_text())
    sent = [one.replace('"ID"', str(number)) for one in plan["sent"]] if method == "command/run" else []
    answer = {"result": usual.get(method, {}), **plan["answers"].get(method, {})}
    print(*sent, json.dumps({"id": number, **answer}), sep="\\n", flush=True)
"""
"""A Python side that answers as the plan says, and, at a command, sends what that says."""


def plan(home: PiHome, *sent: Any, **answers: Any) -> None:
    """Says what that Python side does from now on; in the names of what is asked a slash is two underscores."""
    lines = [json.dumps(one) for one in sent]
    content = json.dumps({"sent": lines, "answers": {name.replace("__", "/"): one for name, one in answers.items()}})
    new = home.root / "plan.new"
    new.write_text(content)
    new.rename(home.root / "plan.json")


def start(home: PiHome) -> LivePi:
    """A Pi with that Python side, and with the probe's tool and command."""
    home.probe()
    home.install()
    (home.packages / "side.py").write_text(SIDE)
    change_extension(home, '"-m", "contexthost", "pi"', '"-m", "side", "contexthost", "pi"')
    return home.rpc()


def refusals(home: PiHome) -> list[str]:
    """What that Python side was told of its requests, as far as it has read."""
    path = home.root / "refused"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def told(method: str, **event: Any) -> Any:
    return {"method": method, "params": {"event": event}}


def test_lines_that_are_no_messages_are_ignored(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        at_start(home, "".join(f"print({line!r}, flush=True)\n" for line in NO_MESSAGES))
        with home.rpc() as pi:
            pi.prompt("Hello.")
            assert pi.slash("/probe entries").startswith("probe: ")
            assert len(pi.notes()) == 1
            assert pi.errors() == []


def test_a_start_that_is_answered_with_nonsense_has_failed(tmp_path: Path) -> None:
    """Each command starts the Python side, and says why it is not there."""
    nonsense: list[tuple[dict[str, Any], str]] = [
        ({"initialize": {"result": None}}, "initialize: null where an object must be"),
        ({"initialize": {"result": [1]}}, "initialize: array where an object must be"),
        ({"initialize": {"result": {}}}, "initialize: version is null, and must be string"),
        ({"initialize": {"error": "x"}}, "it was refused"),
        ({"initialize": {"error": {"code": {}, "message": {"toString": 1}}}}, "it was refused"),
        ({"session__start": {"result": None}}, "session/start: null where an object must be"),
        ({"session__start": {"result": "x"}}, "session/start: string where an object must be"),
        ({"session__start": {"result": {}}}, "session/start: the answer does not say what is wanted"),
        ({"session__start": {"result": {"need": "entries"}}}, "session/start: the answer does not say what is wanted"),
        ({"session__start": {"result": {"wants": 5}}}, "session/start: wants is number, and must be array?"),
    ]
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        plan(home, **nonsense[0][0])
        with start(home) as pi:
            pi.prompt("Hello.")
            (note,) = pi.notes()
            assert note == (
                f"contexthost: the Python side has stopped ({nonsense[0][1]}). "
                "Pi goes on without it; it is started again."
            )
            for answers, why in nonsense:
                plan(home, **answers)
                assert pi.slash("/probe entries") == f"/probe: contexthost is not running ({why})"
            plan(home)
            assert "ran" in pi.slash("/probe entries")
            pi.prompt("Again.")
            assert len(home.server.requests) == 2
            assert pi.errors() == []


def test_messages_with_wrong_values_are_told_of_once_and_harm_nothing(tmp_path: Path) -> None:
    notices = [
        told("deadline/extend", id="ID", seconds="soon"),  # of the command that goes on
        told("deadline/extend", id="ID"),
        told("ui/notify", message=5, level="info"),
        told("ui/notify"),
        told("ui/setStatus", key=5, text=["x"]),
        told("ui/setEditorText", text=None),
        told("boundary/watch", asked=0, turn_end="many", agent_before_settle=None),
        told("provider/watch", headers={}, requests=None),
        told("cancel", id={}),
        {"method": "ui/notify", "params": {"event": "x"}},
    ]
    requests: list[tuple[str, dict[str, Any], str]] = [
        ("ui/confirm", {"title": 5, "message": None}, "ui/confirm: title is number, and must be string"),
        ("session/send", {"text": 5, "images": 5}, "session/send: text is number, and must be string"),
        ("session/send", {"text": "x"}, "session/send: images is null, and must be array"),
        ("session/compact", {"to": 5}, "session/compact: to is number, and must be string?"),
        ("session/appendEntry", {"data": 1}, "session/appendEntry: customType is null, and must be string"),
        ("model/credential", {}, "model/credential: provider is null, and must be string"),
        ("no/such", {}, "this extension has no no/such"),
    ]
    asked = [{"id": 1000 + at, **told(method, **event)} for at, (method, event, _) in enumerate(requests)]
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        plan(home, *notices, *asked)
        with start(home) as pi:
            why = "deadline/extend: seconds is string, and must be number"
            assert pi.slash("/probe first").splitlines()[-2:] == [
                f"contexthost: the Python side sent what cannot be used ({why}). Pi goes on without it.",
                "ran",
            ]
            python = pi.python_side()
            assert python is not None
            assert pi.slash("/probe second") == "ran"
            why_refused = [why for _, _, why in requests]
            pi.until(lambda: len(refusals(home)) >= 2 * len(requests), "the last refusal")  # none waits for an answer
            assert refusals(home) == why_refused * 2
            pi.prompt("Hello.")
            assert pi.python_side() == python
            assert [entry["type"] for entry in pi.entries()].count("custom") == 0
            assert pi.errors() == []
        assert [texts(request, "user") for request in home.server.requests] == [["Hello."]]


def test_answers_with_wrong_values_count_as_none(tmp_path: Path) -> None:
    def answer(request: Received) -> Answer:
        """Calls the plugin's tool once."""
        return say("Done.") if texts(request, "tool") else call("probe_look", {})

    wrong: dict[str, Any] = {"result": {"text": {}, "images": "x", "content": None}}
    with live_home(tmp_path, answer) as home:
        plan(home, hook__input=wrong, tool__call=wrong, command__run=wrong)
        with start(home) as pi:
            pi.prompt("Hello.")
            note = "(hook/input: text is object, and must be string?). Pi goes on without it."
            assert [each for each in pi.notes() if "cannot be used" in each] == [
                f"contexthost: the Python side sent what cannot be used {note}"
            ]
            assert texts(home.server.requests[0], "user") == ["Hello."]
            assert texts(home.server.requests[1], "tool") == ["tool/call: content is null, and must be array"]
            assert pi.slash("/probe it") == "/probe: command/run: text is object, and must be string?"
            plan(home, command__run={"result": None})
            assert pi.slash("/probe it") == "/probe: command/run: null where an object must be"
            python = pi.python_side()
            assert python is not None
            assert pi.errors() == []
        wait_gone(python)
