"""The HTML report: each of the largest entries has the colour of its kind, which can be told from the page in light and
dark; and its command lines do what they say when they are pasted, whatever the session's file is called."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape
from importlib.resources import files
from pathlib import Path

import pytest

from contexthost.cli import main
from contexthost.cli.output import in_shell
from contexthost.projection import MASK_PREFIX
from support.builder import SessionBuilder, tool_call

pytestmark = pytest.mark.usefixtures("_own_directories")

NAMES = [
    b"plain.jsonl",
    b"--help.jsonl",
    b"-",
    b"latest",
    b"SESSION.jsonl",
    b"it's `here`, $HOME & <b>\"there\"\\.jsonl",
    b"two  spaces.jsonl",
    b"line\nfeed\x1b[31m.jsonl",
    b"caf\xe9 8\xff8.jsonl",
    b"\xc3\xa9\xff.jsonl",
    "right\u202eto left\u00a0.jsonl".encode(),
    b"n" * 248 + b".jsonl",
]


@pytest.fixture
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "pi"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def of_every_kind(build: SessionBuilder) -> None:
    """An entry of each kind, every one smaller than the one before; words are a token each."""
    build.assistant("so", calls=[tool_call("w", "write", {"path": "a.py", "content": "word " * 1000})])
    build.tool_result("w", "word " * 900)
    build.system("word " * 800)
    build.assistant("word " * 700)
    first = build.user("word " * 600)
    thought = {"type": "thinking", "thinking": "word " * 500}
    build.entry("message", message={"role": "assistant", "content": [thought, {"type": "text", "text": "so"}]})
    build.entry("branch_summary", summary="word " * 400, fromId=first)
    build.entry("message", message={"role": "of another program", "content": "word " * 300})
    build.assistant(calls=[tool_call("r", "read", {"path": "a.py"})])
    masked = build.tool_result("r", "word " * 5000)
    build.edit(masked, f"{MASK_PREFIX}read result " + "word " * 200)


KINDS = [
    ("assistant → write", "tool calls"),
    ("read", "tool results"),  # the builder's name for tools
    ("system", "system"),
    ("assistant", "assistant"),
    ("user", "user"),
    ("assistant", "thinking"),
    ("branchSummary", "summaries"),
    ("of another program", "other"),
    ("read", "masked"),
]


def contexthost(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What it prints."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    return out


# Colours -------------------------------------------------------------------------------------------------------------


def test_the_largest_entries_have_the_colours_of_their_kinds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    build = SessionBuilder()
    of_every_kind(build)
    session = build.write(tmp_path / "s.jsonl")
    found = json.loads(contexthost(capsys, "context", session, "--json"))["largest"]
    assert [(one["what"], one["category"]) for one in found][: len(KINDS)] == KINDS

    contexthost(capsys, "context", session, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    section = page[page.index('<section id="largest">') : page.index('<section id="what-if">')]
    bars = re.findall(r'class="bar ([a-z-]+)" title="([a-z ]+)"', section)
    assert bars[: len(KINDS)] == [(f"c-{kind.replace(' ', '-')}", kind) for _, kind in KINDS]
    # The legend names each of them, in the order of the picture.
    assert re.findall(r'<li><span class="chip c-[a-z-]+" aria-hidden="true"></span>([a-z ]+)</li>', section) == [
        "system", "user", "assistant", "thinking", "tool calls", "tool results", "summaries", "masked", "other",
    ]  # fmt: skip


def luminance(colour: str) -> float:
    """As WCAG 2.2 has it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_every_kind_can_be_told_from_the_card_in_light_and_dark() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)  # the grey that just suffices for text
    css = (files("contexthost.cli.report") / "page.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", css[start:])[:17]) for start in
                   (css.index(":root"), css.index("prefers-color-scheme: dark")))  # fmt: skip
    names = {kind.replace(" ", "-") for _, kind in KINDS}
    assert len(names) == 9
    for colours in (light, dark):
        assert {name for name in names if contrast(colours[name], colours["card"]) < 3} == set()
        assert len({colours[name] for name in names}) == len(names)
    assert light["card"] != dark["card"]


# Command lines -------------------------------------------------------------------------------------------------------


def as_copied(html: str) -> str:
    """What comes out of the browser: entities read, white space as one space."""
    return " ".join(unescape(html).split())


@pytest.mark.parametrize("name", NAMES, ids=[ascii(name)[2:-1][:24] for name in NAMES])
def test_the_command_lines_work_when_they_are_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: bytes
) -> None:
    build = SessionBuilder()
    build.user("the needle is here")
    build.assistant("found")
    build.user("word " * 21_000)  # more than a compaction keeps: now there are ways to make room
    build.assistant("indeed")
    try:
        (tmp_path / os.fsdecode(name)).write_bytes(build.bytes())
    except OSError:
        pytest.skip("this file system does not take such a name")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    contexthost(capsys, "context", "--html", "page.html", "--", f"./{os.fsdecode(name)}")

    page = (tmp_path / "page.html").read_bytes().decode()
    commands = {as_copied(found) for found in re.findall(r"<code>(contexthost .*?)</code>", page, re.S)}
    (recall,) = [command for command in commands if command.startswith("contexthost recall ")]
    shown = recall.removeprefix("contexthost recall ").removesuffix(" WORDS")
    assert f"contexthost tree-query {shown} --text WORDS" in commands
    assert f"contexthost relay {shown}" in commands
    pasted = f"contexthost recall {shown} needle"
    done = subprocess.run(
        ["bash", "-c", pasted], cwd="elsewhere", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), pasted
    assert "the needle is here" in done.stdout


def test_a_file_name_in_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_shell(Path("--help.jsonl")) == f"{tmp_path}/--help.jsonl"
    assert in_shell(Path("/a/b c.jsonl")) == "'/a/b c.jsonl'"
    assert in_shell(Path("/a/it's.jsonl")) == "'/a/it'\"'\"'s.jsonl'"
    assert in_shell(Path(os.fsdecode(b"/a/caf\xe9 '\\1.jsonl"))) == r"$'/a/caf\351\040\'\\1.jsonl'"
    assert in_shell(Path("/a/é\n.jsonl")) == r"$'/a/é\012.jsonl'"
