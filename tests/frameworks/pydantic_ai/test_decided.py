"""What dispatch itself decides reaches the model as a failed result, and never ends the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, ModelRetry

from dispatch import Change, Deny, Limits, Quorum, ResourceTable, ToolConcurrency, UsageError, write
from dispatch.adapters.pydantic_ai import DispatchCapability, DispatchToolset
from tests.frameworks.pydantic_ai.agents import (
    CHECK,
    FILE,
    FREE,
    answers,
    asks,
    dispatched,
    scripted,
)


async def never() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


async def test_a_time_limit(way: str) -> None:
    """A call that takes too long is a failed result; no retry is taken, the run goes on."""
    agent = dispatched(
        way,
        scripted(asks(("never", {})), asks(("never", {}), first=1)),
        [never],
        agent={"retries": 0},
        call_timeout=0.05,
        grace=0.05,
    )
    result = await agent.run("go")
    text = f"[timed_out] timed out after 0.05 s while running{CHECK}"
    assert [("c0", "failed", text), ("c1", "failed", text)] == answers(result)
    assert "done" == result.output


async def test_the_time_limit_covers_waiting(way: str) -> None:
    """A call that waits for another run's lock is told so, and never started."""
    table = ResourceTable()

    async def edit(path: str) -> str:
        return path

    agent = dispatched(
        way,
        scripted(asks(("edit", {"path": "f"}))),
        [edit],
        descriptors={"edit": FILE},
        resources=table,
        call_timeout=0.05,
    )
    async with table.hold(write("file", "f")):
        told = answers(await agent.run("go"))
    assert ("c0", "failed") == told[0][:2]
    assert "never started" in told[0][2]


async def test_a_gates_denial(way: str) -> None:
    """A gate's reason is what the model reads; its tool does not run."""
    ran = []

    async def act(n: int) -> int:
        ran.append(n)
        return n

    async def gate(call: Any, context: Any) -> Any:
        return Deny("not on a Sunday") if context.arguments["n"] == 1 else Change({"n": 7})

    agent = dispatched(
        way, scripted(asks(*[("act", {"n": n}) for n in range(2)])), [act], gates=[gate]
    )
    told = answers(await agent.run("go"))
    assert ("c0", "success", 7) == told[0]
    assert ("c1", "failed") == told[1][:2]
    assert "not on a Sunday" in told[1][2]
    assert [7] == ran


async def test_a_quorum(way: str) -> None:
    """U6: once two of three searches are back, the third is cancelled, and told why."""

    async def search(n: int) -> int:
        if n == 1:
            await asyncio.Event().wait()
        return n

    agent = dispatched(
        way,
        scripted(asks(*[("search", {"n": n}) for n in range(3)])),
        [search],
        descriptors={"search": FREE},
        policy=Quorum(2),
        grace=0.05,
    )
    told = answers(await agent.run("go"))
    assert ["success", "failed", "success"] == [outcome for _, outcome, _ in told]
    assert "quorum" in told[1][2]


async def test_a_deadlock(way: str) -> None:
    """Two runs that take two files crosswise: one call fails with the parties named; both end."""
    table = ResourceTable()
    both = asyncio.Barrier(2)

    async def outer(path: str, other: str) -> str:
        await both.wait()
        async with table.hold(write("file", other)):
            return f"{path} and {other}"

    def agent(path: str, other: str) -> Agent[Any, Any]:
        model = scripted(asks(("outer", {"path": path, "other": other})))
        return dispatched(way, model, [outer], descriptors={"outer": FILE}, resources=table)

    results = await asyncio.gather(agent("f", "g").run("go"), agent("g", "f").run("go"))
    told = sorted(answers(result)[0][1:] for result in results)
    assert ["failed", "success"] == [outcome for outcome, _ in told]
    assert "deadlock" in told[0][1] or "wait for each other" in told[0][1]


async def test_identical_calls(way: str) -> None:
    """A10: with duplicates="coalesce" three equal calls run once, and all three are answered."""
    ran = []

    async def append(text: str) -> str:
        ran.append(text)
        return "appended"

    agent = dispatched(
        way,
        scripted(asks(*[("append", {"text": "x"})] * 3)),
        [append],
        duplicates="coalesce",
    )
    told = answers(await agent.run("go"))
    assert ["x"] == ran
    assert [("success", "appended")] * 3 == [one[1:] for one in told]


async def test_identical_calls_that_ask_for_a_retry(way: str) -> None:
    """What the one that ran says to pydantic-ai, it says for all of them."""

    async def fetch() -> str:
        raise ModelRetry("say which")

    agent = dispatched(
        way, scripted(asks(("fetch", {}), ("fetch", {}))), [fetch], duplicates="coalesce"
    )
    told = answers(await agent.run("go"))
    assert [("retried", "say which")] * 2 == [one[1:] for one in told]


async def test_a_tool_that_cancels_itself(way: str) -> None:
    """H1: a CancelledError that nobody asked for is that call's failure, and not the run's end."""

    async def odd() -> str:
        raise asyncio.CancelledError

    async def fine() -> str:
        return "fine"

    agent = dispatched(
        way,
        scripted(asks(("odd", {}), ("fine", {}))),
        [odd, fine],
        descriptors={"odd": FREE, "fine": FREE},
    )
    told = answers(await agent.run("go"))
    assert ("c0", "failed") == told[0][:2]
    assert "cancelled itself" in told[0][2]
    assert ("c1", "success", "fine") == told[1]


async def test_a_call_that_cannot_be_stopped(way: str) -> None:
    """An `async def` that ignores its cancel is given up: its result says that it may still run.

    Calls that need what it keeps are told so at once, and others run.
    """
    goes_on = asyncio.Event()

    async def edit(path: str, stubborn: bool) -> str:
        while stubborn and not goes_on.is_set():
            try:
                await goes_on.wait()
            except asyncio.CancelledError:
                continue
        return path

    turn = asks(
        ("edit", {"path": "f", "stubborn": True}),
        ("edit", {"path": "f", "stubborn": False}),
        ("edit", {"path": "g", "stubborn": False}),
    )

    def limit(seconds: float) -> Any:
        def wrap(following: Any) -> Any:
            async def limited(call: Any, context: Any) -> Any:
                if call.arguments["stubborn"]:
                    context.time_out(f"no more than {seconds:g} s")
                return await following(call, context)

            return limited

        return wrap

    agent = dispatched(
        way,
        scripted(turn),
        [edit],
        descriptors={"edit": FILE},
        middleware=[limit(0)],
        grace=0.02,
    )
    told = answers(await agent.run("go"))
    assert ["failed", "failed", "success"] == [outcome for _, outcome, _ in told]
    assert "may still be running" in told[0][2]
    assert "could not be stopped" in told[1][2]
    goes_on.set()


async def test_a_closed_dispatcher_refuses(way: str) -> None:
    """After aclose() calls are refused with a reason, and the run goes on."""
    toolset = FunctionToolset([never])
    wrapped = DispatchToolset(toolset)
    capability = DispatchCapability[Any]()
    await (wrapped if way == "toolset" else capability).dispatcher.aclose()
    model = scripted(asks(("never", {})))
    if way == "toolset":
        agent = Agent(model, toolsets=[wrapped])
    else:
        agent = Agent(model, toolsets=[toolset], capabilities=[capability])
    told = answers(await agent.run("go"))
    assert ("c0", "failed") == told[0][:2]
    assert "closed" in told[0][2]


async def test_a_limit_of_a_tool(way: str) -> None:
    """Limits by tool name hold, and hold up no other tool."""
    limits = Limits(total=8, per_tool={"slow": 1})
    inside = asyncio.Barrier(2)

    async def slow(n: int) -> int:
        await inside.wait()
        return n

    async def quick() -> str:
        await inside.wait()
        return "quick"

    agent = dispatched(
        way,
        scripted(asks(("slow", {"n": 0}), ("slow", {"n": 1}), ("quick", {}), ("quick", {}))),
        [slow, quick],
        descriptors={"slow": FREE, "quick": ToolConcurrency(session="s", read_only=True)},
        limits=limits,
    )
    told = answers(await agent.run("go"))
    assert [0, 1, "quick", "quick"] == [content for _, _, content in told]


@pytest.mark.parametrize("option", [{"schedule": "groups"}, {"schedule": "clusters"}])
def test_what_needs_the_whole_turn_is_refused(option: dict[str, Any]) -> None:
    """A schedule that starts nothing before the whole turn is known cannot be had here."""
    with pytest.raises(UsageError, match="one by one"):
        DispatchToolset(FunctionToolset([never]), **option)


async def test_serial(way: str) -> None:
    """U1: schedule="serial" runs one call at a time, whatever the tools declare."""
    inside: list[int] = []

    async def act(n: int) -> int:
        assert [] == inside
        inside.append(n)
        await asyncio.sleep(0)
        inside.remove(n)
        return n

    turn = asks(*[("act", {"n": n}) for n in range(5)])
    agent = dispatched(way, scripted(turn), [act], descriptors={"act": FREE}, schedule="serial")
    assert list(range(5)) == [content for _, _, content in answers(await agent.run("go"))]
