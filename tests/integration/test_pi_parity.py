"""`contexthost inspect` sees a session file exactly as the real Pi does, value by value.

The files: random ones (`support.sessions`), the bundled demo session, and real sessions where a checkout has them
beside it. One difference is wanted: where metadata stands directly before the message that starts a turn, Pi takes the
clean cut in front of it for a split turn; contexthost does not.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from click.testing import CliRunner

from contexthost.cli.inspect import describe
from contexthost.errors import ContexthostError, ParentCycle, SessionFormatError
from contexthost.messages import text_of
from contexthost.projection import MASK_PREFIX, ProjectionAuthority
from contexthost.session import Session
from contexthost_masking.cli import mask
from support.builder import SessionBuilder
from support.parity import differences
from support.pi import oracle
from support.sessions import entry_ids, random_session

KEEP_RECENT = 300  # tokens: small enough that most of the random files have something to compact
CHUNK = 50
SHARED_SESSIONS = Path(__file__).parents[3] / "shared" / "sessions"


def compare(requests: Sequence[tuple[str, Path, str | None]], *, keep_recent: int) -> None:
    """Fails with every difference between contexthost and Pi over the files (name, path, leaf or None)."""
    asked = [path if leaf is None else (path, leaf) for _, path, leaf in requests]
    found: list[str] = []
    for (name, path, leaf), pis in zip(requests, oracle(asked, keep_recent=keep_recent), strict=True):
        if "error" in pis:
            found.append(f"{name}: Pi fails with {pis['error']!r}")
            continue
        try:
            ours = describe(path, leaf=leaf, keep_recent=keep_recent)
        except Exception as error:
            error.add_note(f"in {name}")
            raise
        found += differences(name, ours, pis)
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:40])


def write_seeds(directory: Path, seeds: range, **options: bool) -> list[Path]:
    paths = []
    for seed in seeds:
        paths.append(directory / f"{seed}.jsonl")
        paths[-1].write_bytes(random_session(seed, **options))
    return paths


@pytest.mark.parametrize("start", range(0, 400, CHUNK))
def test_random_sessions(start: int, tmp_path: Path) -> None:
    seeds = range(start, start + CHUNK)
    paths = write_seeds(tmp_path, seeds)
    compare([(f"seed {seed}", path, None) for seed, path in zip(seeds, paths, strict=True)], keep_recent=KEEP_RECENT)


@pytest.mark.parametrize("keep_recent", [0, 1, 40, 2000])
def test_random_sessions_with_other_budgets(keep_recent: int, tmp_path: Path) -> None:
    seeds = range(1000, 1025)
    paths = write_seeds(tmp_path, seeds)
    compare([(f"seed {seed}", path, None) for seed, path in zip(seeds, paths, strict=True)], keep_recent=keep_recent)


def test_leaves_that_are_not_the_last_entry(tmp_path: Path) -> None:
    requests: list[tuple[str, Path, str | None]] = []
    seeds = range(2000, 2060)
    for seed, path in zip(seeds, write_seeds(tmp_path, seeds), strict=True):
        ids = entry_ids(path.read_bytes())[:-1]
        for leaf in random.Random(seed).sample(ids, min(3, len(ids))):
            requests.append((f"seed {seed} at {leaf}", path, leaf))
    assert len(requests) > 100
    compare(requests, keep_recent=KEEP_RECENT)


def test_a_cycle_of_parents_is_refused_by_the_entry_that_the_oracle_names(tmp_path: Path) -> None:
    paths = write_seeds(tmp_path, range(3000, 3030), cycles=True)
    named = 0
    for path, pis in zip(paths, oracle(paths), strict=True):
        if "error" not in pis:
            continue  # version 1 files have no parents
        with pytest.raises(ParentCycle) as caught:
            describe(path)
        assert pis["error"] == f"parent cycle at {caught.value.entry_id}", path.name
        assert caught.value.entry_id in str(caught.value)
        named += 1
    assert named > 20


def test_what_pi_trips_over_is_read_or_refused_with_a_reason(tmp_path: Path) -> None:
    """Pi 1.6.0 fails on these files with a TypeError, or does not take them for sessions."""
    paths = write_seeds(tmp_path, range(4000, 4060), broken=True)
    for path, pis in zip(paths, oracle(paths), strict=True):
        if pis.get("error") == "not a session":
            with pytest.raises(SessionFormatError, match=path.name):
                describe(path)
            continue
        with contextlib.suppress(ContexthostError):  # any other exception is a defect
            assert describe(path)["entries"] > 0, path.name


def test_the_demo_session() -> None:
    with as_file(files("contexthost.data") / "demo.jsonl") as path:
        ids = entry_ids(path.read_bytes())
        compare([("demo", path, None), ("demo, half-way", path, ids[len(ids) // 2])], keep_recent=KEEP_RECENT)
        compare([("demo", path, None)], keep_recent=20_000)


@pytest.mark.parametrize("name", ["before-compaction.jsonl", "large-session.jsonl"])
@pytest.mark.parametrize("keep_recent", [300, 20_000])
def test_real_sessions(name: str, keep_recent: int) -> None:
    path = SHARED_SESSIONS / name
    if not path.is_file():
        pytest.skip(f"no {name} in a directory shared/sessions beside the repository")
    compare([(name, path, None)], keep_recent=keep_recent)


def masked_copy(source: Path, directory: Path) -> Path:
    """A copy of a session file that `contexthost mask` has worked on."""
    path = directory / source.name
    path.write_bytes(source.read_bytes())
    result = CliRunner().invoke(mask, [str(path), "--json", "--context-window", "200000"])
    assert json.loads(result.stdout)["applied"], result.stdout
    return path


def test_a_session_that_was_masked_here_projects_in_pi_to_what_we_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    recorded = [path for path in sorted(SHARED_SESSIONS.glob("*.jsonl")) if path.is_file()]
    with as_file(files("contexthost.data") / "demo.jsonl") as demo:
        paths = [masked_copy(path, tmp_path) for path in (demo, *recorded)]
    compare([(path.name, path, None) for path in paths], keep_recent=KEEP_RECENT)
    for path, line in zip(paths, oracle(paths, messages=True), strict=True):
        shown = [
            text_of(message["content"], "\n") for message in line["messages"] if message.get("role") == "toolResult"
        ]
        masks = [text for text in shown if text.startswith(MASK_PREFIX)]
        assert len(masks) == ProjectionAuthority(Session.open(path)).snapshot().ledger.masked_results > 0, path.name
        assert all("\n" not in text for text in masks)


def test_a_label_before_a_question_does_not_split_the_turn(tmp_path: Path) -> None:
    """The wanted difference, by hand: 25 tokens are kept, the last question; a label stands before it."""
    build = SessionBuilder()
    build.user("a" * 40)  # 0
    answer = build.assistant("b" * 40)  # 1
    build.label(answer, "answer")  # 2
    build.user("c" * 100)  # 3
    path = build.write(tmp_path / "s.jsonl")
    [pis] = oracle([path], keep_recent=25)
    ours = describe(path, keep_recent=25)
    assert pis["cutPoint"]["isSplitTurn"]
    assert ours["cutPoint"] == {"firstKeptPosition": 2, "turnStartPosition": None, "isSplitTurn": False}
    assert pis["preparation"]["messagesToSummarize"] == []
    assert len(pis["preparation"]["turnPrefixMessages"]) == 2
    assert ours["preparation"]["messagesToSummarize"] == pis["preparation"]["turnPrefixMessages"]
    assert ours["preparation"]["turnPrefixMessages"] == []
    assert ours["preparation"]["isSplitTurn"] is False
    assert differences("by hand", ours, pis) == []
