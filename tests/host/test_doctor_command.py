"""``contexthost doctor SESSION``: what it prints, when it writes, and its exit status."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from contexthost.cli import main
from contexthost.cli.doctor import command
from contexthost.errors import SessionFormatError, SessionLocked, SessionNotFound, SessionWriteError
from contexthost.session import Session
from support.builder import SessionBuilder, tool_call


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path_factory.mktemp("home")))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def status(result: Result) -> int:
    if result.exception is not None:
        raise result.exception
    value: int = result.return_value
    return value


def run_json(*arguments: str | Path) -> dict[str, Any]:
    result = run(*arguments, "--json")
    status(result)
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.fixture
def bricked(tmp_path: Path) -> Path:
    """A result that nobody asked for, in line 4."""
    build = SessionBuilder()
    build.user("What is in a.txt?")
    build.assistant("Nothing.")
    build.tool_result("call-9", "left over")
    return build.write(tmp_path / "s.jsonl")


@pytest.fixture
def cut_off(tmp_path: Path) -> Path:
    """Two turns, the second of which names a parent that is not there; and half a line at the end."""
    build = SessionBuilder()
    build.user("one")
    build.assistant("two")
    build.entry("message", parent="gone", message={"role": "user", "content": "three"})
    build.raw(b'{"type":"mess', end=b"")
    return build.write(tmp_path / "s.jsonl")


def test_each_finding_says_what_is_wrong_what_the_model_sees_and_what_repair_would_do(bricked: Path) -> None:
    result = run(bricked)
    assert status(result) == 1
    assert result.stdout == (
        "orphan-result  line 4, entry 00000003\n"
        "  wrong   a result of read for call-9, without the call\n"
        "  seen    A result without a call: the provider refuses every request.\n"
        "  repair  Append context edits: omit entry 00000003 from the context. The file keeps all of it.\n"
        "\n"
        "1 problem, which appending mends.\n"
        f"contexthost doctor {bricked} --repair mends it.\n"
    )


def test_the_command_it_ends_with_can_be_pasted(bricked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bricked.rename(bricked.with_name("--yes s.jsonl"))
    monkeypatch.chdir(bricked.parent)
    assert run("--", "--yes s.jsonl").stdout.endswith(
        f"contexthost doctor '{bricked.parent}/--yes s.jsonl' --repair mends it.\n"
    )


def test_repair_tells_tokens_appends_one_edit_and_the_session_is_whole(bricked: Path) -> None:
    before = bricked.read_bytes()
    result = run(bricked, "--repair", "--yes")
    assert status(result) == 0
    assert "Repair appends 1 context edit; nothing in the file changes. Tokens: " in result.stdout
    assert "Close Pi first" in result.stdout
    assert result.stdout.endswith("The session is whole.\n")
    assert bricked.read_bytes().startswith(before)
    [line] = bricked.read_bytes()[len(before) :].splitlines()
    edit = json.loads(line)
    assert (edit["type"], edit["targetId"], edit["replacement"]) == ("context_edit", "00000003", None)
    again = run(bricked)
    assert (status(again), again.stdout) == (0, "Healthy.\n")


def test_without_a_terminal_nobody_is_asked_and_nothing_is_written(bricked: Path) -> None:
    before = bricked.read_bytes()
    result = run(bricked, "--repair")
    assert status(result) == 1
    assert result.stderr == "Not a terminal, so nobody can be asked: --yes repairs without asking.\n"
    assert result.stdout.endswith("Nothing was appended.\n")
    assert bricked.read_bytes() == before


@pytest.mark.parametrize(("answer", "expected"), [(True, 0), (False, 1)])
def test_at_a_terminal_the_answer_decides(
    answer: bool, expected: int, bricked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contexthost.cli.doctor_session._is_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_args, **_keywords: answer)
    before = bricked.read_bytes()
    assert status(run(bricked, "--repair")) == expected
    assert (bricked.read_bytes() == before) is not answer


def test_a_dry_run_shows_the_plan_and_writes_nothing(bricked: Path, tmp_path: Path) -> None:
    before = bricked.read_bytes()
    result = run(bricked, "--repair", "--dry-run")
    assert status(result) == 1
    assert "Repair appends 1 context edit" in result.stdout
    assert "Dry run: nothing was appended." in result.stdout
    result = run(bricked, "--rescue", tmp_path / "new.jsonl", "--dry-run")
    assert status(result) == 0
    assert result.stdout.startswith(f"Would save 3 entries of {bricked}:\n  1 added to repair")
    assert result.stdout.endswith("Dry run: nothing was written.\n")
    assert bricked.read_bytes() == before
    assert list(tmp_path.iterdir()) == [bricked]


def test_json_has_stable_keys(bricked: Path) -> None:
    report = run_json(bricked)
    assert list(report) == [
        "file", "sessionId", "leafId", "healthy", "findings", "repaired", "tokensBefore", "tokensAfter",
        "tokensRepaired",
    ]  # fmt: skip
    [finding] = report.pop("findings")
    assert finding == {
        "kind": "orphan-result",
        "severity": "problem",
        "mend": "append",
        "entryId": "00000003",
        "line": 4,
        "problem": "a result of read for call-9, without the call",
        "modelSees": "A result without a call: the provider refuses every request.",
        "repair": "Append context edits: omit entry 00000003 from the context. The file keeps all of it.",
    }
    assert (report["sessionId"], report["leafId"], report["healthy"]) == ("session-1", "00000003", False)
    assert report["tokensBefore"] == report["tokensAfter"] > report["tokensRepaired"]
    repaired = run_json(bricked, "--repair", "--yes")
    assert (repaired["repaired"], repaired["healthy"], repaired["findings"]) == (1, True, [])
    assert repaired["tokensAfter"] == report["tokensRepaired"]


def test_what_appending_cannot_mend_is_rescued(cut_off: Path, tmp_path: Path) -> None:
    before = cut_off.read_bytes()
    result = run(cut_off)
    assert status(result) == 1
    assert [line for line in result.stdout.splitlines() if line and line[0] not in " c"] == [
        "missing-parent  line 4, entry 00000003",
        "torn-line  line 5",
        "1 problem, which appending cannot mend. 1 notice: harmless.",
    ]
    assert result.stdout.endswith(f"contexthost doctor {cut_off} --rescue NEWFILE saves the session in a new file.\n")
    new = tmp_path / "new.jsonl"
    rescued = run(cut_off, "--rescue", new)
    assert status(rescued) == 0
    assert rescued.stdout == (
        f"Saved 3 entries of {cut_off}:\n"
        "  1 hung on the entry before, their parent being lost\n"
        "  lost: what stood in line 5\n"
        f"The model sees 3 messages of it, {tokens(new)} tokens.\n"
        f"The old file is as it was. Go on with: pi --session {new}\n"
    )
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert [entry.parent_id for entry in Session.open(new).entries] == [None, "00000001", "00000002"]
    assert cut_off.read_bytes() == before
    with pytest.raises(SessionWriteError, match="exists already"):
        status(run(cut_off, "--rescue", new))


def tokens(path: Path) -> int:
    count: int = run_json(path)["tokensBefore"]
    return count


def test_repair_names_what_it_cannot_mend(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("one")
    build.entry("message", parent="gone", message={"role": "user", "content": "two"})
    build.assistant("three", calls=[tool_call("call-1", "read")])
    path = build.write(tmp_path / "s.jsonl")
    found = run(path)
    assert "2 problems, 1 of which appending mends." in found.stdout
    assert "Do that rather than --repair: it repairs the new file too." in found.stdout
    result = run(path, "--repair", "--yes")
    assert status(result) == 1
    assert "1 problem that appending cannot mend: missing-parent.\n" in result.stdout


def test_a_byte_order_mark_in_front_of_the_header_can_be_rescued(bricked: Path, tmp_path: Path) -> None:
    bricked.write_bytes(b"\xef\xbb\xbf" + bricked.read_bytes())
    result = run(bricked)
    assert status(result) == 1
    assert result.stdout.startswith("no-header  line 1\n")
    assert run_json(bricked)["findings"][0]["mend"] == "rescue"
    new = tmp_path / "new.jsonl"
    report = run_json(bricked, "--rescue", new)
    assert (report["saved"], report["repaired"], report["contextMessages"], report["findings"]) == (3, 1, 2, [])
    assert report["newFile"] == str(new)
    assert Session.open(new).header.parent_session == str(bricked)


def test_what_is_no_session_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("shopping list\n", encoding="utf-8")
    with pytest.raises(SessionFormatError, match=r"notes\.jsonl: no message could be found"):
        status(run(path))
    with pytest.raises(SessionNotFound):
        status(run(tmp_path / "nothing.jsonl"))


@pytest.mark.parametrize("arguments", [[], ["--rescue", "new.jsonl"]])
def test_a_pipe_or_a_device_is_refused_instead_of_read_for_ever(tmp_path: Path, arguments: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "device.jsonl").symlink_to("/dev/zero")
    for name in ("pipe.jsonl", "device.jsonl"):
        with pytest.raises(SessionNotFound, match="a device or a pipe"):
            status(run(tmp_path / name, *arguments))


def test_a_session_that_somebody_writes_to_is_not_repaired(bricked: Path) -> None:
    before = bricked.read_bytes()
    with Session.open(bricked, owner="a live Pi session") as other:
        other.hold()
        with pytest.raises(SessionLocked, match="a live Pi session"):
            status(run(bricked, "--repair", "--yes"))
    assert bricked.read_bytes() == before


def test_a_version_1_file_keeps_its_original_beside_it(tmp_path: Path) -> None:
    build = SessionBuilder(version=1)
    build.user("go")
    build.assistant("looking", calls=[tool_call("call-1", "read")])
    path = build.write(tmp_path / "s.jsonl")
    result = run(path, "--repair", "--yes")
    assert "The version 1 file becomes version 3; the original stays beside it." in result.stdout
    assert (tmp_path / "s.jsonl.v1.bak").read_bytes() == build.bytes()
    assert status(run(path)) == 0


def test_control_sequences_of_a_session_do_not_reach_the_terminal(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.tool_result("\x1b]0;owned\x07call", "x", tool="\x1b[2Jread")
    result = run(build.write(tmp_path / "s.jsonl"))
    assert "\x1b" not in result.stdout
    assert "a result of read for call, without the call" in result.stdout


@pytest.mark.parametrize(
    "arguments", [["--repair"], ["--rescue", "new.jsonl"], ["s.jsonl", "--repair", "--rescue", "new.jsonl"]]
)
def test_arguments_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError):
        status(run(*arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--yes"], "--yes answers what --repair asks"),
        (["--dry-run"], "--dry-run needs --repair or --rescue NEWFILE"),
    ],
)
@pytest.mark.parametrize("session", [[], ["s.jsonl"]])
def test_agreeing_to_nothing_is_wrong_usage(
    arguments: list[str], words: str, session: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["doctor", *session, *arguments])
    assert exit.value.code == 2
    assert words in capsys.readouterr().err


def test_findings_of_a_kind_beyond_ten_are_counted_and_json_has_all(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    for at in range(1_000):
        build.tool_result(f"call-{at}", "left over")
    build.user([None])
    path = build.write(tmp_path / "s.jsonl")
    result = run(path)
    lines = result.stdout.splitlines()
    assert sum(line.startswith("orphan-result  ") for line in lines) == 10
    assert lines.count("… and 990 more of this kind (--json lists all)") == 1
    assert sum(line.startswith("bad-content  ") for line in lines) == 1
    assert "1,001 problems, which appending mends." in lines
    assert len(run_json(path)["findings"]) == 1_001


def test_a_long_list_of_entries_is_cut_for_people_only(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    calls = [tool_call(f"call-{at}", "read") for at in range(200)]
    build.assistant("look", calls=calls)
    build.compaction("The summary.", None)
    for call in calls:
        build.tool_result(call["id"], "x")
    path = build.write(tmp_path / "s.jsonl")
    [line] = [line for line in run(path).stdout.splitlines() if line.startswith("  wrong")]
    assert len(line) == 510
    assert line.endswith("…")
    assert build.leaf is not None
    assert build.leaf in run_json(path)["findings"][0]["problem"]


@pytest.mark.parametrize("arguments", [[], ["--repair", "--yes"], ["--rescue", "new.jsonl"], ["--json"]])
def test_an_empty_file_is_called_empty(arguments: list[str], tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    with pytest.raises(SessionFormatError, match=r"empty\.jsonl: not a Pi session: the file is empty"):
        status(run(path, *arguments))


def test_a_dry_run_tells_that_the_new_file_exists(bricked: Path) -> None:
    before = bricked.read_bytes()
    result = run(bricked, "--rescue", bricked, "--dry-run")
    assert status(result) == 1
    assert result.stdout.endswith(
        f"Dry run: nothing was written.\n{bricked} exists already, and is left as it is: give another name.\n"
    )
    assert run_json(bricked, "--rescue", bricked, "--dry-run")["newFileExists"] is True
    assert bricked.read_bytes() == before


def test_nothing_stands_behind_a_colon_and_one_is_one(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    path = build.write(tmp_path / "s.jsonl")
    new = tmp_path / "new.jsonl"
    assert run(path, "--rescue", new).stdout == (
        f"Saved 1 entry of {path}.\n"
        "The model sees 1 message of it, 1 token.\n"
        f"The old file is as it was. Go on with: pi --session {new}\n"
    )


def test_many_lost_lines_are_counted(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("go")
    for _ in range(1_012):
        build.raw(b"garbage")
    result = run(build.write(tmp_path / "s.jsonl"), "--rescue", tmp_path / "new.jsonl", "--dry-run")
    assert "  lost: what stood in lines 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 1,002 more\n" in result.stdout


@pytest.mark.parametrize(("no_colour", "styled"), [("", True), ("1", False)])
def test_colours_are_left_out_when_asked(
    no_colour: str, styled: bool, bricked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr("click._compat.isatty", lambda _stream: True)  # as at a terminal
    with pytest.raises(SystemExit):
        main(["doctor", str(bricked)])
    assert ("\x1b[" in capsys.readouterr().out) == styled
