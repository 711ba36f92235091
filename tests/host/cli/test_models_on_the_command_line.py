"""The commands that ask a model or run a plugin: ``compact``, ``run``, ``tool``, ``chat``, against a real server on
loopback: what it receives, what the session holds afterwards, and that keys come from nowhere but the environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contexthost.cli import main
from contexthost.session import Session
from support.builder import SessionBuilder, tool_call
from support.model_server import ModelServer, refuse, say

KEY = "sk-test-0123456789abcdef"


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "pi"))
    # The host alone: which plugins are installed must make no difference here.
    monkeypatch.setenv("CONTEXTHOST_HOST__DISABLED", '["relay", "codex_native", "jev", "masking"]')
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running
        assert running.problems == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A session with two long turns and a short one."""
    builder = SessionBuilder()
    for number in range(3):
        builder.user(f"question {number}: " + "words " * (6_000 if number < 2 else 10))
        builder.assistant("looking", calls=[tool_call(f"call_{number}", "read", {"path": f"src/{number}.py"})])
        builder.tool_result(f"call_{number}", f"result {number} " + "text " * (9_000 if number < 2 else 10))
        builder.assistant(f"answer {number}")
    file = tmp_path / "session.jsonl"
    file.write_bytes(builder.bytes())
    return file


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert isinstance(exit.value.code, int)
    return exit.value.code, out, err


# compact -------------------------------------------------------------------------------------------------------------


def test_a_dry_run_asks_nobody_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], path: Path, server: ModelServer
) -> None:
    before = path.read_bytes()
    status, out, _ = run(
        capsys, "compact", path, "--dry-run", "--json", "--base-url", server.base_url, "--model", "m-1"
    )
    shown = json.loads(out)
    assert status == 0
    assert shown["dryRun"] is True
    # The last 20,000 tokens are kept: the third turn, and the second from its call on (its result has 11,250).
    assert shown["messagesToSummarize"] > 0
    assert server.requests == []
    assert path.read_bytes() == before
    assert "may keep more or less" not in run(capsys, "compact", path, "--dry-run")[1]


def test_a_models_summary_compacts(capsys: pytest.CaptureFixture[str], path: Path, server: ModelServer) -> None:
    before = path.read_bytes()
    server.script(*[say("## Goal\nsee what is in src")] * 2)
    status, out, _ = run(
        capsys, "compact", path, "--json", "--instructions", "mind the paths", "--base-url", server.base_url,
        "--model", "m-1",
    )  # fmt: skip
    shown = json.loads(out)
    entry = Session.open(path).entries[-1]
    assert status == 0
    assert (entry.type, entry.id) == ("compaction", shown["entryId"])
    assert entry.data["summary"].startswith("## Goal\nsee what is in src")
    assert "src/0.py" in entry.data["summary"]  # the file lists at its end
    assert entry.data.get("fromHook") is None
    assert shown["plugin"] is None
    assert shown["tokensAfter"] < shown["tokensBefore"]
    assert path.read_bytes()[: len(before)] == before
    for request in server.requests:
        assert "mind the paths" in json.dumps(request.body)
        assert "tools" not in request.body
        assert request.headers["authorization"] == f"Bearer {KEY}"
    assert KEY.encode() not in path.read_bytes()


def test_a_summary_that_fails_changes_nothing(
    capsys: pytest.CaptureFixture[str], path: Path, server: ModelServer
) -> None:
    before = path.read_bytes()
    server.script(say(""))
    status, _, err = run(capsys, "compact", path, "--base-url", server.base_url, "--model", "m-1")
    assert status == 1
    assert err.startswith("Error: ")
    assert KEY not in err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no plugin made a compaction and no model is configured"),
        (["--with", "nonsense"], "no installed plugin named 'nonsense' makes compactions"),
        (["--with", "nonsense", "--dry-run"], "no installed plugin named 'nonsense' makes compactions"),
        (["--base-url", "http://127.0.0.1:1/v1"], "a model needs both --base-url and --model"),
        (["--base-url", "http://127.0.0.1:1/v1", "--model", "m", "--provider", "acme"], "set ACME_API_KEY"),
    ],
)
def test_what_is_missing_is_told(
    capsys: pytest.CaptureFixture[str], path: Path, arguments: list[str], told: str
) -> None:
    before = path.read_bytes()
    status, _, err = run(capsys, "compact", path, *arguments)
    assert status == 1
    assert told in err
    assert path.read_bytes() == before


def test_nothing_to_compact_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    builder = SessionBuilder()
    builder.user("hello")
    small = tmp_path / "small.jsonl"
    small.write_bytes(builder.bytes())
    status, _, err = run(capsys, "compact", small, "--dry-run")
    assert status == 1
    assert "nothing to compact" in err


# run, tool -----------------------------------------------------------------------------------------------------------


def test_context_is_a_slash_command(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    status, out, _ = run(capsys, "run", path, "/context")
    assert status == 0
    assert "tool results: read" in out
    assert run(capsys, "run", path, "context")[1] == out
    status, _, err = run(capsys, "run", path, "/nonsense")
    assert status == 1
    assert "there is no command /nonsense here; there are: /context" in err


def test_a_tool_that_nobody_has_is_told(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    status, _, err = run(capsys, "tool", path, "nonsense", "{}")
    assert status == 1
    assert "no installed plugin has the tool nonsense" in err


@pytest.mark.parametrize("arguments", ["nonsense", "[1]"])
def test_a_tools_arguments_are_a_json_object(capsys: pytest.CaptureFixture[str], path: Path, arguments: str) -> None:
    status, _, err = run(capsys, "tool", path, "nonsense", arguments)
    assert status == 2
    assert "JSON" in err


# chat ----------------------------------------------------------------------------------------------------------------


def chat(server: ModelServer, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "contexthost", "chat", *map(str, arguments), "--base-url", server.base_url]
    return subprocess.Popen(
        [*command, "--model", "m-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )


def messages(path: Path) -> list[dict[str, Any]]:
    found = [entry.message for entry in Session.open(path).entries]
    return [message for message in found if message is not None and message["role"] != "system"]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_conversation_goes_into_a_new_session_file(tmp_path: Path, server: ModelServer, api: str) -> None:
    path = tmp_path / "new.jsonl"
    server.script(say("Good day."), say("Still here."))
    with chat(server, path, "--api", api, "--system-prompt", "Be brief.") as process:
        out, err = process.communicate("hello\n/help\nand now?\n", timeout=60)
    assert process.returncode == 0, err
    assert [line for line in out.splitlines() if line] == [
        "Good day.",
        "/context              Show where the context window goes.",
        "/help                 Show this list.",
        "Still here.",
    ]
    assert [message["role"] for message in messages(path)] == ["user", "assistant", "user", "assistant"]
    assert "Be brief." in json.dumps(server.requests[0].body)
    assert "Good day." in json.dumps(server.requests[1].body)
    assert path.stat().st_mode & 0o777 == 0o600
    assert KEY.encode() not in path.read_bytes()


def test_a_conversation_goes_on_in_an_existing_session(path: Path, server: ModelServer) -> None:
    before = path.read_bytes()
    server.script(say("As you said."))
    with chat(server, path) as process:
        out, _ = process.communicate("go on\n", timeout=60)
    assert out == "As you said.\n"
    assert path.read_bytes()[: len(before)] == before
    assert "question 2" in json.dumps(server.requests[0].body)


def test_ctrl_c_aborts_the_answer_and_not_the_session(tmp_path: Path, server: ModelServer) -> None:
    path = tmp_path / "new.jsonl"
    server.script(say("This will take long.", hold_after=2), say("Second answer."))
    with chat(server, path) as process:
        assert process.stdin is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        assert server.reached.wait(30)  # the answer has begun and is held back
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "aborted" in process.stderr.readline()
        server.release()
        out, err = process.communicate("second\n", timeout=60)
    assert process.returncode == 0, err
    assert "Second answer." in out
    assert [message.get("stopReason") for message in messages(path) if message["role"] == "assistant"] == [
        "aborted",
        "stop",
    ]


def test_a_failing_model_is_told_and_the_session_goes_on(tmp_path: Path, server: ModelServer) -> None:
    path = tmp_path / "new.jsonl"
    server.script(refuse(401, "bad key"), say("Now it works."))
    with chat(server, path) as process:
        out, err = process.communicate("one\ntwo\n", timeout=60)
    assert process.returncode == 0
    assert "bad key" in err
    assert KEY not in err
    assert "Now it works." in out
