"""Runs commands of contexthost in processes of their own, each forked from this one (which has imported everything),
and gets in their way as an order says.

An order: ``arguments`` (of the command line, or the name of one of `OPERATIONS` and a path), ``home``, ``agent``,
``cwd``, ``stdin``; and the fault: ``watch`` (functions, ``module:qualified.name``), ``die_at`` (kill before the n-th
line that runs in these, from 1), ``file_limit`` (no file grows past so many bytes; ``limit_kills``: the kernel ends the
process in the middle of the write), ``kill_after`` (seconds), ``user`` (become that user, if this is root), ``clock``
(seconds to add to the time).
The answer: ``ended`` (the exit status, negative for a signal), ``output``, ``errors``, and, unless it was killed,
``lines`` (that ran in the watched functions) and ``passed`` (those of them that ran).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import importlib
import io
import json
import os
import pkgutil
import resource
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

from contexthost.cli import main as command_line
from contexthost.drivers.file import open_file
from contexthost_codex_native.memory import Memory

PACKAGES: Final = (
    "contexthost", "contexthost_codex_native", "contexthost_jev", "contexthost_masking", "contexthost_relay",
)  # fmt: skip


async def _remember_gateway(path: str) -> None:
    """A gateway cannot compact, which the plugin remembers."""
    async with open_file(Path(path), owner="the campaign") as runtime:
        ctx = runtime.context("codex_native")
        Memory.of(ctx).cannot_compact(ctx, f"{os.getpid():x}", "404: no such route")


async def _drop_note(path: str) -> None:
    """A relay whose compaction was refused: its note goes again."""
    from contexthost_relay.files import note_path, remove_note, write_note_file

    async with open_file(Path(path), owner="the campaign") as runtime:
        note = note_path(runtime.context("relay").data_dir, runtime.session.id, 1)
        write_note_file(note, "# Relay note 1\n")
        remove_note(note)


OPERATIONS: Final[dict[str, Callable[[str], Any]]] = {"remember-gateway": _remember_gateway, "drop-note": _drop_note}


class Watch:
    """Counts the lines that run in some functions, and kills the process at one of them."""

    def __init__(self, functions: list[str], die_at: int | None) -> None:
        self._functions = set(functions)
        self._known: dict[CodeType, str | None] = {}
        self._die_at = die_at
        self.lines = 0
        self.passed: set[str] = set()

    def start(self) -> None:
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in self._known:
            name = f"{frame.f_globals.get('__name__')}:{code.co_qualname}"
            self._known[code] = name if name in self._functions else None
        name_or_none = self._known[code]
        if name_or_none is None:
            return None
        self.passed.add(name_or_none)
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self._die_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


def shift_clock(seconds: float) -> None:
    """Sets the time that the product reads: `time.time`, `time.time_ns`, and ``datetime`` in every module of it."""
    real, real_ns = time.time, time.time_ns

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.fromtimestamp(real() + seconds, tz)

    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    for module in list(sys.modules.values()):
        if module.__name__.partition(".")[0] in PACKAGES and getattr(module, "datetime", None) is datetime.datetime:
            vars(module)["datetime"] = Shifted


def _modules(name: str) -> list[ModuleType]:
    package = importlib.import_module(name)
    names = [found.name for found in pkgutil.walk_packages(package.__path__, f"{name}.")]
    return [importlib.import_module(found) for found in names if not found.endswith("__main__")]


def warm_up(directory: Path) -> None:
    """Imports what the commands need, and loads what they load once, while that is still allowed and nobody waits."""
    os.environ["CONTEXTHOST_HOME"] = str(directory / "home")
    for name in PACKAGES:
        _modules(name)
    session = directory / "warm.jsonl"
    session.write_bytes((files("contexthost.data") / "demo.jsonl").read_bytes())
    commands = [
        ["doctor"], ["doctor", str(session), "--rescue", str(directory / "rescued.jsonl")], ["status", str(session)],
        ["context", str(session), "--html", str(directory / "page.html")], ["mask", str(session)],
        ["inspect", str(session)], ["relay", str(session)], ["recall", str(session), "deposit"], ["sessions"],
        ["config", "init"], ["tool", str(session), "context_tree_query", '{"tool": "read"}'],
        ["pi", "install", "--agent-dir", str(directory / "agent")], ["compact", str(session), "--dry-run"],
    ]  # fmt: skip
    for arguments in commands:
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told), contextlib.suppress(SystemExit):
            command_line(arguments)


def _child(order: dict[str, Any], report: int) -> None:
    os.environ["CONTEXTHOST_HOME"] = order["home"]
    os.environ["PI_CODING_AGENT_DIR"] = order["agent"]
    os.chdir(order["cwd"])
    sys.stdin = io.TextIOWrapper(io.FileIO(0))
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), line_buffering=True)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w")), line_buffering=True)
    if (limit := order.get("file_limit")) is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if order.get("limit_kills") else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if (user := order.get("user")) is not None and os.getuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    if "clock" in order:
        shift_clock(order["clock"])
    watch = Watch(order.get("watch", []), order.get("die_at"))
    if order.get("watch"):
        watch.start()
    status = 0
    try:
        name, *rest = order["arguments"]
        if name in OPERATIONS:
            try:
                asyncio.run(OPERATIONS[name](*rest))
            except OSError as error:
                print(f"Error: {error}", file=sys.stderr)
                status = 1
        else:
            command_line([name, *rest])
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    sys.settrace(None)
    sys.stdout.flush()
    os.write(report, json.dumps({"lines": watch.lines, "passed": sorted(watch.passed)}).encode())
    os._exit(status)


def _read_all(descriptors: dict[int, str], child: int, kill_after: float | None) -> dict[str, str]:
    """What a child writes to these pipes until all are closed; it is killed meanwhile when its time has come."""
    found = {name: bytearray() for name in descriptors.values()}
    kill_at = None if kill_after is None else time.monotonic() + kill_after
    with selectors.DefaultSelector() as waiting:
        for descriptor, name in descriptors.items():
            waiting.register(descriptor, selectors.EVENT_READ, name)
        while waiting.get_map():
            ready = waiting.select(None if kill_at is None else max(kill_at - time.monotonic(), 0))
            if kill_at is not None and time.monotonic() >= kill_at:
                os.kill(child, signal.SIGKILL)  # it has not been waited for, so the number is its own
                kill_at = None
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                found[key.data] += piece
                if not piece:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
    return {name: content.decode("utf-8", "replace") for name, content in found.items()}


def obey(order: dict[str, Any]) -> None:
    pipes = [os.pipe() for _ in range(4)]  # standard input, output and errors, and the report
    child = os.fork()
    if child == 0:
        ends = (pipes[0][0], pipes[1][1], pipes[2][1])
        for number, end in enumerate(ends):
            os.dup2(end, number)
        for read, write in pipes:
            os.close(read)
            if write != pipes[3][1]:
                os.close(write)
        try:
            _child(order, pipes[3][1])
        finally:  # whatever was raised: the child must not go on as this process
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(70)
    os.close(pipes[0][0])
    for _, write in pipes[1:]:
        os.close(write)
    os.write(pipes[0][1], order.get("stdin", "").encode())
    os.close(pipes[0][1])
    told = _read_all(
        {pipes[1][0]: "output", pipes[2][0]: "errors", pipes[3][0]: "report"}, child, order.get("kill_after")
    )
    report = json.loads(told.pop("report") or "{}")
    answer(ended=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), **told, **report)


def answer(**what: Any) -> None:
    ANSWERS.write(json.dumps(what).encode() + b"\n")
    ANSWERS.flush()


if __name__ == "__main__":
    # The children's own standard streams are pipes; what we are told and tell goes over others.
    ORDERS = os.fdopen(os.dup(0), "rb")
    ANSWERS = os.fdopen(os.dup(1), "wb")
    warm_up(Path(sys.argv[1]))
    answer(ready=True)
    for line in ORDERS:
        obey(json.loads(line))
