"""Ten thousand damaged session files, and more when the campaign is longer.

Whatever a file holds: nothing that a user does to look at it crashes, takes over 5 seconds or writes a byte; every
request that it leads to is one that providers take; a command that writes only lets it grow. A part of the files goes
through the command line in processes of their own, and another is compared with what the real Pi makes of them.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from contexthost.cli.inspect import describe
from contexthost.errors import ContexthostError
from contexthost.session import Session
from reliability.campaign import Campaign
from support.fuzz import MUTATIONS, fuzzed
from support.fuzz_crew import HANG, Answer, look_at_all
from support.fuzz_looks import LOOKS, standing
from support.parity import differences
from support.pi import oracle
from support.pi_types import is_as_pi_writes_it

FILES = 10_000  # in the 5 minutes of CI
WORKERS = 2
PROCESSES = 100  # files that go through the command line itself
COMPARED = 600  # files that the real Pi is shown
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def scaled(count: int, campaign: Campaign) -> int:
    """As many as are due in the campaign's time, where ``count`` are due in 5 minutes."""
    return max(1, round(count * campaign.minutes / 5))


def test_no_file_crashes_hangs_or_is_written_to(campaign: Campaign, tmp_path: Path) -> None:
    count = scaled(FILES, campaign)
    answers = look_at_all(campaign.seed, range(count), tmp_path, workers=WORKERS)
    assert [answer.number for answer in answers] == list(range(count))
    _tell(campaign, answers)
    faults = [fault for answer in answers for fault in _faults_of(answer)]
    kept = _keep(campaign.seed, {number for number, _ in faults}, tmp_path / "kept")
    told = "\n".join(f"file {number} of seed {campaign.seed}: {fault}" for number, fault in faults[:20])
    assert not faults, f"{len(faults)} faults; the files are in {kept}\n{told}"
    # That the campaign is one: of every kind of damage some files opened, and every command had something to do.
    opened = Counter(name for one in answers if one.done and not one.done["refused"] for name in one.done["mutations"])
    if count >= FILES // 10:
        assert set(MUTATIONS) - opened.keys() <= {"UTF-16", "byte order mark"}
        done = Counter(look for one in answers if one.done for look in one.done["looks"])
        assert len(done) > len(LOOKS)


BAD_WORKER = """
import os, sys, time
print('{"ready": true}', flush=True)
for order in sys.stdin:
    print('{"begun": "something"}', flush=True)
    if order == "2\\n":
        time.sleep(60)
    if order == "3\\n":
        os.abort()
    print('{"done": {}}', flush=True)
"""


def test_a_hang_and_a_death_are_seen_and_the_others_go_on(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(BAD_WORKER, encoding="utf-8")
    answers = look_at_all(0, range(6), tmp_path / "work", workers=2, script=script, hang=3.0)
    assert [(answer.number, answer.done) for answer in answers] == [
        (0, {}), (1, {}), (2, None), (3, None), (4, {}), (5, {}),
    ]  # fmt: skip
    assert answers[2].failure.startswith("hung for 3 s at: something")
    assert answers[3].failure.startswith("died with status -6 at: something")


def _faults_of(answer: Answer) -> list[tuple[int, str]]:
    if answer.done is None:
        return [(answer.number, answer.failure)]
    written = answer.done.get("written") or {"faults": []}
    return [(answer.number, fault) for fault in (*answer.done["faults"], *written["faults"])]


def _keep(seed: int, numbers: Iterable[int], directory: Path) -> Path:
    """Writes files with these numbers where they can be looked at."""
    directory.mkdir()
    for number in numbers:
        (directory / f"{number}.jsonl").write_bytes(fuzzed(seed, number).data)
    return directory


def _tell(campaign: Campaign, answers: list[Answer]) -> None:
    """The figures: files, what became of them, mutations, writes, time."""
    done = [answer.done for answer in answers if answer.done is not None]
    refused = Counter(one["refused"] for one in done if one["refused"])
    blocked = Counter(one["blocked"] for one in done if one["blocked"])
    errors = Counter(error for one in done for error in one["errors"])
    opened = len(done) - sum(refused.values())
    megabytes = sum(one["bytes"] for one in done) / 1e6
    looks = sum(len(one["looks"]) for one in done)
    campaign.report(
        f"fuzzed files: {len(answers):,} of seed {campaign.seed} ({megabytes:,.0f} MB), {opened:,} opened, "
        f"{_counted(refused)} refused, {_counted(blocked)} opened but without a context; {looks:,} looks, of which "
        f"commands refused {_counted(errors)}"
    )
    campaign.report(f"fuzzed files, damage: {_counted(Counter(name for one in done for name in one['mutations']))}")
    times = sorted((one["seconds"], answer.number) for answer in answers if (one := answer.done) is not None)
    seconds, number = times[-1]
    campaign.report(
        f"fuzzed files, time: median {times[len(times) // 2][0] * 1e3:.0f} ms, slowest {seconds * 1e3:,.0f} ms "
        f"(file {number}; over {HANG * 1e3:,.0f} ms counts as a hang), {len(answers) - len(done)} hangs or deaths"
    )
    written = [one["written"] for one in done if one.get("written")]
    applied = Counter(one["command"] for one in written if one["applied"])
    campaign.report(f"fuzzed files, written to: {len(written):,} tried, {_counted(applied)} did write")


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counter.most_common()) or "0"


def test_the_command_line_itself(campaign: Campaign, tmp_path: Path) -> None:
    """The same by processes: exit status 0 or 1, one clear line of what is wrong, no traceback, nothing written."""
    count = scaled(PROCESSES, campaign)
    draw = random.Random(f"command line {campaign.seed}")
    orders = [(number, draw.choice(LOOKS)) for number in draw.sample(range(10**6), count)]
    environment = {**os.environ, "CONTEXTHOST_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}

    def run(order: tuple[int, tuple[str, ...]]) -> tuple[int, list[str]]:
        number, look = order
        directory, out = tmp_path / f"{number}", tmp_path / f"{number}-out"
        directory.mkdir()
        out.mkdir()
        path = directory / "session.jsonl"
        data = fuzzed(campaign.seed, number).data
        path.write_bytes(data)
        before = standing(directory)
        names = {"FILE": str(path), "ID": "00000001"}
        arguments = [names.get(part, part).replace("OUT", str(out)) for part in look]
        # Ten times the time of a hang: starting a process on a machine at work may take some of it.
        done = subprocess.run(
            [sys.executable, "-m", "contexthost", *arguments],
            env=environment, capture_output=True, timeout=HANG * 10, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        told = done.stderr.decode(errors="replace")
        faults = []
        if done.returncode not in (0, 1):
            faults.append(f"status {done.returncode}: {told}")
        if done.returncode == 1 and not told and not done.stdout:
            faults.append("status 1 without a word")
        if "Traceback" in told or ", hook " in told or (told.startswith("Error:") and told.count("\n") != 1):
            faults.append(told[-3_000:])
        if standing(directory) != before or path.read_bytes() != data:
            faults.append("something was written")
        return done.returncode, [f"file {number} of seed {campaign.seed}, {' '.join(look)}: {one}" for one in faults]

    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(run, orders))
    statuses = Counter(f"status {status}" for status, _ in answers)
    campaign.report(f"fuzzed files by the command line: {count} processes, {_counted(statuses)}")
    faults = [fault for _, found in answers for fault in found]
    assert not faults, "\n".join(faults[:20])
    assert not standing(tmp_path / "home"), "looking left something in the home directory"


def test_what_pi_reads_too_is_projected_as_pi_projects_it(campaign: Campaign, tmp_path: Path) -> None:
    """Where the real Pi does not fail on a file, its projection is ours, value by value.

    Wanted differences: a byte order mark (Pi's session manager refuses such a file, and so do we; the function that the
    oracle calls does not), and values of types that Pi never writes (see `support.pi_types`): in a file that has such,
    entries and context must be the same, but not what is in them.
    """
    count = scaled(COMPARED, campaign)
    paths = [tmp_path / f"{number}.jsonl" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(fuzzed(campaign.seed, number + 10**6).data)
    found: list[str] = []
    fails: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    for path, pis in zip(paths, oracle(paths, keep_recent=300), strict=True):
        if path.read_bytes().startswith(BYTE_ORDER_MARK):
            fails["byte order mark"] += 1
            continue
        if "error" in pis:
            fails[pis["error"][:40]] += 1
            continue
        try:
            ours = describe(path, keep_recent=300)
        except ContexthostError as error:
            found.append(f"{path.name}: Pi reads it, and we say {error}")
            continue
        other = differences(path.name, ours, pis)
        typed = all(is_as_pi_writes_it(entry.data) for entry in Session.open(path).entries)
        compared["whole" if typed else "loosely" if other else "with odd types, and the same"] += 1
        found += other if typed else [one for one in other if re.match(r"\S+ (entries|contextPositions)\b", one)]
    campaign.report(
        f"fuzzed files against the real Pi: {count}, of which Pi refuses or fails on {sum(fails.values())}; "
        f"compared: {_counted(compared)}"
    )
    assert compared["whole"] > count / 5
    assert not found, f"{len(found)} differences (seed {campaign.seed}):\n" + "\n".join(found[:40])
