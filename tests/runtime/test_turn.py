"""Turns submitted call by call: events, snapshots, closing, and what is refused."""

import asyncio
import contextvars
import threading

import pytest

from dispatch import (
    CallContext,
    CallEvent,
    Dispatcher,
    ResourceTable,
    Status,
    ToolCall,
    ToolResult,
    TurnClosed,
    TurnEvent,
    TurnResult,
    UsageError,
    tool,
    write,
)
from dispatch.events import Event
from dispatch.testing import run_in_virtual_time


@tool(writes="key:{key}")
async def work(key: str, seconds: float) -> float:
    await asyncio.sleep(seconds)
    return asyncio.get_running_loop().time()


def call(key: str, seconds: float, name: str = "") -> ToolCall:
    return ToolCall(name, "work", {"key": key, "seconds": seconds})


def test_a_call_starts_while_the_model_still_writes_the_next() -> None:
    """Calls run as they are submitted; conflicts keep their order all the same."""

    async def main() -> TurnResult:
        async with Dispatcher([work]).turn() as turn:
            turn.submit(call("a", 2))
            await asyncio.sleep(1)
            turn.submit(call("a", 2))
            turn.submit(call("b", 2))
            return await turn.finish()

    turn = run_in_virtual_time(main())
    assert [0.0, 2.0, 1.0] == [result.started_at for result in turn]
    assert [0.0, 1.0, 0.0] == [result.waits.get("order", 0.0) for result in turn]


def test_events_come_as_calls_end_to_every_reader_from_the_first() -> None:
    """Completion order for the events, intent order for the results; late and slow readers too."""

    async def read(turn: object, pause: float) -> list[int]:
        seen = []
        async for result in turn.events():  # type: ignore[attr-defined]
            await asyncio.sleep(pause)
            seen.append(result.index)
        return seen

    async def main() -> tuple[list[list[int]], list[int], float]:
        async with Dispatcher([work]).turn() as turn:
            early = asyncio.create_task(read(turn, 0))
            slow = asyncio.create_task(read(turn, 100))
            for key, seconds in (("a", 3), ("b", 1), ("c", 2)):
                turn.submit(call(key, seconds))
            result = await turn.finish()
            ended = asyncio.get_running_loop().time()
            late = asyncio.create_task(read(turn, 0))
            orders = [await early, await slow, await late]
            return orders, [r.index for r in result], ended

    orders, results, ended = run_in_virtual_time(main())
    assert ([[1, 2, 0]] * 3, [0, 1, 2], 3.0) == (orders, results, ended)


@pytest.mark.parametrize("also_early", [False, True])
def test_readers_that_come_late_see_the_order_of_ends_within_one_moment(
    *, also_early: bool
) -> None:
    """Whether anybody has read before or not."""

    async def main() -> list[int]:
        events = [asyncio.Event() for _ in range(4)]

        @tool(safe_parallel=True)
        async def behind(number: int) -> None:
            await events[number].wait()
            events[number - 1].set()

        async with Dispatcher([behind]).turn() as turn:
            for number in range(3):
                turn.submit(ToolCall("", "behind", {"number": number}))
            if also_early:
                early = asyncio.ensure_future(anext(turn.events()))
                await asyncio.sleep(1)
            events[2].set()
            result = await turn.finish()
        if also_early:
            assert result[2] is await early
        return [result.index async for result in turn.events()]

    assert [2, 1, 0] == run_in_virtual_time(main())


def test_a_snapshot_has_what_has_ended_in_intent_order() -> None:
    """Readable at any time, also while the turn runs."""

    async def main() -> tuple[ToolResult, ...]:
        async with Dispatcher([work]).turn() as turn:
            for key, seconds in (("a", 1), ("b", 5), ("c", 0.5)):
                turn.submit(call(key, seconds))
            await asyncio.sleep(2)
            return turn.snapshot()

    assert [0, 2] == [result.index for result in run_in_virtual_time(main())]


def test_nothing_is_admitted_after_close() -> None:
    """It raises, and the turn is as it was."""

    async def main() -> TurnResult:
        async with Dispatcher([work]).turn() as turn:
            turn.submit(call("a", 1))
            turn.close()
            with pytest.raises(TurnClosed):
                turn.submit(call("b", 1, "late"))
            return await turn.finish()

    assert 1 == len(run_in_virtual_time(main()))


def test_a_turn_is_entered_once_and_before_it_is_used() -> None:
    """The error says how to write it."""

    async def main() -> None:
        turn = Dispatcher([work]).turn()
        with pytest.raises(UsageError, match="async with"):
            turn.submit(call("a", 1))
        async with turn:
            pass
        with pytest.raises(UsageError, match="entered before"):
            turn.open()

    run_in_virtual_time(main())


@pytest.mark.parametrize("what", ["turn", "sync turn", "hold"])
def test_a_turn_started_inside_a_tool_is_nested_in_its_call(what: str) -> None:
    """In the loop, in a worker thread, and for a hold: the tool's own claim is not in its way."""
    table = ResourceTable()

    @tool(name="nests", writes="key:a")
    async def nests() -> str:
        if what == "turn":
            return (await Dispatcher([work], resources=table).run([call("a", 0)]))[0].status
        async with table.hold(write("key", "a")):
            return "ok"

    @tool(name="nests", writes="key:a")
    def nests_in_thread() -> str:
        return dispatcher.run_sync([call("a", 0)])[0].status

    tools = [nests_in_thread if what == "sync turn" else nests, work]
    dispatcher = Dispatcher(tools, resources=table, max_concurrent=1)
    assert "ok" == dispatcher.run_sync([ToolCall("", "nests", {}, timeout=5.0)])[0].content()


def test_a_task_that_outlives_its_call_starts_turns_of_its_own() -> None:
    """Once the tool has ended, what it left behind is nested in nothing."""
    left: list[asyncio.Task[TurnResult]] = []

    async def later() -> TurnResult:
        await asyncio.sleep(1)
        return await Dispatcher([work]).run([call("a", 1)])

    @tool(safe_parallel=True)
    async def leaves() -> None:
        left.append(asyncio.create_task(later()))

    async def main() -> Status:
        await Dispatcher([leaves]).run([ToolCall("", "leaves", {})])
        return (await left[0])[0].status

    assert Status.OK is run_in_virtual_time(main())


def test_hold_waits_its_turn_and_keeps_calls_out() -> None:
    """A hold is one more waiter; calls behind it wait, and leaving wakes them."""

    async def main() -> tuple[float, float | None]:
        loop = asyncio.get_running_loop()
        dispatcher = Dispatcher([work])
        first = asyncio.create_task(dispatcher.run([call("a", 2)]))
        await asyncio.sleep(1)

        async def hold() -> float:
            async with dispatcher.resources.hold(write("key", "a")):
                entered = loop.time()
                await asyncio.sleep(3)
                return entered

        holding = asyncio.create_task(hold())
        await asyncio.sleep(0.5)
        second = await dispatcher.run([call("a", 0)])
        await first
        return await holding, second[0].started_at

    assert (2.0, 5.0) == run_in_virtual_time(main())


def test_a_cancelled_hold_leaves_nothing_behind() -> None:
    """Withdrawn while it waits; whoever waits behind it goes on."""

    async def main() -> int:
        table = ResourceTable()

        async def hold() -> None:
            async with table.hold(write("key", "a")):
                await asyncio.sleep(3)

        tasks = [asyncio.create_task(hold()) for _ in range(3)]
        await asyncio.sleep(1)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert 6.0 == asyncio.get_running_loop().time()
        return table.statistics().held + table.statistics().waiting

    assert 0 == run_in_virtual_time(main())


def test_context_variables_reach_tools_and_stay_apart() -> None:
    """M4: an async tool and two threads see the caller's value; what one sets no other sees."""
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    @tool(safe_parallel=True)
    def in_thread(name: str) -> str:
        seen = tenant.get()
        tenant.set(name)
        return seen

    @tool(safe_parallel=True)
    async def on_loop() -> str:
        await asyncio.sleep(0.01)
        return tenant.get()

    async def main() -> list[object]:
        tenant.set("acme")
        calls = [
            ToolCall("", "in_thread", {"name": "one"}),
            ToolCall("", "in_thread", {"name": "two"}),
            ToolCall("", "on_loop", {}),
        ]
        turn = await Dispatcher([in_thread, on_loop]).run(calls)
        return [*(result.value for result in turn), tenant.get()]

    assert ["acme"] * 4 == asyncio.run(main())


def test_one_dispatcher_serves_two_loops_in_two_threads() -> None:
    """K6 at its simplest: same table, same limits, conflicting calls of both never overlap."""
    running: list[str] = []
    overlaps: list[str] = []

    @tool(writes="key:{key}")
    def exclusive(key: str) -> None:
        if running:
            overlaps.append(key)
        running.append(key)
        threading.Event().wait(0.002)
        running.remove(key)

    dispatcher = Dispatcher([exclusive])
    calls = [ToolCall("", "exclusive", {"key": "k"}) for _ in range(10)]
    results: list[TurnResult] = []
    threads = [
        threading.Thread(target=lambda: results.append(dispatcher.run_sync(calls)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == overlaps
    assert [True] * 30 == [result.ok for turn in results for result in turn]


def test_every_transition_is_told_in_order() -> None:
    """Frozen events with their times; progress between running and ended."""
    seen: list[Event] = []

    @tool(safe_parallel=True)
    async def speak(ctx: CallContext) -> str:
        ctx.progress("half way")
        await asyncio.sleep(2)
        return "done"

    async def main() -> None:
        await Dispatcher([speak], sinks=[seen.append]).run([ToolCall("c1", "speak", {})])

    run_in_virtual_time(main())
    expected = [
        *("open", "planned", "ready", "running", "progress", "ended", "settled", "decided", "gone")
    ]
    assert expected == [event.state for event in seen]
    ended = next(e for e in seen if isinstance(e, CallEvent) and e.state == "ended")
    assert ("c1", "speak", 2.0, "ok") == (ended.call_id, ended.tool, ended.at, ended.status)
    assert [0, 1, 1] == [event.calls for event in seen if isinstance(event, TurnEvent)]


@pytest.mark.parametrize("listens", [False, True], ids=["no token", "token"])
def test_a_stop_is_told_once_whether_or_not_the_tool_sees_its_token(listens: bool) -> None:
    """Running, stopping, ended: also where only the task is cancelled."""
    seen: list[Event] = []

    @tool(name="wait", safe_parallel=True)
    async def wait() -> None:
        await asyncio.sleep(60)

    @tool(name="wait", safe_parallel=True)
    async def wait_with_token(ctx: CallContext) -> None:
        await asyncio.sleep(60)

    dispatcher = Dispatcher([wait_with_token if listens else wait], sinks=[seen.append])
    run_in_virtual_time(dispatcher.run([ToolCall("", "wait", {}, timeout=1)]))
    states = [event.state for event in seen if isinstance(event, CallEvent)]
    assert ["planned", "ready", "running", "stopping", "ended", "settled"] == states


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
def test_a_sink_that_raises_is_removed_and_the_turn_goes_on(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other sinks still get every event; the removal is logged."""
    seen: list[Event] = []
    asked: list[Event] = []

    def broken(event: Event) -> None:
        asked.append(event)
        raise error

    turn = Dispatcher([work], sinks=[broken, seen.append]).run_sync([call("a", 0)])
    assert (True, 1, 9) == (turn[0].ok, len(asked), len(seen))
    assert "sink removed" in capsys.readouterr().out


def test_the_statistics_of_a_turn() -> None:
    """[a 2 s, a 1 s, b 2 s]: one waits; peak two; the second a is conflicting and serialized."""
    calls = [call("a", 2), call("a", 1), call("b", 2)]
    turn = run_in_virtual_time(Dispatcher([work]).run(calls))
    stats = turn.stats
    assert (3, 3.0, 5.0, 2) == (stats.calls, stats.makespan, stats.run_time, stats.peak)
    assert (1, 1) == (stats.conflicting, stats.conflict_serialized)
    assert stats.parallelism_factor == pytest.approx(5 / 3)
    assert {"order": 2.0} == stats.waits
    assert (3.0, {Status.OK: 3}) == (stats.lower_bound, stats.statuses)


def test_failures_are_raised_together_when_the_host_asks() -> None:
    """An `ExceptionGroup` in intent order, each with its result and the tool's own exception."""

    @tool(safe_parallel=True)
    async def fails(text: str) -> None:
        raise ValueError(text)

    calls = [ToolCall("", "fails", {"text": "one"}), call("a", 0), ToolCall("", "nobody", {})]
    turn = Dispatcher([fails, work]).run_sync(calls)
    assert turn.satisfied
    with pytest.raises(ExceptionGroup, match="2 of 3 calls failed") as caught:
        turn.raise_for_failures()
    first, second = caught.value.exceptions
    assert isinstance(first.__cause__, ValueError)
    assert ("fails (call 0): ValueError: one", None) == (str(first), second.__cause__)


def test_a_turn_is_used_from_its_own_thread_only() -> None:
    """Another thread is told how to do it; the turn is not harmed."""
    errors: list[str] = []

    async def main() -> TurnResult:
        async with Dispatcher([work]).turn() as turn:

            def elsewhere() -> None:
                try:
                    turn.submit(call("a", 1))
                except UsageError as error:
                    errors.append(str(error))

            await asyncio.to_thread(elsewhere)
            turn.submit(call("b", 0))
            return await turn.finish()

    assert 1 == len(asyncio.run(main()))
    assert "call_soon_threadsafe" in errors[0]


def test_tags_and_after_may_be_any_several_names_but_not_one() -> None:
    """Lists are taken; a bare string is a mistake and says how to write it."""
    assert frozenset({"x"}) == ToolCall("", "work", {}, tags=["x"]).tags  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write tags=\('x',\)"):
        ToolCall("", "work", {}, tags="x")  # type: ignore[arg-type]


def test_a_system_without_threads_fails_the_call_and_not_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No thread to be had is that call's error; its siblings run."""

    @tool(safe_parallel=True)
    def threaded() -> None:
        """Need a thread."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    dispatcher = Dispatcher([threaded, work])
    turn = run_in_virtual_time(dispatcher.run([ToolCall("", "threaded", {}), call("a", 1)]))
    assert ["[error] RuntimeError: can't start new thread", "1.0"] == [r.content() for r in turn]
    assert 0 == dispatcher.limits.running
