"""Moments that are easy to get wrong: the same step, the dead loop, the second reason."""

import asyncio
import gc
import inspect
import threading
import weakref
from collections.abc import Coroutine
from pathlib import Path

import pytest

from dispatch import (
    CallContext,
    CancelToken,
    Dispatcher,
    Limits,
    ResourceTable,
    Status,
    ToolCall,
    TurnResult,
    tool,
    write,
)
from dispatch.events import Event
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import call, edit, left_over


def test_a_cancel_wins_over_a_slot_taken_in_the_same_step() -> None:
    """A thread cancels while the call waits for its slot: it is not started any more."""
    token = CancelToken()

    def sink(event: Event) -> None:
        if event.state == "ready":
            thread = threading.Thread(target=token.cancel, args=("from a thread",))
            thread.start()
            thread.join()

    ran: list[str] = []

    @tool(safe_parallel=True)
    def in_thread() -> None:
        ran.append("ran")  # a thread would be at it before the cancel is handled

    turn = Dispatcher([in_thread], sinks=[sink]).run_sync([call("in_thread")], token=token)
    assert ([], Status.CANCELLED, 0) == (ran, turn[0].status, turn[0].attempts)
    assert "[cancelled] never started: from a thread" == turn[0].content()


@tool(safe_parallel=True)
async def slow_to_end() -> None:
    """Needs a moment after it was cancelled."""
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.3)


def test_the_first_reason_stays() -> None:
    """A turn that was stopped for one reason is not told another when it is stopped again."""

    async def main() -> TurnResult:
        token = CancelToken()
        dispatcher = Dispatcher([slow_to_end])
        task = asyncio.create_task(dispatcher.run([call("slow_to_end")], token=token))
        await asyncio.sleep(1)
        token.cancel("first")
        await asyncio.sleep(0.1)
        task.cancel("second")
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        turn: TurnResult = caught.value.turn  # type: ignore[attr-defined]
        return turn

    assert "[cancelled] stopped while running: first" == run_in_virtual_time(main())[0].content()


def test_a_turn_that_timed_out_is_not_told_that_it_was_cancelled() -> None:
    """A token that is cancelled while the turn settles after its time limit changes nothing."""

    async def main() -> TurnResult:
        token = CancelToken()
        asyncio.get_running_loop().call_later(1.1, token.cancel, "too late")
        return await Dispatcher([slow_to_end]).run([call("slow_to_end")], timeout=1, token=token)

    text = run_in_virtual_time(main())[0].content()
    assert "[timed_out] the turn timed out after 1 s while running" == text


async def test_a_finished_turn_is_forgotten_long_before_its_time_limit() -> None:
    """No timer keeps it alive on a loop that goes on."""
    dispatcher = Dispatcher([edit])
    gone = weakref.ref(await dispatcher.run([call("edit", key="a")], timeout=1000))
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


def test_a_slot_for_a_dead_loop_goes_to_whoever_waits_already() -> None:
    """Both wait for the one slot; the loop of the first is closed before the slot is free."""
    limits, table = Limits(1), ResourceTable()
    release, started, waiting = (threading.Event() for _ in range(3))

    @tool(writes="key:{key}")
    def hold_on(key: str) -> None:
        started.set()
        release.wait(5)

    def sink(event: Event) -> None:
        if event.state == "ready":
            waiting.set()

    first = Dispatcher([hold_on], resources=table, limits=limits)
    dead = Dispatcher([edit], resources=table, limits=limits)
    last = Dispatcher([edit], resources=table, limits=limits, sinks=[sink])
    results: list[TurnResult] = []
    holder = threading.Thread(target=first.run_sync, args=([call("hold_on", key="a")],))
    holder.start()
    assert started.wait(5)
    loop = stranded(dead, [call("edit", key="b")])
    waiter = threading.Thread(
        target=lambda: results.append(last.run_sync([call("edit", 5.0, key="c")]))
    )
    waiter.start()
    assert waiting.wait(5)
    loop.close()
    release.set()
    holder.join(5)
    waiter.join(6)
    assert [True] == [result.ok for turn in results for result in turn]
    assert 0 == limits.running


def test_a_cancel_inside_the_block_carries_the_turn() -> None:
    """The task waits for something else while the turn is open; its results are in the error."""

    async def host() -> None:
        async with Dispatcher([edit]).turn() as turn:
            turn.submit(call("edit", key="a"))
            turn.submit(call("edit", key="b", seconds=60))
            await asyncio.sleep(30)

    async def main() -> TurnResult:
        task = asyncio.create_task(host())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        turn: TurnResult = caught.value.turn  # type: ignore[attr-defined]
        return turn

    turn = run_in_virtual_time(main())
    assert [Status.OK, Status.CANCELLED] == [result.status for result in turn]


def test_a_tool_cancelled_from_outside_is_told_from_one_that_cancels_itself() -> None:
    """Somebody cancels every task of the loop: that is no fault of the tool."""

    async def main() -> TurnResult:
        mine = asyncio.current_task()
        task = asyncio.create_task(Dispatcher([edit]).run([call("edit", key="a", seconds=60)]))
        await asyncio.sleep(1)
        for other in asyncio.all_tasks() - {task, mine}:
            other.cancel()
        return await task

    turn = run_in_virtual_time(main())
    assert Status.CANCELLED is turn[0].status
    assert "its task was cancelled from outside" in turn[0].content()


@pytest.mark.parametrize("seconds", [0.0, 0.2], ids=["awaiting", "still in the thread"])
def test_what_a_def_tool_returned_to_be_awaited_is_cancelled_too(seconds: float) -> None:
    """Whether it is awaited already when the stop comes, or comes out of the thread after it."""
    stopped: list[str] = []
    made: list[Coroutine[object, object, None]] = []

    async def later() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("cancelled")
            raise

    @tool(safe_parallel=True)
    def returns_awaitable() -> object:
        threading.Event().wait(seconds)
        made.append(later())
        return made[0]

    turn = Dispatcher([returns_awaitable], grace=2).run_sync([call("returns_awaitable", 0.1)])
    assert (Status.TIMED_OUT, 1) == (turn[0].status, turn[0].attempts)
    assert inspect.CORO_CLOSED == inspect.getcoroutinestate(made[0])
    assert (["cancelled"] if not seconds else []) == stopped


def stranded(dispatcher: Dispatcher, calls: list[ToolCall]) -> asyncio.AbstractEventLoop:
    """A loop in which a turn with these calls has begun, stopped in the middle."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(dispatcher.run(calls))
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
    assert not task.done()
    for left in asyncio.all_tasks(loop):
        left._log_destroy_pending = False  # type: ignore[attr-defined]
    return loop


def test_one_dead_loop_after_another_is_found() -> None:
    """Also by a hold, whatever else of theirs waits for it; and a hold on a dead loop too."""
    table, limits = ResourceTable(), Limits(1)

    def dispatcher() -> Dispatcher:
        return Dispatcher([edit], resources=table, limits=limits)

    async def hold(seconds: float) -> None:
        async with table.hold(write("key", "a")):
            await asyncio.sleep(seconds)

    for _ in range(2):
        stranded(dispatcher(), [call("edit", key="a", seconds=60)] * 2).close()
        asyncio.run(asyncio.wait_for(hold(0.0), 5))
        assert (1, 0) == (limits.running, table.statistics().held)  # slots are for turns to find
        assert dispatcher().run_sync([call("edit", 5.0, key="a")])[0].ok
        assert (0, 0, 0) == left_over(dispatcher())
    loop = asyncio.new_event_loop()
    holder = loop.create_task(hold(60))
    loop.run_until_complete(asyncio.sleep(0.01))
    holder._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    assert dispatcher().run_sync([call("edit", 5.0, key="a")])[0].ok
    assert (0, 0, 0) == left_over(dispatcher())


def test_claims_and_slots_for_a_dead_loop_go_to_the_next() -> None:
    """A turn waits, its loop is closed; what it waited for is granted to whoever is behind."""
    table, limits = ResourceTable(), Limits(1)
    first, second, third = (Dispatcher([edit], resources=table, limits=limits) for _ in range(3))
    started = threading.Event()

    @tool(writes="key:{key}")
    def hold_on(key: str) -> None:
        started.set()
        release.wait(5)

    release = threading.Event()
    first = Dispatcher([hold_on], resources=table, limits=limits)
    thread = threading.Thread(target=first.run_sync, args=([call("hold_on", key="a")],))
    thread.start()
    assert started.wait(5)
    claims_waiter = stranded(second, [call("edit", key="a")])
    slot_waiter = stranded(second, [call("edit", key="b")])
    claims_waiter.close()
    slot_waiter.close()
    results: list[TurnResult] = []
    last = threading.Thread(
        target=lambda: results.append(third.run_sync([call("edit", 5.0, key="a")]))
    )
    last.start()
    release.set()
    thread.join(5)
    last.join(5)
    assert [True] == [result.ok for turn in results for result in turn]
    statistics = table.statistics()
    assert (0, 0, 0) == (statistics.held, statistics.waiting, limits.running)


def test_a_hold_of_a_file_keeps_out_a_call_on_the_same_file(tmp_path: Path) -> None:
    """Relative to the table's root, through links: one file, one key."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    @tool(writes="file:{path}")
    async def touch(path: str) -> float:
        return asyncio.get_running_loop().time()

    async def main() -> object:
        table = ResourceTable(root=tmp_path)
        dispatcher = Dispatcher([touch], root=tmp_path / "real", resources=table)
        async with table.hold(write("file", "link/a")):
            task = asyncio.create_task(dispatcher.run([call("touch", path="a")]))
            await asyncio.sleep(2)
        return (await task)[0].value

    assert 2.0 == run_in_virtual_time(main())


def test_the_longest_chain_goes_first_once_the_turn_is_closed() -> None:
    """Streamed under a limit: a long chain that was emitted last does not wait for its turn."""

    async def main() -> list[int]:
        async with Dispatcher([edit], max_concurrent=1).turn() as turn:
            turn.submit(call("edit", key="first", seconds=1))
            for key in ("x", "y"):
                turn.submit(call("edit", key=key, seconds=1))
            for _ in range(3):
                turn.submit(call("edit", key="chain", seconds=1))
            result = await turn.finish()
        return sorted(range(len(result)), key=lambda n: result[n].started_at or 0.0)

    assert [0, 3, 4, 1, 2, 5] == run_in_virtual_time(main())


def test_a_wait_for_another_turn_counts_as_conflict_serialized() -> None:
    """Also when nothing in the call's own turn conflicts with it."""

    async def main() -> TurnResult:
        dispatcher = Dispatcher([edit])
        other = asyncio.create_task(dispatcher.run([call("edit", key="a", seconds=2)]))
        await asyncio.sleep(1)
        turn = await dispatcher.run([call("edit", key="a"), call("edit", key="b")])
        await other
        return turn

    stats = run_in_virtual_time(main()).stats
    assert (1, 1, {"lock": 1.0}) == (stats.conflicting, stats.conflict_serialized, stats.waits)


def test_a_predecessor_that_has_settled_serializes_nobody() -> None:
    """Conflicting, but it did not have to wait."""

    async def main() -> TurnResult:
        async with Dispatcher([edit]).turn() as turn:
            turn.submit(call("edit", key="a", seconds=1))
            await asyncio.sleep(2)
            turn.submit(call("edit", key="a"))
            return await turn.finish()

    stats = run_in_virtual_time(main()).stats
    assert (1, 0) == (stats.conflicting, stats.conflict_serialized)


def test_a_broken_descriptor_still_keeps_its_peers_apart() -> None:
    """Exclusive against everything that claims anything, and against the peers it names."""
    running: list[str] = []
    met: list[str] = []

    async def busy(name: str) -> None:
        met.extend(f"{name} meets {other}" for other in running)
        running.append(name)
        await asyncio.sleep(1)
        running.remove(name)

    @tool(resource_keys=lambda arguments: arguments["missing"], serializes_with=["peer"])
    async def broken() -> None:
        await busy("broken")

    @tool(resource_keys=lambda arguments: [])
    async def peer() -> None:
        await busy("peer")

    turn = run_in_virtual_time(Dispatcher([broken, peer]).run([call("broken"), call("peer")]))
    assert ([], 1) == (met, len(turn.warnings))


def test_a_call_that_names_its_own_repeated_id_waits_for_those_before_it() -> None:
    """It never waits for itself, unless nobody else has the id."""

    def named(key: str, *after: str) -> ToolCall:
        return ToolCall("a", "edit", {"key": key, "seconds": 1}, after=after)

    calls = [named("x", "a"), named("y"), named("z", "a")]
    several = run_in_virtual_time(Dispatcher([edit]).run(calls))
    assert [1.0, 0.0, 2.0] == [result.started_at for result in several]
    alone = run_in_virtual_time(Dispatcher([edit]).run([named("x", "a")]))
    assert "[error] it waits for itself, by way of 'a'" == alone[0].content()


def test_closing_lets_the_worker_threads_go() -> None:
    """Idle threads of the dispatcher end with it."""

    @tool(safe_parallel=True)
    def threaded(ctx: CallContext) -> int:
        return threading.get_ident()

    async def main() -> set[int]:
        async with Dispatcher([threaded]) as dispatcher:
            turn = await dispatcher.run([call("threaded")] * 4)
            await asyncio.sleep(0.05)
        return {result.value for result in turn}

    idents = asyncio.run(main())
    for thread in threading.enumerate():
        if thread.ident in idents:
            thread.join(2)
    assert not idents & {thread.ident for thread in threading.enumerate()}
