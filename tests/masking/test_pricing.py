"""What a batch costs: prices and their sources, the state of the cache, the break-even, the economic policy."""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.context import ModelInfo
from contexthost_masking.plan import MaskPlan, plan_mask
from contexthost_masking.pricing import Costs, costs_of
from contexthost_masking.settings import Price
from support.builder import START, SessionBuilder, usage_of
from support.masking import masks, project, turn

NOW = START.timestamp()


def costs(**changes: Any) -> Costs:
    given: dict[str, Any] = {
        "read": 0.3, "write": 3.75, "dollars": True, "cache": "warm", "lifetime": 300, "source": "model",
    }  # fmt: skip
    return Costs(**{**given, **changes})


def cached(read: int = 1_000, cost: dict[str, float] | None = None) -> dict[str, Any]:
    usage = {**usage_of(5_000), "cacheRead": read, "cacheWrite": 200}
    return usage if cost is None else {**usage, "cost": cost}


def session(usage: dict[str, Any] | None = None, provider: str = "anthropic") -> SessionBuilder:
    build = SessionBuilder()
    turn(build)
    build.assistant("done", usage=usage or cached(), provider=provider)
    return build


def found(build: SessionBuilder, pricing: dict[str, Price] | None = None, **options: Any) -> Costs:
    return costs_of(project(build).snapshot(), pricing or {}, **options)


# -- break-even ------------------------------------------------------------------------------------------------------


def test_the_break_even_is_the_rewrite_against_what_each_turn_saves() -> None:
    # 30,000 tokens at 3.75 - 0.30 dollars a million: 0.1035 once. 50,000 tokens at 0.30: 0.015 a turn.
    assert costs().break_even(50_000, 30_000) == pytest.approx(6.9)
    assert costs().rewrite_dollars(30_000) == pytest.approx(0.1035)
    assert costs().turn_dollars(50_000) == pytest.approx(0.015)


@pytest.mark.parametrize("cache", ["cold", "none"])
def test_without_a_cache_to_lose_a_batch_pays_at_once(cache: Any) -> None:
    assert costs(cache=cache).break_even(1, 1_000_000) == 0
    assert costs(cache=cache).rewrite_dollars(1_000_000) == 0


def test_an_unknown_cache_is_taken_for_a_warm_one() -> None:
    assert costs(cache="unknown").break_even(50_000, 30_000) == pytest.approx(6.9)


def test_free_cache_reads_never_pay_for_a_rewrite() -> None:
    assert costs(read=0.0).break_even(50_000, 30_000) is None
    assert costs(read=0.0).break_even(50_000, 0) == 0


def test_without_prices_there_is_a_break_even_and_no_money() -> None:
    relative = costs(read=0.1, write=1.25, dollars=False)
    assert relative.break_even(50_000, 30_000) == pytest.approx(6.9)
    assert (relative.rewrite_dollars(1), relative.turn_dollars(1)) == (None, None)


def test_without_a_cache_a_turn_saves_the_full_price() -> None:
    assert costs(cache="none").turn_dollars(1_000_000) == pytest.approx(3.75)


# -- where prices are from ---------------------------------------------------------------------------------------------


def test_a_providers_usual_terms_are_multiples() -> None:
    assert found(session()) == Costs(0.1, 1.25, False, "unknown", 300, "provider")
    assert found(session(provider="someone")) == Costs(0.25, 1.0, False, "unknown", 300, "provider")


def test_the_sessions_own_usage_implies_prices() -> None:
    paid = {"input": 3.0 * 4_990 / 1e6, "cacheRead": 0.3 * 1_000 / 1e6, "cacheWrite": 3.75 * 200 / 1e6}
    made = found(session(cached(cost=paid)))
    assert (made.source, made.dollars) == ("session", True)
    assert [made.read, made.write] == pytest.approx([0.3, 3.75])


def test_the_models_prices_come_before_the_sessions_and_the_settings_before_both() -> None:
    build = session(cached(cost={"input": 1.0, "cacheRead": 1.0, "cacheWrite": 1.0}))
    model = ModelInfo(
        provider="anthropic", id="claude-sonnet-4-5", api="", cost={"input": 3, "cacheRead": 0.3, "cacheWrite": 3.75}
    )
    made = found(build, model=model)
    assert (made.read, made.write, made.source) == (0.3, 3.75, "model")
    own = {"anthropic/claude-sonnet-4-5": Price(cacheRead=0.5, cacheSeconds=3_600), "anthropic": Price(cacheRead=9)}
    made = found(build, own, model=model)
    assert (made.read, made.write, made.lifetime, made.source) == (0.5, 3.75, 3_600, "settings")


def test_a_price_of_the_input_alone_gives_the_others_by_the_usual_terms() -> None:
    made = found(session(), {"anthropic": Price(input=3)})
    assert [made.read, made.write] == pytest.approx([0.3, 3.75])
    assert made.dollars


def test_where_writing_to_the_cache_costs_nothing_extra_it_costs_the_input_price() -> None:
    model = ModelInfo(provider="openai", id="m", api="", cost={"input": 2, "cacheRead": 0.2, "cacheWrite": 0})
    made = found(session(provider="openai"), model=model)
    assert (made.read, made.write) == (0.2, 2)


# -- the cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "state"), [(0, "warm"), (300, "warm"), (301, "cold")])
def test_a_cache_runs_out_after_its_lifetime(seconds: int, state: str) -> None:
    last = NOW + 3  # the third entry is three seconds younger than the start
    assert found(session(), now=last + seconds).cache == state


def test_a_models_own_lifetime_counts_and_warming_prolongs_it() -> None:
    model = ModelInfo(provider="anthropic", id="m", api="", prompt_cache_short_seconds=60)
    build = session()
    assert found(build, model=model, now=NOW + 64).cache == "cold"
    build.usage("cache_warm")
    assert found(build, model=model, now=NOW + 64).cache == "warm"


def test_three_requests_without_a_cached_token_mean_that_there_is_no_cache() -> None:
    build = SessionBuilder()
    for number in range(3):
        assert found(build).cache == "unknown", number
        build.assistant("ok", usage=usage_of(5_000))
    assert found(build).cache == "none"
    build.assistant("ok", usage=cached())
    assert found(build).cache == "unknown"


# -- the policy ------------------------------------------------------------------------------------------------------


def planned(costs: Costs, **options: Any) -> MaskPlan:
    settings = {name: options.pop(name) for name in ("policy", "breakEvenTurns") if name in options}
    return plan_mask(project(session()).snapshot(), masks(**settings), costs=costs, **options)


def test_the_threshold_policy_masks_whatever_it_costs() -> None:
    assert len(planned(costs(read=0.0)).drafts) == 1


def test_the_economic_policy_masks_what_pays_in_time() -> None:
    plan = planned(costs())
    turns = plan.break_even
    # Behind the first mask stand the placeholder and "done": nearly nothing against what is saved.
    assert turns is not None
    assert turns == pytest.approx(plan.rewritten_tokens * 3.45 / (plan.reclaimed_tokens * 0.3))
    assert len(planned(costs(), policy="economic", breakEvenTurns=turns).drafts) == 1
    refused = planned(costs(), policy="economic", breakEvenTurns=turns - 0.01)
    assert (refused.drafts, refused.reason, refused.break_even) == ((), "does-not-pay", turns)
    assert "would pay for the prompt cache that it rewrites in" in refused.explanation


def test_the_economic_policy_gives_way_when_the_window_forces_it() -> None:
    never = costs(read=0.0)
    assert planned(never, policy="economic").reason == "does-not-pay"
    assert "never" in planned(never, policy="economic").explanation
    assert len(planned(never, policy="economic", forced=True).drafts) == 1


def test_a_cold_cache_makes_the_economic_policy_mask() -> None:
    assert len(planned(costs(read=0.0, cache="cold"), policy="economic").drafts) == 1
