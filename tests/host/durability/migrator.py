"""Appends to an old session file and kills itself on the way: at the first line of `session/file.py` that runs, then
at the second, and so on until one run comes to its end.

An order: ``original`` (a file), ``directory`` (each step gets a numbered directory with a copy of its own), ``name``,
``links`` (false: as on a file system that has no hard links). The answer: ``steps``.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from contexthost.session import Session, file as session_file
from support.durability import numbered


def die_at(step: int) -> None:
    """Kills this process before it runs the ``step``-th line of the module, counted from 1."""
    left = step

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != session_file.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def refuse_links() -> None:
    def link(source: Any, target: Any) -> None:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "File exists")
        raise PermissionError(errno.EPERM, "Operation not permitted")

    os.link = link  # type: ignore[assignment]  # a stand-in without the optional arguments


def one_run(path: Path, step: int, links: bool) -> bool:
    """Whether the append came to its end."""
    child = os.fork()
    if child == 0:
        if not links:
            refuse_links()
        session = Session.open(path)
        die_at(step)
        session.append([numbered(0, 100)])
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main() -> None:
    for line in sys.stdin.buffer:
        order = json.loads(line)
        step = 0
        finished = False
        while not finished:
            step += 1
            directory = Path(order["directory"]) / str(step)
            directory.mkdir()
            path = directory / order["name"]
            shutil.copy(order["original"], path)
            finished = one_run(path, step, order["links"])
        os.write(1, json.dumps({"steps": step, "ended": 0}).encode() + b"\n")


main()
