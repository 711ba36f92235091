"""Nothing is lost: facts planted in random sessions are found whatever was done to the context since."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from contexthost.compaction import CompactionSettings, prepare_compaction
from contexthost.history import History
from contexthost.projection import (
    MASK_PREFIX,
    CompactionDraft,
    ContextEditDraft,
    ProjectionAuthority,
    context_messages,
)
from contexthost.session import Session
from contexthost_relay.recall import recall
from support.builder import SessionBuilder, text_block, tool_call

FACTS = 100
_PIECES = ["red", "blau", "naïve", "東京", "x/y", '"q"', "back\\slash", "Ж", "🦊", "C++", "a_b", "50%"]


def planted(rng: random.Random, path: Path) -> tuple[Session, dict[str, str]]:
    """A session with a fact in every fourth message or result; fact → entry id."""
    build = SessionBuilder(header={"id": path.stem})
    build.ascii_only = rng.random() < 0.3
    facts: dict[str, str] = {}
    number = 0

    def text() -> tuple[str, str | None]:
        nonlocal number
        noise = " ".join(rng.choices(["alpha", "Beta", "gamma\n", "delta", "\x1b[1m", "epsilon"], k=rng.randint(5, 80)))
        if len(facts) >= FACTS or rng.random() < 0.5:
            return noise, None
        number += 1
        fact = f"Fact{number:03d} is {rng.choice(_PIECES)}{rng.randint(1000, 9999)}"
        facts[fact] = ""
        return f"{noise} {fact} {noise}", fact

    while len(facts) < FACTS:
        content, fact = text()
        entry_id = build.user(content if rng.random() < 0.5 else [text_block("see"), text_block(content)])
        if fact:
            facts[fact] = entry_id
        for call in range(rng.randint(0, 4)):
            build.assistant("looking", calls=[tool_call(f"c{build.count}-{call}", "bash", {"command": "ls"})])
            content, fact = text()
            entry_id = build.tool_result(f"c{build.count - 1}-{call}", content, tool="bash")
            if fact:
                facts[fact] = entry_id
        build.assistant("done")
    return Session.open(build.write(path)), facts


def compact(authority: ProjectionAuthority, rng: random.Random, relay: bool) -> None:
    snapshot = authority.snapshot()
    settings = CompactionSettings(keep_recent_tokens=rng.randint(100, 3_000))
    preparation = prepare_compaction(snapshot, snapshot.branch, settings, context_messages=context_messages)
    if preparation is not None:
        details = {"relay": True, "version": 1, "notePath": "/n/1.md"} if relay else None
        authority.commit(
            [CompactionDraft(summary="a note", first_kept_entry_id=preparation.first_kept_entry_id, details=details)]
        )


def mask(authority: ProjectionAuthority, rng: random.Random) -> None:
    results = [item for item in authority.snapshot().entries if item.source.role == "toolResult" and item.edit is None]
    chosen = rng.sample(results, min(len(results), 12))
    authority.commit(
        [
            ContextEditDraft(target_id=item.source.id, replacement={"content": f"{MASK_PREFIX}bash masked"})
            for item in chosen
        ]
    )




@pytest.mark.parametrize("seed", range(6))
def test_every_fact_is_found_after_anything(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    session, facts = planted(rng, tmp_path / "session.jsonl")
    assert len(facts) == FACTS
    authority = ProjectionAuthority(session)
    history = History(session, authority.snapshot)
    for _ in range(rng.randint(0, 6)):
        what = rng.choice(["relay", "compaction", "masks"])
        if what == "masks":
            mask(authority, rng)
        else:
            compact(authority, rng, relay=what == "relay")
        session.append([{"type": "message", "message": {"role": "user", "content": "go on " * 50}}])
    for fact, entry_id in facts.items():
        found = recall({"query": fact.swapcase()}, history, tmp_path)
        assert [hit["entryId"] for hit in found.data["hits"]] == [entry_id], fact
        page = recall({"entryId": entry_id}, history, tmp_path)
        assert fact in page.data["text"]


@pytest.mark.parametrize("seed", range(3))
def test_across_a_fork(tmp_path: Path, seed: int) -> None:
    rng = random.Random(100 + seed)
    session, facts = planted(rng, tmp_path / "parent.jsonl")
    authority = ProjectionAuthority(session)
    mask(authority, rng)
    compact(authority, rng, True)
    # Pi's fork: the path up to some entry is copied with its ids, the rest stays in the parent.
    branch = session.branch()
    copied = branch[: rng.randint(1, len(branch) - 1)]
    header = {"type": "session", "version": 3, "id": "fork", "timestamp": "2026-01-05T10:00:00.000Z", "cwd": "/p"}
    lines = [json.dumps({**header, "parentSession": str(tmp_path / "parent.jsonl")}).encode()]
    (tmp_path / "fork.jsonl").write_bytes(b"\n".join([*lines, *(entry.raw for entry in copied)]) + b"\n")
    fork = Session.open(tmp_path / "fork.jsonl")
    fork_authority = ProjectionAuthority(fork)
    compact(fork_authority, rng, True)
    history = History(fork, fork_authority.snapshot)
    own = {entry.id for entry in copied}
    for fact, entry_id in facts.items():
        found = recall({"query": fact, "scope": "lineage"}, history, tmp_path)
        assert [hit["entryId"] for hit in found.data["hits"]] == [entry_id], fact
        state = found.data["hits"][0]["state"]
        assert state.startswith("earlier session") is (entry_id not in own)
        assert fact in recall({"entryId": entry_id}, history, tmp_path).data["text"]
