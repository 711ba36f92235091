"""A file, or a directory, that may not be written: the append fails by name and nothing has changed anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NOBODY = 65534

SCRIPT = """
import os, sys
path, home, user = sys.argv[1:]
from contexthost.errors import SessionWriteError
from contexthost.session import Session
if os.getuid() == 0:
    os.setgid(int(user))
    os.setuid(int(user))
session = Session.open(path)
before = [entry.raw for entry in session.entries], session.leaf_id, session.revision
try:
    session.append([{"type": "custom", "customType": "test", "data": 1}])
except SessionWriteError as error:
    print(error)
else:
    print("appended")
if (([entry.raw for entry in session.entries], session.leaf_id, session.revision) != before):
    print("memory changed")
"""


def append_as_somebody(path: Path, home: Path) -> str:
    """What an append says in a process that has no more rights than the file's modes give."""
    directories = [path.parent, *path.parent.parents]
    for directory in directories[1:]:  # pytest makes its directories for their owner only
        if directory.stat().st_uid == os.getuid() and not os.access(directory, os.X_OK, effective_ids=False):
            directory.chmod(0o755)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(home), str(NOBODY)],
        env={**os.environ, "CONTEXTHOST_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    return run.stdout.rstrip("\n")
