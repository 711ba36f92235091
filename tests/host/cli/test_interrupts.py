"""Ctrl-C, at moments that are held still: while modules are imported and at the very end the command just ends, with
status 130; in between it says that it was aborted. Real processes, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

SCRIPT = (str(Path(sys.executable).with_name("contexthost")),)
MODULE = (sys.executable, "-m", "contexthost")

# Python imports this before anything of ours. Where it is told to it says so, and waits until its input ends.
HOLD = """
import atexit, os, sys

def hold():
    os.write(3, b".")
    os.read(0, 1)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["HOLD_AT"]:
            sys.meta_path.remove(self)
            hold()

sys.meta_path.insert(0, Finder())
if os.environ["HOLD_AT"] == "the end":
    atexit.register(hold)
"""


def interrupted(
    tmp_path: Path, at: str, command: tuple[str, ...], *, before: Callable[[], object] | None = None
) -> tuple[int, str, str]:
    """Status, output and errors of a command that gets SIGINT when it is about to import that module."""
    (tmp_path / "sitecustomize.py").write_text(HOLD)
    read, write = os.pipe()
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$0" "$@" 3>&{write} {write}>&-', *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[write],
        preexec_fn=before,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "HOLD_AT": at,
            "CONTEXTHOST_HOME": str(tmp_path / "home"),
            "PI_CODING_AGENT_DIR": str(tmp_path / "pi"),
        },
    )
    os.close(write)
    try:
        assert os.read(read, 1) == b".", f"{at} is not imported"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)  # which ends its input
    finally:
        os.close(read)
        process.kill()
    return process.returncode, out, err


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    path = tmp_path / "demo.jsonl"
    path.write_bytes((files("contexthost.data") / "demo.jsonl").read_bytes())
    return path


@pytest.mark.parametrize("started", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize("at", ["contexthost.cli", "click", "contexthost.errors", "contexthost.cli.progress"])
def test_while_the_command_line_is_imported(tmp_path: Path, started: tuple[str, ...], at: str) -> None:
    assert interrupted(tmp_path, at, (*started, "--version")) == (130, "", "")


@pytest.mark.parametrize(
    "at", ["contexthost.cli.context", "rich.console", "contexthost.projection.breakdown", "contexthost.config"]
)
def test_while_a_command_is_imported(tmp_path: Path, demo: Path, at: str) -> None:
    assert interrupted(tmp_path, at, (*SCRIPT, "context", str(demo))) == (130, "", "")


def test_while_a_plugins_command_is_imported(tmp_path: Path, demo: Path) -> None:
    assert interrupted(tmp_path, "contexthost_masking.cli", (*SCRIPT, "mask", str(demo))) == (130, "", "")


def test_a_command_that_has_begun_can_clean_up_and_says_so(tmp_path: Path, demo: Path) -> None:
    assert interrupted(tmp_path, "tiktoken", (*SCRIPT, "context", str(demo))) == (130, "", "\nAborted.\n")


def test_at_the_end_what_was_printed_stands(tmp_path: Path) -> None:
    status, out, err = interrupted(tmp_path, "the end", (*SCRIPT, "--version"))
    assert (status, err) == (130, "")
    assert out.startswith("contexthost ")


def test_a_process_that_ignores_ctrl_c_goes_on(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    status, out, err = interrupted(tmp_path, "click", (*SCRIPT, "--version"), before=ignore)
    assert (status, err) == (0, "")
    assert out.startswith("contexthost ")


def test_next_to_nothing_is_imported_before() -> None:
    code = "import sys; before = set(sys.modules); import contexthost._interrupt; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__future__", "_signal", "contexthost", "contexthost._interrupt"}
