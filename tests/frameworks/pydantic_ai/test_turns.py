"""One turn through pydantic-ai: order, overlap, one result per call, failures that stay alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    FunctionToolset,
    RunContext,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse

from dispatch import ToolConcurrency
from tests.frameworks.pydantic_ai.agents import (
    FILE,
    FREE,
    READS,
    Files,
    Meeting,
    Overlap,
    answers,
    asks,
    dispatched,
    scripted,
    some_steps,
)


async def test_two_edits_of_one_file(way: str) -> None:
    """A3: of two edits of one file the second sees what the first wrote, so both are there."""
    files = Files(f="a b")
    turn = asks(
        ("edit", {"path": "f", "old": "a", "new": "x"}),
        ("edit", {"path": "f", "old": "b", "new": "y"}),
    )
    agent = dispatched(way, scripted(turn), [files.edit], descriptors={"edit": FILE})
    result = await agent.run("go")
    assert "x y" == files.texts["f"]
    assert [("c0", "success", "a is x"), ("c1", "success", "b is y")] == answers(result)


async def test_without_dispatch_an_edit_is_lost() -> None:
    """The same turn without dispatch loses an edit, and says twice that all went well."""
    files = Files(f="a b")
    turn = asks(
        ("edit", {"path": "f", "old": "a", "new": "x"}),
        ("edit", {"path": "f", "old": "b", "new": "y"}),
    )
    result = await Agent(scripted(turn), tools=[files.edit]).run("go")
    assert "a y" == files.texts["f"]
    assert ["success", "success"] == [outcome for _, outcome, _ in answers(result)]


async def test_a_read_sees_the_write_before_it_and_not_the_one_behind(way: str) -> None:
    """B1: conflicting calls run in the model's order, reads as well as writes."""
    files = Files(f="a")
    turn = asks(
        ("edit", {"path": "f", "old": "a", "new": "b"}),
        ("read", {"path": "f"}),
        ("edit", {"path": "f", "old": "b", "new": "c"}),
    )
    agent = dispatched(
        way, scripted(turn), [files.edit, files.read], descriptors={"edit": FILE, "read": READS}
    )
    assert ("c1", "success", "b") == answers(await agent.run("go"))[1]
    assert "c" == files.texts["f"]


async def test_calls_that_share_nothing_run_side_by_side(way: str) -> None:
    """Reads, edits of other files and free calls are all in flight at the same time."""
    meeting = Meeting(4)

    async def edit(path: str) -> str:
        await meeting.join()
        return path

    async def read(path: str) -> str:
        await meeting.join()
        return path

    turn = asks(*[("edit", {"path": path}) for path in "ab"], *[("read", {"path": "c"})] * 2)
    agent = dispatched(way, scripted(turn), [edit, read], descriptors={"edit": FILE, "read": READS})
    assert ["a", "b", "c", "c"] == [content for _, _, content in answers(await agent.run("go"))]


async def test_no_more_at_once_than_allowed(way: str) -> None:
    """L1: fifty calls of a turn under a limit of four: never more, and all are answered."""
    overlap = Overlap()

    async def work(n: int) -> int:
        async with overlap:
            await some_steps(3)
        return n

    turn = asks(*[("work", {"n": n}) for n in range(50)])
    agent = dispatched(way, scripted(turn), [work], descriptors={"work": FREE}, max_concurrent=4)
    result = await agent.run("go")
    assert 4 == overlap.peak
    assert list(range(50)) == [content for _, _, content in answers(result)]


async def test_results_stand_in_the_models_order(way: str) -> None:
    """D6: the model reads results in the order of its calls, whichever ended first."""
    second_done = asyncio.Event()

    async def first() -> str:
        await second_done.wait()
        return "A"

    async def second() -> str:
        second_done.set()
        return "B"

    agent = dispatched(
        way,
        scripted(asks(("first", {}), ("second", {}))),
        [first, second],
        descriptors={"first": FREE, "second": FREE},
    )
    told = answers(await agent.run("go"))
    assert [("c0", "success", "A"), ("c1", "success", "B")] == told


async def test_the_same_turn_gives_the_same_bytes(way: str) -> None:
    """D7: ten timings of one turn, whose calls end in different orders, give identical bytes."""
    turn = asks(*[("work", {"n": n}) for n in range(4)], ("fail", {}))
    seen, orders = set(), set()
    for shift in range(10):
        ended: list[int] = []

        async def work(n: int) -> str:
            await some_steps((n * 7 + shift * 3) % 11)  # noqa: B023 - it runs in this round
            ended.append(n)  # noqa: B023
            return f"{n}"

        async def fail() -> str:
            raise ValueError("no")

        toolset = FunctionToolset[Any]()
        toolset.add_function(work)
        toolset.add_function(fail)
        agent = dispatched(way, scripted(turn), toolset, descriptors={"work": FREE, "fail": FREE})
        seen.add(repr(answers(await agent.run("go"))))
        orders.add(tuple(ended))
    assert 1 == len(seen)
    assert len(orders) > 3


async def test_a_refused_call_keeps_its_place(way: str) -> None:
    """D8: a call whose arguments do not validate is told behind a slow one before it."""

    async def slow() -> str:
        await some_steps()
        return "ok"

    agent = dispatched(
        way,
        scripted(asks(("slow", {}), ("slow", {"odd": 1}), ("slow", {}))),
        [slow],
        descriptors={"slow": FREE},
    )
    told = answers(await agent.run("go"))
    assert [("c0", "success"), ("c1", "retried"), ("c2", "success")] == [t[:2] for t in told]


class Counter:
    """Shared state that its users read, wait and write."""

    def __init__(self) -> None:
        self.value = 0


async def increment(ctx: RunContext[Counter]) -> int:
    """Count one up."""
    value = ctx.deps.value
    await some_steps(3)
    ctx.deps.value = value + 1
    return ctx.deps.value


@pytest.mark.parametrize(
    "options",
    [{}, {"descriptors": {"increment": ToolConcurrency(writes="state:counter")}}],
    ids=["undeclared", "declared"],
)
async def test_a_counter_in_shared_deps(way: str, options: dict[str, Any]) -> None:
    """T1: ten increments of a counter in the deps end at ten, declared or not."""
    counter = Counter()
    agent = dispatched(
        way,
        scripted(asks(*[("increment", {})] * 10)),
        [increment],
        agent={"deps_type": Counter},
        **options,
    )
    result = await agent.run("go", deps=counter)
    assert 10 == counter.value
    assert list(range(1, 11)) == [content for _, _, content in answers(result)]


async def test_undeclared_tools_may_be_let_loose(way: str) -> None:
    """undeclared="parallel" is the opt-out: the same ten increments then lose updates."""
    counter = Counter()
    agent = dispatched(
        way,
        scripted(asks(*[("increment", {})] * 10)),
        [increment],
        agent={"deps_type": Counter},
        undeclared="parallel",
        max_concurrent=10,
    )
    await agent.run("go", deps=counter)
    assert 1 == counter.value


async def test_only_a_sequential_tool_runs_alone(way: str) -> None:
    """U3: of [read, read, seq, read] only `seq` runs alone; the reads before it overlap."""
    meeting = Meeting(2)
    overlap = Overlap()
    order = []

    async def read(n: int) -> int:
        async with overlap:
            if n < 2:
                await meeting.join()
        order.append(n)
        return n

    async def seq() -> str:
        assert 0 == overlap.now
        order.append(9)
        return "alone"

    toolset = FunctionToolset[Any]([read])
    toolset.add_function(seq, sequential=True)
    turn = asks(("read", {"n": 0}), ("read", {"n": 1}), ("seq", {}), ("read", {"n": 2}))
    agent = dispatched(way, scripted(turn), toolset, descriptors={"read": FREE})
    told = answers(await agent.run("go"))
    assert [0, 1, "alone", 2] == [content for _, _, content in told]
    assert [9, 2] == order[2:]


async def test_the_history_is_what_pydantic_ai_would_write(way: str) -> None:
    """Requests and responses alternate, every result stands behind its call, all can be stored."""
    files = Files(f="a")
    turn = asks(("read", {"path": "f"}), ("read", {"path": "f"}))
    agent = dispatched(way, scripted(turn), [files.read], descriptors={"read": READS})
    messages = (await agent.run("go")).all_messages()
    kinds = [type(message) for message in messages]
    assert [ModelRequest, ModelResponse, ModelRequest, ModelResponse] == kinds
    stored = ModelMessagesTypeAdapter.dump_json(messages)
    assert messages == ModelMessagesTypeAdapter.validate_json(stored)
