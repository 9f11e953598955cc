"""Rates through the dispatcher: weights, arrival order, costs, and no window above its rate."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch import (
    Dispatcher,
    FailureKind,
    Limits,
    Rate,
    Tool,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Stage, call, kinds, played, row


class Cookery:
    """A tool `cook` that costs its argument, with the tag `kitchen`."""

    def __init__(self) -> None:
        self.started: list[tuple[float, float]] = []

    def cook(self, cost: Any = lambda given: given["price"]) -> Tool:
        @tool(safe_parallel=True, cost=cost, tags={"kitchen"})
        async def cook(price: float, seconds: float = 0.0) -> float:
            self.started.append((asyncio.get_running_loop().time(), price))
            await asyncio.sleep(seconds)
            return price

        return cook


def prices(*given: float, seconds: float = 0.0) -> list[ToolCall]:
    """Calls of `cook`."""
    return [ToolCall(str(n), "cook", {"price": p, "seconds": seconds}) for n, p in enumerate(given)]


def test_rates_are_weighted_and_in_arrival_order() -> None:
    """10 per 10 s: a cost of 6 behind 8 waits for its tokens, and a cheap call does not pass it."""
    kitchen = Cookery()
    result = run_turn(kitchen, prices(8, 6, 1, 1), Limits(rates={"cook": Rate(10, 10)}))
    assert [(0.0, 8.0), (4.0, 6.0), (5.0, 1.0), (6.0, 1.0)] == kitchen.started
    assert [{}, {"rate": 4.0}, {"rate": 5.0}, {"rate": 6.0}] == [each.waits for each in result]


def run_turn(
    kitchen: Cookery, turn: list[ToolCall], limits: Limits, cost: Any = None, **keywords: Any
) -> TurnResult:
    tools = [kitchen.cook() if cost is None else kitchen.cook(cost), *Stage().tools]

    async def main() -> TurnResult:
        return await Dispatcher(tools, limits=limits).run(turn, **keywords)

    return run_in_virtual_time(main())


def test_a_cheap_call_of_another_tool_does_not_pass_in_the_queue_of_a_shared_rate() -> None:
    """The tokens for its cost of 1 are there, but an older call waits for 6 of the same rate."""
    kitchen, stage = Cookery(), Stage()
    limits = Limits(8, per_tool={"free": 4}, rates={"kitchen": Rate(10, 10)})

    async def main() -> TurnResult:
        dispatcher = Dispatcher([kitchen.cook(), *stage.tools], limits=limits)
        return await dispatcher.run([*prices(8, 6), call("cheap", tags=("kitchen",))])

    assert [None] * 3 == kinds(run_in_virtual_time(main()))
    assert [(0.0, 8.0), (4.0, 6.0)] == kitchen.started
    assert 5.0 == stage.began("cheap")


def test_a_rate_of_a_tool_and_one_of_a_tag_both_count() -> None:
    """The tool may start 5 at once, its tag 2 and then one in a second."""
    kitchen = Cookery()
    limits = Limits(rates={"cook": Rate(5, 1), "kitchen": Rate(1, 1, burst=2)})
    run_turn(kitchen, prices(1, 1, 1, 1), limits)
    assert [0.0, 0.0, 1.0, 2.0] == [moment for moment, _ in kitchen.started]


def test_a_call_that_waits_for_a_slot_takes_no_tokens() -> None:
    """Only who could start stands in the rate's queue: the wait splits into slot, then rate."""
    kitchen = Cookery()
    limits = Limits(1, rates={"cook": Rate(1, 4)})
    result = run_turn(kitchen, prices(1, 1, seconds=1.0), limits)
    assert [0.0, 4.0] == [moment for moment, _ in kitchen.started]
    assert {"slot": 1.0, "rate": 3.0} == result[1].waits


def test_a_wait_for_a_rate_holds_back_nobody_else() -> None:
    """With one slot in all, calls without a rate use it while the first waits for tokens."""
    stage = Stage()
    limits = Limits(1, rates={"r": Rate(1, 10)})
    turn = [call("a", tags=("r",)), call("b", tags=("r",)), *row(3)]
    played(stage, turn, limits=limits)
    assert [1, 2, 3] == [stage.began(str(n)) for n in range(3)]
    assert 10.0 == stage.began("b")


def test_a_cost_above_the_burst_is_refused() -> None:
    """It could never run, so it does not wait: kind `rate_limited`, naming cost and rate."""
    kitchen = Cookery()
    limits = Limits(rates={"kitchen": Rate(10, 1, burst=5)})
    result = run_turn(kitchen, prices(6, 5), limits)
    assert [FailureKind.RATE_LIMITED, None] == kinds(result)
    assert (
        "[error] its cost of 6 is above the burst of the rate 'kitchen': it could never run"
        == result[0].content()
    )
    assert [5.0] == [price for _, price in kitchen.started]


def breaks(given: Mapping[str, Any]) -> float:
    raise LookupError("no price list")


COSTS: dict[str, tuple[Any, str]] = {
    "raises": (breaks, "no price list"),
    "no number": (lambda given: "free", "not 'free'"),
    "nothing": (lambda given: None, "not None"),
    "below 0": (lambda given: -1, "not -1"),
    "no number at all": (lambda given: float("nan"), "not nan"),
    "endless": (lambda given: float("inf"), "not inf"),
}


@pytest.mark.parametrize("case", COSTS.values(), ids=COSTS.keys())
def test_a_cost_that_cannot_be_told_refuses_the_call(case: tuple[Any, str]) -> None:
    """Fail closed: nothing is started for free because its price is unknown."""
    cost, text = case
    kitchen = Cookery()
    result = run_turn(kitchen, prices(1), Limits(rates={"cook": Rate(1, 1)}), cost)
    assert [FailureKind.REJECTED] == kinds(result)
    assert "its cost could not be told" in result[0].content()
    assert text in result[0].content()
    assert [] == kitchen.started


def test_a_cost_is_not_asked_for_where_there_are_no_rates() -> None:
    """Without rates a tool costs nothing, and its cost function is not called."""
    kitchen = Cookery()
    assert run_turn(kitchen, prices(1), Limits(), breaks)[0].ok


costs = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=12)
rates = st.builds(
    Rate,
    st.sampled_from([1.0, 2.0, 7.0]),
    st.sampled_from([1.0, 3.0, 2.7]),
    burst=st.sampled_from([3.0, 4.5, 6.0]),
)


@given(costs, rates, st.integers(1, 8), st.sampled_from([0.0, 0.5, 2.0]))
def test_no_window_of_any_length_has_more_than_its_rate(
    given: list[float], rate: Rate, total: int, seconds: float
) -> None:
    """Between any two starts, both included, at most burst + rate x time was started."""
    kitchen = Cookery()
    limits = Limits(total, rates={"cook": rate})
    result = run_turn(kitchen, prices(*given, seconds=seconds), limits)
    assert [None] * len(given) == kinds(result)
    started = kitchen.started
    assert sorted(given) == sorted(price for _, price in started)
    for first, (since, _) in enumerate(started):
        spent = 0.0
        for until, price in started[first:]:
            spent += price
            assert spent <= rate.capacity + rate.per_second * (until - since) + 1e-6


@given(costs, rates)
def test_no_start_is_later_than_its_rate_asks_for(given: list[float], rate: Rate) -> None:
    """With slots for all, each call starts at the moment at which a bucket has its tokens."""
    kitchen = Cookery()
    run_turn(kitchen, prices(*given), Limits(20, rates={"cook": rate}))
    tokens, now = rate.capacity, 0.0
    for moment, price in kitchen.started:
        wait = max(0.0, price - tokens) / rate.per_second
        tokens = min(rate.capacity, tokens + wait * rate.per_second) - price
        now += wait
        assert now == pytest.approx(moment)
