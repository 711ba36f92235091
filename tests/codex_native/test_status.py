"""``contexthost codex status``: why or why not, where, what kind of credential, which checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from contexthost_codex_native.cli import codex as command
from support.builder import SessionBuilder
from support.codex import KEY, jwt

OPAQUE = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 1_500}
FIRST = {"role": "user", "content": [{"type": "input_text", "text": "first"}]}
DETAILS: dict[str, Any] = {
    "kind": "contexthost-codex-native",
    "version": 1,
    "modelKey": "sub-api:openai-responses:gpt-5",
    "replacementHistory": [FIRST, OPAQUE],
}
OWN: dict[str, Any] = {"provider": "sub-api", "api": "openai-responses", "model": "gpt-5"}


def session(tmp_path: Path, details: dict[str, Any] | None = None, answer: dict[str, Any] | None = None) -> Path:
    build = SessionBuilder()
    kept = build.user("first")
    if details is not None:
        build.compaction("portable", kept, details=details)
    build.assistant("answer", **(OWN if answer is None else answer))
    return build.write(tmp_path / "s.jsonl")


def run(path: Path, *options: str) -> str:
    before = path.read_bytes()
    result = CliRunner().invoke(command, ["status", str(path), *options])
    assert result.exit_code == 0, result.output
    assert path.read_bytes() == before
    return result.stdout


def rows(path: Path) -> dict[str, str]:
    return {line[:13].strip(): line[14:] for line in run(path).splitlines()}


def test_a_model_that_is_not_eligible_is_told_why(tmp_path: Path) -> None:
    found = rows(session(tmp_path, answer={}))
    assert found["model"] == "anthropic:anthropic-messages:claude-sonnet-4-5"
    assert found["native"].startswith("no: anthropic/claude-sonnet-4-5 over anthropic-messages cannot compact natively")
    assert found["checkpoint"] == "none"


def test_sub_api_in_a_file_needs_its_address_and_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = session(tmp_path)
    assert rows(path)["native"].startswith("no: SubAPI has no base URL here")
    monkeypatch.setenv("CONTEXTHOST_CODEX_NATIVE__SUBAPIBASEURL", "https://gateway.example/v1/?token=t0psecret")
    found = rows(path)
    assert found["native"].startswith("no: SubAPI has no credential")
    assert found["endpoint"] == "https://gateway.example/v1/responses"
    monkeypatch.setenv("SUB_API_API_KEY", KEY)
    assert rows(path) == {
        "model": "sub-api:openai-responses:gpt-5",
        "native": "yes",
        "endpoint": "https://gateway.example/v1/responses",
        "credential": "API key",
        "within a run": "at 179,616 tokens; now 2",
        "checkpoint": "none",
    }
    assert KEY not in run(path) + run(path, "--json")
    assert "t0psecret" not in run(path) + run(path, "--json")


def test_codex_has_its_address_and_needs_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"provider": "openai-codex", "api": "openai-codex-responses", "model": "gpt-5-codex"}
    path = session(tmp_path, answer=own)
    assert rows(path)["native"].startswith("no: Codex needs its account token")
    monkeypatch.setenv("OPENAI_CODEX_API_KEY", jwt())
    found = rows(path)
    assert found["native"] == "yes"
    assert found["endpoint"] == "https://chatgpt.com/backend-api/codex/responses"
    assert found["credential"] == "ChatGPT account token"


def test_the_checkpoint_in_force_is_described(tmp_path: Path) -> None:
    path = session(tmp_path, DETAILS)
    told = json.loads(run(path, "--json"))["checkpoint"]
    size = len(path.read_bytes().splitlines()[2])
    assert told == {
        "entryId": "00000002",
        "timestamp": "2026-01-05T09:00:02.000Z",
        "native": True,
        "modelKey": "sub-api:openai-responses:gpt-5",
        "sentToThisModel": True,
        "problem": None,
        "opaqueCharacters": 1_500,
        "userMessages": 1,
        "summaryCharacters": 8,
        "bytes": size,
    }
    assert rows(path)["checkpoint"] == (
        "00000002 of 2026-01-05T09:00:02.000Z for sub-api:openai-responses:gpt-5: sent to this model; 2 kB, 1 of the "
        "user's messages, an opaque item of 1,500 characters and a summary of 8"
    )


def test_a_checkpoint_of_another_model_and_a_damaged_one_are_told_as_such(tmp_path: Path) -> None:
    other = session(tmp_path, {**DETAILS, "modelKey": "openai-codex:openai-codex-responses:gpt-5"})
    assert "not for this model: its summary stands in" in rows(other)["checkpoint"]
    damaged = session(tmp_path, {**DETAILS, "version": 7})
    assert rows(damaged)["checkpoint"].endswith("not usable, its version is not 1; its summary stands in")
    ordinary = session(tmp_path, {"readFiles": []})
    assert rows(ordinary)["checkpoint"].endswith("an ordinary summary of 8 characters")


def test_names_from_a_session_cannot_command_the_terminal(tmp_path: Path) -> None:
    own = {"provider": "sub-api", "api": "openai-responses", "model": "gpt\x1b[2J-5"}
    assert "\x1b" not in run(session(tmp_path, answer=own))
