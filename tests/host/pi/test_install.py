"""``contexthost pi install``, ``uninstall``, ``status``: one file is written, just that removed, its state told; by
``contexthost doctor``, too. The commands run in this process: a start of their own would be most of the time."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contexthost.cli import main
from contexthost.pi.greeting import greet
from support.live_pi import PiHome
from support.model_server import ModelServer


class HomeInside(PiHome):
    """The command line runs in this process, with the environment that it would have in its own."""

    capture: pytest.CaptureFixture[str]

    def install(self) -> Path:
        return self.install_anew()

    def contexthost(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        self.capture.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        done = subprocess.CompletedProcess(arguments, int(ended.value.code or 0), *self.capture.readouterr())
        if check:
            done.check_returncode()
        return done


@pytest.fixture
def pi_home_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[PiHome]:
    with ModelServer() as server:
        home = HomeInside(tmp_path, server)
        home.capture = capsys
        for name, value in home.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.syspath_prepend(home.packages)
        monkeypatch.delitem(sys.modules, "contexthost_probe", raising=False)  # the one of another test
        yield home


def test_install_and_uninstall_leave_no_trace(pi_home_dir: PiHome) -> None:
    before = {path.relative_to(pi_home_dir.agent) for path in pi_home_dir.agent.rglob("*")}
    path = pi_home_dir.install()
    assert "Wrote" in pi_home_dir.contexthost("pi", "install").stdout  # again: refreshes it
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"Removed {path}." in pi_home_dir.contexthost("pi", "uninstall").stdout
    after = {path.relative_to(pi_home_dir.agent) for path in pi_home_dir.agent.rglob("*")}
    assert after - before == {Path("extensions")}  # Pi's own directory, which others may be using by now
    assert "not installed" in pi_home_dir.contexthost("pi", "uninstall").stdout


def test_a_file_of_somebody_else_or_an_edited_one_is_left_alone(pi_home_dir: PiHome) -> None:
    path = pi_home_dir.install()
    edited = path.read_text() + "// mine\n"
    for text in (edited, "export default function () {}\n"):
        path.write_text(text)
        for verb in ("install", "uninstall"):
            run = pi_home_dir.contexthost("pi", verb, check=False)
            assert (run.returncode, path.read_text()) == (1, text)
            assert "was not written by `contexthost pi install`, or was edited since; --force" in run.stderr
    pi_home_dir.contexthost("pi", "uninstall", "--force")
    assert not path.exists()


def test_status_says_whether_it_is_there_current_and_answered(pi_home_dir: PiHome) -> None:
    run = pi_home_dir.contexthost("pi", "status", check=False)
    assert (run.returncode, run.stdout) == (1, "Not installed: `contexthost pi install` puts it into Pi.\n")

    path = pi_home_dir.install()
    (path.parent / "other.ts").write_text('pi.on("session_before_compact", () => {});')
    status = json.loads(pi_home_dir.contexthost("pi", "status", "--json").stdout)
    assert (status["installed"], status["intact"], status["current"], status["answers"]) == (True, True, True, True)
    assert status["otherCompactors"] == [str(path.parent / "other.ts")]

    pi_home_dir.probe()  # a plugin with a tool and a command, installed later
    run = pi_home_dir.contexthost("pi", "status", check=False)
    assert run.returncode == 1
    assert run.stdout.splitlines()[2:4] == [
        f"interpreter  {sys.executable}",
        "manifest     out of date: run `contexthost pi install` again",
    ]

    path.write_text(path.read_text().replace('"-m", "contexthost"', '"-m", "no_such_module"'))
    run = pi_home_dir.contexthost("pi", "status", check=False)
    assert "does not answer: " in run.stdout
    assert "No module named no_such_module" in run.stdout
    assert "edited since it was written" in run.stdout
    assert "manifest     not known: the Python side does not answer" in run.stdout


def test_status_asks_the_python_that_pi_starts_and_not_the_one_that_asks(
    pi_home_dir: PiHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pi_home_dir.install()
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")  # of another environment
    monkeypatch.setattr("contexthost.pi.install._text", lambda: "what that one would write")
    run = pi_home_dir.contexthost("pi", "status")
    (pi, manifest) = run.stdout.splitlines()[2:4]
    (python,) = json.loads(re.findall("^  command: (.*),$", path.read_text(), flags=re.M)[0])[:1]
    assert pi == f"interpreter  {python}; `contexthost pi install` from here moves Pi to /elsewhere/bin/python"
    assert (run.returncode, manifest) == (0, "manifest     the tools and commands of the plugins installed now")

    pi_home_dir.probe()  # a tool and a command more, for that Python
    status = json.loads(pi_home_dir.contexthost("pi", "status", "--json", check=False).stdout)
    assert (status["answers"], status["current"]) == (True, False)

    # It greets as this file does: a version that does not speak with it is told by the Python of the file.
    path.write_text(path.read_text().replace("const PROTOCOL = 1;", "const PROTOCOL = 7;"))
    status = json.loads(pi_home_dir.contexthost("pi", "status", "--json", check=False).stdout)
    assert (status["answers"], status["current"]) == (False, None)
    assert status["problem"].startswith("Pi's extension speaks protocol 7, contexthost ")


def test_the_time_for_the_start_is_written_into_the_extension_and_status_says_when_it_is_another(
    pi_home_dir: PiHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pi must know it before Python answers; asked of this Python as of another one."""
    path = pi_home_dir.install()
    assert "\n  startSeconds: 10.0,\n" in path.read_text()
    pi_home_dir.host_settings(pi={"startSeconds": 25})
    outdated = "manifest     out of date: run `contexthost pi install` again"
    assert pi_home_dir.contexthost("pi", "status", check=False).stdout.splitlines()[3] == outdated
    pi_home_dir.install()
    assert "\n  startSeconds: 25.0,\n" in path.read_text()
    current = "manifest     the tools and commands of the plugins installed now"
    assert pi_home_dir.contexthost("pi", "status").stdout.splitlines()[3] == current

    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")  # Pi starts the one that installed
    pi_home_dir.host_settings(pi={"startSeconds": 0.5})
    assert pi_home_dir.contexthost("pi", "status", check=False).stdout.splitlines()[3] == outdated


def test_status_starts_python_as_the_extension_does_whatever_the_environment_says(
    pi_home_dir: PiHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    pi_home_dir.install()
    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # Python does not start with it
    monkeypatch.setenv("PYTHONPATH", f":src:{pi_home_dir.packages}:.")
    monkeypatch.chdir(pi_home_dir.project)
    (pi_home_dir.project / "platformdirs.py").write_text("open('EXECUTED', 'w').close()\n")
    assert json.loads(pi_home_dir.contexthost("pi", "status", "--json").stdout)["answers"] is True
    assert not (pi_home_dir.project / "EXECUTED").exists()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ([1], "1 cannot be started"),
        (["a\0b"], "cannot be started: embedded null byte"),
        (["echo", "1"], "no answer"),
        (["echo", '{"id": 1, "error": {"code": 5, "message": "five"}}'], "five"),
        (["echo", '{"id": 2, "result": {}}'], "no answer"),
        (["yes", "{}"], "no answer among the first 1000 lines"),
        (["head", "-c", "9000000", "/dev/zero"], "Separator is not found"),
    ],
)
def test_status_says_what_is_wrong_whatever_the_extension_starts(
    pi_home_dir: PiHome, command: list[Any], why: str
) -> None:
    path = pi_home_dir.install()
    path.write_text(
        re.sub("^  command: .*,$", lambda _: f"  command: {json.dumps(command)},", path.read_text(), flags=re.M)
    )
    run = pi_home_dir.contexthost("pi", "status", check=False)
    assert (run.returncode, run.stderr) == (1, "")
    assert re.search(f"^Python side  does not answer: .*{why}", run.stdout, re.M)


BROKEN = """
import sys
from contexthost import Command, hookimpl

async def handler(arguments, ctx): ...

print("x" * 200_000, file=sys.stderr)  # more than a pipe holds

@hookimpl
def register_tools():
    raise OSError("no tools today")

@hookimpl
def register_commands():
    return [Command(name="", description="", handler=handler), Command(name="good", description="", handler=handler)]
"""


def test_a_plugin_that_fails_is_told_of_and_the_python_side_answers(pi_home_dir: PiHome) -> None:
    """What the Python side tells before its answer is not taken for the answer, and however much a plugin prints, it
    gets to one; `pi install` names the plugin, too, and writes what is left of it."""
    pi_home_dir.plugin(BROKEN, "broken")
    told = [
        "plugin broken, hook register_tools: OSError: no tools today",
        "plugin broken, hook register_commands: Command '': the name is empty",
    ]
    assert pi_home_dir.contexthost("pi", "install").stderr.splitlines()[-2:] == [f"warning: {text}" for text in told]
    run = pi_home_dir.contexthost("pi", "status")
    assert run.stdout.splitlines()[3:7] == [
        "manifest     the tools and commands of the plugins installed now",
        "Python side  answers",
        *(f"it tells     contexthost: {text}" for text in told),
    ]
    status = json.loads(pi_home_dir.contexthost("pi", "status", "--json").stdout)
    assert (status["answers"], status["problem"]) == (True, None)
    assert status["told"] == [f"contexthost: {text}" for text in told]
    _, checks = bridge_checks(pi_home_dir)
    assert checks[1:] == [("ok", "its Python side answers"), *(("warning", f"contexthost: {text}") for text in told)]

    path = pi_home_dir.agent / "extensions" / "contexthost.ts"
    names = [command["name"] for command in json.loads(re.findall("^  commands: (.*),$", path.read_text(), re.M)[0])]
    assert "good" in names
    assert "" not in names


def test_status_does_not_wait_for_what_a_plugin_leaves_running(pi_home_dir: PiHome) -> None:
    """A program in the background has the standard error of the Python side, and goes on when that has ended."""
    pid = pi_home_dir.root / "pid"
    pi_home_dir.install()
    pi_home_dir.plugin(
        f"""
        import subprocess, sys
        if "serve" in sys.argv:
            open({str(pid)!r}, "w").write(str(subprocess.Popen(["sleep", "600"]).pid))
        """,
        "leaving",
    )
    try:
        run = pi_home_dir.contexthost("pi", "status")
        assert (run.returncode, run.stderr) == (0, "")
        assert "Python side  answers\n" in run.stdout
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)  # it is still there


def test_looking_whether_python_answers_leaves_no_complaint_of_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    """`pi status` printed "Unknown child process pid …" now and then: the process had just ended by itself."""
    answer = '{"jsonrpc": "2.0", "id": 1, "result": {}}'
    program = f"import sys; sys.stdin.readline(); print({answer!r}, flush=True); sys.stdin.read()"
    command = [sys.executable, "-I", "-S", "-c", program]
    for _ in range(30):  # which of the two notices the end first is chance
        assert asyncio.run(greet(command, 1)).problem is None
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_a_plugin_that_cannot_be_imported_is_told_of_by_status(pi_home_dir: PiHome) -> None:
    """It is what the Python side answers the greeting with, and what Pi would show."""
    pi_home_dir.install()
    pi_home_dir.plugin("import no_such_thing", "gone")
    (told,) = json.loads(pi_home_dir.contexthost("pi", "status", "--json").stdout)["told"]
    assert "gone" in told
    assert "no_such_thing" in told


def test_what_is_no_file_is_never_waited_for(pi_home_dir: PiHome) -> None:
    extensions = pi_home_dir.agent / "extensions"
    extensions.mkdir()
    os.mkfifo(extensions / "pipe.ts")
    path = pi_home_dir.install()  # which looks for other compactors, too
    path.unlink()
    os.mkfifo(path)
    for verb in ("install", "status", "uninstall"):
        run = pi_home_dir.contexthost("pi", verb, check=False)
        assert (run.returncode, run.stderr) == (1, f"Error: {path} cannot be read: it is not a file\n")
    assert path.is_fifo()


def bridge_checks(home: PiHome) -> tuple[int, list[tuple[str, str]]]:
    """What doctor says of the bridge: its exit status, and each state with its text."""
    run = home.contexthost("doctor", "--json", check=False)
    checks = [check for check in json.loads(run.stdout) if check["what"] == "Pi bridge"]
    assert all(sorted(check) == ["state", "text", "what"] for check in checks)
    return run.returncode, [(check["state"], check["text"]) for check in checks]


def test_doctor_looks_at_the_bridge_too(pi_home_dir: PiHome) -> None:
    nothing = [("ok", "not installed; `contexthost pi install` puts it into Pi")]
    assert bridge_checks(pi_home_dir) == (0, nothing)

    path = pi_home_dir.install()
    version = importlib.metadata.version("contexthost")
    answers = ("ok", "its Python side answers")
    assert bridge_checks(pi_home_dir) == (0, [("ok", f"{path}, version {version}"), answers])

    (path.parent / "other.ts").write_text('pi.on("session_before_compact", () => {});')
    pi_home_dir.probe()  # a plugin with a tool and a command, installed later: it works, but without them
    status, (first, second, third) = bridge_checks(pi_home_dir)
    assert (status, first[0], second, third[0]) == (0, "warning", answers, "warning")
    assert first[1].endswith("is out of date: run `contexthost pi install` again")
    assert third[1].startswith(f"{path.parent / 'other.ts'} takes part in compactions too")
    (path.parent / "other.ts").unlink()

    path.write_text(path.read_text().replace('"-m", "contexthost"', '"-m", "no_such_module"'))
    status, (first, second) = bridge_checks(pi_home_dir)
    assert (status, first[0], second[0]) == (1, "warning", "problem")
    assert "was edited" in first[1]
    assert "No module named no_such_module" in second[1]

    path.unlink()
    path.mkdir()  # cannot be read, whoever asks
    status, ((state, text),) = bridge_checks(pi_home_dir)
    assert (status, state) == (1, "problem")
    assert "cannot be read" in text


def test_doctor_goes_on_where_directories_may_not_be_looked_into(
    pi_home_dir: PiHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a command under sudo has made, for one. Here the system refuses a name, which it does for root too."""
    too_long = str(pi_home_dir.root / ("x" * 300))
    monkeypatch.setenv("CONTEXTHOST_HOME", too_long)
    monkeypatch.setenv("PI_CODING_AGENT_DIR", too_long)
    run = pi_home_dir.contexthost("doctor", "--json", check=False)
    assert (run.returncode, run.stderr) == (1, "")
    found = {check["what"]: check["state"] for check in json.loads(run.stdout) if "File name too long" in check["text"]}
    assert found.items() >= {
        "state directory": "problem", "data directory": "problem", "Pi sessions": "problem", "Pi bridge": "problem"
    }.items()  # fmt: skip
    assert {"python", "vocabulary", "settings host"} <= {check["what"] for check in json.loads(run.stdout)}


def test_other_compactors_are_found_where_pi_loads_extensions_from(
    pi_home_dir: PiHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    extensions = pi_home_dir.agent / "extensions"
    listens = 'export default (pi) => { pi.on("session_before_compact", () => {}) }'
    package = extensions / "pkg"
    (package / "src").mkdir(parents=True)
    (package / "src" / "main.ts").write_text(listens)
    (package / "package.json").write_text('{"pi": {"extensions": ["./src/main.ts", "./gone.ts", "a\\u0000b"]}}')
    for name, content in {
        "odd": "[]", "broken": "{", "deep": "[" * 100_000, "mixed": '{"pi": {"extensions": ["./main.ts", 7]}}',
    }.items():  # fmt: skip
        (extensions / name).mkdir()
        (extensions / name / "package.json").write_text(content)
        (extensions / name / "main.ts").write_text(listens)  # which Pi does not load
    os.mkfifo(extensions / "pipe.ts")  # would be waited for
    project = pi_home_dir.project / ".pi" / "extensions"
    project.mkdir(parents=True)
    (project / "own.js").write_text(listens)
    (project / "harmless.ts").write_text("export default () => {}")
    monkeypatch.chdir(pi_home_dir.project)
    found = pi_home_dir.contexthost("pi", "status", "--json", check=False)
    assert json.loads(found.stdout)["otherCompactors"] == sorted(
        [str(package / "./src/main.ts"), str(project / "own.js")]
    )


def test_uninstall_removes_what_install_wrote_through_a_link(pi_home_dir: PiHome) -> None:
    kept = pi_home_dir.root / "dotfiles.ts"
    link = pi_home_dir.agent / "extensions" / "contexthost.ts"
    link.parent.mkdir()
    link.symlink_to(kept)
    assert pi_home_dir.install().is_symlink()
    assert kept.is_file()
    pi_home_dir.contexthost("pi", "uninstall")
    assert not link.is_symlink()
    assert not kept.exists()


def test_an_empty_directory_is_a_mistake_and_not_the_current_one(pi_home_dir: PiHome) -> None:
    done = pi_home_dir.contexthost("pi", "install", "--agent-dir", "", check=False)
    assert done.returncode == 2
    assert "it is empty: name Pi's directory, or leave the option out" in done.stderr
