"""How much memory this process has had at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

__all__ = ["peak_bytes"]


def peak_bytes() -> int:
    """The peak of this process's resident memory, in bytes. Linux counts what the parent had before ``exec`` into
    ``ru_maxrss``, but not into ``VmHWM``."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
