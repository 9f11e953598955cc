"""Statistics of a dispatcher: what its turns add up to, in exact numbers and virtual time."""

import asyncio
import threading

from dispatch import (
    CallContext,
    CancelToken,
    Dispatcher,
    DispatcherStats,
    Status,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Stage, at, call

WORKED = (
    call("a", "change", key="k", seconds=2.0),
    call("b", "change", key="k", seconds=3.0),
    call("c", seconds=4.0),
)


def test_a_dispatcher_adds_up_its_turns() -> None:
    """A turn of 2 s at 0, one of 3 s at 1, and after a pause one of 1 s: busy for 5 s of 11."""
    dispatcher = Dispatcher(Stage().tools)

    async def main() -> None:
        first = asyncio.create_task(dispatcher.run([call("a", seconds=2.0)]))
        await asyncio.sleep(1)
        assert DispatcherStats(running=1, peak=1) == dispatcher.statistics()
        second = asyncio.create_task(
            dispatcher.run([call("b", seconds=3.0), call("c", seconds=1.0, fails=True)])
        )
        await asyncio.sleep(0.5)
        assert (3, 3, 0) == (
            dispatcher.statistics().running,
            dispatcher.statistics().peak,
            dispatcher.statistics().turns,
        )
        await first
        await second
        await asyncio.sleep(6)
        await dispatcher.run([call("d")])

    run_in_virtual_time(main())
    measured = dispatcher.statistics()
    assert (
        DispatcherStats(
            turns=3,
            calls=4,
            makespan=6.0,
            busy=5.0,
            run_time=7.0,
            running=0,
            peak=3,
            lower_bound=6.0,
            statuses={Status.OK: 3, Status.ERROR: 1},
        )
        == measured
    )
    assert (1.4, 1.0, 0.0) == (
        measured.parallelism_factor,
        measured.stretch,
        measured.cancellation_rate,
    )


def test_a_dispatcher_adds_up_waits_and_conflicts() -> None:
    """Twice the worked example, and a cancelled turn."""
    dispatcher = Dispatcher(Stage().tools)

    async def main() -> None:
        await dispatcher.run(WORKED)
        await dispatcher.run(WORKED, schedule="serial")
        token = CancelToken()
        at(15.0, token.cancel)
        await dispatcher.run([call("x", seconds=9.0), call("y", seconds=9.0)], token=token)

    run_in_virtual_time(main())
    measured = dispatcher.statistics()
    assert (3, 8, 2, 2) == (
        measured.turns,
        measured.calls,
        measured.conflicting,
        measured.conflict_serialized,
    )
    assert {"order": 9.0} == measured.waits
    assert (15.0, 15.0, 20.0) == (measured.makespan, measured.busy, measured.run_time)
    assert 0.25 == measured.cancellation_rate


def test_a_dispatcher_without_turns_has_neutral_measures() -> None:
    """It can be asked at any time."""
    measured = Dispatcher([]).statistics()
    assert DispatcherStats() == measured
    assert (1.0, 1.0, 0.0) == (
        measured.parallelism_factor,
        measured.stretch,
        measured.cancellation_rate,
    )


def test_nested_turns_are_turns_and_their_parents_do_not_run_meanwhile() -> None:
    """The parent is suspended while its two calls of 1 s run: 2 of 3 calls are ever in flight."""

    @tool(safe_parallel=True)
    async def parent(ctx: CallContext) -> None:
        await ctx.run([call("a"), call("b")])

    dispatcher = Dispatcher([parent, *Stage().tools])

    async def main() -> TurnResult:
        return await dispatcher.run([ToolCall("p", "parent", {})])

    result = run_in_virtual_time(main())
    assert {"suspended": 1.0} == result[0].waits
    assert (0.0, 1.0) == (result.stats.run_time, result.stats.makespan)
    measured = dispatcher.statistics()
    assert (2, 3, 2, 0) == (measured.turns, measured.calls, measured.peak, measured.running)
    assert (1.0, 2.0) == (measured.busy, measured.run_time)


def test_statistics_can_be_read_in_any_thread() -> None:
    """While turns run in two others; in the end every call is in the books."""
    dispatcher = Dispatcher(Stage().tools)
    seen: list[int] = []

    def work() -> None:
        for _ in range(5):
            dispatcher.run_sync([call("a", seconds=0.001), call("b", seconds=0.0)])

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(dispatcher.statistics().calls)
        threads[0].join(0.001)
    assert sorted(seen) == seen
    measured = dispatcher.statistics()
    assert (10, 20, 0) == (measured.turns, measured.calls, measured.running)
    assert {Status.OK: 20} == measured.statuses
