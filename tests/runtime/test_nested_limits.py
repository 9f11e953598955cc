"""No limit is ever exceeded, whatever is nested, suspended and moved from state to state."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dispatch import (
    CallContext,
    Dispatcher,
    Limits,
    Tool,
    ToolCall,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import left_over

Plan = tuple[str, float, list[Any], str]
"""A tool, how long it works before and after its nested calls, those, and the state it enters."""

leaves: st.SearchStrategy[Any] = st.tuples(
    st.sampled_from("pq"), st.integers(0, 3), st.just([]), st.sampled_from("-xy")
)
trees = st.recursive(
    leaves,
    lambda inner: st.tuples(
        st.sampled_from("pq"),
        st.integers(0, 3),
        st.lists(inner, max_size=3),
        st.sampled_from("-xy"),
    ),
    max_leaves=8,
)


@given(
    st.lists(trees, min_size=1, max_size=4),
    st.tuples(*[st.integers(1, 3)] * 4),
    st.sampled_from(["together", "apart"]),
)
def test_no_limit_is_ever_exceeded_by_any_tree(
    plans: list[Plan], limit: tuple[int, int, int, int], how: str
) -> None:
    """Guarantee 5 with nesting, states and suspension: total, tool and state at every moment; and
    everything ends, whatever the limits are."""
    total, per_tool, x, y = limit
    working: list[tuple[str, str]] = []

    async def work(name: str, state: str, seconds: float) -> None:
        working.append((name, state))
        assert len(working) <= total
        assert sum(each == "p" for each, _ in working) <= per_tool
        assert sum(each == "x" for _, each in working) <= x
        assert sum(each == "y" for _, each in working) <= y
        await asyncio.sleep(seconds)
        working.remove((name, state))

    async def node(ctx: CallContext, seconds: float, nested: list[Any], state: str) -> None:
        name = ctx.call.name
        await work(name, "-", seconds)
        if state != "-":
            await ctx.set_state(state)
            await work(name, state, seconds)
        calls = [planned(plan) for plan in nested]
        if how == "together":
            (await ctx.run(calls)).raise_for_failures()
        else:
            turns = await asyncio.gather(*(ctx.run([one]) for one in calls))
            for turn in turns:
                turn.raise_for_failures()
        async with ctx.suspended():
            await asyncio.sleep(1)
        await work(name, state, seconds)

    def planned(plan: Plan) -> ToolCall:
        name, seconds, nested, state = plan
        return ToolCall("", name, {"seconds": seconds, "nested": nested, "state": state})

    limits = Limits(total, per_tool={"p": per_tool}, per_tag={"x": x, "y": y})
    dispatcher = Dispatcher([Tool(name, node, safe_parallel=True) for name in "pq"], limits=limits)
    turn = run_in_virtual_time(dispatcher.run([planned(plan) for plan in plans], timeout=10_000))
    turn.raise_for_failures()
    assert dispatcher.statistics().peak <= total
    assert ([], (0, 0, 0)) == (working, left_over(dispatcher))
