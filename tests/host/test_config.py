"""Settings: each key stands alone, whatever a file or the environment holds; nothing fails, every thing that is not in
force is told by file and key, and no secret is read from a file or shown."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Annotated, Any, Literal
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st
from pydantic import Field, model_validator

from contexthost import (
    HostSettings,
    Loaded,
    Ratio,
    Settings,
    SettingsError,
    SettingsGroup,
    TokenCount,
    load_settings,
    paths,
    strip_secrets,
    update_file,
)
from contexthost.config import default_file, init_file, schema
from contexthost.credentials import credential_variable, resolve_credential


class Mask(SettingsGroup):
    triggerTokens: TokenCount = 80_000
    triggerRatio: Ratio = 0.5
    excludeTools: tuple[str, ...] = ()
    order: Literal["superseded", "age"] = "superseded"


class Masking(Settings):
    enabled: bool = True
    mask: Mask = Mask()
    baseUrl: str | None = None
    deadline: Annotated[float, Field(gt=0)] = 10.0


KEYS = ["enabled", "mask.triggerTokens", "mask.triggerRatio", "mask.excludeTools", "mask.order", "baseUrl", "deadline"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.upper().startswith("CONTEXTHOST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path))
    return tmp_path


def write(text: str | bytes, package: str = "masking") -> Path:
    file = paths.settings_file(package)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def load(**environment: str) -> Loaded[Masking]:
    with mock.patch.dict(os.environ, environment):
        return load_settings(Masking, "masking")


def told(loaded: Loaded[Any]) -> list[str]:
    return [str(warning).replace(str(loaded.file), loaded.file.name) for warning in loaded.warnings]


# The file


def test_without_a_file_the_defaults_are_in_force() -> None:
    loaded = load()
    assert loaded.values == Masking()
    assert loaded.warnings == ()
    assert loaded.sources == dict.fromkeys(KEYS, "default")


def test_the_keys_of_a_file_are_in_force() -> None:
    write('{"enabled": false, "mask": {"triggerTokens": 60000, "excludeTools": ["read"], "triggerRatio": 1}}')
    loaded = load()
    assert loaded.values == Masking(
        enabled=False, mask=Mask(triggerTokens=60_000, excludeTools=("read",), triggerRatio=1)
    )
    assert loaded.warnings == ()
    assert [key for key in KEYS if loaded.sources[key] == "file"] == [
        "enabled",
        "mask.triggerTokens",
        "mask.triggerRatio",
        "mask.excludeTools",
    ]


def test_each_wrong_key_has_its_default_and_a_warning_and_the_others_hold() -> None:
    write(
        json.dumps(
            {
                "enabled": "false",
                "mask": {"triggerTokens": "60000", "triggerRatio": 1.5, "excludeTools": ["a", 2], "order": "oldest"},
                "baseUrl": "http://example.test",
                "deadline": 0,
            }
        )
    )
    loaded = load()
    assert loaded.values == Masking(baseUrl="http://example.test")
    assert told(loaded) == [
        "masking.json: enabled: should be a valid boolean; ignored",
        "masking.json: mask.triggerTokens: should be a valid integer; ignored",
        "masking.json: mask.triggerRatio: should be less than or equal to 1; ignored",
        "masking.json: mask.excludeTools: item [1] should be a valid string; ignored",
        "masking.json: mask.order: should be 'superseded' or 'age'; ignored",
        "masking.json: deadline: should be greater than 0; ignored",
    ]


@pytest.mark.parametrize(
    "value",
    ["true", "null", "-1", "1.5", "NaN", "Infinity", "1e999", "9007199254740992", "1" + "0" * 5000, "[1]", '""'],
)
def test_what_is_no_count_of_tokens_is_refused(value: str) -> None:
    write(f'{{"mask": {{"triggerTokens": {value}, "triggerRatio": 0.25}}}}')
    loaded = load()
    assert loaded.values == Masking(mask=Mask(triggerRatio=0.25))
    assert [(warning.origin, warning.key) for warning in loaded.warnings] == [(str(loaded.file), "mask.triggerTokens")]


@pytest.mark.parametrize("value", ["true", '"0.5"', "NaN", "-Infinity", "1e999", "1" + "0" * 5000, "{}"])
def test_what_is_no_number_is_refused(value: str) -> None:
    write(f'{{"deadline": {value}, "enabled": false}}')
    loaded = load()
    assert loaded.values == Masking(enabled=False)
    assert [warning.key for warning in loaded.warnings] == ["deadline"]


def test_unknown_keys_and_a_group_that_is_none_are_told() -> None:
    write('{"enabeld": false, "mask": 5, "extra": {"deep": 1}}')
    loaded = load()
    assert loaded.values == Masking()
    assert told(loaded) == [
        "masking.json: enabeld: is no known setting and is ignored",
        "masking.json: mask: should be an object; ignored",
        "masking.json: extra: is no known setting and is ignored",
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{\n  "enabled": false,\n  oops\n}', "line 3, column 3: not JSON"),
        (b"", "line 1, column 1: not JSON"),
        (b"[1, 2]", "line 1: should hold a JSON object"),
        (b'{"enabled": false,\n"a": "\xff"}', "line 2 is not UTF-8"),
        (b"[" * 200_000, "is nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_understood_is_ignored_and_told(content: bytes, problem: str) -> None:
    file = write(content)
    loaded = load(CONTEXTHOST_MASKING__DEADLINE="3")
    assert loaded.values == Masking(deadline=3)
    (warning,) = loaded.warnings
    assert str(warning).startswith(f"{file}: {problem}")


def test_a_byte_order_mark_is_no_problem() -> None:
    write(b'\xef\xbb\xbf{"enabled": false}')
    assert load().values == Masking(enabled=False)


def test_a_file_that_cannot_be_read_is_told_and_never_waited_for(home: Path) -> None:
    file = paths.settings_file("masking")
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    assert told(load()) == ["masking.json: is not a regular file; the file is ignored"]
    file.unlink()
    file.mkdir()
    assert told(load()) == ["masking.json: is not a regular file; the file is ignored"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["enabled", "mask", "triggerTokens", "triggerRatio", "excludeTools", "baseUrl", "deadline", "x"]
                ),
                inner,
            )
        ),
    )
)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_no_json_at_all_makes_loading_fail(content: Any) -> None:
    write(json.dumps(content))
    loaded = load()
    assert 0 <= loaded.values.mask.triggerTokens < 2**53
    assert 0 <= loaded.values.mask.triggerRatio <= 1
    assert type(loaded.values.enabled) is bool
    in_force = [key for key in KEYS if loaded.sources[key] == "file"]
    assert not {warning.key for warning in loaded.warnings} & set(in_force)


# The environment


def test_the_environment_overrides_the_file_in_any_case() -> None:
    write('{"enabled": true, "mask": {"triggerTokens": 1, "triggerRatio": 0.1}}')
    loaded = load(
        contexthost_masking__Enabled="off",
        CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS="70000",
        CONTEXTHOST_MASKING__mask__excludeTools='["read", "bash"]',
        CONTEXTHOST_MASKING__BASEURL="[not a list]",
        CONTEXTHOST_MASKING__DEADLINE="1e2",
    )
    assert loaded.values == Masking(
        enabled=False,
        mask=Mask(triggerTokens=70_000, triggerRatio=0.1, excludeTools=("read", "bash")),
        baseUrl="[not a list]",
        deadline=100,
    )
    assert loaded.warnings == ()
    assert loaded.sources["mask.triggerRatio"] == "file"
    assert loaded.sources["mask.triggerTokens"] == "environment"


def test_a_whole_group_may_be_one_variable() -> None:
    loaded = load(
        CONTEXTHOST_MASKING__MASK='{"triggerTokens": 5, "order": "age"}', CONTEXTHOST_MASKING__MASK__ORDER="superseded"
    )
    assert loaded.values.mask == Mask(triggerTokens=5, order="superseded")


def test_a_wrong_variable_is_ignored_and_told_by_name() -> None:
    write('{"mask": {"triggerTokens": 7}}')
    loaded = load(
        CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS="many",
        CONTEXTHOST_MASKING__MASK__EXCLUDETOOLS='["read"',
        CONTEXTHOST_MASKING__MASK__TYPO="1",
        CONTEXTHOST_MASKING__TYPO="1",
        CONTEXTHOST_MASKING__DEADLINE="inf",
        CONTEXTHOST_MASKING__ENABLED="",
    )
    assert loaded.values == Masking(mask=Mask(triggerTokens=7))
    assert {(warning.origin, warning.key) for warning in loaded.warnings} == {
        ("CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS", "mask.triggerTokens"),
        ("CONTEXTHOST_MASKING__MASK__EXCLUDETOOLS", "mask.excludeTools"),
        ("CONTEXTHOST_MASKING__MASK__TYPO", "mask.typo"),
        ("CONTEXTHOST_MASKING__TYPO", "TYPO"),
        ("CONTEXTHOST_MASKING__DEADLINE", "deadline"),
    }


def test_further_variables_come_after_ours_and_before_the_file() -> None:
    write('{"deadline": 1, "baseUrl": "file", "mask": {"triggerTokens": 1}}')
    aliases = {"PI_X_DEADLINE": "deadline", "PI_X_BASE_URL": "baseUrl", "PI_X_TRIGGER": "mask.triggerTokens"}
    environment = {
        "PI_X_DEADLINE": "2",
        "PI_X_BASE_URL": "alias",
        "pi_x_trigger": "2",
        "CONTEXTHOST_MASKING__BASEURL": "ours",
    }
    with mock.patch.dict(os.environ, environment):
        loaded = load_settings(Masking, "masking", environment=aliases)
    assert (loaded.values.deadline, loaded.values.baseUrl, loaded.values.mask.triggerTokens) == (2, "ours", 1)
    with mock.patch.dict(os.environ, {"PI_X_DEADLINE": "soon"}):
        loaded = load_settings(Masking, "masking", environment=aliases)
    assert loaded.values.deadline == 1
    assert [(warning.origin, warning.key) for warning in loaded.warnings] == [("PI_X_DEADLINE", "deadline")]


@given(
    st.integers(0, 2**53 - 1),
    st.floats(0, 1),
    st.booleans(),
    st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8)),
)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_every_value_comes_through_the_environment_as_it_was(
    tokens: int, ratio: float, enabled: bool, tools: list[str]
) -> None:
    loaded = load(
        CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS=str(tokens),
        CONTEXTHOST_MASKING__MASK__TRIGGERRATIO=repr(ratio),
        CONTEXTHOST_MASKING__MASK__EXCLUDETOOLS=json.dumps(tools),
        CONTEXTHOST_MASKING__ENABLED=json.dumps(enabled),
    )
    assert loaded.warnings == ()
    assert loaded.values == Masking(
        enabled=enabled, mask=Mask(triggerTokens=tokens, triggerRatio=ratio, excludeTools=tuple(tools))
    )


# Models


def test_a_settings_object_reads_nothing_by_itself_and_cannot_be_changed() -> None:
    write('{"deadline": 1}')
    with mock.patch.dict(os.environ, {"DEADLINE": "3", "CONTEXTHOST_MASKING__DEADLINE": "2"}):
        values = Masking()
    assert values.deadline == 10
    with pytest.raises(ValueError, match="frozen"):
        values.deadline = 5
    with pytest.raises(ValueError, match="frozen"):
        values.mask.triggerTokens = 5


def test_a_rule_over_a_group_gives_only_that_group_its_defaults() -> None:
    class Pair(SettingsGroup):
        low: int = 1
        high: int = 2

        @model_validator(mode="after")
        def ordered(self) -> Pair:
            if self.low > self.high:
                raise ValueError("low should not be above high")
            return self

    class Ruled(Settings):
        pair: Pair = Pair()
        other: int = 0

    write('{"pair": {"low": 9}, "other": 4}', "ruled")
    loaded = load_settings(Ruled, "ruled")
    assert loaded.values == Ruled(other=4)
    assert told(loaded) == ["ruled.json: pair.low: low should not be above high; ignored"]
    assert loaded.sources == {"pair.low": "default", "pair.high": "default", "other": "file"}


# Secrets


SECRET_KEYS = ["apiKey", "API_KEY", "x-api-key", "openaiApiKey", "TYPESAFE_API_KEY", "token", "authToken", "jwt", "key"]
SECRET_KEYS += ["Authorization", "password", "clientSecret", "private_key", "cookie"]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_secret_in_a_file_is_ignored_and_never_shown(key: str) -> None:
    write(json.dumps({"enabled": False, "mask": {key: "sk-live-1"}, "extra": [{"deep": {key: "sk-live-1"}}]}))
    loaded = load()
    assert loaded.values == Masking(enabled=False)
    secret = [warning for warning in loaded.warnings if "secret" in warning.problem]
    assert [warning.key for warning in secret] == [f"mask.{key}", f"extra.0.deep.{key}"]
    assert "sk-live-1" not in repr(loaded) + json.dumps(loaded.to_json())


def test_counts_of_tokens_are_no_secrets() -> None:
    names = ["triggerTokens", "tokens", "maxStateTokens", "reserveTokens", "keepThreshold", "tokenizer", "keyboard"]
    assert strip_secrets(dict.fromkeys(names, 1)) == (dict.fromkeys(names, 1), [])


def test_a_secret_in_the_wrong_place_is_not_shown_either() -> None:
    write('{"credentials": {"openai": "sk-live-2", "jev": {"command": ["ok"]}, "x": {"apiKey": "sk-live-2"}}}', "host")
    loaded = load_settings(HostSettings, "host")
    assert list(loaded.values.credentials) == ["jev"]
    assert "sk-live-2" not in repr(loaded)
    assert {warning.key for warning in loaded.warnings} == {
        "credentials.openai",
        "credentials.x",
        "credentials.x.apiKey",
    }


# Writing


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_init_writes_every_default_for_the_owner_alone() -> None:
    file = init_file(Masking, "masking")
    assert (
        json.loads(file.read_text())
        == default_file(Masking)
        == {
            "enabled": True,
            "mask": {"triggerTokens": 80000, "triggerRatio": 0.5, "excludeTools": [], "order": "superseded"},
            "baseUrl": None,
            "deadline": 10.0,
        }
    )
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert load().values == Masking()
    assert load().warnings == ()


def test_init_does_not_replace_a_file_unless_told_to() -> None:
    file = write('{"enabled": false}')
    with pytest.raises(SettingsError, match="exists already"):
        init_file(Masking, "masking")
    assert file.read_text() == '{"enabled": false}'
    init_file(Masking, "masking", force=True)
    assert load().values == Masking()
    assert mode(file) == 0o600


def test_an_update_keeps_the_other_keys_and_takes_no_secret(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text('{"unknown": [1], "mask": {"triggerTokens": 5, "order": "age"}}')
    file = paths.settings_file("masking")
    file.parent.mkdir(parents=True)
    file.symlink_to(target)
    update_file("masking", {"mask": {"triggerTokens": 6, "APIKEY": "sk"}, "enabled": False})
    assert json.loads(target.read_text()) == {
        "unknown": [1], "mask": {"triggerTokens": 6, "order": "age"}, "enabled": False,
    }  # fmt: skip
    assert file.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config", "dotfiles.json"]


def test_an_update_never_overwrites_what_it_cannot_read() -> None:
    file = write("{ my notes }")
    with pytest.raises(SettingsError, match="line 1, column 3"):
        update_file("masking", {"enabled": False})
    assert file.read_text() == "{ my notes }"


def test_a_failed_write_leaves_the_old_file_and_nothing_else() -> None:
    file = write('{"enabled": false}')
    with (
        mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")),
        pytest.raises(SettingsError, match=r"masking\.json cannot be written \(No space left on device\)"),
    ):
        update_file("masking", {"deadline": 5})
    assert file.read_text() == '{"enabled": false}'
    assert list(file.parent.iterdir()) == [file]


def test_the_schema_names_the_keys_as_they_stand_in_the_file() -> None:
    made = schema(Masking)
    assert list(made["properties"]) == ["enabled", "mask", "baseUrl", "deadline"]
    assert made["$defs"]["Mask"]["properties"]["triggerTokens"]["maximum"] == 2**53 - 1


# The host's own settings, credentials, places


def test_the_defaults_of_the_host() -> None:
    assert default_file(HostSettings) == {
        "order": ["relay", "codex_native", "jev", "masking"],
        "disabled": [],
        "contextWindow": 200000,
        "pi": {"answerSeconds": 2.0, "heartbeatSeconds": 5.0, "startSeconds": 10.0, "toolSeconds": 600.0},
        "encoding": "cl100k_base",
        "hookTimeoutSeconds": 10.0,
        "compactionTimeoutSeconds": 120.0,
        "compaction": {"reserveTokens": 16384, "keepRecentTokens": 20000},
        "credentials": {},
    }


def host_with(*command: str) -> HostSettings:
    write(json.dumps({"credentials": {"acme": {"command": list(command)}}}), "host")
    return load_settings(HostSettings, "host").values


def test_a_key_comes_from_the_environment_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert credential_variable("openai") == "OPENAI_API_KEY"
    assert credential_variable("openai-codex") == "OPENAI_CODEX_API_KEY"
    settings = host_with(sys.executable, "-c", "print('  from-command ')")
    assert resolve_credential("acme", settings) == "from-command"
    monkeypatch.setenv("ACME_API_KEY", "   ")
    assert resolve_credential("acme", settings) == "from-command"
    monkeypatch.setenv("ACME_API_KEY", " from-environment ")
    assert resolve_credential("acme", settings) == "from-environment"
    assert resolve_credential("other", settings) is None


def test_a_credential_command_runs_without_a_shell_away_from_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = host_with(sys.executable, "-c", "import os, sys; print(os.getcwd(), sys.argv[1])", "$HOME;*")
    assert resolve_credential("acme", settings) == "/ $HOME;*"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("print('sk-live-3'); raise SystemExit(4)", "ended with status 4"),
        ("pass", "printed nothing"),
        ("print('sk-live-3\\nsk-live-3')", "printed more than one line"),
        ("import sys; sys.stdout.buffer.write(b'sk-live-3\\xff')", "not UTF-8"),
    ],
)
def test_a_credential_command_that_fails_is_told_without_its_output(code: str, problem: str) -> None:
    settings = host_with(sys.executable, "-c", code)
    with pytest.raises(SettingsError, match=problem) as caught:
        resolve_credential("acme", settings)
    assert "sk-live-3" not in str(caught.value) + repr(settings)
    assert "credentials.acme" in str(caught.value)


def test_a_credential_command_that_is_not_there_is_told() -> None:
    with pytest.raises(SettingsError, match=r"cannot be started \(No such file or directory\)"):
        resolve_credential("acme", host_with("no-such-program-anywhere"))


def test_a_slow_credential_command_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contexthost.credentials.COMMAND_SECONDS", 0.5)
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with pytest.raises(SettingsError, match=r"took longer than 0.5 s"):
        resolve_credential("acme", host_with(sys.executable, "-c", script))


def test_directories_follow_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths.config_dir() == tmp_path / "config"
    assert {paths.state_dir(), paths.data_dir(), paths.cache_dir()} == {
        tmp_path / "state", tmp_path / "data", tmp_path / "cache",
    }  # fmt: skip
    made = paths.plugin_data_dir("relay")
    assert (made, mode(made), mode(made.parent)) == (tmp_path / "data" / "plugins" / "relay", 0o700, 0o700)
    for name in ("../x", "", ".hidden", "a/b"):
        with pytest.raises(ValueError, match="cannot be a plugin name"):
            paths.plugin_data_dir(name)
    monkeypatch.setenv("PI_CODING_AGENT_DIR", "~/elsewhere")
    assert paths.pi_agent_dir() == Path.home() / "elsewhere"
    monkeypatch.delenv("PI_CODING_AGENT_DIR")
    assert paths.pi_agent_dir() == Path.home() / ".pi" / "agent"


@pytest.mark.skipif(sys.platform != "linux", reason="the XDG variables are Linux's")
def test_on_linux_the_xdg_directories_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTEXTHOST_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    assert paths.settings_file("host") == tmp_path / "c" / "contexthost" / "host.json"
