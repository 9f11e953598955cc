"""The model's order, also where hooks take their time or calls never come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext, ToolCallPart
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import SkipToolExecution

from dispatch.adapters.pydantic_ai import DispatchCapability, DispatchToolset
from tests.frameworks.pydantic_ai.agents import FILE, answers, asks, scripted, some_steps

LONG = 1000.0


class Hook(AbstractCapability[Any]):
    """Holds up, skips or refuses the calls of these ids, before their tools run."""

    def __init__(self, slow: Any = (), skipped: Any = (), refused: Any = ()) -> None:
        self.slow, self.skipped, self.refused = set(slow), set(skipped), set(refused)

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, args: dict[str, Any], **_: Any
    ) -> dict[str, Any]:
        if call.tool_call_id in self.slow:
            await some_steps(30)
        if call.tool_call_id in self.skipped:
            raise SkipToolExecution("skipped")
        if call.tool_call_id in self.refused:
            raise ModelRetry("refused")
        return args


class Log:
    """Writes down in what order the edits ran."""

    def __init__(self) -> None:
        self.order: list[int] = []

    async def edit(self, path: str, n: int) -> int:
        """Edit a file."""
        self.order.append(n)
        await asyncio.sleep(0)
        return n


def built(way: str, log: Log, hook: Hook, count: int = 4, **options: Any) -> Agent[Any, Any]:
    """An agent whose turn edits one file several times; the hook is given before dispatch."""
    turn = asks(*[("edit", {"path": "f", "n": n}) for n in range(count)])
    toolset = FunctionToolset[Any]([log.edit])
    given: dict[str, Any] = {"descriptors": {"edit": FILE}, "patience": LONG, **options}
    if way == "toolset":
        wrapped = DispatchToolset(toolset, **given)
        return Agent(scripted(turn), toolsets=[wrapped], capabilities=[hook])
    capabilities = [hook, DispatchCapability[Any](**given)]
    return Agent(scripted(turn), toolsets=[toolset], capabilities=capabilities)


async def test_a_slow_hook_does_not_turn_the_order_round(way: str) -> None:
    """A call that a hook holds up keeps its place before those behind it."""
    log = Log()
    await built(way, log, Hook(slow={"c0", "c2"})).run("go")
    assert [0, 1, 2, 3] == log.order


async def test_nobody_waits_for_calls_that_hooks_skip_or_refuse() -> None:
    """The capability knows at once that a call will not come: its successors do not wait."""
    log = Log()
    hook = Hook(slow={"c0", "c1"}, skipped={"c0"}, refused={"c1"})
    async with asyncio.timeout(10):
        told = answers(await built("capability", log, hook).run("go"))
    assert [2, 3] == log.order
    assert ["success", "retried", "success", "success"] == [outcome for _, outcome, _ in told]


async def test_nobody_waits_for_calls_that_do_not_validate() -> None:
    """The capability expects only what is valid: invalid and unknown calls hold up nobody."""
    log = Log()
    turn = asks(("edit", {}), ("odd", {}), ("edit", {"path": "f", "n": 1}))
    capability = DispatchCapability[Any](descriptors={"edit": FILE}, patience=LONG)
    agent = Agent(scripted(turn), tools=[log.edit], capabilities=[capability])
    async with asyncio.timeout(10):
        await agent.run("go")
    assert [1] == log.order


async def test_a_toolset_waits_for_such_calls_no_longer_than_its_patience() -> None:
    """A toolset alone cannot know that a call will not come: it waits, but not for long."""
    log = Log()
    hook = Hook(skipped={"c0"})
    async with asyncio.timeout(10):
        await built("toolset", log, hook, patience=0.01).run("go")
    assert [1, 2, 3] == log.order


async def test_a_toolset_expects_only_its_own_calls() -> None:
    """Calls of tools that another toolset has are not waited for."""
    log = Log()

    async def other(n: int) -> int:
        return n

    turn = asks(("other", {"n": 0}), ("edit", {"path": "f", "n": 1}), ("other", {"n": 2}))
    wrapped = DispatchToolset(
        FunctionToolset([log.edit]), descriptors={"edit": FILE}, patience=LONG
    )
    agent = Agent(scripted(turn), toolsets=[wrapped, FunctionToolset([other])])
    async with asyncio.timeout(10):
        result = await agent.run("go")
    assert [0, 1, 2] == [content for _, _, content in answers(result)]


@pytest.mark.parametrize("mode", ["sequential", "parallel", "parallel_ordered_events"])
async def test_the_hosts_execution_modes(way: str, mode: Any) -> None:
    """Whatever the host's mode is, nobody waits for a call that the host holds back."""
    log = Log()
    agent = built(way, log, Hook())
    async with asyncio.timeout(10):
        with Agent.parallel_tool_call_execution_mode(mode):
            await agent.run("go")
    assert [0, 1, 2, 3] == log.order


async def test_barriers_of_the_host_hold_up_nobody_else(way: str) -> None:
    """Calls behind a sequential tool come in a later segment, and wait for nothing else then."""
    log = Log()

    async def seq() -> str:
        return "alone"

    toolset = FunctionToolset[Any]([log.edit])
    toolset.add_function(seq, sequential=True)
    edits = [("edit", {"path": "f", "n": n}) for n in range(3)]
    turn = asks(edits[0], ("seq", {}), edits[1], ("seq", {}), edits[2])
    given: dict[str, Any] = {"descriptors": {"edit": FILE}, "patience": LONG}
    if way == "toolset":
        agent = Agent(scripted(turn), toolsets=[DispatchToolset(toolset, **given)])
    else:
        capabilities = [DispatchCapability[Any](**given)]
        agent = Agent(scripted(turn), toolsets=[toolset], capabilities=capabilities)
    async with asyncio.timeout(10):
        told = answers(await agent.run("go"))
    assert [0, "alone", 1, "alone", 2] == [content for _, _, content in told]


async def test_a_cancelled_run_leaves_nothing_behind() -> None:
    """Runs that end in the middle leave no expectations for the runs after them."""
    log = Log()
    gate = asyncio.Event()

    class Blocks(Hook):
        async def before_tool_execute(
            self, ctx: RunContext[Any], *, call: ToolCallPart, args: dict[str, Any], **_: Any
        ) -> dict[str, Any]:
            if call.tool_call_id == "c0":
                gate.set()
                await asyncio.Event().wait()
            return args

    agent = built("capability", log, Blocks(), grace=0.01)
    running = asyncio.create_task(agent.run("go"))
    await gate.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [] == log.order
    after = asks(("edit", {"path": "f", "n": 9}), first=1)
    async with asyncio.timeout(10):
        await agent.run("go", model=scripted(after))
    assert [9] == log.order
