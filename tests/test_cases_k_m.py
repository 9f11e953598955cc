"""Needless waiting, fan-out, blocking tools, threads and context variables."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import threading

import pytest

from dispatch import Dispatcher, Limits, Tool, commute, tool
from dispatch.testing import run_in_virtual_time
from tests.timeline import Timeline, calls, dispatched


def test_two_calls_of_one_extension_take_as_long_as_one() -> None:
    """K7: what two tools share is claimed in a mode that they can share, so nobody waits; the
    call that takes the extension down waits for both."""
    timeline = Timeline()

    @tool(resource_keys=lambda given: [commute("call", "extension", "github")])
    async def ask(name: str) -> None:
        with timeline.span(name):
            await asyncio.sleep(3)

    @tool(resource_keys=lambda given: [("extension", "github")])
    async def restart(name: str) -> None:
        with timeline.span(name):
            await asyncio.sleep(1)

    turn = calls(("ask", {"name": "a"}), ("ask", {"name": "b"}), ("restart", {"name": "c"}))
    dispatched([ask, restart], turn)
    assert {"a": (0, 3), "b": (0, 3), "c": (3, 4)} == timeline.spans


OBJECT = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    ("declared", "seconds"),
    [
        ({"read_only": True}, 1.0),
        ({"reads": ["db:orders"]}, 1.0),
        ({"safe_parallel": True}, 1.0),
        ({}, 3.0),
        ({"writes": ["db:orders"]}, 3.0),
        ({"read_only": True, "session": "db"}, 3.0),
    ],
    ids=["read_only", "reads", "safe_parallel", "undeclared", "writes", "session"],
)
def test_tools_made_at_run_time_overlap_when_they_only_read(
    declared: dict[str, object], seconds: float
) -> None:
    """K8: three reads of tools with a hand-written schema take as long as one; a tool that says
    nothing is kept alone."""

    async def handler(name: str) -> str:
        await asyncio.sleep(1)
        return name

    dynamic = Tool("dynamic", handler, input_schema=OBJECT, **declared)  # type: ignore[arg-type]
    turn = calls(*(("dynamic", {"name": name}) for name in "abc"))
    result = dispatched([dynamic], turn)
    assert ["a", "b", "c"] == [each.value for each in result]
    assert seconds == result.stats.makespan


def first_come_first_served(durations: list[float], slots: int) -> list[float]:
    """When each call starts if the first in line takes each slot as soon as it is free."""
    free = [0.0] * slots
    starts = []
    for duration in durations:
        starts.append(heapq.heappop(free))
        heapq.heappush(free, starts[-1] + duration)
    return starts


@pytest.mark.parametrize("limit", ["total", "per_tool", "per_tag"])
def test_fifty_calls_under_a_cap_of_four(limit: str) -> None:
    """L1: never more than four at once, no slot idle while a call waits, first come first
    served, and all fifty are answered."""
    running, peak = 0, 0

    @tool(safe_parallel=True, tags={"web"})
    async def fetch(number: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(1 + number % 3)
        running -= 1
        return number

    limits = {
        "total": Limits(4),
        "per_tool": Limits(50, per_tool={"fetch": 4}),
        "per_tag": Limits(50, per_tag={"web": 4}),
    }

    async def main() -> None:
        turn = calls(*(("fetch", {"number": number}) for number in range(50)))
        result = await Dispatcher([fetch], limits=limits[limit]).run(turn)
        assert list(range(50)) == [each.value for each in result]
        assert (4, 4) == (peak, result.stats.peak)
        starts = first_come_first_served([1 + number % 3 for number in range(50)], slots=4)
        assert starts == [each.started_at for each in result]

    run_in_virtual_time(main())


def test_a_cap_is_eight_unless_somebody_says_so() -> None:
    """L1: a model that asks for fifty things at once does not get fifty things at once."""

    @tool(safe_parallel=True)
    async def fetch() -> None:
        await asyncio.sleep(1)

    assert 8 == dispatched([fetch], calls(*([("fetch", {})] * 50))).stats.peak


async def test_blocking_tools_block_neither_each_other_nor_the_loop() -> None:
    """M1: two `def` tools block until both run, and then until the loop has gone on ticking."""
    both_run = threading.Barrier(2)
    blocked, ticked = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool(safe_parallel=True)
    def block(name: str) -> str:
        both_run.wait(10)
        loop.call_soon_threadsafe(blocked.set)
        return name if ticked.wait(10) else "the loop stood still"

    async def tick() -> None:
        await blocked.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        ticked.set()

    turn = calls(("block", {"name": "a"}), ("block", {"name": "b"}))
    async with Dispatcher([block]) as dispatcher:
        result, _ = await asyncio.gather(dispatcher.run(turn), tick())
    assert ["a", "b"] == [each.value for each in result]


TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")


@pytest.mark.parametrize("count", [1, 2], ids=["single", "side by side"])
async def test_context_variables_reach_worker_threads_and_stay_there(count: int) -> None:
    """M4: every `def` tool sees the caller's variables, and none sees what another one set."""
    meeting = threading.Barrier(count)

    @tool(safe_parallel=True)
    def who(name: str) -> list[str]:
        seen = [TENANT.get()]
        TENANT.set(f"{seen[0]} as {name}")
        meeting.wait(10)
        return [*seen, TENANT.get()]

    TENANT.set("acme")
    async with Dispatcher([who]) as dispatcher:
        result = await dispatcher.run(calls(*(("who", {"name": f"t{n}"}) for n in range(count))))
    assert [["acme", f"acme as t{n}"] for n in range(count)] == [each.value for each in result]
    assert "acme" == TENANT.get()


def test_context_variables_reach_async_tools_and_stay_there() -> None:
    """M4: the same for `async def` tools, with the values of the moment of the submission."""

    @tool(safe_parallel=True)
    async def who(name: str) -> list[str]:
        seen = TENANT.get()
        TENANT.set(name)
        await asyncio.sleep(1)
        return [seen, TENANT.get()]

    first, second = calls(("who", {"name": "a"}), ("who", {"name": "b"}))

    async def main() -> None:
        async with Dispatcher([who]).turn() as turn:
            for tenant, call in (("x", first), ("y", second)):
                TENANT.set(tenant)
                turn.submit(call)
            TENANT.set("later")
            result = await turn.finish()
        assert [["x", "a"], ["y", "b"]] == [each.value for each in result]
        assert "later" == TENANT.get()

    run_in_virtual_time(main())


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("text", ["x", "asyncio.run() cannot be called from a running event loop"])
def test_a_runtime_error_of_a_tool_is_its_own_and_it_is_not_run_again(kind: str, text: str) -> None:
    """M5: from code without a loop, a tool that raises RuntimeError runs once and is reported."""
    runs: list[str] = []

    async def on_the_loop() -> None:
        runs.append("once")
        raise RuntimeError(text)

    def in_a_thread() -> None:
        runs.append("once")
        raise RuntimeError(text)

    handler = on_the_loop if kind == "async def" else in_a_thread
    (result,) = Dispatcher([Tool("t", handler)]).run_sync(calls(("t", {})))
    assert ["once"] == runs
    assert 1 == result.attempts
    assert f"[error] RuntimeError: {text}" == result.content()
