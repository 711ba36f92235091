"""``contexthost context`` on narrow terminals: one line a row at any width, nothing wider than the terminal, and the
figures always whole. ``--json`` shortens nothing."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

from contexthost.cli import main
from support.builder import SessionBuilder, tool_call

LONG_ID = "0198c7de-7f6a-7cc1-9d3e-3d1f5b1a2c3d"
LONG_PATH = "/home/dev/projects/quayside/src/quayside/services/bookings.py"
LONG_TOOL = "mcp__github_enterprise__search_repositories_by_topic"
COMMAND = "uv run pytest tests/test_offers.py --durations=12 2>&1 | tail -70"


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "pi"))
    monkeypatch.setenv("NO_COLOR", "1")


def written(path: Path, *, strange: bool = False) -> Path:
    """Three calls with their results; ``strange``: a name of another program's tool, characters of two columns, a long
    id. A word is a token; each message has one to three more."""
    build = SessionBuilder(header={"id": "narrow"})
    build.user("word " * 90)
    for number, (tool, argument, words) in enumerate([
        ("read", LONG_PATH, 1500), ("bash", COMMAND, 800), ("grep", "src", 300),
        *([(LONG_TOOL, "/家/書類/とても長いディレクトリの名前/ファイル.txt", 1200)] if strange else []),
    ]):  # fmt: skip
        key = "command" if tool == "bash" else "path"
        build.assistant(calls=[tool_call(f"c{number}", tool, {key: argument})])
        build.tool_result(f"c{number}", "word " * words, tool=tool)
    if strange:
        build.entry("message", id=LONG_ID, message={"role": "user", "content": "word " * 1000})
    return build.write(path)


def on_a_terminal(path: Path, columns: int) -> list[str]:
    """The lines that a terminal of so many columns gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "contexthost", "context", str(path), "--context-window", "4000"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm"}) as process:
        os.close(theirs)
        shown = b""
        while part := read(ours):
            shown += part
    os.close(ours)
    assert process.returncode == 0, shown
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip() for line in shown.decode().split("\r\n")]


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # how Linux says that the other side is closed
        return b""


def test_forty_columns(tmp_path: Path) -> None:
    lines = on_a_terminal(written(tmp_path / "s.jsonl"), 40)
    assert lines[lines.index("") + 1 :] == [
        "                      tokens  window",
        "user                      91   2.3 %",
        "tool calls                51   1.3 %",
        "tool results: read     1,501  37.5 %",
        "tool results: bash       801  20.0 %",
        "tool results: grep       301   7.5 %",
        "all, as counted here   2,745  68.6 %",
        "",
        "largest   tokens",
        "00000003   1,501  read    …s/bookings.py",
        "00000005     801  bash    uv run pytest…",
        "00000007     301  grep    src",
        "00000001      91  user",
        "00000004      26  → bash  uv run pytest…",
        "00000002      19  → read  …s/bookings.py",
        "00000006       6  → grep  src",
        "",
    ]


def test_sixty_columns_have_pieces_bars_and_more_of_the_arguments(tmp_path: Path) -> None:
    lines = on_a_terminal(written(tmp_path / "s.jsonl"), 60)
    table = lines[lines.index("") + 1 :]
    # 60 columns less 20, 6, 6 and 6 and four gaps of 2 are 14 for the bars; 37.5 % of that are 5 1/4.
    assert table[0] == "                      pieces  tokens  window"
    assert table[3] == "tool results: read         1   1,501  37.5 %  █████▎"
    # 60 less 8, 6 and 6 and three gaps are 34 for the argument.
    assert table[8:11] == [
        "largest   tokens",
        "00000003   1,501  read    …src/quayside/services/bookings.py",
        "00000005     801  bash    uv run pytest tests/test_offers.p…",
    ]


def test_with_room_for_all_of_it_nothing_is_left_out(tmp_path: Path) -> None:
    lines = on_a_terminal(written(tmp_path / "s.jsonl"), 200)
    table = lines[lines.index("") + 1 :]
    assert table[3] == "tool results: read         1   1,501  37.5 %  █████████"  # 24 wide
    assert table[8:11] == [
        "largest entries  tokens",
        # 50 of the argument, as ever; of a path that is too long the end.
        f"00000003          1,501  read              …{LONG_PATH[-49:]}",
        f"00000005            801  bash              {COMMAND[:49]}…",
    ]


@pytest.mark.parametrize("columns", [*range(24, 64, 3), 40, 80, 100, 120, 200])
def test_at_any_width_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal then
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as ended:
        main(["context", str(written(tmp_path / "s.jsonl", strange=True))])
    assert ended.value.code == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).split("\n")
    assert [line for line in shown if cell_len(line) > columns] == []
    sentence, categories, largest = "\n".join(line.rstrip() for line in shown).strip().split("\n\n")
    assert sentence.startswith("Session narrow:")
    # What users wrote, calls, results by tool, the sum; then the ten entries: each has its figure, whole.
    assert [re.findall(r"(?<= )\d+,?\d*(?=  +\d+\.\d %)", line) for line in categories.split("\n")[1:]] == [
        ["1,092"], ["95"], ["1,501"], ["1,201"], ["801"], ["301"], ["4,991"],
    ]  # fmt: skip
    assert [re.search(r" (\d+,?\d*)  ", line)[1] for line in largest.split("\n")[1:]] == [  # type: ignore[index]
        "1,501", "1,201", "1,001", "801", "301", "91", "44", "26", "19", "6",
    ]  # fmt: skip
    if columns >= 60:
        assert LONG_ID in largest


def test_json_has_all_of_it_on_any_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with pytest.raises(SystemExit):
        main(["context", str(written(tmp_path / "s.jsonl", strange=True)), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert {entry["argument"] for entry in shown["largest"]} >= {LONG_PATH, COMMAND}
    assert {category["tool"] for category in shown["categories"]} == {None, "read", "bash", "grep", LONG_TOOL}
    assert LONG_ID in {entry["entryId"] for entry in shown["largest"]}
