"""What the test of the huge session measures, each in a process of its own: ``huge_session.py hydrate FILE`` or
``huge_session.py command ARGUMENTS``. The last line of standard error is JSON with the figures.
"""

from __future__ import annotations

import atexit
import json
import sys
import time
from typing import Any

from support.memory import peak_bytes


def hydrate(path: str) -> None:
    """Opens and projects a session, appends to it and projects again, and says how long each took, in seconds."""
    from contexthost.projection import ProjectionAuthority
    from contexthost.session import Session

    figures: dict[str, Any] = {"bare": peak_bytes()}
    started = time.perf_counter()
    session = Session.open(path)
    opened = time.perf_counter()
    authority = ProjectionAuthority(session)
    snapshot = authority.snapshot()
    projected = time.perf_counter()
    figures |= {"open": opened - started, "project": projected - opened, "peak": peak_bytes()}
    figures |= {"entries": len(session.entries), "branch": len(session.branch()), "leaf": session.leaf_id}
    figures |= {"shown": len(snapshot.entries), "problems": len(session.problems)}
    started = time.perf_counter()
    tokens, sent = snapshot.tokens, len(snapshot.provider_messages)
    figures |= {"count": time.perf_counter() - started, "tokens": tokens, "sent": sent}
    with session:
        session.hold()
        appends, projections = [], []
        for number in range(20):
            message = {"role": "user", "content": f"one more {number}", "timestamp": 1}
            started = time.perf_counter()
            [entry] = session.append([{"type": "message", "message": message}])
            appended = time.perf_counter()
            snapshot = authority.snapshot()
            snapshot.tokens  # noqa: B018
            appends.append(appended - started)
            projections.append(time.perf_counter() - appended)
            assert snapshot.entries[-1].source is entry
    figures |= {"appends": appends, "projections": projections, "appended": entry.id, "peakAfter": peak_bytes()}
    print(json.dumps(figures), file=sys.stderr)


def command(arguments: list[str]) -> None:
    """Runs a command, and says at its end how long it took and what memory it had at most."""
    from contexthost.cli import main

    started = time.perf_counter()

    def tell() -> None:
        print(json.dumps({"seconds": time.perf_counter() - started, "peak": peak_bytes()}), file=sys.stderr)

    atexit.register(tell)
    main(arguments)


if __name__ == "__main__":
    if sys.argv[1] == "hydrate":
        hydrate(sys.argv[2])
    else:
        command(sys.argv[2:])
