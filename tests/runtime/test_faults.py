"""Foreign code that fails where nobody expects it costs no result, no claim and no slot."""

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from dispatch import (
    CallContext,
    CancelToken,
    Dispatcher,
    Limits,
    ResourceTable,
    Status,
    ToolError,
    TurnResult,
    commute,
    read,
    tool,
    write,
)
from dispatch.core.policy import Tally, Verdict
from dispatch.events import Event
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import call, edit


def left_over(dispatcher: Dispatcher) -> tuple[int, int, int]:
    """Tickets held and waiting, and slots taken: all 0 when nothing was left behind."""
    table = dispatcher.resources.statistics()
    return table.held, table.waiting, dispatcher.limits.running


class NotFound(ToolError):
    """A subclass that does not call its base, as people write them."""

    def __init__(self, path: str) -> None:
        self.path = path


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


def nested_group(depth: int) -> BaseException:
    error: Exception = ValueError("inmost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error, error])
    return error


@pytest.mark.parametrize(
    "make",
    [
        lambda: NotFound("a.py"),
        lambda: Unspeakable(),
        lambda: nested_group(3000),
        lambda: BaseException("base"),
        lambda: GeneratorExit("gone"),
        lambda: StopAsyncIteration("stop"),
    ],
    ids=["bare subclass", "no text", "deep group", "base", "generator exit", "stop iteration"],
)
@pytest.mark.parametrize("threaded", [False, True], ids=["task", "thread"])
def test_whatever_a_tool_raises_is_its_own_error(
    make: Callable[[], BaseException], threaded: bool
) -> None:
    """Its siblings have their results, and nothing is held afterwards."""

    @tool(name="fail", writes="key:f")
    async def fail() -> None:
        raise make()

    @tool(name="fail", writes="key:f")
    def fail_in_thread() -> None:
        raise make()

    dispatcher = Dispatcher([fail_in_thread if threaded else fail, edit])
    turn = dispatcher.run_sync([call("edit", key="a"), call("fail"), call("edit", key="f")])
    assert [Status.OK, Status.ERROR, Status.OK] == [result.status for result in turn]
    assert len(turn[1].content()) < 30_000
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_tool_error_keeps_its_text_without_its_base() -> None:
    """What was given to the exception is what the model reads."""

    @tool(safe_parallel=True)
    async def find(path: str) -> None:
        raise NotFound(path)

    turn = Dispatcher([find]).run_sync([call("find", path="a.py")])
    assert "[error] a.py" == turn[0].content()


class Proxy:
    """A lazy proxy that is bound to nothing: asking for its class raises."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError("unbound")


def test_a_value_that_cannot_be_looked_at_is_still_a_result() -> None:
    """From a thread and from a task; the call returns."""

    @tool(safe_parallel=True)
    def proxy() -> object:
        return Proxy()

    @tool(safe_parallel=True)
    async def proxy_too() -> object:
        return Proxy()

    turn = Dispatcher([proxy, proxy_too]).run_sync([call("proxy"), call("proxy_too")])
    assert all(result.content() for result in turn)


def test_a_cancel_callback_that_raises_keeps_nobody_from_being_told() -> None:
    """The host's and the tool's; the turn ends in time all the same."""
    seen: list[str] = []
    token = CancelToken()
    token.on_cancel(lambda reason: 1 / 0)

    @tool(safe_parallel=True)
    async def listen(ctx: CallContext) -> None:
        ctx.token.on_cancel(lambda reason: 1 / 0)
        ctx.token.on_cancel(seen.append)
        await asyncio.sleep(60)

    async def main() -> tuple[TurnResult, float]:
        task = asyncio.create_task(dispatcher.run([call("listen")], token=token))
        await asyncio.sleep(1)
        token.cancel("enough")
        return await task, asyncio.get_running_loop().time()

    dispatcher = Dispatcher([listen], grace=0.5)
    turn, when = run_in_virtual_time(main())
    assert (Status.CANCELLED, 1.5, ["enough"]) == (turn[0].status, when, seen)
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_policy_that_raises_leaves_the_results() -> None:
    """The turn is over, not satisfied, and says why; what had ended by then stays as it was."""

    class Broken:
        atomic = False

        def judge(self, tally: Tally) -> Verdict | None:
            if tally.ok:
                raise LookupError
            return None

    calls = [call("edit", key="a", seconds=1), call("edit", key="b", seconds=60)]
    turn = run_in_virtual_time(Dispatcher([edit], policy=Broken()).run(calls))
    why = "the policy raised LookupError"
    assert (False, why, True) == (turn.satisfied, turn.reason, turn[0].ok)
    assert f"[cancelled] stopped while running: {why}" == turn[1].content()


def test_an_interrupt_in_a_sink_stops_the_turn_and_comes_out() -> None:
    """A signal may arrive there; siblings are settled first."""
    calls = [call("edit", key="a", seconds=60), call("edit", key="b", seconds=1)]

    def sink(event: Event) -> None:
        if event.state == "ended":
            raise KeyboardInterrupt

    dispatcher = Dispatcher([edit], sinks=[sink])
    with pytest.raises(KeyboardInterrupt):
        run_in_virtual_time(dispatcher.run(calls))
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_call_submitted_by_a_sink_keeps_its_own_claims() -> None:
    """On `planned` of another call: both run with what they declared, one after the other."""
    running: list[str] = []
    overlaps: list[str] = []

    @tool(writes="key:{key}")
    async def busy(key: str) -> None:
        overlaps.extend(running)
        running.append(key)
        await asyncio.sleep(1)
        running.remove(key)

    async def main() -> TurnResult:
        more = [call("busy", key="a")]

        def sink(event: Event) -> None:
            if event.state == "planned" and more:
                turn.submit(more.pop())

        async with Dispatcher([busy, edit], sinks=[sink]).turn() as turn:
            turn.submit(call("edit", key="free"))
            turn.submit(call("busy", key="a"))
            return await turn.finish()

    turn = run_in_virtual_time(main())
    assert ([True] * 3, []) == ([result.ok for result in turn], overlaps)


def test_a_call_that_had_returned_before_the_stop_keeps_its_result() -> None:
    """A sibling cancels the turn in the step in which it returns: it has succeeded."""
    token = CancelToken()

    @tool(safe_parallel=True)
    async def trigger() -> str:
        token.cancel("stop")
        return "pulled"

    @tool(safe_parallel=True)
    async def quick() -> str:
        return "done"

    async def main() -> TurnResult:
        return await Dispatcher([trigger, quick]).run([call("quick"), call("trigger")], token=token)

    assert ["done", "pulled"] == [result.content() for result in run_in_virtual_time(main())]


def test_a_call_whose_body_never_began_was_never_started() -> None:
    """Cancelled between the slot and the first step of its task: nothing can have happened."""

    async def main() -> TurnResult:
        async with Dispatcher([edit]).turn() as turn:
            turn.submit(call("edit", key="a"))
            turn.token.cancel("at once")
            return await turn.finish()

    result = run_in_virtual_time(main())[0]
    assert (Status.CANCELLED, 0, None) == (result.status, result.attempts, result.started_at)
    assert "[cancelled] never started: at once" == result.content()


def test_a_well_behaved_tool_is_cancelled_even_without_a_grace() -> None:
    """`grace=0` gives no time to do things, but the few steps of the loop that ending takes."""
    turn = run_in_virtual_time(
        Dispatcher([edit], grace=0).run([call("edit", key="a", seconds=60)], timeout=1)
    )
    assert Status.TIMED_OUT is turn[0].status


@tool(resource_keys=lambda given: [("key", key) for key in given["keys"]])
async def stuck(keys: list[str], seconds: float) -> None:
    """Hold the keys for so long, whoever wants it to stop."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(end - loop.time())


def test_a_call_passes_another_turns_call_that_waits_in_vain_for_an_abandoned_one() -> None:
    """What waits for an abandoned call holds up nobody, in whatever turn."""

    @tool(writes=["key:f", "key:g"])
    async def both() -> None: ...

    async def main() -> tuple[TurnResult, TurnResult]:
        table = ResourceTable()
        mine, other = (
            Dispatcher([stuck, both, edit], resources=table, grace=0.5) for _ in range(2)
        )
        async with mine.turn() as turn:
            turn.submit(call("stuck", 3.0, keys=["f"], seconds=900))
            await asyncio.sleep(1)
            between = asyncio.create_task(other.run([call("both")]))
            await asyncio.sleep(1)
            turn.submit(call("edit", key="g"))
            return await turn.finish(), await between

    mine, other = run_in_virtual_time(main())
    assert [(Status.UNKNOWN, 3.5), (Status.OK, 3.5)] == [(r.status, r.finished_at) for r in mine]
    assert (Status.SKIPPED, 13.5) == (other[0].status, other[0].finished_at)
    assert "stuck (call 0) of another turn" in other[0].content()


def test_a_call_of_the_same_root_turn_never_waits_for_an_abandoned_one() -> None:
    """A call nested in a sibling is skipped at once, and names it."""

    @tool(safe_parallel=True)
    async def nests(ctx: CallContext) -> list[object]:
        await asyncio.sleep(1)
        turn = await ctx.run([call("edit", key="f")])
        return [turn[0].status, turn[0].finished_at, turn[0].content()]

    dispatcher = Dispatcher([stuck, nests, edit], grace=0.5)
    calls = [call("stuck", 3.0, keys=["f"], seconds=900), call("nests")]
    status, when, text = run_in_virtual_time(dispatcher.run(calls))[1].unwrap()
    assert ("skipped", 3.5) == (status, when)
    assert "it waits for stuck (call 0), which could not be stopped" in text


def test_closing_from_another_loop_is_bounded_and_harms_nobody() -> None:
    """Whoever gives up waiting for `aclose` leaves the turn of the other thread to end well."""
    dispatcher = Dispatcher([edit], grace=0.1)
    started = threading.Event()
    results: list[TurnResult] = []

    @tool(safe_parallel=True)
    async def linger() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)

    dispatcher = Dispatcher([linger], grace=0.5)
    thread = threading.Thread(target=lambda: results.append(dispatcher.run_sync([call("linger")])))
    thread.start()
    assert started.wait(5)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(dispatcher.aclose(), 0.01)

    asyncio.run(give_up())
    thread.join(5)
    assert [Status.CANCELLED] == [result.status for turn in results for result in turn]


def test_closing_from_another_loop_returns_when_the_results_are_there() -> None:
    """Whoever closes is told on its own loop, and does not wait out two graces of five seconds."""
    started = threading.Event()
    results: list[TurnResult] = []

    @tool(safe_parallel=True)
    async def heeds() -> None:
        started.set()
        await asyncio.sleep(60)

    dispatcher = Dispatcher([heeds], grace=5.0)
    thread = threading.Thread(target=lambda: results.append(dispatcher.run_sync([call("heeds")])))
    thread.start()
    assert started.wait(5)
    asyncio.run(asyncio.wait_for(dispatcher.aclose(), 5))
    thread.join(5)
    assert [Status.CANCELLED] == [result.status for turn in results for result in turn]


def test_a_loop_that_dies_in_the_middle_does_not_lock_the_table_for_ever() -> None:
    """The next turn releases what calls of a closed loop held: nothing of them can go on."""
    table, limits = ResourceTable(), Limits(1)
    loop = asyncio.new_event_loop()
    dispatcher = Dispatcher([edit], resources=table, limits=limits)
    task = loop.create_task(dispatcher.run([call("edit", key="a", seconds=60)]))
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
    assert (1, 0, 1) == left_over(dispatcher)
    for left in asyncio.all_tasks(loop):
        left._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    assert not task.done()
    second = Dispatcher([edit], resources=table, limits=limits)
    turn = second.run_sync([call("edit", 5.0, key="a")])
    assert (True, (0, 0, 0)) == (turn[0].ok, left_over(second))


def test_what_ended_is_forgotten() -> None:
    """A finished turn is collected; a token that lives long does not collect children."""
    token = CancelToken()
    dispatcher = Dispatcher([edit])
    gone = [
        weakref.ref(dispatcher.run_sync([call("edit", key="a")], token=token)) for _ in range(3)
    ]
    for _ in range(100):
        token.child()
    gc.collect()
    assert ([None] * 3, {}, set()) == ([r() for r in gone], token._callbacks, dispatcher._turns)


def test_taking_a_callback_off_twice_takes_off_no_other() -> None:
    """Each registration is taken off by its own function only."""
    seen: list[str] = []
    token = CancelToken()
    forget = token.on_cancel(seen.append)
    forget()
    token.on_cancel(seen.append)
    forget()
    token.cancel("x")
    assert ["x"] == seen


def test_a_child_with_callbacks_is_told_and_one_without_asks_its_parent() -> None:
    """The parent knows of a child only while somebody listens to it."""
    parent = CancelToken()
    seen: list[str] = []
    parent.child().on_cancel(seen.append)
    silent = parent.child()
    parent.cancel("all")
    assert (["all"], "all", True) == (seen, silent.reason, silent.cancelled)


def test_modes_of_a_refused_call_use_up_none() -> None:
    """A call with too many commuting modes runs alone; those of the next call are still free."""

    @tool(resource_keys=lambda a: [commute(f"m{i}", "k", str(i)) for i in range(a["count"])])
    async def many(count: int) -> None: ...

    dispatcher = Dispatcher([many])
    dispatcher.plan([call("many", count=16)])
    turn = dispatcher.run_sync([call("many", count=30), call("many", count=16)])
    assert 1 == len(turn.warnings)
    assert "commuting mode" in turn.warnings[0]


async def test_hold_takes_claims_and_keys_and_nothing_else() -> None:
    """A key means writing it; a string is a mistake."""
    table = ResourceTable()
    async with table.hold(read("db"), ("key", "a")):
        assert 1 == table.statistics().held
        waiting = asyncio.create_task(table.hold(write("key", "a")).__aenter__())
        await asyncio.sleep(0)
        assert 1 == table.statistics().waiting
        waiting.cancel()
    with pytest.raises(ValueError, match="claim or a key"):
        async with table.hold("ab"):  # type: ignore[arg-type]
            pass
