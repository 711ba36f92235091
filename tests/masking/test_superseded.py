"""What is overtaken goes first: which results a later call has overtaken, in which order they go, what is said of it.

One token is one character here, so that every figure can be worked out by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.projection import ProjectionAuthority
from contexthost_masking.plan import Candidate, MaskPlan, plan_mask
from support.builder import SessionBuilder, tool_call
from support.masking import answer, masks, project, turn

Call = tuple[str, dict[str, Any]]
READ: Call = ("read", {"path": "src/a.py"})
PART: Call = ("read", {"path": "src/a.py", "offset": 10, "limit": 5})
OTHER_PART: Call = ("read", {"path": "src/a.py", "offset": 20, "limit": 5})
EDIT: Call = ("edit", {"path": "src/a.py", "oldText": "a", "newText": "b"})
WRITE: Call = ("write", {"path": "src/a.py", "content": "b"})
TEST: Call = ("bash", {"command": "pytest -q"})
GREP: Call = ("grep", {"pattern": "x", "path": "src"})


def do(build: SessionBuilder, call: Call, content: str = "x" * 1_000, **extra: Any) -> str:
    return turn(build, content, tool=call[0], arguments=call[1], **extra)


def candidates(build: SessionBuilder, **settings: Any) -> dict[str, Candidate]:
    answer(build)
    plan = plan_mask(project(build).snapshot(), masks(**settings))
    return {one.entry_id: one for one in plan.candidates}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (READ, READ), (READ, EDIT), (READ, WRITE), (PART, READ), (PART, PART), (PART, EDIT), (TEST, TEST), (GREP, GREP),
        (READ, ("edit", {"path": "./src/a.py"})),
        (READ, ("edit", {"file_path": "@src/a.py"})),
        (("Read", {"file_path": "src/a.py"}), ("Edit", {"file_path": "src/a.py"})),
        (TEST, ("bash", {"command": "pytest -q", "timeout": 60})),
        (("ls", {"path": "src", "limit": 5}), ("ls", {"limit": 5, "path": "src"})),
    ],
)  # fmt: skip
def test_it_is_overtaken(earlier: Call, later: Call) -> None:
    build = SessionBuilder()
    first = do(build, earlier)
    second = do(build, later)
    assert candidates(build)[first].overtaken_by == second


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (EDIT, READ), (WRITE, READ), (READ, PART), (PART, OTHER_PART), (READ, ("read", {"path": "src/b.py"})),
        (READ, ("read", {"path": "a.py"})), (TEST, ("bash", {"command": "pytest"})),
        (GREP, ("grep", {"pattern": "y", "path": "src"})), (TEST, GREP),
        (("fetch", {"url": "u"}), ("fetch", {"url": "u"})),
        (("bash", {}), ("bash", {})),
    ],
)  # fmt: skip
def test_it_is_not_overtaken(earlier: Call, later: Call) -> None:
    build = SessionBuilder()
    first = do(build, earlier)
    do(build, later)
    assert candidates(build)[first].overtaken_by is None


def test_a_failed_edit_or_read_overtakes_nothing_but_a_failed_command_does() -> None:
    for call, overtaken in ((EDIT, False), (READ, False), (TEST, True)):
        build = SessionBuilder()
        first = do(build, TEST if call is TEST else READ)
        do(build, call, is_error=True)
        assert (candidates(build)[first].overtaken_by is not None) is overtaken


def test_what_an_edit_hides_overtakes_nothing() -> None:
    for hidden in (None, "redacted"):
        build = SessionBuilder()
        first = do(build, READ)
        build.edit(do(build, READ), hidden)
        assert candidates(build)[first].overtaken_by is None


def test_a_call_without_a_result_overtakes_nothing() -> None:
    build = SessionBuilder()
    first = do(build, READ)
    build.assistant(calls=[tool_call("open", *READ)])
    assert candidates(build)[first].overtaken_by is None


def test_the_last_one_that_overtakes_is_named_in_the_placeholder() -> None:
    build = SessionBuilder()
    first = do(build, READ)
    do(build, READ)
    last = do(build, EDIT)
    found = candidates(build)[first]
    assert found.overtaken_by == last
    assert found.placeholder == (
        '[pi-compaction] Earlier read "src/a.py" result masked (1,000 tokens, 1 line), '
        f'overtaken by edit in entry "{last}"; get it: context_tree_query entry "{first}"'
    )


def test_a_recent_result_overtakes_though_it_is_not_masked_itself() -> None:
    build = SessionBuilder()
    first = do(build, READ)
    recent = do(build, READ)
    found = candidates(build, keepRecentTurns=2)
    assert list(found) == [first]
    assert found[first].overtaken_by == recent


def batch(order: str) -> tuple[MaskPlan, list[str]]:
    """Two masks are enough; the third and the fourth of four results are overtaken."""
    build = SessionBuilder()
    results = [do(build, call) for call in (("fetch", {"url": "u1"}), ("fetch", {"url": "u2"}), READ, TEST)]
    do(build, EDIT, "ok")
    do(build, TEST, "ok")
    answer(build, usage=20_000)
    plan = plan_mask(project(build).snapshot(), masks(order=order, triggerTokens=20_000, targetTokens=18_400))
    return plan, results


def test_what_is_overtaken_goes_before_what_is_merely_old() -> None:
    plan, results = batch("superseded")
    assert [draft.target_id for draft in plan.drafts] == results[2:]


def test_by_age_the_oldest_go_and_nothing_is_said_of_later_ones() -> None:
    plan, results = batch("age")
    assert [draft.target_id for draft in plan.drafts] == results[:2]
    assert all(one.overtaken_by is None and "overtaken" not in one.placeholder for one in plan.candidates)


def test_a_batch_is_in_the_order_of_the_context() -> None:
    build = SessionBuilder()
    results = [do(build, ("fetch", {"url": "u"})), do(build, READ), do(build, READ)]
    answer(build)
    plan = plan_mask(project(build).snapshot(), masks())
    assert [draft.target_id for draft in plan.drafts] == results


def test_planning_over_many_chunks_is_the_same_whether_the_snapshot_grew_or_was_made_at_once() -> None:
    build = SessionBuilder()
    for number in range(200):  # 600 entries: calls and results fall into different chunks of 256
        build.user("next")
        do(build, ("read", {"path": f"src/{number % 7}.py"}), "x" * (300 + number))
    answer(build, usage=90_000)
    whole = project(build)
    grown = ProjectionAuthority(whole.session, counter=whole._counter, window=100_000)
    settings = masks(triggerTokens=80_000, targetTokens=70_000, keepRecentTurns=5)
    first = plan_mask(whole.snapshot(), settings)
    plan_mask(grown.snapshot(), settings)  # remembers what it saw
    whole.commit(first.drafts)
    message = {"role": "toolResult", "toolCallId": "call-3", "toolName": "read", "content": [], "isError": False}
    whole.session.append([{"type": "message", "message": message}])
    fresh = ProjectionAuthority(whole.session, counter=whole._counter, window=100_000)
    again = masks(triggerTokens=1, targetTokens=0, keepRecentTurns=5)
    assert plan_mask(grown.snapshot(), again) == plan_mask(fresh.snapshot(), again)
    assert plan_mask(whole.snapshot(), again) == plan_mask(fresh.snapshot(), again)
    assert len(plan_mask(fresh.snapshot(), again).drafts) > 10
