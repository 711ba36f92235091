"""``contexthost pi serve`` as a process of its own: what it greets Pi with, and that no request is left unanswered."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contexthost.pi.wire import failure_to_pi


def served(home: Path, *messages: dict[str, Any], answers: int) -> list[dict[str, Any]]:
    """So many lines that the Python side says to these messages; then its input ends, and so does it, without a word
    on standard error."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "contexthost", "pi", "serve"],
        env={**os.environ, "CONTEXTHOST_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
        process.stdin.flush()
        said = [json.loads(process.stdout.readline()) for _ in range(answers)]
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    return said


@pytest.mark.parametrize("standard_input", [os.devnull, __file__])
def test_whoever_starts_it_by_hand_gets_an_end_and_no_traceback(tmp_path: Path, standard_input: str) -> None:
    with Path(standard_input).open("rb") as given:
        run = subprocess.run(
            [sys.executable, "-m", "contexthost", "pi", "serve"],
            env={**os.environ, "CONTEXTHOST_HOME": str(tmp_path)},
            stdin=given,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


def greeting(number: int) -> dict[str, Any]:
    return {"id": number, "method": "initialize", "params": {"event": {"protocol": 1}}}


def test_what_is_wrong_in_the_settings_is_told_in_pi(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "host.json").write_text('{"contextWindow": 0}')
    (config / "masking.json").write_text('{"mask": {"nope": 1}, "apiKey": "sk-0123456789"}')
    (answer,) = served(tmp_path, greeting(1), answers=1)
    host, secret, unknown = answer["result"]["warnings"]
    assert host.startswith(f"{config / 'host.json'}: contextWindow: ")
    assert secret.startswith(f"{config / 'masking.json'}: apiKey: looks like a secret")
    assert unknown == f"{config / 'masking.json'}: mask.nope: is no known setting and is ignored"
    assert "sk-0123456789" not in json.dumps(answer)


def test_a_request_that_cannot_even_be_begun_is_answered_and_the_next_one_too(tmp_path: Path) -> None:
    start = {"id": 1, "method": "session/start", "params": {"event": {"file": "\0", "count": 1}}}
    cancel = {"method": "cancel", "params": {"event": {"id": []}}}
    refused, greeted = served(tmp_path, start, cancel, greeting(2), answers=2)
    assert (refused["id"], refused["error"]["code"]) == (1, -32603)
    assert (greeted["id"], greeted["result"]["protocol"]) == (2, 1)


def test_what_is_withdrawn_before_it_begins_leaves_no_warning_in_pi(tmp_path: Path) -> None:
    """As after a suspend, when a request and its end are read together: the last line of stderr is told as a reason."""
    ping = {"id": 2, "method": "ping", "params": {"event": {}}}
    cancel = {"method": "cancel", "params": {"event": {"id": 2, "kind": "late"}}}
    answers = served(tmp_path, greeting(1), ping, cancel, answers=2)
    assert [answer["error"]["message"] for answer in answers if answer["id"] == 2] == ["cancelled"]


def test_a_failure_is_told_in_brief_and_without_control_sequences() -> None:
    assert failure_to_pi("ValueError: \x1b[31mred\x1b]0;title\x07 end") == "ValueError: red end"
    assert failure_to_pi("x" * 3_000) == "x" * 1_999 + "…"


def by_signals(home: Path, given: int, *numbers: signal.Signals, to: Callable[[int, int], object] = os.kill) -> int:
    """What becomes of it when these come, in this order, once it has greeted; its exit code."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "contexthost", "pi", "serve"],
        env={**os.environ, "CONTEXTHOST_HOME": str(home)},
        stdin=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["result"]["protocol"] == 1
        for number in numbers:
            to(process.pid, number)
        try:
            code = process.wait(60)
        finally:
            process.kill()  # where it has not ended, or else this would wait for it for ever
        assert b"Traceback" not in process.stderr.read()
    return code


def test_signals_are_left_to_pi_but_for_the_one_that_asks_it_to_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, json.dumps({"jsonrpc": "2.0", **greeting(1)}).encode() + b"\n")
    try:  # its input stays open, as when Pi lives on
        assert by_signals(tmp_path, reading, signal.SIGINT, signal.SIGHUP, signal.SIGINT, signal.SIGTERM) == 0
    finally:
        os.close(reading)
        os.close(writing)


def all_but_the_main_thread(process: int, number: int) -> None:
    """Sends a signal to the threads that the kernel chooses from when the main one has yet to take an earlier one."""
    threads = {int(task.name) for task in Path(f"/proc/{process}/task").iterdir()} - {process}
    assert threads
    library = ctypes.CDLL(None, use_errno=True)
    taken = [library.tgkill(process, thread, number) == 0 or ctypes.get_errno() for thread in threads]
    assert True in taken
    assert set(taken) <= {True, errno.ESRCH}  # it may have begun to end by what the first of them took


@pytest.mark.skipif(sys.platform != "linux", reason="signals are sent to one thread by a call of Linux")
def test_it_ends_whichever_of_its_threads_is_given_the_signal(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, json.dumps({"jsonrpc": "2.0", **greeting(1)}).encode() + b"\n")
    try:
        assert by_signals(tmp_path, reading, signal.SIGINT, signal.SIGTERM, to=all_but_the_main_thread) == 0
    finally:
        os.close(reading)
        os.close(writing)


FORKING = """
import asyncio, os, signal
from contexthost.pi.server import _leave_signals_to_pi

async def serve():
    over = asyncio.Event()
    _leave_signals_to_pi(asyncio.get_running_loop(), over)
    ready, working = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(working, b"!")
        signal.pause()
        os._exit(1)
    os.read(ready, 1)
    os.kill(worker, signal.SIGTERM)
    ended_by = os.WTERMSIG(os.waitpid(worker, 0)[1])
    try:
        await asyncio.wait_for(over.wait(), 3)  # a second more than it takes when it is told to end
    except TimeoutError:
        print(ended_by, "alone")

asyncio.run(serve())
"""


def test_a_worker_that_a_plugin_forks_ends_by_a_signal_of_its_own_and_alone() -> None:
    run = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True)
    assert (run.stdout, run.stderr) == ("15 alone\n", "")


def test_at_a_terminal_the_user_may_interrupt_it(tmp_path: Path) -> None:
    typing, terminal = os.openpty()
    tty.setraw(terminal)
    os.write(typing, json.dumps({"jsonrpc": "2.0", **greeting(1)}).encode() + b"\n")
    try:
        assert by_signals(tmp_path, terminal, signal.SIGINT) == 130
    finally:
        os.close(terminal)
        os.close(typing)
