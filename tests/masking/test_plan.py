"""Planning masks: when a batch is made, how far it goes, what is never touched, and what it costs.

One token is one character here, so that every figure can be worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contexthost.projection import DEFAULT_WINDOW, ProjectionAuthority
from contexthost.session import Session
from contexthost_masking.plan import MaskPlan, plan_mask, thresholds
from contexthost_masking.settings import MaskSettings, SummarySettings
from support.builder import SessionBuilder, image_block, text_block, tool_call, usage_of
from support.masking import Characters, answer, masks, project, turn

MASK = (
    '[pi-compaction] Earlier bash "c1" result masked (1,000 tokens, 1 line); '
    'get it: context_tree_query entry "00000002"'
)
SAVED = 1_000 - len(MASK)  # what masking a result of 1,000 tokens frees


def planned(build: SessionBuilder, **settings: Any) -> MaskPlan:
    return plan_mask(project(build).snapshot(), masks(**settings))


def targets(plan: MaskPlan) -> list[str]:
    return [draft.target_id for draft in plan.drafts]


# -- the batch -------------------------------------------------------------------------------------------------------


def test_an_old_result_is_replaced_by_its_placeholder() -> None:
    build = SessionBuilder()
    result = turn(build)
    answer(build)
    plan = planned(build)
    assert targets(plan) == [result]
    assert plan.drafts[0].replacement == {"content": MASK}
    assert plan.reason is None


def test_the_figures_of_a_batch() -> None:
    build = SessionBuilder()
    build.user("u" * 300)
    turn(build)  # a call of "bash" and {"command":"c1"}: 4 + 16 tokens
    answer(build, usage=5_000)
    plan = planned(build)
    assert plan.usage.tokens == 5_000
    assert plan.candidates[0].tokens == 1_000
    assert plan.candidates[0].placeholder_tokens == len(MASK)
    assert plan.reclaimed_tokens == SAVED
    assert plan.tokens_after == 300 + 20 + len(MASK) + 4
    assert plan.rewritten_tokens == len(MASK) + 4  # the placeholder and "done": all that follows is sent anew


def test_the_expected_usage_is_what_the_projection_then_says() -> None:
    build = SessionBuilder()
    for _ in range(5):
        build.user("go on")
        turn(build)
    answer(build)
    authority = project(build)
    plan = plan_mask(authority.snapshot(), masks())
    after = authority.commit(plan.drafts)
    assert len(plan.drafts) == 5
    assert after.usage.tokens == plan.tokens_after
    assert after.ledger.masked_results == 5
    assert after.ledger.reclaimed_tokens == plan.reclaimed_tokens


def test_the_overflow_hint_ends_the_placeholder() -> None:
    build = SessionBuilder()
    turn(build, details={"overflow": {"id": "ovf-1"}, "secret": "not read"})
    answer(build)
    (candidate,) = planned(build).candidates
    assert candidate.placeholder.endswith('; uncut: overflow_query "ovf-1"')
    assert "not read" not in candidate.placeholder


def test_a_batch_is_one_append_and_the_old_bytes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = SessionBuilder()
    first, second = turn(build), turn(build)
    answer(build)
    path = build.write(tmp_path / "session.jsonl")
    before = path.read_bytes()
    session = Session.open(path)
    appended: list[int] = []
    original = session.append

    def counted(payloads: Any) -> Any:
        appended.append(len(payloads))
        return original(payloads)

    monkeypatch.setattr(session, "append", counted)
    authority = ProjectionAuthority(session, counter=Characters())
    authority.commit(plan_mask(authority.snapshot(), masks()).drafts)
    assert appended == [2]
    after = path.read_bytes()
    assert after.startswith(before)
    assert after[len(before) :].count(b"\n") == 2
    assert [entry.data["targetId"] for entry in session.entries[-2:]] == [first, second]


# -- thresholds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("usage", "reason"), [(999, "below-trigger"), (1_000, None)])
def test_masking_starts_when_usage_reaches_the_trigger(usage: int, reason: str | None) -> None:
    build = SessionBuilder()
    turn(build, "x" * 300)
    answer(build, usage=usage)
    assert planned(build).reason == reason


def test_below_the_trigger_nothing_is_counted() -> None:
    class Refusing:
        def count(self, text: str) -> int:
            raise AssertionError("counted")

    build = SessionBuilder()
    turn(build)
    answer(build, usage=999)
    session = Session.in_memory(entries=[entry.data for entry in project(build).session.entries])
    snapshot = ProjectionAuthority(session, counter=Refusing()).snapshot()
    plan = plan_mask(snapshot, masks())
    assert (plan.reason, plan.tokens_after) == ("below-trigger", 999)


@pytest.mark.parametrize(
    ("window", "trigger", "target"),
    [
        (200_000, 80_000, 40_000),  # the token thresholds; the ratios give 100,000 and 50,000
        (160_001, 80_000, 40_000),
        (160_000, 80_000, 40_000),
        (159_999, 79_999, 39_999),  # half and a quarter, rounded down
        (32_003, 16_001, 8_000),
        (1, 1, 0),
    ],
)
def test_the_smaller_of_tokens_and_share_is_in_force(window: int, trigger: int, target: int) -> None:
    limits = thresholds(MaskSettings(), window)
    assert (limits.trigger, limits.target, limits.min_clear) == (trigger, target, 10_000)
    assert limits.warning is None


@pytest.mark.parametrize("target_tokens", [1_000, 5_000])
def test_a_target_at_or_above_the_trigger_is_lowered_with_a_warning(target_tokens: int) -> None:
    limits = thresholds(masks(targetTokens=target_tokens), 100_000)
    assert limits.target == 999
    assert limits.warning is not None
    assert "mask.targetTokens" in limits.warning


def test_a_target_just_below_the_trigger_is_taken_as_it_is() -> None:
    limits = thresholds(masks(targetTokens=999), 100_000)
    assert (limits.target, limits.warning) == (999, None)


@pytest.mark.parametrize(("excess", "count"), [(SAVED - 1, 1), (SAVED, 1), (SAVED + 1, 2), (2 * SAVED, 2)])
def test_the_oldest_go_until_usage_would_be_at_the_target(excess: int, count: int) -> None:
    build = SessionBuilder()
    results = [turn(build) for _ in range(3)]
    answer(build, usage=20_000)
    plan = planned(build, targetTokens=20_000 - excess, triggerTokens=20_000)
    assert targets(plan) == results[:count]


def test_where_our_count_exceeds_the_providers_figure_both_come_down_to_the_target() -> None:
    build = SessionBuilder()
    results = [turn(build) for _ in range(5)]  # 5 × 1,020 tokens, "done" 4: 5,104 by our count
    answer(build, usage=3_000)
    plan = planned(build, triggerTokens=3_000, targetTokens=2_500)
    # From 3,000 one mask would do. Of 5,104 it leaves 4,219: above the trigger, so a second planning would go on.
    assert targets(plan) == results[:3]
    assert plan.tokens_after == 5_104 - 3 * SAVED


@pytest.mark.parametrize(("min_clear", "reason"), [(2 * SAVED, None), (2 * SAVED + 1, "too-little")])
def test_a_batch_that_frees_too_little_is_not_made_at_all(min_clear: int, reason: str | None) -> None:
    build = SessionBuilder()
    turn(build)
    turn(build)
    answer(build)
    plan = planned(build, minClearTokens=min_clear)
    assert plan.reason == reason
    assert len(plan.drafts) == (2 if reason is None else 0)
    assert len(plan.candidates) == 2
    assert plan.tokens_after == (5_000 if reason else 2 * (20 + len(MASK)) + 4)


@pytest.mark.parametrize(("keep", "masked"), [(0, 3), (1, 3), (2, 2), (3, 1), (4, 0), (99, 0)])
def test_the_last_turns_are_kept(keep: int, masked: int) -> None:
    build = SessionBuilder()
    results = [turn(build) for _ in range(3)]
    answer(build)  # the last turn, without a call
    assert targets(planned(build, keepRecentTurns=keep)) == results[:masked]


def test_a_turn_is_an_assistant_message_with_all_its_results() -> None:
    build = SessionBuilder()
    old = turn(build)
    build.assistant(calls=[tool_call("a", "bash", {"command": "a"}), tool_call("b", "bash", {"command": "b"})])
    build.tool_result("a", "x" * 1_000, tool="bash")
    build.user("meanwhile")
    build.tool_result("b", "x" * 1_000, tool="bash")
    answer(build)
    assert targets(planned(build, keepRecentTurns=2)) == [old]


def test_an_omitted_assistant_message_is_no_turn() -> None:
    build = SessionBuilder()
    turn(build)
    build.edit(build.assistant("forget this"), None)
    answer(build)
    assert planned(build, keepRecentTurns=2, triggerTokens=1).reason == "nothing-eligible"


@pytest.mark.parametrize(("tokens", "masked"), [(399, 0), (400, 1)])
def test_small_results_stay(tokens: int, masked: int) -> None:
    build = SessionBuilder()
    turn(build, "x" * tokens)
    answer(build)
    assert len(planned(build, minEntryTokens=400).drafts) == masked


def test_a_mask_that_would_not_be_smaller_is_never_made() -> None:
    mask = MASK.replace("1,000", "115")
    for size, masked in ((len(mask), 0), (len(mask) + 1, 1)):
        build = SessionBuilder()
        turn(build, "x" * size)
        answer(build)
        assert len(planned(build, minEntryTokens=0).drafts) == masked


# -- what is never touched -------------------------------------------------------------------------------------------


def user_text(build: SessionBuilder) -> None:
    build.user("x" * 1_000)


def assistant_text(build: SessionBuilder) -> None:
    build.assistant("x" * 1_000, thinking="x" * 1_000)


def user_command(build: SessionBuilder) -> None:
    build.bash("cat log", "x" * 1_000)


def summaries(build: SessionBuilder) -> None:
    build.branch_summary("x" * 1_000)
    build.custom_message("note", "x" * 1_000)


def excluded_tool(build: SessionBuilder) -> None:
    turn(build, tool="todo")


def skill(path: str) -> Callable[[SessionBuilder], None]:
    def write(build: SessionBuilder) -> None:
        turn(build, tool="read", arguments={"path": path})

    return write


def skill_by_its_other_name(build: SessionBuilder) -> None:
    turn(build, tool="read", arguments={"file_path": "skills/review/SKILL.md"})


def read_without_its_call(build: SessionBuilder) -> None:
    build.tool_result("gone", "x" * 1_000, tool="read")


def error(build: SessionBuilder) -> None:
    turn(build, is_error=True)


def masked_already(build: SessionBuilder) -> None:
    build.edit(turn(build), "[pi-compaction] Earlier " + "x" * 1_000)


def omitted(build: SessionBuilder) -> None:
    build.edit(turn(build), None)


def replaced_by_somebody_else(build: SessionBuilder) -> None:
    build.edit(turn(build), "y" * 1_000)


def with_an_image(build: SessionBuilder) -> None:
    turn(build, [text_block("x" * 1_000), image_block()])


def with_content_that_is_no_list(build: SessionBuilder) -> None:
    turn(build, None)


@pytest.mark.parametrize(
    "write",
    [user_text, assistant_text, user_command, summaries, excluded_tool, skill("SKILL.md"),
     skill("/home/me/.pi/skills/review/SKILL.md"), skill("C:\\skills\\SKILL.md"), skill("@skills/SKILL.md"),
     skill_by_its_other_name, read_without_its_call, error, masked_already, omitted, replaced_by_somebody_else,
     with_an_image, with_content_that_is_no_list],
)  # fmt: skip
def test_it_is_never_touched(write: Callable[[SessionBuilder], None]) -> None:
    build = SessionBuilder()
    write(build)
    build.assistant("done", usage=usage_of(5_000))
    plan = planned(build, excludeTools=["todo"])
    assert plan.drafts == ()
    assert plan.reason == "nothing-eligible"


@pytest.mark.parametrize("path", ["SKILL.md.bak", "MY-SKILL.md", "SKILL.md/notes.txt", "skills/README.md"])
def test_files_that_are_no_skill_are_masked(path: str) -> None:
    build = SessionBuilder()
    result = turn(build, tool="read", arguments={"path": path})
    answer(build)
    assert targets(planned(build)) == [result]


def test_a_skill_seen_by_another_tool_is_masked() -> None:
    build = SessionBuilder()
    result = turn(build, tool="bash", arguments={"command": "cat SKILL.md"})
    answer(build)
    assert targets(planned(build)) == [result]


def test_errors_are_masked_when_the_settings_say_so() -> None:
    build = SessionBuilder()
    result = turn(build, is_error=True)
    answer(build)
    assert targets(planned(build, maskErrors=True)) == [result]


def test_what_an_edit_took_from_a_call_does_not_come_back_in_a_placeholder() -> None:
    build = SessionBuilder()
    build.assistant(calls=[tool_call("k", "bash", {"command": "echo hunter2"})])
    call = build.leaf
    assert call is not None
    build.tool_result("k", "x" * 1_000, tool="bash")
    build.edit(call, [tool_call("k", "bash", {"command": "echo ***"})])
    answer(build)
    (candidate,) = planned(build).candidates
    assert candidate.argument == "echo ***"
    assert "hunter2" not in candidate.placeholder


def test_results_behind_a_compaction_are_not_part_of_the_context() -> None:
    build = SessionBuilder()
    turn(build)
    kept = build.user("kept")
    result = turn(build)
    build.compaction("what was", kept)
    answer(build)
    assert targets(planned(build)) == [result]


# -- planning again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", [2_000, 5_104, 20_000])
@pytest.mark.parametrize("target", [0, 1_500, 1_999])
def test_planning_after_a_batch_finds_nothing(provider: int, target: int) -> None:
    build = SessionBuilder()
    for _ in range(5):
        turn(build)
    answer(build, usage=provider)
    authority = project(build)
    settings = masks(triggerTokens=2_000, targetTokens=target)
    first = plan_mask(authority.snapshot(), settings)
    assert first.drafts
    again = plan_mask(authority.commit(first.drafts), settings)
    assert again.drafts == ()


def test_between_target_and_trigger_nothing_happens_until_it_is_reached_again() -> None:
    build = SessionBuilder()
    for _ in range(4):
        turn(build)
    answer(build, usage=4_084)
    authority = project(build)
    settings = masks(triggerTokens=4_000, targetTokens=2_000)
    authority.commit(plan_mask(authority.snapshot(), settings).drafts)
    for usage, masked in ((2_001, 0), (3_999, 0), (4_000, 1)):
        session = authority.session
        reply = {"role": "assistant", "content": [text_block("ok")], "stopReason": "stop", "usage": usage_of(usage)}
        session.append([{"type": "message", "message": reply}])
        assert len(plan_mask(authority.snapshot(), settings).drafts) == masked


def test_the_default_settings_are_those_of_the_specification() -> None:
    assert MaskSettings().model_dump() == {
        "triggerTokens": 80_000,
        "triggerRatio": 0.5,
        "targetTokens": 40_000,
        "targetRatio": 0.25,
        "minClearTokens": 10_000,
        "keepRecentTurns": 10,
        "minEntryTokens": 400,
        "excludeTools": (),
        "maskErrors": False,
        "urgentRatio": 0.9,
        "order": "superseded",
        "policy": "threshold",
        "breakEvenTurns": 8,
    }
    assert SummarySettings().model_dump() == {"tokens": 160_000, "ratio": 0.8, "retryGrowthTokens": 20_000}
    assert DEFAULT_WINDOW == 200_000
