"""How much memory a process has, and has had at most."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

__all__ = ["peak_bytes", "resident_bytes"]


def peak_bytes(pid: int | None = None) -> int:
    """The peak of a process's resident memory, in bytes; of this one unless told otherwise. Linux counts what the
    parent had before ``exec`` into ``ru_maxrss``, but not into ``VmHWM``.

    Raises OSError for another process where there is no ``/proc``.
    """
    try:
        status = Path(f"/proc/{pid or os.getpid()}/status").read_text(encoding="ascii", errors="replace")
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024
    except OSError:
        if pid is not None:
            raise
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident_bytes(pid: int) -> int:
    """The bytes of memory that a process has."""
    run = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(run.stdout) * 1024
