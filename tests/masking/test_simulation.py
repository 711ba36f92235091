"""What the prompt cache loses over a session of 300 turns: batches at thresholds, against one mask at a time.

The session is made up, from a fixed seed; a token is a character. Each turn sends the context once. A request finds in
the cache what it has in common with the one before it, from the beginning; what stood behind that and is sent again is
cached anew: that is what a policy is judged by, since both keep the same ten turns.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from contexthost.projection import ProjectionAuthority, Snapshot
from contexthost.session import Session
from contexthost_masking.plan import MaskPlan, plan_mask
from contexthost_masking.settings import MaskSettings
from support.builder import USAGE_ZERO
from support.figures import report
from support.masking import Characters

TURNS = 300
WINDOW = 200_000
ONE_AT_A_TIME = MaskSettings(triggerTokens=1, triggerRatio=0.000001, targetTokens=0, minClearTokens=0)


@dataclass
class Run:
    """What became of a session: tokens added and cached anew, how often, and the largest request."""

    grown: int = 0
    recached: int = 0
    rewrites: int = 0
    largest: int = 0
    plans: list[MaskPlan] = field(default_factory=list)


Sent = list[tuple[str, str | None, int]]


def sent(snapshot: Snapshot) -> Sent:
    """A request: each entry of the context, the edit in force on it, its tokens."""
    shown = (item for item in snapshot.entries if item.tokens)
    return [(item.source.id, item.edit.id if item.edit is not None else None, item.tokens) for item in shown]


def recached(before: Sent, now: Sent) -> int:
    """Tokens of entries that the request before had too, behind the first one that differs."""
    same = 0
    while same < len(before) and before[same] == now[same]:
        same += 1
    return sum(tokens for _, _, tokens in now[same : len(before)])


def simulate(settings: MaskSettings, *, every_turn: bool) -> Run:
    """Plays the session; a run of the agent has five turns, and masks are planned at its end, or at each turn's."""
    rng = random.Random(20_260_105)
    session = Session.in_memory()
    authority = ProjectionAuthority(session, counter=Characters(), window=WINDOW)
    run = Run()
    before: Sent = []
    for turn in range(TURNS):
        request = sent(authority.snapshot())
        lost = recached(before, request)
        run.recached += lost
        run.rewrites += lost > 0
        before = request
        total = sum(tokens for _, _, tokens in request)
        run.largest = max(run.largest, total)
        messages = list(play(turn, total, rng))
        session.append([{"type": "message", "message": message} for message in messages])
        run.grown += sum(item.tokens for item in authority.snapshot().entries[-len(messages) :])
        if every_turn or turn % 5 == 4:
            plan = plan_mask(authority.snapshot(), settings)
            if plan.drafts:
                run.plans.append(plan)
                authority.commit(plan.drafts)
    return run


def play(turn: int, total: int, rng: random.Random) -> Any:
    """A turn: sometimes a question, a call, its result. Files are read again and commands run again now and then."""
    if turn % 5 == 0:
        yield {"role": "user", "content": "q" * rng.randint(50, 500), "timestamp": 0}
    tool = rng.choice(["read", "read", "bash", "edit"])
    number = rng.randint(0, 40)
    arguments = {"command": f"pytest {number % 10}"} if tool == "bash" else {"path": f"src/{number}.py"}
    call = {"type": "toolCall", "id": f"call-{turn}", "name": tool, "arguments": arguments}
    text = {"type": "text", "text": "t" * rng.randint(20, 400)}
    usage = {**USAGE_ZERO, "input": total, "totalTokens": total} if total else USAGE_ZERO
    yield {"role": "assistant", "content": [text, call], "usage": usage, "stopReason": "toolUse", "timestamp": 0}
    size = 60 if tool == "edit" else int(rng.lognormvariate(7.6, 0.9))  # half are above 2,000 tokens, few above 10,000
    content = [{"type": "text", "text": "r" * size}]
    yield {"role": "toolResult", "toolCallId": f"call-{turn}", "toolName": tool, "content": content, "isError": False}


def test_batches_rewrite_the_prefix_at_most_once_per_min_clear_tokens_of_growth() -> None:
    settings = MaskSettings()
    batches = simulate(settings, every_turn=False)
    single = simulate(ONE_AT_A_TIME, every_turn=True)
    by_age = simulate(MaskSettings(order="age"), every_turn=False)
    assert batches.grown == single.grown > 600_000
    for run in (batches, by_age):
        assert 0 < run.rewrites <= run.grown / settings.minClearTokens
        assert all(plan.reclaimed_tokens >= settings.minClearTokens for plan in run.plans)
        assert run.largest < WINDOW
    assert batches.rewrites * 7 < single.rewrites
    assert batches.recached * 6 < single.recached
    for name, run in (("batches", batches), ("batches by age", by_age), ("one at a time", single)):
        report(
            f"{name}: {run.grown:,} tokens in {TURNS} turns; the prefix rewritten {run.rewrites} times, "
            f"{run.recached:,} tokens cached anew; largest request {run.largest:,}"
        )
