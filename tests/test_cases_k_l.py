"""Several loops, threads and caps: nothing hangs silently, and nobody's threads are used up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from dispatch import (
    CallContext,
    Dispatcher,
    Limits,
    ResourceTable,
    Status,
    Tool,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.testing import assert_no_leaks
from tests.runtime.keyed import left_over, statuses
from tests.timeline import calls

SLACK = 3.0
"""Seconds that a loaded machine may take beyond what is promised."""


def agents(limit: int) -> tuple[Dispatcher, Dispatcher]:
    """`ask` is a `def` tool that runs another agent's calls, and waits for them in its thread."""
    limits = Limits(limit)
    inner = Dispatcher([Tool("answer", answer, writes="key:{key}")], limits=limits)

    @tool(safe_parallel=True)
    def ask(key: str) -> list[str]:
        turn = inner.run_sync(calls(("answer", {"key": key}), ("answer", {"key": "shared"})))
        return [str(result.value) for result in turn]

    return Dispatcher([ask], limits=limits), inner


async def answer(key: str) -> str:
    await asyncio.sleep(0.001)
    return f"about {key}"


@pytest.mark.parametrize("limit", [1, 2, 8])
async def test_many_def_tools_that_run_another_agent_never_freeze(limit: int) -> None:
    """K5: twelve at once on a running loop, more than the slots that both agents share, all writing
    one key of the other agent: everything is answered, in each of ten rounds."""
    outer, inner = agents(limit)
    turn = calls(*(("ask", {"key": f"k{n}"}) for n in range(12)))
    for _ in range(10):
        result = await outer.run(turn, timeout=10)
        assert [[f"about k{n}", "about shared"] for n in range(12)] == [r.value for r in result]
    assert (0, 0, 0) == left_over(outer, inner)


async def test_run_sync_where_it_would_block_the_loop_is_an_error_at_once() -> None:
    """K5: an `async def` tool that runs another agent with `run_sync` is told what to write."""
    inner = Dispatcher([Tool("answer", answer, safe_parallel=True)])

    @tool(safe_parallel=True)
    async def ask() -> object:
        return inner.run_sync(calls(("answer", {"key": "k"})))

    (result,) = await Dispatcher([ask]).run(calls(("ask", {})), timeout=10)
    assert Status.ERROR is result.status
    assert "run_sync was called on a running event loop" in result.content()


class TwoLoops:
    """One dispatcher, made outside of any loop and used from two; who overlapped whom."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.overlaps: list[tuple[str, ...]] = []
        self.table = ResourceTable()
        self.holds, self.go_on = threading.Event(), threading.Event()
        self.dispatcher = Dispatcher(
            [Tool("use", self.use, writes="key:k"), Tool("keep", self.keep, writes="key:k")],
            resources=self.table,
        )

    async def use(self, who: str) -> str:
        """Be at the key for some steps of the loop."""
        self.overlaps += [(who, *self.running)] if self.running else []
        self.running.append(who)
        await asyncio.sleep(0.001)
        self.running.remove(who)
        return who

    async def keep(self) -> None:
        """Be at the key until somebody else waits for it."""
        self.running.append("keeper")
        self.holds.set()
        while not self.go_on.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.001)
        self.running.remove("keeper")


def in_a_loop_of_its_own(main: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    return thread


async def test_a_loop_that_sleeps_is_woken_by_the_other_loop() -> None:
    """K6: loop B holds the key, so loop A has nothing to do but wait: it goes on when B lets go,
    and the other way round; `table.hold` is the same."""
    world = TwoLoops()
    results: list[TurnResult] = []
    other = in_a_loop_of_its_own(
        lambda: results.append(
            world.dispatcher.run_sync(calls(("keep", {}), ("use", {"who": "B"})))
        )
    )
    await asyncio.to_thread(world.holds.wait, 10)
    mine = asyncio.create_task(world.dispatcher.run(calls(("use", {"who": "A"})), timeout=10))
    while not world.table.statistics().waiting:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.001)
    world.go_on.set()
    assert ["ok"] == statuses(await mine)
    async with asyncio.timeout(10), world.table.hold(("key", "k")):
        assert [] == world.running
    await asyncio.to_thread(other.join, 10)
    assert [["ok", "ok"]] == [statuses(turn) for turn in results]
    assert ([], (0, 0, 0)) == (world.overlaps, left_over(world.dispatcher))


async def test_two_loops_that_take_turns_never_overlap_and_never_sleep_for_ever() -> None:
    """K6: forty turns from each of two loops at once, all on one key."""
    world = TwoLoops()
    ended: list[TurnResult] = []

    async def many(who: str) -> None:
        run = world.dispatcher.run
        turns = (run(calls(("use", {"who": f"{who}{n}"})), timeout=15) for n in range(40))
        ended.extend(await asyncio.gather(*turns))

    other = in_a_loop_of_its_own(lambda: asyncio.run(many("B")))
    await many("A")
    await asyncio.to_thread(other.join, 15)
    assert [["ok"]] * 80 == [statuses(turn) for turn in ended]
    assert ([], (0, 0, 0)) == (world.overlaps, left_over(world.dispatcher))


def test_a_stuck_thread_delays_neither_the_turn_nor_the_end_of_the_loop() -> None:
    """K9: time limit 1 s: the turn, `aclose` and `asyncio.run` are over though it still runs."""
    release = threading.Event()

    @tool(writes="key:k")
    def stuck() -> str:
        release.wait(60)
        return "late"

    async def main() -> TurnResult:
        async with Dispatcher([stuck], grace=0.1, resources=table) as dispatcher:
            return await dispatcher.run([ToolCall("", "stuck", {}, timeout=1.0)])

    table = ResourceTable()
    with assert_no_leaks(table, within=5.0):
        before = time.monotonic()
        turn = asyncio.run(main())
        took = time.monotonic() - before
        assert (["unknown"], False) == (statuses(turn), release.is_set())
        assert 1.0 <= took < 1.0 + 2 * 0.1 + 0.25 + SLACK
        release.set()


STUCK = """
import threading
from dispatch import Dispatcher, ToolCall, tool

@tool(safe_parallel=True)
def stuck() -> None:
    threading.Event().wait()

turn = Dispatcher([stuck], grace=0.1).run_sync([ToolCall("", "stuck", {}, timeout=0.1)])
print(turn[0].status)
"""


def test_a_stuck_thread_does_not_keep_the_program_from_ending() -> None:
    """K9: nobody joins it when the interpreter ends either."""
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, timeout=15)
    assert (0, b"unknown\n", b"") == (ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("limit", [64, 8])
async def test_blocking_tools_leave_the_default_pool_to_others(limit: int) -> None:
    """K10: 64 blocking tools, as many at once as the limit says: a probe that needs the loop's
    default pool runs beside them, and there are no more threads than slots."""
    at_work, release = threading.Semaphore(0), threading.Event()
    threads: set[str] = set()

    @tool(safe_parallel=True)
    def block() -> None:
        threads.add(threading.current_thread().name)
        at_work.release()
        release.wait(15)

    dispatcher = Dispatcher([block], max_concurrent=limit)
    running = asyncio.create_task(dispatcher.run(calls(*([("block", {})] * 64))))
    for _ in range(limit):
        assert await asyncio.to_thread(at_work.acquire, timeout=10)
    probes = await asyncio.wait_for(
        asyncio.gather(*(asyncio.to_thread(threading.get_ident) for _ in range(8))), 10
    )
    assert (8, limit, False) == (len(probes), len(threads), running.done())
    release.set()
    assert {Status.OK: 64} == (await running).stats.statuses


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("way", ["run", "run_sync", "nested"])
def test_a_cap_of_one_is_kept_in_every_path(way: str, kind: str) -> None:
    """L3: five calls without conflicts, cap 1: one at a time, from a loop, without one, and below a
    call that has given its slot back."""
    lock, at_work, peaks = threading.Lock(), 0, []

    def enter(change: int) -> None:
        nonlocal at_work
        with lock:
            at_work += change
            peaks.append(at_work)

    async def on_the_loop() -> None:
        enter(1)
        await asyncio.sleep(0.005)
        enter(-1)

    def in_a_thread() -> None:
        enter(1)
        time.sleep(0.005)  # so that another one would come meanwhile
        enter(-1)

    @tool(safe_parallel=True)
    async def parent(ctx: CallContext) -> list[str]:
        return statuses(await ctx.run(turn))

    turn = calls(*([("work", {})] * 5))
    handler = on_the_loop if kind == "async def" else in_a_thread
    work = Tool("work", handler, safe_parallel=True)
    dispatcher = Dispatcher([work, parent], max_concurrent=1)
    if way == "run":
        assert ["ok"] * 5 == statuses(asyncio.run(dispatcher.run(turn)))
    elif way == "run_sync":
        assert ["ok"] * 5 == statuses(dispatcher.run_sync(turn))
    else:
        assert ["ok"] * 5 == dispatcher.run_sync(calls(("parent", {})))[0].value
    assert (10, 1) == (len(peaks), max(peaks))
