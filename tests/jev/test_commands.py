"""``/jev-status``, ``/jev-setup`` and ``contexthost jev``: what they show and write, and what they never do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import contexthost_jev
from contexthost.errors import SettingsError
from contexthost.host import Host
from contexthost.watch import Notified
from contexthost_jev.cli import jev
from contexthost_jev.commands import parse_setup
from contexthost_jev.settings import ENVIRONMENT, JevSettings, load, options_of
from jev.histories import Scripted
from jev.jev_server import SECRET, JevServer, by_number
from jev.sessions import Open, small_session


@pytest.fixture
def config(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "config"
    made.mkdir(parents=True)
    return made


class Asked:
    """A user who gives one answer to every question."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.questions: list[str] = []

    async def confirm(self, title: str, message: str, timeout_seconds: float | None) -> bool:
        self.questions.append(f"{title}\n{message}")
        return self.answer

    async def get_editor_text(self) -> str:
        return ""

    def set_editor_text(self, text: str) -> None:
        raise AssertionError("nothing to put there")


def slash(path: Path, text: str, user: Asked | None = None) -> tuple[str | None, list[str]]:
    """What a slash command shows, and what it tells besides."""
    told: list[str] = []

    async def main() -> str | None:
        host = Host.open(path, plugins=[contexthost_jev], installed_plugins=False, ui=user, mode="print")
        host.watch(lambda event: told.append(event.message) if isinstance(event, Notified) else None)
        async with host:
            return (await host.prompt(text)).text

    shown = asyncio.run(main())
    assert SECRET not in f"{shown}{told}"
    return shown, told


def command(*arguments: str, answer: str | None = None) -> Result:
    result = CliRunner().invoke(jev, list(arguments), input=answer)
    assert SECRET not in result.output
    return result


# Status ----------------------------------------------------------------------------------------------------------


def test_the_status_shows_key_file_options_and_where_they_come_from(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config / "jev.json").write_text('{"keepThreshold": 0.6, "apiKey": "sk-in-file", "keepResultThreshold": "x"}')
    monkeypatch.setenv("PI_JEV_MODEL", "jev-1.13")
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    shown, _ = slash(small_session(tmp_path / "s.jsonl"), "/jev-status")
    assert shown is not None
    assert shown.splitlines() == [
        "key: detected (TYPESAFE_API_KEY)",
        f"settings: {config / 'jev.json'}",
        "  keepThreshold = 0.6 (file)",
        "  keepResultThreshold = null (default)",
        "  preserveRecentMessages = 6 (default)",
        "  minReductionRatio = 0.25 (default)",
        "  maxStateTokens = 25000 (default)",
        "  maxRequestTokens = 30000 (default)",
        "  truncateHeadChars = 300 (default)",
        '  model = "jev-1.13" (environment)',
        "  baseUrl = null (default)",
        "  goal = null (default)",
        *(f"  warning: {warning}" for warning in load().warnings),
        "last compaction: none by jev in this session",
    ]
    assert "sk-in-file" not in shown
    assert sum("apiKey: looks like a secret and is ignored" in line for line in shown.splitlines()) == 1


def test_the_status_says_what_is_missing(tmp_path: Path) -> None:
    shown, _ = slash(small_session(tmp_path / "s.jsonl"), "/jev-status")
    assert shown is not None
    first, second, *_ = shown.splitlines()
    assert first.startswith("key: missing; get a key at https://console.typesafe.ai/settings/keys and set TYPESAFE")
    assert second.endswith("jev.json (not there, which is fine)")


@pytest.mark.parametrize("variable", ["TYPESAFE_API_KEY", "OPENROUTER_API_KEY"])
def test_either_key_is_detected(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, SECRET)
    assert f"key: detected ({variable})" in command("status").output


def test_a_credential_command_is_detected_without_being_run(config: Path, tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    settings = {"credentials": {"openrouter": {"command": ["touch", str(mark)]}}}
    (config / "host.json").write_text(json.dumps(settings))
    assert "key: detected (credentials.openrouter in host.json)" in command("status").output
    assert not mark.exists()


def test_an_option_that_holds_the_key_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    monkeypatch.setenv("PI_JEV_BASE_URL", f"https://example.com/?key={SECRET}")
    monkeypatch.setenv("PI_JEV_GOAL", SECRET)
    output = command("status").output
    assert 'baseUrl = "(hidden: it holds the key)" (environment)' in output
    assert 'goal = "(hidden: it holds the key)" (environment)' in output


def test_the_status_tells_of_the_last_compaction(
    tmp_path: Path, config: Path, server: JevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    monkeypatch.setenv("PI_JEV_BASE_URL", server.url)
    (config / "host.json").write_text('{"compaction": {"keepRecentTokens": 200}}')
    server.probability = by_number(lambda n: float(n < 3), lambda n: float(n == 1))
    path = small_session(tmp_path / "s.jsonl")

    async def main() -> str:
        async with Host.open(path, plugins=[contexthost_jev], installed_plugins=False) as host:
            await host.compact()
            shown = (await host.prompt("/jev-status")).text
            assert shown is not None
            return shown

    assert "last compaction: jev, manual compaction: 1 calls kept, 1 truncated, 1 dropped; about " in asyncio.run(
        main()
    )
    # Later, and on the command line, it is read from the session.
    last = command("status", str(path)).output.splitlines()[-1]
    assert "1 kept, 1 truncated, 1 dropped; " in last
    assert last.endswith("% less (model jev-1.13.0)")
    found = json.loads(command("status", str(path), "--json").output)
    assert found["key"] == {"detected": True, "origin": "TYPESAFE_API_KEY"}
    assert found["options"]["keepThreshold"] == {"value": 0.5, "source": "default"}


# Setup -----------------------------------------------------------------------------------------------------------


def test_setup_guides(tmp_path: Path) -> None:
    shown, _ = slash(small_session(tmp_path / "s.jsonl"), "/jev-setup")
    assert shown is not None
    assert shown == command("setup").output.removesuffix("\n")
    for part in ("console.typesafe.ai/settings/keys", "export TYPESAFE_API_KEY", "credentials", "key: missing"):
        assert part in shown


def test_setup_writes_the_defaults_after_a_yes(tmp_path: Path, config: Path) -> None:
    user = Asked(True)
    shown, _ = slash(small_session(tmp_path / "s.jsonl"), "/jev-setup defaults", user)
    assert shown == f"10 settings were written to {config / 'jev.json'}."
    assert json.loads((config / "jev.json").read_text()) == {
        "keepThreshold": 0.5,
        "keepResultThreshold": None,
        "preserveRecentMessages": 6,
        "minReductionRatio": 0.25,
        "maxStateTokens": 25000,
        "maxRequestTokens": 30000,
        "truncateHeadChars": 300,
        "model": "jev-latest",
        "baseUrl": None,
        "goal": None,
    }
    assert "  keepThreshold = 0.5" in user.questions[0]
    assert (config / "jev.json").stat().st_mode & 0o777 == 0o600
    assert load().warnings == ()


def test_setup_takes_pasted_json_without_secrets_and_keeps_what_else_the_file_holds(
    tmp_path: Path, config: Path
) -> None:
    (config / "jev.json").write_text('{"goal": "Mine.", "later": [1], "keepThreshold": 0.4}')
    pasted = (
        '{"keepThreshold": 0.6, "apiKey": "sk-1", "APIKEY": "sk-2", "later": {"x": {"Api_Key": "sk-3", "y": 1}},'
        ' "list": [{"apikey": "sk-4"}]}'
    )
    user = Asked(True)
    shown, _ = slash(small_session(tmp_path / "s.jsonl"), f"/jev-setup {pasted}", user)
    written = (config / "jev.json").read_text()
    assert json.loads(written) == {
        "goal": "Mine.",
        "later": {"x": {"y": 1}},
        "keepThreshold": 0.6,
        "list": [{}],
    }
    assert shown is not None
    assert shown.endswith("; what looked like a secret was left out.")
    assert "sk-" not in written + shown + user.questions[0]
    for line in ("apiKey looks like a secret", "later.x.Api_Key looks like a secret", "list is no setting that jev"):
        assert line in user.questions[0]


def test_setup_writes_nothing_after_a_no(tmp_path: Path, config: Path) -> None:
    shown, _ = slash(small_session(tmp_path / "s.jsonl"), '/jev-setup {"keepThreshold": 0.6}', Asked(False))
    assert shown == "Nothing was written."
    assert not (config / "jev.json").exists()


def test_setup_writes_nothing_where_nobody_can_confirm(tmp_path: Path, config: Path) -> None:
    shown, _ = slash(small_session(tmp_path / "s.jsonl"), "/jev-setup defaults")
    assert shown == "Nothing was written: nobody can confirm it here; `contexthost jev setup` can."
    assert not (config / "jev.json").exists()


@pytest.mark.parametrize("pasted", [SECRET, f"apiKey={SECRET}", f'"{SECRET}"', f'["{SECRET}"]', "{", "[" * 100_000])
def test_what_is_no_object_is_refused_without_being_quoted(tmp_path: Path, config: Path, pasted: str) -> None:
    _, told = slash(small_session(tmp_path / "s.jsonl"), f"/jev-setup {pasted}", Asked(True))
    expected = "jev setup takes `defaults` or a JSON object with settings; a key belongs into the environment"
    assert told == [f"/jev-setup: {expected}"]
    assert not (config / "jev.json").exists()


def test_a_value_that_holds_the_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    with pytest.raises(SettingsError, match="one of the values holds your key") as caught:
        parse_setup(json.dumps({"goal": f"use {SECRET}"}))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("pasted", "told"),
    [
        ({"keepThreshold": 1.1}, "keepThreshold: should be less than or equal to 1; nothing was written"),
        ({"keepThreshold": "0.6"}, "keepThreshold: should be a valid number; nothing was written"),
        ({"preserveRecentMessages": 2.5, "model": ""}, "preserveRecentMessages: should be a valid integer"),
        ({"maxStateTokens": True}, "maxStateTokens: should be a valid integer; nothing was written"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(pasted: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_setup(json.dumps(pasted))
    assert told in str(caught.value)


def test_a_file_that_is_not_json_is_not_written_over(config: Path) -> None:
    (config / "jev.json").write_text("{broken")
    result = command("setup", "defaults", "--yes")
    assert isinstance(result.exception, SettingsError)
    assert (config / "jev.json").read_text() == "{broken"


def test_the_command_line_asks_before_it_writes(config: Path) -> None:
    assert command("setup", '{"keepThreshold": 0.6}', answer="n\n").output.endswith("Nothing was written.\n")
    assert not (config / "jev.json").exists()
    assert "1 setting was written" in command("setup", '{"keepThreshold": 0.6}', answer="y\n").output
    assert json.loads((config / "jev.json").read_text()) == {"keepThreshold": 0.6}


# Settings --------------------------------------------------------------------------------------------------------


def test_every_variable_of_the_pi_extension_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "PI_JEV_MODEL": "jev-2",
        "PI_JEV_BASE_URL": "https://example.com/",
        "PI_JEV_KEEP_THRESHOLD": "0.7",
        "PI_JEV_PRESERVE_RECENT": "8",
        "PI_JEV_MIN_REDUCTION": "0.1",
        "PI_JEV_MAX_STATE_TOKENS": "1000",
        "PI_JEV_MAX_REQUEST_TOKENS": "2000",
        "PI_JEV_TRUNCATE_HEAD": "50",
        "PI_JEV_GOAL": "Ship it.",
    }
    assert set(values) == set(ENVIRONMENT)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    loaded = load()
    assert loaded.values == JevSettings(
        model="jev-2",
        baseUrl="https://example.com/",
        keepThreshold=0.7,
        preserveRecentMessages=8,
        minReductionRatio=0.1,
        maxStateTokens=1000,
        maxRequestTokens=2000,
        truncateHeadChars=50,
        goal="Ship it.",
    )
    options = options_of(loaded.values)
    assert (options.keep_threshold, options.result_threshold, options.preserve_recent_messages) == (0.7, 0.7, 8)
    assert (options.max_state_tokens, options.max_request_tokens, options.truncate_head_chars) == (1000, 2000, 50)
    assert (options.min_reduction_ratio, options.goal) == (0.1, "Ship it.")


def test_the_hosts_own_variables_come_first_and_the_file_last(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config / "jev.json").write_text('{"keepThreshold": 0.1, "keepResultThreshold": 0.2, "model": "from-file"}')
    monkeypatch.setenv("PI_JEV_KEEP_THRESHOLD", "0.3")
    monkeypatch.setenv("PI_JEV_MODEL", "from-pi")
    monkeypatch.setenv("CONTEXTHOST_JEV__MODEL", "from-host")
    values = load().values
    assert (values.keepThreshold, values.keepResultThreshold, values.model) == (0.3, 0.2, "from-host")


# Plan ------------------------------------------------------------------------------------------------------------


def test_the_plan_shows_what_would_be_asked_and_asks_nothing(
    tmp_path: Path, config: Path, server: JevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    monkeypatch.setenv("PI_JEV_BASE_URL", server.url)
    (config / "host.json").write_text('{"compaction": {"keepRecentTokens": 200}}')
    path = small_session(tmp_path / "s.jsonl")
    before = path.read_bytes()
    found = json.loads(command("plan", str(path), "--json").output)
    assert (server.seen, path.read_bytes()) == ([], before)
    assert found["outcome"] == "planned"
    assert (found["calls"], found["stage"], len(found["requests"])) == (3, "full", 1)
    assert found["asked"] == [
        {"id": f"t{n}", "toolCallId": f"c{n}", "tool": "read", "chars": 3000 + len('{"path":"src/1.py"}')}
        for n in (1, 2, 3)
    ]
    assert found["reclaimableChars"] == 3 * 3019
    assert found["bestReduction"] == found["reclaimableChars"] / found["replacedChars"]
    assert 0 < found["reclaimableTokens"] < found["replacedTokens"]

    # It is what a compaction really asks, and dropping everything saves just that.
    opened = Open.at(path)
    asker = Scripted(lambda name: 0.0)
    from contexthost_jev.adapter import Compacted, compact_session

    done = asyncio.run(compact_session(opened.preparation(), opened.snapshot, asker))
    assert isinstance(done, Compacted)
    assert done.result.details is not None
    assert done.result.details["requestTokens"] == found["requests"]
    assert done.reduction == found["bestReduction"]
    assert done.result.first_kept_entry_id == found["firstKeptEntryId"]


def test_the_plan_reads_as_text(tmp_path: Path, config: Path) -> None:
    (config / "host.json").write_text('{"compaction": {"keepRecentTokens": 200}}')
    lines = command("plan", str(small_session(tmp_path / "s.jsonl"))).output.splitlines()
    assert lines[0] == "3 of 3 tool calls would be asked about, in 1 requests; no request was made."
    assert lines[-3:] == ["     3,019  t1 read", "     3,019  t2 read", "     3,019  t3 read"]


def test_the_plan_says_why_nothing_would_be_asked(tmp_path: Path, config: Path) -> None:
    path = small_session(tmp_path / "s.jsonl")
    assert command("plan", str(path)).output == "Nothing would be asked: there is nothing to compact yet.\n"
    (config / "host.json").write_text('{"compaction": {"keepRecentTokens": 200}}')
    (config / "jev.json").write_text('{"preserveRecentMessages": 1000}')
    assert command("plan", str(path)).output == "Nothing would be asked: the history is too short.\n"
    (config / "jev.json").write_text('{"maxStateTokens": 60}')
    assert json.loads(command("plan", str(path), "--json").output)["outcome"] == "does-not-fit"
    none = small_session(tmp_path / "none.jsonl", calls=0)
    assert command("plan", str(none)).output == "Nothing would be asked: no tool call is left that could go.\n"
