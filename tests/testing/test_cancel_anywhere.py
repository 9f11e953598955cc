"""A cancel before every step that any task of a turn takes: the guarantees hold, nothing leaks."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    BestEffort,
    CallContext,
    Dispatcher,
    Limits,
    Quorum,
    ResourceTable,
    ToolCall,
    TurnResult,
    read,
    tool,
    write,
)
from dispatch.core.policy import Policy
from dispatch.testing import assert_no_leaks, explore, explore_cancels

POLICIES: dict[str, Policy] = {
    "best-effort": BestEffort(),
    "all-or-nothing": AllOrNothing(),
    "quorum": Quorum(2),
}
SCHEDULES = ("dataflow", "groups", "clusters", "serial")
SEEDS = 5
FINAL = {"ok", "error", "cancelled", "skipped", "rolled_back"}


class World:
    """Two files, and who is at them; every tool notes when it comes and goes."""

    def __init__(self) -> None:
        self.at: dict[str, list[str]] = {"a": [], "b": []}
        self.overlaps: list[str] = []
        self.undone: list[str] = []
        self.table = ResourceTable()
        self.limits = Limits(2)

    async def use(self, key: str, mode: str) -> None:
        """Be at a file for a while."""
        there = self.at[key]
        if there and (mode == "write" or "write" in there):
            self.overlaps.append(f"{mode} of {key} beside {there}")
        there.append(mode)
        try:
            await asyncio.sleep(1)
            await asyncio.sleep(0)
        finally:
            there.remove(mode)

    def dispatcher(self, **options: Any) -> Dispatcher:
        """Tools that read, write, fail, and write by calls of their own."""

        @tool(resource_keys=lambda arguments: [read(arguments["key"])])
        async def look(key: str) -> str:
            await self.use(key, "read")
            return key

        @tool(resource_keys=lambda arguments: [write(arguments["key"])])
        async def edit(key: str, context: CallContext) -> str:
            context.on_rollback(self.undone.append, key)
            await self.use(key, "write")
            return key

        @tool(resource_keys=lambda arguments: [read(arguments["key"])])
        async def broken(key: str) -> str:
            await self.use(key, "read")
            raise ValueError(key)

        @tool(safe_parallel=True)
        async def agent(context: CallContext) -> int:
            inner = [ToolCall("n0", "edit", {"key": "a"}), ToolCall("n1", "look", {"key": "b"})]
            turn = await context.run(inner)
            return len(turn)

        tools = [look, edit, broken, agent]
        return Dispatcher(tools, resources=self.table, limits=self.limits, grace=0.5, **options)


CALLS = [
    ToolCall("c0", "look", {"key": "a"}),
    ToolCall("c1", "edit", {"key": "a"}),
    ToolCall("c2", "agent", {}),
    ToolCall("c3", "broken", {"key": "b"}),
    ToolCall("c4", "look", {"key": "a"}, after=("c3",)),
]


def scenario(schedule: str, policy: Policy) -> Callable[[], Coroutine[Any, Any, None]]:
    """One turn in a world of its own; afterwards everything that the turn promised is looked at."""

    async def run() -> None:
        world = World()
        turn: TurnResult | None = None
        async with assert_no_leaks(world.table, limits=world.limits):
            dispatcher = world.dispatcher(schedule=schedule, policy=policy)
            try:
                turn = await dispatcher.run(CALLS)
            except asyncio.CancelledError as error:
                turn = getattr(error, "turn", None)
                raise
            finally:
                await dispatcher.aclose()
        if turn is not None:
            check(world, turn)

    return run


def check(world: World, turn: TurnResult) -> None:
    """One final result per call in the order of the calls, and nobody was where they must not."""
    assert [call.id for call in CALLS] == [result.call.id for result in turn]
    assert {str(result.status) for result in turn} <= FINAL
    assert [] == world.overlaps
    assert {"a": [], "b": []} == world.at


@pytest.mark.timeout(120)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cancel_at_any_step_leaves_nothing_behind(schedule: str, policy: str) -> None:
    """Cancelled before each step of any task: one result per call, no overlap, nothing left."""
    runs = [explore_cancels(scenario(schedule, POLICIES[policy]), seed=n) for n in range(SEEDS)]
    assert min(runs) >= 10


@pytest.mark.timeout(120)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("policy", POLICIES)
def test_whichever_task_goes_on_first_nothing_overlaps(schedule: str, policy: str) -> None:
    """The same turn in many interleavings."""
    explore(scenario(schedule, POLICIES[policy]), seeds=range(20))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_the_same_where_tasks_begin_eagerly(policy: str) -> None:
    """Tools whose first steps run inside `create_task`: any interleaving, a cancel at any step."""
    explore(scenario("dataflow", POLICIES[policy]), seeds=range(20), eager=True)
    assert explore_cancels(scenario("dataflow", POLICIES[policy]), eager=True) > 5
