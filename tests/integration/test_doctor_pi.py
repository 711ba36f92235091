"""The real Pi judges what `doctor` says and does: broken files are as broken as it says, repaired and rescued ones are
whole in Pi's own projection, and Pi's own session manager opens them, counts them and would compact them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest

from contexthost.diagnosis import examine, plan_rescue, repair, write_rescue
from contexthost.errors import SessionFormatError
from contexthost.messages import convert_to_llm, js_json
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost.session.entries import decode_json
from support.broken import MENDED_BY_APPENDING, MENDED_BY_RESCUE, VARIANTS, broken_session, deep_call
from support.builder import SessionBuilder
from support.pi import ORACLE_DIR, node, oracle, pi_home
from support.sessions import random_session
from support.talk import healthy_session, unpaired

SHARED_SESSIONS = Path(__file__).parents[3] / "shared" / "sessions"
OPEN_TIMEOUT = 300  # seconds for one run over all files of a test
PAIR_KINDS = {"orphan-result", "duplicate-result", "late-result", "unanswered-call", "repeated-call"}


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTEXTHOST_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def opened_by_pi(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """What Pi's session manager says of each file when it opens it (see open.mjs); it may write to them."""
    with tempfile.TemporaryDirectory() as scratch:
        listing = Path(scratch, "paths")
        listing.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
        run = subprocess.run(
            [str(node()), str(ORACLE_DIR / "open.mjs"), f"--pi={pi_home()}", f"@{listing}"],
            env={**os.environ, "PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": scratch},
            capture_output=True,
            timeout=OPEN_TIMEOUT,
            check=False,
        )
    answers = [decode_json(line) for line in run.stdout.split(b"\n") if line]
    assert len(answers) == len(paths), run.stderr.decode(errors="replace")[-2000:]
    return answers


def opened(path: Path) -> ProjectionAuthority:
    return ProjectionAuthority(Session.open(path))


def broken_files(kinds: Iterable[str], directory: Path) -> list[Path]:
    paths = []
    for kind in kinds:
        for seed in range(VARIANTS):
            paths.append(directory / f"{kind}-{seed}.jsonl")
            paths[-1].write_bytes(broken_session(kind, seed).data)
    return paths


def assert_whole(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Pi projects every file with every call answered and every result owned, and its session manager agrees."""
    found: list[str] = []
    managed = opened_by_pi(paths)
    for path, line in zip(paths, managed, strict=True):
        if "error" in line:
            found.append(f"{path.name}: Pi fails with {line['error']}")
        elif faults := unpaired(line["sent"], failed_too="-rescued" not in path.name):
            found.append(f"{path.name}: {faults}")
    assert not found, "\n".join(found)
    return managed


def test_repaired_sessions_are_whole_in_pis_own_projection(tmp_path: Path) -> None:
    paths = broken_files(MENDED_BY_APPENDING, tmp_path)
    before = [path.read_bytes() for path in paths]
    for path in paths:
        authority = opened(path)
        assert repair(authority, examine(authority)).problems == [], path.name
    # Pi's other way to cut, over entries as they stand in the file, fails on content that no edit can reach there.
    sound = [path for path in paths if not path.name.startswith("bad-")]
    for path, line in zip(sound, oracle(sound, messages=True), strict=True):
        assert "error" not in line, f"{path.name}: {line}"
        assert unpaired(convert_to_llm(line["messages"]), failed_too=True) == [], path.name
    assert_whole(paths)
    for path, old in zip(paths, before, strict=True):
        if b'"version":3' in old[:100]:
            assert path.read_bytes().startswith(old), path.name
        assert examine(opened(path)).findings == (), path.name


def test_rescued_sessions_open_in_pi_with_every_message_that_was_saved(tmp_path: Path) -> None:
    old = broken_files(MENDED_BY_RESCUE, tmp_path)
    new = [path.with_name(f"{path.stem}-rescued.jsonl") for path in old]
    for source, target in zip(old, new, strict=True):
        write_rescue(plan_rescue(source), target)
    for source, target, line in zip(old, new, assert_whole(new), strict=True):
        authority = opened(target)
        assert line["parentSession"] == str(source)
        assert line["cwd"] == "/project"
        assert line["leaf"] == authority.session.leaf_id
        assert line["branch"] == [entry.id for entry in authority.session.branch()]
        assert line["sent"] == convert_to_llm(authority.snapshot().messages), target.name
    for line in oracle(new):
        assert "error" not in line


def test_random_files_are_whole_after_repair_or_rescue(tmp_path: Path) -> None:
    repaired, rescued = [], []
    for seed in range(90):
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(random_session(seed, broken=seed % 5 == 4, cycles=seed % 5 == 3))
        target = tmp_path / f"{seed}-rescued.jsonl"
        try:
            write_rescue(plan_rescue(path), target)
            rescued.append(target)
            authority = opened(path)
        except SessionFormatError:
            continue  # no session to Pi either, or no message in it
        if not [one for one in repair(authority, examine(authority)).problems if "Nothing at all" in one.model_sees]:
            repaired.append(path)
    assert len(repaired) > 50
    assert len(rescued) > 75
    for path, line in zip(repaired, opened_by_pi(repaired), strict=True):
        assert "error" not in line, f"{path.name}: {line}"
        assert unpaired(line["sent"]) == [], path.name
    for path, line in zip(rescued, opened_by_pi(rescued), strict=True):
        assert "error" not in line, f"{path.name}: {line}"
        assert unpaired(line["sent"]) == [], path.name


def test_pi_loses_its_place_over_the_last_line_and_finds_it_again_after_repair(tmp_path: Path) -> None:
    paths: dict[Path, bool] = {}  # whether Pi is said to see nothing
    for path in broken_files(["not-an-object", "missing-id"], tmp_path):
        for finding in examine(opened(path)).problems:
            if finding.drafts:
                paths[path] = finding.model_sees.startswith("Nothing")
    assert len(paths) > VARIANTS // 2
    copies = [path.with_name(f"copy-{path.name}") for path in paths]
    for path, copy in zip(paths, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    for path, line in zip(paths, opened_by_pi(copies), strict=True):
        assert not paths[path] or "error" in line or line["sent"] == [], path.name
    for path in paths:
        authority = opened(path)
        assert len(authority.snapshot().messages) > 1
        repair(authority, examine(authority))
    for path, line in zip(paths, opened_by_pi(list(paths)), strict=True):
        assert len(line["messages"]) == len(opened(path).snapshot().messages), path.name


def test_pi_cannot_open_what_is_said_to_stop_it(tmp_path: Path) -> None:
    for kind in ("no-header", "no-message", "bad-edit"):
        paths = [path for path in broken_files([kind], tmp_path) if b'"text"}' not in path.read_bytes()]
        for path, line in zip(paths, opened_by_pi(paths), strict=True):
            findings = [] if kind == "no-header" else examine(opened(path)).problems
            if kind == "no-header" or any("Pi fails on it" in one.model_sees for one in findings):
                assert "error" in line, path.name


def test_history_is_as_lost_in_pi_as_is_said(tmp_path: Path) -> None:
    for path, line in zip(*with_answers(["unknown-kept-id"], tmp_path), strict=True):
        behind = int(path.stem.split("-")[-1]) % 2  # whether turns follow the compaction
        roles = [message["role"] for message in line["messages"] if message["role"] != "system"]
        assert roles[0] == "compactionSummary"
        assert (len(roles) > 1) == bool(behind), path.name
    for path, line in zip(*with_answers(["missing-parent"], tmp_path), strict=True):
        [finding] = examine(opened(path)).problems
        assert line["branch"][0] == finding.entry_id


def with_answers(kinds: list[str], directory: Path) -> tuple[list[Path], list[dict[str, Any]]]:
    paths = broken_files(kinds, directory)
    return paths, opened_by_pi(paths)


def test_healthy_sessions_raise_no_false_alarm(tmp_path: Path) -> None:
    """What Pi's projection shows to be whole has no finding about calls and results, and the other way round."""
    paths = []
    for seed in range(60):
        paths += [tmp_path / f"healthy-{seed}.jsonl", tmp_path / f"random-{seed}.jsonl"]
        paths[-2].write_bytes(healthy_session(seed))
        paths[-1].write_bytes(random_session(seed))
    paths += [path for path in sorted(SHARED_SESSIONS.glob("*.jsonl")) if path.is_file()]
    with as_file(files("contexthost.data") / "demo.jsonl") as demo:
        for path, line in zip([*paths, demo], oracle([*paths, demo], messages=True), strict=True):
            kinds = {finding.kind for finding in examine(opened(path)).problems}
            whole = unpaired(convert_to_llm(line["messages"])) == []
            assert whole == (not kinds & {*PAIR_KINDS, "compaction-inside-pair"}), path.name
            assert not kinds or not path.name.startswith(("healthy", "demo")), path.name


def test_a_result_behind_a_failed_attempt_is_refused_by_providers_until_repaired(tmp_path: Path) -> None:
    """Pi's request builder passes over the attempt but not over its results."""
    build = SessionBuilder()
    build.user("go")
    build.assistant("a", calls=[{"type": "toolCall", "id": "c", "name": "read", "arguments": {}}], stop_reason="error")
    build.tool_result("c", "text")
    path = build.write(tmp_path / "s.jsonl")
    [line] = oracle([path], messages=True)
    assert unpaired(convert_to_llm(line["messages"])) == ["c is nobody's result"]
    authority = opened(path)
    repair(authority, examine(authority))
    [line] = oracle([path], messages=True)
    assert [message["role"] for message in line["messages"]] == ["user"]


def test_arguments_nested_more_deeply_than_python_goes_are_read_as_pi_reads_them(tmp_path: Path) -> None:
    """Node parses any depth, and prints 4,446: Pi fails on deeper arguments, until a repair takes them out."""
    fails = {900: False, 2_000: False, 3_900: False, 5_000: True, 50_000: True}
    paths = []
    for depth in fails:
        paths.append(tmp_path / f"{depth}.jsonl")
        paths[-1].write_bytes(deep_call(depth))
    for path, line, failed in zip(paths, opened_by_pi(paths), fails.values(), strict=True):
        assert ("error" in line) == failed, path.name
        authority = opened(path)
        if not failed:
            assert js_json(line["sent"]) == js_json(convert_to_llm(authority.snapshot().messages)), path.name
        assert [one.kind for one in examine(authority).findings] == ["bad-content"] * failed, path.name
        assert repair(authority, examine(authority)).findings == ()
    assert_whole(paths)
