"""What SECURITY.md promises, as far as it concerns the whole and no other test holds it: session files as an attacker
would write them through every command, what the source can reach, what settings may hold, and who may read our files.

The last test compares SECURITY.md with the tests that it names."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from contexthost.cli import main
from contexthost.pi.install import install
from support.builder import Literal, SessionBuilder, text_block, tool_call, usage_of

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for base in ("host/src", "plugins") for path in (ROOT / base).rglob("src/**/*.py"))
SOURCES = sorted({*SOURCES, *(ROOT / "host" / "src").rglob("*.py")})
DEMO = (files("contexthost.data") / "demo.jsonl").read_bytes()
SECONDS = 5.0  # of processor time, for one command on one hostile file


class World:
    """Directories of our own, and a record of what a command reaches for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.outside = root / "outside"
        self.programs: list[list[str]] = []
        self.connections: list[Any] = []

    def session(self, content: bytes, name: str = "s.jsonl") -> Path:
        directory = self.root / "work"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        path = directory / name
        path.write_bytes(content)
        return path

    def files_outside(self) -> dict[str, bytes]:
        """Everything below the root but our own directories and the session's."""
        inside = (self.home, self.root / "work")
        found = [path for path in self.root.rglob("*") if path.is_file() and not any(map(path.is_relative_to, inside))]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    made.outside.mkdir()
    (made.outside / "x").write_text("not ours")
    monkeypatch.setenv("CONTEXTHOST_HOME", str(made.home))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "pi"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(made.outside)
    started = subprocess.Popen.__init__

    def record(self: Any, arguments: Any, *more: Any, **options: Any) -> None:
        assert not options.get("shell")
        made.programs.append([os.fsdecode(argument) for argument in arguments])
        started(self, arguments, *more, **options)

    def refuse(self: socket.socket, address: Any) -> None:
        made.connections.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(subprocess.Popen, "__init__", record)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return made


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """Exit status, and everything that was printed."""
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert isinstance(exit.value.code, int)
    return exit.value.code, out + err


READING = [
    ["context"],
    ["context", "--json"],
    ["inspect", "--json"],
    ["doctor"],
    ["doctor", "--json"],
    ["doctor", "--repair", "--yes", "--dry-run"],
    ["doctor", "--rescue", "new.jsonl", "--dry-run"],
    ["compact", "--dry-run"],
    ["mask", "--dry-run", "--context-window", "1000"],
    ["mask", "--json", "--dry-run"],
    ["relay", "--dry-run"],
    ["recall", "word"],
    ["recall", "word", "--lineage"],
    ["recall", "--entry", "../../outside/x"],
    ["tree-query", "--text", "word"],
    ["tree-query", "--path", "../../outside/x"],
    ["status"],
    ["codex", "status"],
    ["jev", "plan"],
    ["run", "/compaction-status"],
    ["tool", "recall", '{"query": "word"}'],
]
WRITING = [["mask", "--context-window", "1000"], ["relay"], ["doctor", "--repair", "--yes"]]


def arguments(command: list[str], path: Path) -> list[str | Path]:
    """The command with the session where it belongs: behind the name, or behind a group's."""
    words = 2 if command[0] in ("codex", "jev") else 1
    return [*command[:words], path, *command[words:]]


def check(capsys: pytest.CaptureFixture[str], command: list[str], path: Path) -> None:
    """Ends in time, however busy the machine is, with a status of ours, and prints nothing that a terminal obeys."""
    began = time.process_time()
    status, shown = run(capsys, *arguments(command, path))
    assert time.process_time() - began < SECONDS, command
    assert status in (0, 1), (command, shown)
    assert "Traceback" not in shown, command
    told = {character for character in shown if character not in "\n\t" and not character.isprintable()}
    assert told == set(), (command, told)


NASTY = "word \x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\x00\x08;touch owned;$(touch owned)`touch owned`\ud800"
NAMES = [
    "../../outside/x",
    "--upload-pack=touch owned",
    "-c",
    "/etc/passwd",
    "$(touch owned)",
    "a\x00b",
    "",
    "__proto__",
]


def named() -> SessionBuilder:
    """Names and texts that are to get out of where they belong: ids, tools, paths, models, labels."""
    build = SessionBuilder(
        cwd="--exec-path=../../outside", header={"id": "../../outside/x", "parentSession": "../../outside/x"}
    )
    build.session_info(NASTY)
    build.model_change("../../outside", NASTY)
    for number, name in enumerate(NAMES):
        build.user(f"{NASTY} {name} in /worktrees/{name} and {os.fspath(ROOT)}/worktrees/--evil")
        call = f"../../outside/{name}{number}"
        build.assistant(NASTY, calls=[tool_call(call, NASTY + name, {"path": name, "command": NASTY})])
        build.tool_result(call, f"{NASTY}\n" * 200, tool=NASTY + name)
        target = build.assistant("done", usage=usage_of(90_000 + number))
        build.label(target, NASTY)
    build.custom("../../outside/x", {"name": NASTY})
    build.entry("message", id="../../outside/x", message={"role": "user", "content": NASTY})
    build.edit("../../outside/x", {"content": NASTY})
    return build


def numbers() -> SessionBuilder:
    """Numbers that no machine has, wherever a number is read."""
    build = SessionBuilder(header={"version": 3})
    for digits in (b"1e400", b"-1e400", b"9" * 5_000, b"1e-400", b"-0", b"123456789012345678901234567890"):
        value = Literal(digits)
        build.assistant("word", usage={"input": value, "output": value, "totalTokens": value, "cost": {"total": value}})
        build.entry("message", message={"role": "user", "content": "word", "timestamp": value})
        build.entry("compaction", summary="word", firstKeptEntryId=build.id_at(1), tokensBefore=value)
        build.entry("usage", kind="cache_warm", usage={"input": value})
        build.assistant("word", calls=[tool_call(f"n{len(build.lines)}", "read", {"offset": value})])
    return build


def shapes() -> SessionBuilder:
    """Values of other kinds than the format has, for every field that is read."""
    build = SessionBuilder()
    values: list[Any] = [None, True, 7, "text", [], [[]], {}, [None, 7, {"type": None}], {"content": {"content": 7}}]
    for value in values:
        for type_ in (
            "message",
            "compaction",
            "context_edit",
            "custom_message",
            "label",
            "session_info",
            "model_change",
        ):
            fields: dict[str, Any] = {
                "message": value,
                "summary": value,
                "firstKeptEntryId": value,
                "targetId": value,
                "content": value,
            }
            build.entry(type_, **fields, replacement=value, label=value, name=value, provider=value, tokensBefore=value)
        for role in ("user", "assistant", "toolResult", "system", "bashExecution"):
            message = {"role": role, "content": value, "toolCallId": value, "toolName": value, "usage": value}
            build.entry("message", message={**message, "stopReason": value, "command": value, "output": value})
        build.assistant("word", calls=[{"type": "toolCall", "id": value, "name": value, "arguments": value}])
        build.user([text_block("word"), {"type": "image", "data": value, "mimeType": value}])
        build.entry(value)
        build.entry("custom", customType=value, data=value)
    return build


def deep() -> SessionBuilder:
    """Nesting beyond any stack, in what an entry and a header may hold."""
    build = SessionBuilder()
    for depth in (900, 5_000, 8_000):
        nested = Literal(b"[" * depth + b"]" * depth)
        build.assistant("word", calls=[tool_call(f"d{depth}", "read", {"path": nested})])
        build.tool_result(f"d{depth}", "word", tool="read")
        build.entry("message", message={"role": "user", "content": nested})
        build.custom("word", Literal(b'{"a":' * depth + b"1" + b"}" * depth))
    build.raw(b"[" * 200_000)
    return build


def keys(number: int) -> Literal:
    return Literal(b"{" + b",".join(b'"k%d":0' % one for one in range(number)) + b"}")


def wide() -> SessionBuilder:
    """An entry with a million keys, and a call whose arguments, which are counted as tokens, have 50,000."""
    build = SessionBuilder()
    build.user("word")
    build.custom("word", keys(1_000_000))
    build.assistant("word", calls=[tool_call("w", "read", {"path": keys(50_000)})])
    build.tool_result("w", "word " * 1000, tool="read")
    build.assistant("done", usage=usage_of(90_000))
    return build


HOSTILE = {"names": named, "numbers": numbers, "shapes": shapes, "depth": deep}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_session_is_read_by_every_command_and_changed_by_none(
    kind: str, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    content = HOSTILE[kind]().bytes()
    path, before = world.session(content), world.files_outside()
    for command in READING:
        check(capsys, command, path)
        assert path.read_bytes() == content, command
    assert world.files_outside() == before
    assert [found.name for found in path.parent.iterdir()] == ["s.jsonl"]
    assert world.connections == []
    assert world.programs == []


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_writes_to_a_hostile_session_only_appends_and_writes_nowhere_else(
    kind: str, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    content = HOSTILE[kind]().bytes()
    before, grown = world.files_outside(), set()
    for command in WRITING:
        path = world.session(content)
        check(capsys, command, path)
        assert path.read_bytes().startswith(content), command
        grown |= {command[0]} if path.stat().st_size > len(content) else set()
        assert [found.name for found in path.parent.iterdir()] == ["s.jsonl"], command
    assert kind != "names" or grown == {"mask", "relay"}
    check(capsys, ["doctor", "--rescue", str(path.with_name("new.jsonl"))], path)
    check(capsys, ["context", "--html", str(path.with_name("page.html"))], path)
    assert world.files_outside() == before
    assert world.connections == []
    assert world.programs == []


def test_a_million_keys_are_borne(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    path = world.session(wide().bytes())
    for command in (["context"], ["inspect", "--json"], ["doctor"], ["relay", "--dry-run"], ["mask"]):
        check(capsys, command, path)


def test_a_hostile_session_among_pis_is_listed_and_found(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    directory = world.root / "pi" / "sessions" / "--x--"
    directory.mkdir(parents=True)
    (directory / "a_named.jsonl").write_bytes(named().bytes())
    (directory / "b_deep.jsonl").write_bytes(b'{"type":"session","id":' + b"[" * 100_000 + b"\n")
    status, shown = run(capsys, "sessions")
    assert status == 0
    assert all(character == "\n" or character.isprintable() for character in shown)
    assert run(capsys, "sessions", "--json")[0] == 0


def test_only_directories_of_a_session_reach_git_and_never_as_an_option(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relay is the one that starts a program on behalf of a session; its arguments are constants but for ``-C``."""
    project = world.root / "work; touch owned" / "--evil"
    project.mkdir(parents=True)
    build = named()
    build.header["cwd"] = str(project)
    check(capsys, ["relay", "--dry-run"], world.session(build.bytes()))
    if shutil.which("git") is None:
        assert world.programs == []
        return
    assert world.programs != []
    for git, *options in world.programs:
        assert Path(git).is_absolute()
        place = options.index("-C")
        assert Path(options.pop(place + 1)).is_absolute()
        assert [word for word in options if "touch" in word or "evil" in word or "outside" in word] == []
    assert not (world.outside / "owned").exists()


# What the source can reach -------------------------------------------------------------------------------------------


def called(tree: ast.AST) -> set[str]:
    """What a module calls, as it is written there."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module if node.module == "urllib.parse" else node.module.partition(".")[0])
    return found


def test_programs_are_started_in_three_places_without_a_shell_and_requests_made_in_four() -> None:
    starters, clients = set(), set()
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = called(tree)
        evil = r"(os\.(system|popen|exec\w+|spawn\w+|startfile)|.*create_subprocess_shell|subprocess\.get.*|eval|exec)"
        assert [name for name in names if re.fullmatch(evil, name)] == [], path
        keywords = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
        assert "shell" not in keywords, path
        assert imported(tree) & {"pickle", "marshal", "shelve", "yaml", "urllib", "http", "ftplib", "smtplib"} == set()
        if "asyncio.create_subprocess_exec" in names or "subprocess" in imported(tree):
            starters.add(path.relative_to(ROOT).as_posix())
        if imported(tree) & {"httpx", "httpx_sse", "socket", "ssl"}:
            clients.add(path.relative_to(ROOT).as_posix())
    assert starters == {
        "host/src/contexthost/credentials.py",
        "host/src/contexthost/pi/greeting.py",
        "plugins/relay/src/contexthost_relay/gitlog.py",
    }
    assert clients == {
        "host/src/contexthost/models/retry.py",
        "host/src/contexthost/models/transport.py",
        "plugins/codex_native/src/contexthost_codex_native/stream.py",
        "plugins/jev/src/contexthost_jev/client.py",
    }


def test_the_extension_starts_one_program_without_a_shell_and_asks_nobody() -> None:
    text = (ROOT / "host" / "src" / "contexthost" / "pi" / "extension.ts").read_text(encoding="utf-8")
    assert re.findall(r"\b(spawn|exec|execFile|fork|spawnSync|execSync)\(", text) == ["spawn"]
    assert re.findall(r"\bspawn\((.*)\{", text) == ["command[0], command.slice(1), "]
    assert re.findall(r"\b(shell|fetch\(|eval\(|https?://|node:(?:net|http|https|tls|dgram))", text) == []


def test_pi_starts_python_so_that_nothing_of_the_project_is_imported(world: World) -> None:
    text = install(world.root / "pi").read_text(encoding="utf-8")
    (line,) = re.findall(r"^  command: (.*),$", text, re.M)
    assert json.loads(line) == [sys.executable, "-P", "-m", "contexthost", "pi", "serve"]


# Settings and files --------------------------------------------------------------------------------------------------


def test_a_secret_in_any_settings_file_is_never_shown(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    config = world.home / "config"
    config.mkdir(parents=True)
    packages = sorted(json.loads(capture(capsys, "config", "show", "--json")))
    assert {"host", "jev", "masking", "relay"} <= set(packages)
    secret = "sk-live-0123456789"
    for package in packages:
        content = {"apiKey": secret, "token": secret, "deep": {"password": secret}, "Authorization": f"Bearer {secret}"}
        (config / f"{package}.json").write_text(json.dumps(content))
    path = world.session(DEMO)
    commands: list[list[str | Path]] = [["doctor"], ["doctor", "--json"], ["config", "show"], ["plugins"]]
    commands += [["config", "show", "--json"], ["mask", path], ["jev", "status"], ["codex", "status", path]]
    shown = {" ".join(map(str, command[:2])): run(capsys, *command)[1] for command in commands}
    assert [name for name, text in shown.items() if secret in text] == []
    for package in packages:
        assert shown["doctor"].count(f"{package}.json: apiKey: looks like a secret and is ignored") == 1
    kept = [found for found in world.root.rglob("*") if found.is_file() and secret.encode() in found.read_bytes()]
    assert sorted(found.name for found in kept) == sorted(f"{package}.json" for package in packages)


def capture(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status, shown = run(capsys, *words)
    assert status == 0
    return shown


WITHOUT_A_MASK = """
import json, os, sys
from contexthost.cli import main

os.umask(0)
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as end:
        assert end.code in (0, 1), command
"""


def test_whatever_is_written_is_for_the_owner_alone(tmp_path: Path) -> None:
    """Even where the user's mask would let everybody read and write."""
    session = tmp_path / "s.jsonl"
    session.write_bytes(DEMO)
    environment = {
        **os.environ,
        "CONTEXTHOST_HOME": str(tmp_path / "home"),
        "PI_CODING_AGENT_DIR": str(tmp_path / "pi"),
    }
    commands = [
        ["config", "init"],
        ["relay", str(session)],
        ["mask", str(session)],
        ["doctor", str(session), "--rescue", str(tmp_path / "new.jsonl")],
        ["pi", "install"],
        ["pi", "serve"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_MASK, json.dumps(commands)],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = list((tmp_path / "home").rglob("*"))
    names = {path.name for path in written if path.is_file()}
    assert {"host.json", "pi-bridge.log", "1.md", "log.jsonl"} <= names
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [*written, tmp_path / "new.jsonl"] if path.exists()}
    assert {str(path): oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}
    assert stat.S_IMODE((tmp_path / "pi" / "extensions" / "contexthost.ts").stat().st_mode) == 0o600


# The page ------------------------------------------------------------------------------------------------------------


def test_every_promise_names_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promised = text.partition("## What is promised")[2].partition("\n## ")[0]
    promises = re.split(r"^- ", promised, flags=re.M)[1:]
    assert len(promises) >= 10
    for promise in promises:
        named_tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", promise)
        assert named_tests, promise
        for file, name in named_tests:
            assert name, promise
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name
