"""Nothing is lost: every text of every masked result comes back, page by page, through ``tree-query --json``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from contexthost.messages import Message
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost_masking.cli_query import tree_query
from contexthost_masking.plan import plan_mask
from support.builder import SessionBuilder, tool_call, usage_of
from support.masking import Characters, masks

ALPHABET = ["a", "\n", "\r\n", "\t", '"', "\\", "é", "😀", "\u2028", "\x1b[31m", "\ud800", "\x00", " ", "x" * 50]


def random_session(seed: int) -> SessionBuilder:
    rng = random.Random(seed)
    build = SessionBuilder(version=rng.choice([3, 3, 3, 2]))
    number = 0
    marks: list[str] = []

    def text(least: int = 0) -> str:
        return "".join(rng.choices(ALPHABET, k=rng.randint(least, 60))) * rng.choice([1, 1, 2, 30])

    for _ in range(rng.randint(4, 20)):
        marks.append(build.user(text()))
        names = [f"c{seed}-{number + at}" for at in range(3)]
        calls = [tool_call(name, rng.choice(["read", "bash"]), {"path": text(1)[:20]}) for name in names]
        number += 3
        build.assistant(calls=calls, usage=usage_of(rng.randint(10, 9_000)))
        for call in calls:
            blocks = [{"type": "text", "text": text(20)} for _ in range(rng.randint(1, 3))]
            build.tool_result(call["id"], blocks, tool=call["name"])
        if rng.random() < 0.1:
            build.compaction("what was", rng.choice(marks))
        if rng.random() < 0.1:
            build.branch_from(rng.choice(marks))
    build.assistant("done", usage=usage_of(9_000))
    return build


def texts(message: Message) -> list[str]:
    return [block["text"] for block in message["content"]]


def recovered(path: Path, entry: str) -> list[str]:
    """The blocks of an entry, put together from all its pages."""
    pages: list[str] = []
    arguments = ["--entry", entry]
    blocks: list[int] = []
    while True:
        result = CliRunner().invoke(tree_query, [str(path), *arguments, "--json"])
        assert result.exit_code == 0, result.output
        page: dict[str, Any] = json.loads(result.stdout)
        assert len(page["text"]) <= 8_000
        pages.append(page["text"])
        blocks = page["blocks"]
        if page["continue"] is None:
            break
        arguments = ["--continue", page["continue"]]
    whole = "".join(pages)
    found = []
    at = 0
    for length in blocks:
        found.append(whole[at : at + length])
        at += length + 1
    assert at == len(whole) + 1
    return found


@pytest.mark.parametrize("seed", range(12))
def test_every_byte_of_every_masked_result_comes_back(seed: int, tmp_path: Path) -> None:
    path = random_session(seed).write(tmp_path / "session.jsonl")
    session = Session.open(path)
    results = [entry for entry in session.entries if entry.role == "toolResult"]
    originals = {entry.id: texts(entry.message or {}) for entry in results}
    authority = ProjectionAuthority(session, counter=Characters(), window=10_000)
    masked: set[str] = set()
    for target in (4_000, 1_000, 0):  # several batches
        plan = plan_mask(authority.snapshot(), masks(triggerTokens=1, targetTokens=target, minEntryTokens=0))
        authority.commit(plan.drafts)
        masked.update(draft.target_id for draft in plan.drafts)
    assert masked
    for entry in masked:
        assert recovered(path, entry) == originals[entry]
    session.close()
