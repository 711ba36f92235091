"""Reading and appending: an acknowledged append against a bare fsynced write, opening against the real Pi's own load
and projection, the memory that it takes, and how fast the command starts."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from contexthost.session import Session
from support.figures import report
from support.gates import measure, p95, percentile, rounds
from support.large import write_large
from support.pi import load_seconds

TEXT = "x" * 2_000


def test_an_acknowledged_append_takes_at_most_three_bare_fsynced_writes(
    benchmark: BenchmarkFixture, tmp_path: Path
) -> None:
    path = write_large(tmp_path / "session.jsonl", 1_000)
    session = Session.open(path)
    session.hold()  # as whoever writes does: a live session, the bridge, a command for its batch
    message = {"role": "user", "content": TEXT, "timestamp": 1}
    bare_path = tmp_path / "bare.jsonl"
    bare_path.write_bytes(path.read_bytes())
    line = session.append([{"type": "message", "message": message}])[0].raw + b"\n"
    bare: list[float] = []

    def bare_write() -> None:
        """The peer, between the rounds: open, append, fsync, close."""
        started = time.perf_counter()
        descriptor = os.open(bare_path, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, line)
        os.fsync(descriptor)
        os.close(descriptor)
        bare.append(time.perf_counter() - started)

    def append() -> None:
        session.append([{"type": "message", "message": message}])

    measure(benchmark, append, setup=bare_write, rounds=300)
    ours, theirs = p95(benchmark), percentile(bare, 0.95)
    median = statistics.median(bare)
    mine = statistics.median(rounds(benchmark))
    report(
        f"append: median {mine * 1e6:,.0f} µs, p95 {ours * 1e6:,.0f} µs; bare fsynced write: "
        f"median {median * 1e6:,.0f} µs, p95 {theirs * 1e6:,.0f} µs; ratios {mine / median:.2f} and {ours / theirs:.2f}"
    )
    session.close()
    free: list[float] = []
    for _ in range(100):
        started = time.perf_counter()
        append()
        free.append(time.perf_counter() - started)
    report(f"an append that takes the lock for itself: median {statistics.median(free) * 1e6:,.0f} µs")
    assert mine < 3 * median
    assert ours < 3 * theirs


HYDRATE = """
import sys, time
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
started = time.perf_counter()
snapshot = ProjectionAuthority(Session.open(sys.argv[1])).snapshot()
projected = time.perf_counter()
messages = snapshot.messages
print(projected - started, time.perf_counter() - started, len(messages))
"""


def hydrate(path: Path) -> tuple[float, float, int]:
    """In a process that has done nothing else: seconds of load and projection, seconds until every message is decoded
    as well (which here waits until somebody looks at one), and the number of messages."""
    done = subprocess.run([sys.executable, "-c", HYDRATE, str(path)], capture_output=True, text=True, check=True)
    seconds, decoded, messages = done.stdout.split()
    return float(seconds), float(decoded), int(messages)


def test_opening_50_mb_takes_no_longer_than_the_real_pi(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    path = write_large(tmp_path / "session.jsonl", 40_000, result_chars=4_000)
    size = path.stat().st_size
    assert 45e6 < size < 55e6
    ours: list[float] = []
    whole: list[float] = []
    pis: list[float] = []
    for _ in range(5):  # alternating, so that a slow spell of the machine meets both
        seconds, decoded, messages = hydrate(path)
        ours.append(seconds)
        whole.append(decoded)
        seconds, pi_messages = load_seconds(path)
        pis.append(seconds)
        assert messages == pi_messages == 40_000
    measure(benchmark, hydrate, path)
    mine, theirs = statistics.median(ours), statistics.median(pis)
    report(
        f"{size / 1e6:.0f} MB, 40,000 entries, load + projection: contexthost {mine * 1e3:,.0f} ms, "
        f"Pi {theirs * 1e3:,.0f} ms, ratio {mine / theirs:.2f}; with every message decoded "
        f"{statistics.median(whole) * 1e3:,.0f} ms"
    )
    assert mine <= theirs


PEAK = """
import sys
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.memory import peak_bytes
if len(sys.argv) > 1:
    snapshot = ProjectionAuthority(Session.open(sys.argv[1])).snapshot()
    assert len(snapshot.entries) == 40000
print(peak_bytes())
"""


def peak_bytes(*arguments: str) -> int:
    """The peak memory of a process that opens and projects the file that it is given, or does nothing without one."""
    command = [sys.executable, "-c", PEAK, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def test_opening_takes_at_most_three_times_the_file_in_memory(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    path = write_large(tmp_path / "session.jsonl", 40_000, result_chars=4_000)
    size = path.stat().st_size
    baseline = peak_bytes()
    peak = measure(benchmark, peak_bytes, str(path))
    report(
        f"peak memory: {peak / 1e6:,.0f} MB for a file of {size / 1e6:,.0f} MB, "
        f"{(peak - baseline) / size:.2f} times the file over the interpreter's {baseline / 1e6:,.0f} MB"
    )
    assert peak <= baseline + 3 * size


def wall(*command: str) -> float:
    started = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - started.ru_utime - started.ru_stime


def test_the_command_starts_as_fast_as_click_allows(benchmark: BenchmarkFixture) -> None:
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(15):
        ours.append(wall(sys.executable, "-m", "contexthost", "--version"))
        bare.append(wall(sys.executable, "-c", "import click"))
    measure(benchmark, wall, sys.executable, "-m", "contexthost", "--version")
    mine, theirs = statistics.median(ours), statistics.median(bare)
    report(
        f"`contexthost --version`: {mine * 1e3:.0f} ms of processor time, `import click`: {theirs * 1e3:.0f} ms, "
        f"ratio {mine / theirs:.2f}"
    )
    assert mine <= 3 * theirs
