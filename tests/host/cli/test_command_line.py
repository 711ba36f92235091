"""The ``contexthost`` command: each command on real input, each mistake told in one line with what to do, no traceback,
and nothing written that was not asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import click
import pytest

from contexthost.cli import main, root
from contexthost.cli.arguments import SessionArgument
from contexthost.session import Session
from support.builder import SessionBuilder
from support.model_server import ModelServer

DEMO = (files("contexthost.data") / "demo.jsonl").read_bytes()


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "pi"))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    path = tmp_path / "demo.jsonl"
    path.write_bytes(DEMO)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    status = exit.value.code
    assert isinstance(status, int)
    return status, out, err


def pi_session(tmp_path: Path, session_id: str, directory: str = "--home-dev--") -> Path:
    path = tmp_path / "pi" / "sessions" / directory / f"2026-11-30T10-00-00-000Z_{session_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    builder = SessionBuilder(header={"id": session_id})
    builder.user("hello")
    path.write_bytes(builder.bytes())
    return path


def error(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that a failing command prints."""
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    return err


# Mistakes ------------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "none.jsonl"
    assert error(capsys, "context", missing).startswith(f"Error: {missing}: no such file; `contexthost sessions`")


def test_a_directory_is_not_a_session(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert f"{tmp_path} is a directory" in error(capsys, "context", tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "has no session header"),
        (b'{"type":"message","id":"a"}\n', "not a Pi session"),
        (b"hello\nworld\n", "has no session header"),
        (b"\x00\x01\x02" * 1000, "has no session header"),
    ],
    ids=["empty", "blank", "no header", "text", "binary"],
)
def test_a_file_that_is_no_session_is_told_and_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    text = error(capsys, "mask", path)
    assert told in text
    assert str(path) in text
    assert path.read_bytes() == content


def test_an_unknown_id_is_told_with_where_it_was_looked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pi_session(tmp_path, "aaaa-1")
    text = error(capsys, "context", "bbbb")
    assert "no session id begins with 'bbbb'" in text
    assert str(tmp_path / "pi" / "sessions") in text


def test_an_ambiguous_prefix_lists_what_it_fits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = pi_session(tmp_path, "aaaa-1"), pi_session(tmp_path, "aaaa-2")
    text = error(capsys, "context", "aaaa")
    assert "'aaaa' fits 2 sessions" in text
    assert str(first) in text
    assert str(second) in text


def test_latest_without_any_session_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there are no sessions in" in error(capsys, "context", "latest")


@contextmanager
def held(path: Path) -> Iterator[str]:
    """Another process holds the session's lock; gives what is said of that."""
    holder = (
        "import sys; from contexthost.session import Session\n"
        "s = Session.open(sys.argv[1], owner='a test that holds it'); s.hold(); print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield f"{path} is locked by a test that holds it (process {process.pid})"
        assert process.stdin is not None
        process.stdin.close()


def test_a_locked_session_names_its_owner_and_stays_as_it_is(capsys: pytest.CaptureFixture[str], demo: Path) -> None:
    with held(demo) as locked:
        text = error(capsys, "mask", demo)
    assert locked in text
    assert demo.read_bytes() == DEMO


def test_a_command_that_a_live_session_needs_is_not_sent_to_one_that_is_refused_there(
    capsys: pytest.CaptureFixture[str], demo: Path
) -> None:
    """`/relay` cannot be run on a file, and `contexthost relay` not on a session that is live: who has it, and that it
    is to be used there, is all that helps. What only reads works all the same."""
    with held(demo) as locked:
        text = error(capsys, "run", demo, "/relay")
        assert f"/relay of plugin relay needs a live session, and {locked}; wait for it to end, or work" in text
        assert "contexthost relay" not in text
        assert run(capsys, "run", demo, "/context")[0] == 0
    assert "/relay of plugin relay needs a live session: use `contexthost relay SESSION`" in error(
        capsys, "run", demo, "/relay"
    )


def test_a_session_that_is_live_is_refused_before_anybody_makes_a_compaction_for_it(
    capsys: pytest.CaptureFixture[str], demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model's summary costs time and money. A dry run only reads."""
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    with ModelServer() as server, held(demo) as locked:
        model = ("--base-url", server.base_url, "--model", "m-1")
        assert locked in error(capsys, "compact", demo, *model)
        assert server.requests == []
        assert run(capsys, "compact", demo, "--dry-run")[0] == 0
    assert demo.read_bytes() == DEMO


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only files; the next test drops root instead")
def test_a_read_only_file_is_told(capsys: pytest.CaptureFixture[str], demo: Path) -> None:
    demo.chmod(0o444)
    assert "read-only" in error(capsys, "mask", demo)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else; the test before shows the same")
@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_read_only_file_or_directory_is_told_to_another_user(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    path = place / "old.jsonl"
    head, rest = DEMO.split(b"\n", 1)
    # A version 2 file has to be replaced as a whole, which is what a read-only directory prevents.
    path.write_bytes(DEMO if what == "file" else head.replace(b'"version":3', b'"version":2') + b"\n" + rest)
    original = path.read_bytes()
    path.chmod(0o444 if what == "file" else 0o666)
    place.chmod(0o777 if what == "file" else 0o555)
    home = tmp_path / "theirs"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    for parent in [tmp_path, *tmp_path.parents][:4]:
        parent.chmod(parent.stat().st_mode | 0o011)
    # Everything is imported while the process may still read this Python: the user may not.
    program = """
import contextlib, io, os, sys
from contexthost.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["mask", sys.argv[1], "--dry-run"])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
main(["mask", sys.argv[1]])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "CONTEXTHOST_HOME": str(home), "HOME": str(home)},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("Error: "), done.stderr
    assert str(path) in done.stderr
    assert path.read_bytes() == original


@pytest.mark.parametrize(
    "arguments", [["context"], ["nonsense"], ["context", "--nonsense", "x"], ["mask", "x", "--context-window", "0"]]
)
def test_bad_arguments_exit_2_with_usage(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert err.startswith("Usage: contexthost")


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "contexthost", "--debug", "context", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "SessionNotFound" in done.stderr


def test_a_plugin_that_is_not_installed_is_named_with_its_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    assert error(capsys, "mask", "latest") == (
        "Error: `contexthost mask` is a command of a plugin that is not installed: pip install contexthost-masking\n"
    )


def test_a_plugin_that_is_disabled_need_not_be_installed_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__DISABLED", '["masking"]')
    told = error(capsys, "mask", "latest")
    assert "plugin masking, which `disabled` in host.json turns off" in told
    assert "pip install" not in told


def test_a_full_disk_below_the_output_is_one_line(demo: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("only Linux has a device that is always full")
    for command in ("context", "inspect"):
        with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
            done = subprocess.run(
                [sys.executable, "-m", "contexthost", command, str(demo)],
                stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr == "Error: No space left on device; make room and run it again\n"


def test_bars_that_the_output_cannot_encode_are_no_error(demo: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "contexthost", "context", str(demo)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "tool results: bash        40   95,542  47.8 %  ????" in done.stdout


@pytest.mark.parametrize("variable", ["CONTEXTHOST_HOME", "PI_CODING_AGENT_DIR"])
def test_a_directory_below_the_home_of_nobody_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "~no-such-user/x")
    assert f"{variable} is '~no-such-user/x'" in error(capsys, "context", "latest")


def test_a_reader_that_goes_away_is_no_error(demo: Path) -> None:
    command = f"{sys.executable} -m contexthost inspect {demo} | head -c 10"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert len(done.stdout) == 10
    assert done.stderr == ""


# Commands ------------------------------------------------------------------------------------------------------------


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version")[:2] == (0, "contexthost 0.1.0\n")
    status, out, _ = run(capsys, "--help")
    assert status == 0
    for command in ("config", "context", "demo", "doctor", "inspect", "plugins", "sessions", "mask"):
        assert f"\n  {command} " in out


def test_context_adds_up(capsys: pytest.CaptureFixture[str], demo: Path) -> None:
    status, out, _ = run(capsys, "context", demo, "--json")
    shown = json.loads(out)
    assert status == 0
    assert shown["usage"]["tokens"] == 156_967  # the last totalTokens in the file
    assert shown["usage"]["source"] == "provider"
    assert shown["usage"]["window"] == 200_000
    assert sum(category["tokens"] for category in shown["categories"]) == shown["tokens"]
    assert {c["name"] for c in shown["categories"]} >= {"system", "user", "assistant", "thinking", "tool calls"}
    assert [entry["tokens"] for entry in shown["largest"]] == sorted(
        (entry["tokens"] for entry in shown["largest"]), reverse=True
    )
    assert demo.read_bytes() == DEMO


def test_context_counts_masks_apart(capsys: pytest.CaptureFixture[str], demo: Path) -> None:
    before = json.loads(run(capsys, "context", demo, "--json")[1])
    assert run(capsys, "mask", demo)[0] == 0
    after = json.loads(run(capsys, "context", demo, "--json")[1])
    masked = next(category for category in after["categories"] if category["name"] == "masked")
    assert masked["count"] == after["maskedResults"] == 56
    assert before["tokens"] - after["tokens"] == after["reclaimedTokens"]
    assert demo.read_bytes()[: len(DEMO)] == DEMO


def test_context_sends_people_to_doctor_about_what_is_odd(capsys: pytest.CaptureFixture[str], demo: Path) -> None:
    demo.write_bytes(DEMO + b'{"type": "mess')
    assert "The file has 1 oddity: see `contexthost doctor SESSION`." in run(capsys, "context", demo)[1]
    assert "torn-line" in run(capsys, "doctor", demo)[1]


def test_context_for_people_names_the_session_and_strips_what_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    builder = SessionBuilder()
    builder.user("hello")
    builder.session_info("evil \x1b[2J\x1b]0;title\x07 name [bold]")
    path = tmp_path / "s.jsonl"
    path.write_bytes(builder.bytes())
    _, out, _ = run(capsys, "context", path)
    assert "evil  name [bold]".replace("  ", " ") in out
    assert "\x1b" not in out


def test_inspect_prints_one_line_a_session_and_goes_on_after_a_bad_one(
    capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path
) -> None:
    status, out, err = run(capsys, "inspect", demo, tmp_path / "none.jsonl", demo, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 1
    assert [sorted(line)[0] for line in lines] == ["contextPositions", "error", "contextPositions"]
    assert lines[0]["entries"] == DEMO.count(b"\n") - 1
    assert err.startswith("Error: ")


def test_inspect_looks_from_another_leaf(capsys: pytest.CaptureFixture[str], demo: Path) -> None:
    leaf = Session.open(demo).entries[9].id
    shown = json.loads(run(capsys, "inspect", demo, "--json", "--leaf", leaf)[1])
    assert shown["contextPositions"] == list(range(10))
    assert "not found" in error(capsys, "inspect", demo, "--json", "--leaf", "nonsense")


def test_sessions_are_listed_newest_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old, new = pi_session(tmp_path, "aaaa-1"), pi_session(tmp_path, "bbbb-2")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    (new.parent / "notes.jsonl").write_text("not a session\n")
    found = json.loads(run(capsys, "sessions", "--json")[1])
    assert [item["id"] for item in found] == ["bbbb-2", "aaaa-1"]
    assert json.loads(run(capsys, "context", "latest", "--json")[1])["sessionId"] == "bbbb-2"
    assert json.loads(run(capsys, "context", "aa", "--json")[1])["sessionId"] == "aaaa-1"


def test_no_sessions_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "sessions")
    assert status == 0
    assert out.startswith("No sessions in ")


def test_plugins_show_masking(capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(run(capsys, "plugins", "--json")[1])
    masking = next(plugin for plugin in shown["plugins"] if plugin["name"] == "masking")
    assert masking["state"] == "active"
    assert "agent_before_settle" in masking["hooks"]
    assert shown["warnings"] == []


def test_config_is_written_shown_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(run(capsys, "config", "path", "masking")[1].strip())
    assert not path.exists()
    assert run(capsys, "config", "init", "masking")[0] == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["mask"]["triggerTokens"] == 80_000
    path.write_text('{"mask": {"triggerTokens": 60000, "keepRecentTurns": "many"}}')
    shown = json.loads(run(capsys, "config", "show", "masking", "--json")[1])["masking"]
    assert shown["values"]["mask"]["triggerTokens"] == 60_000
    assert shown["values"]["mask"]["keepRecentTurns"] == 10
    assert shown["sources"]["mask.triggerTokens"] == "file"
    (warning,) = shown["warnings"]
    assert "mask.keepRecentTurns" in warning
    assert str(path) in warning
    assert "mask" in json.loads(run(capsys, "config", "schema", "masking")[1])["properties"]
    assert "exists already" in error(capsys, "config", "init", "masking")
    assert "there are no settings named 'nonsense'" in error(capsys, "config", "show", "nonsense")


def test_config_init_writes_the_files_that_a_plugin_installed_later_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(capsys, "config", "init", "host")
    host, masking = (Path(run(capsys, "config", "path", name)[1].strip()) for name in ("host", "masking"))
    host.write_text('{"contextWindow": 100000}')
    status, out, _ = run(capsys, "config", "init")
    assert status == 0
    assert f"kept  {host}, which is there already\n" in out
    assert f"wrote {masking}\n" in out
    assert host.read_text() == '{"contextWindow": 100000}'
    assert "exists already" in error(capsys, "config", "init")


def test_doctor_repeats_what_is_wrong_with_settings(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "doctor", "--json")
    assert status == 0
    assert {check["state"] for check in json.loads(out)} == {"ok"}
    config = Path(os.environ["CONTEXTHOST_HOME"]) / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "masking.json").write_text('{"mask": {"triggerTokens": true}, "apiKey": "sk-secret"}')
    (config / "host.json").write_text('{"encoding": "no_such_encoding"}')
    status, out, _ = run(capsys, "doctor", "--json")
    checks = json.loads(out)
    assert status == 1
    warnings = " ".join(check["text"] for check in checks if check["state"] == "warning")
    assert "mask.triggerTokens" in warnings
    assert "apiKey" in warnings
    assert "sk-secret" not in out
    (problem,) = [check for check in checks if check["state"] == "problem"]
    assert "no_such_encoding" in problem["text"]


def test_the_demo_masks_a_copy_and_proves_that_nothing_is_lost(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, _ = run(capsys, "demo", "--directory", tmp_path / "demo")
    path = tmp_path / "demo" / "demo.jsonl"
    assert status == 0
    assert "Before: 156,967 of 200,000 tokens" in out
    assert "56 tool results are masked" in out
    assert f"the first {len(DEMO):,} bytes of the new file are the old file" in " ".join(out.split())
    assert path.read_bytes()[: len(DEMO)] == DEMO
    assert len(path.read_bytes()) > len(DEMO)
    assert f"contexthost context {path}" in out


def test_the_demo_never_overwrites(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "demo.jsonl").write_text("mine")
    assert "exists" in error(capsys, "demo", "--directory", tmp_path)
    assert (tmp_path / "demo.jsonl").read_text() == "mine"


def test_the_shell_can_complete_the_session_of_every_command() -> None:
    def commands(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
        with click.Context(group) as ctx:
            for name in group.list_commands(ctx):
                command = group.get_command(ctx, name)
                assert command is not None
                if isinstance(command, click.Group):
                    yield from commands(command, *words, name)
                else:
                    yield " ".join([*words, name]), command

    types = {
        f"{words} {each.name}": each.type
        for words, command in commands(root)
        for each in command.params
        if isinstance(each, click.Argument) and each.human_readable_name.startswith("SESSION")
    }
    assert len(types) >= 14
    assert {words for words, kind in types.items() if not isinstance(kind, SessionArgument)} == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_complete_commands(shell: str) -> None:
    program = shutil.which("contexthost") or str(Path(sys.executable).with_name("contexthost"))
    words = {"COMP_WORDS": "contexthost con", "COMP_CWORD": "con" if shell == "fish" else "1"}
    done = subprocess.run(
        [program],
        env={**os.environ, **words, "_CONTEXTHOST_COMPLETE": f"{shell}_complete"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "config" in done.stdout
    assert "context" in done.stdout


@pytest.mark.parametrize(
    ("package", "variable", "arguments"),
    [
        ("host", "CONTEXTHOST_HOST__CONTEXTWINDOW", ["context"]),
        ("host", "CONTEXTHOST_HOST__CONTEXTWINDOW", ["mask", "--dry-run"]),
        ("relay", "CONTEXTHOST_RELAY__TAILMAXCHARS", ["relay", "--dry-run"]),
        ("codex_native", "CONTEXTHOST_CODEX_NATIVE__TIMEOUTSECONDS", ["codex", "status"]),
        ("masking", "CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS", ["status"]),
    ],
)
def test_a_setting_that_does_not_fit_is_told_once_by_the_command_that_goes_on_without_it(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    package: str,
    variable: str,
    arguments: list[str],
) -> None:
    build = SessionBuilder()
    for text in ("one", "two"):
        build.user(text)
        build.assistant("because " * 40_000)
    path = build.write(tmp_path / "session.jsonl")
    monkeypatch.setenv(variable, "nonsense")
    status, _, err = run(capsys, *arguments, path)
    assert status == 0
    assert [line for line in err.splitlines() if line.startswith("warning: ")] == err.splitlines()
    assert err.count(variable) == 1
