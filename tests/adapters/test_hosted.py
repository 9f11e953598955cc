"""Calls that a host brings one by one become a turn, in the model's order."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    Status,
    ToolCall,
    ToolResult,
    UsageError,
)
from dispatch.adapters.hosted import HostedTools, HostedTurns
from dispatch.testing import run_in_virtual_time
from tests.adapters.hosts import SCHEMA, WRITES, Arguments, change, hosted

IDS = ("a", "b", "c")
TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


async def bring(turns: HostedTurns, log: list[str], call_id: str, delay: float = 0.0) -> ToolResult:
    """One task of the host: a hook that takes `delay` seconds, then the call."""
    await asyncio.sleep(delay)

    async def invoke(arguments: Arguments) -> Any:
        log.append(f"{call_id} begins")
        await asyncio.sleep(1)
        log.append(f"{call_id} ends")
        return call_id

    before = IDS[: IDS.index(call_id)]
    return await turns.run("turn", change(call_id), invoke, before=before)


def test_the_models_order_holds_however_calls_arrive() -> None:
    """Conflicting calls run in the model's order though their hooks end in the opposite one."""

    async def turn() -> list[str]:
        log: list[str] = []
        turns = hosted(patience=5.0)
        delays = {"a": 0.3, "b": 0.2, "c": 0.1}
        await asyncio.gather(*(bring(turns, log, i, delays[i]) for i in IDS))
        return log

    expected = [f"{i} {what}" for i in IDS for what in ("begins", "ends")]
    assert expected == run_in_virtual_time(turn())


def test_a_call_that_never_comes_holds_up_nobody_for_long() -> None:
    """Those behind it go on after the patience, in the model's order among themselves."""

    async def turn() -> tuple[list[str], float]:
        log: list[str] = []
        turns = hosted(patience=0.5)
        await asyncio.gather(bring(turns, log, "c"), bring(turns, log, "b", 0.1))
        return log, asyncio.get_running_loop().time()

    log, seconds = run_in_virtual_time(turn())
    assert ["b begins", "b ends", "c begins", "c ends"] == log
    assert pytest.approx(2.6) == seconds


def test_nobody_waits_for_a_dropped_call() -> None:
    """A call that the host says will not come costs no time."""

    async def turn() -> float:
        turns = hosted(patience=5.0)
        turns.drop("turn", "a")
        await bring(turns, [], "b")
        return asyncio.get_running_loop().time()

    assert pytest.approx(1.0) == run_in_virtual_time(turn())


def test_a_call_that_ended_is_not_waited_for() -> None:
    """A host that hands over one call after the other loses no time by it."""

    async def turn() -> float:
        turns = hosted(patience=5.0)
        for call_id in IDS:
            await bring(turns, [], call_id)
        return asyncio.get_running_loop().time()

    assert pytest.approx(3.0) == run_in_virtual_time(turn())


def test_a_call_does_not_wait_for_its_own_id() -> None:
    """E6: where ids are repeated, the first to come waits for the others of its id no more."""

    async def turn() -> float:
        async def invoke(arguments: Arguments) -> None:
            return None

        await hosted(patience=5.0).run("turn", change(""), invoke, before=["", "a"])
        return asyncio.get_running_loop().time()

    assert pytest.approx(5.0) == run_in_virtual_time(turn())


def test_cancelling_one_task_stops_its_call_alone() -> None:
    """The cancelled call is over when the task ends; its sibling gets its result."""

    async def turn() -> tuple[list[str], str]:
        log: list[str] = []
        turns = hosted()
        first = asyncio.create_task(bring(turns, log, "a"))
        second = asyncio.create_task(bring(turns, log, "b"))
        await asyncio.sleep(0.5)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return log, (await second).status

    expected = (["a begins", "b begins", "b ends"], Status.OK)
    log, status = run_in_virtual_time(turn())
    assert expected == (log, status)


def test_cancelling_a_task_that_waits_for_its_place_lets_the_rest_go() -> None:
    """A call that is cancelled before it was admitted counts as one that never comes."""

    async def turn() -> float:
        turns = hosted(patience=5.0)
        middle = asyncio.create_task(bring(turns, [], "b"))
        last = asyncio.create_task(bring(turns, [], "c"))
        await asyncio.sleep(0.1)
        middle.cancel()
        turns.drop("turn", "a")
        await last
        return asyncio.get_running_loop().time()

    assert pytest.approx(1.1) == run_in_virtual_time(turn())


async def test_what_a_tool_raises_comes_back_as_it_is() -> None:
    """The host gets the very exception, which may mean something to it."""
    error = LookupError("deferred")

    async def invoke(arguments: Arguments) -> Any:
        raise error

    result = await hosted().run("turn", ToolCall("a", "free", {}), invoke)
    assert (Status.ERROR, True) == (result.status, result.exception is error)


async def test_what_must_end_the_program_is_raised() -> None:
    """H8: SystemExit of a tool is no result."""

    async def invoke(arguments: Arguments) -> Any:
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        await hosted().run("turn", ToolCall("a", "free", {}), invoke)


@pytest.mark.parametrize("name", ["free", "blocks"])
async def test_a_call_sees_the_context_variables_of_its_task(name: str) -> None:
    """M4: on the loop or in a thread it reads what its task set, and what it sets stays there."""

    def invoke(arguments: Arguments) -> Any:
        before = TENANT.get()
        TENANT.set("changed")
        return before, threading.get_ident()

    async def task(tenant: str) -> tuple[str, str, bool]:
        TENANT.set(tenant)
        call = ToolCall(tenant, name, {})
        value, thread = (await hosted().run("turn", call, invoke)).unwrap()
        return value, TENANT.get(), thread == threading.get_ident()

    tasks = [asyncio.create_task(task(tenant)) for tenant in ("x", "y")]
    assert [(i, i, name == "free") for i in ("x", "y")] == await asyncio.gather(*tasks)


async def test_a_sync_tool_blocks_nobody() -> None:
    """M1: two blocking calls overlap, since each waits for the other's thread."""
    barrier = threading.Barrier(2)
    turns = hosted()
    calls = [ToolCall(i, "blocks", {}) for i in ("a", "b")]
    results = await asyncio.gather(
        *(turns.run("turn", call, lambda arguments: barrier.wait(10)) for call in calls)
    )
    assert [0, 1] == sorted(result.unwrap() for result in results)


async def test_a_thread_that_cannot_be_stopped_keeps_its_claims() -> None:
    """A cancelled call whose thread runs on is given up, and nobody else gets its key."""
    go, log = threading.Event(), list[str]()
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    tools = HostedTools()
    tools.see("change", WRITES, schema=SCHEMA, sync=True)
    turns = HostedTurns(tools, grace=0.01)

    def stuck(arguments: Arguments) -> None:
        loop.call_soon_threadsafe(began.set)
        go.wait(10)
        log.append("first ends")

    task = asyncio.create_task(turns.run("one", change("a"), stuck))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    second = asyncio.create_task(
        turns.run("two", change("b"), lambda arguments: log.append("second"))
    )
    await asyncio.sleep(0.05)
    go.set()
    await second
    assert ["first ends", "second"] == log


def test_one_host_serves_two_loops() -> None:
    """K6: calls of one turn key on two loops are two turns, and share claims and limits."""
    turns, log = hosted(), list[str]()

    async def invoke(arguments: Arguments) -> Any:
        log.append("begins")
        await asyncio.sleep(0.01)
        log.append("ends")

    def loop() -> None:
        asyncio.run(turns.run("turn", change("a"), invoke))

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert ["begins", "ends"] * 2 == log


@pytest.mark.parametrize(
    "options", [{"schedule": "groups"}, {"schedule": "clusters"}, {"policy": AllOrNothing()}]
)
def test_what_waits_for_a_whole_turn_is_refused(options: Any) -> None:
    """A host that waits for each call would wait for ever."""
    with pytest.raises(UsageError, match=r"one by one|one call after the other"):
        hosted(**options)
    HostedTurns(HostedTools(), one_by_one=False, **options)


async def test_a_whole_turn_rolls_back_together() -> None:
    """Where the whole turn comes at once, every policy holds."""

    async def works(arguments: Arguments) -> Any:
        return "done"

    async def fails(arguments: Arguments) -> Any:
        raise ValueError("no")

    turns = hosted(one_by_one=False, policy=AllOrNothing())
    turn = await turns.run_all([(change("a"), works), (change("b"), fails)])
    assert [Status.ROLLED_BACK, Status.ERROR] == [result.status for result in turn]
