"""Appends numbered entries to a session and acknowledges each append after it returned; made to be killed.

Started once, it forks a process of its own for every order that it reads, and says how that one ended. An order:
``path``, ``seed``, ``appends`` (it stops after so many), ``tear`` (at this append it writes a random part of its block
and kills itself), ``hold`` (keep the lock throughout), ``pause`` (seconds to sleep at most after an append), ``owner``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any

from contexthost.errors import ContexthostError, SessionLocked
from contexthost.session import Session
from support.durability import digest, numbered, size_of_entry


def say(**answer: Any) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def tear_next_write(draw: random.Random) -> None:
    """The next write puts a random part of its bytes into the file, and the process is gone."""
    whole_write = os.write

    def torn_write(descriptor: int, data: Any, /) -> int:
        whole = bytes(data)
        whole_write(descriptor, whole[: draw.randint(0, len(whole))])
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    os.write = torn_write


def append(order: dict[str, Any]) -> None:
    draw = random.Random(order["seed"])
    with Session.open(order["path"], owner=order.get("owner", "appender")) as session:
        if order.get("hold"):
            session.hold()
        say(pid=os.getpid())
        done = 0
        while done < order["appends"] and os.getppid() != 1:
            at = len(session.entries)
            payloads = [numbered(at + index, size_of_entry(draw)) for index in range(draw.randint(1, 5))]
            if done == order.get("tear"):
                tear_next_write(draw)
            try:
                entries = session.append(payloads)
            except SessionLocked:
                if order.get("hold"):
                    raise
                time.sleep(draw.random() * 0.002)
                continue
            say(ack=[(entry.id, digest(entry.raw)) for entry in entries])
            done += 1
            time.sleep(draw.random() * order.get("pause", 0))


def main() -> None:
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            try:
                append(json.loads(line))
            except ContexthostError as error:
                say(error=type(error).__name__, text=str(error))
            os._exit(0)
        say(ended=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


main()
