"""Cancels that tools make themselves, and cancels that must reach tools which do not want them."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    BestEffort,
    CallContext,
    CancelToken,
    Dispatcher,
    FailureKind,
    Status,
    Tool,
    Turn,
    TurnResult,
    tool,
)
from dispatch.adapters import OpenAIChat
from dispatch.core.policy import Policy
from dispatch.events import Event
from dispatch.testing import assert_no_leaks, hanging, refusing, run_in_virtual_time, stuck
from tests.runtime.keyed import cancelled, statuses
from tests.runtime.stage import at, clock
from tests.runtime.test_process import sh
from tests.timeline import calls

GRACE = 0.3
SETTLING = 0.25
SLACK = 5.0
"""Seconds that a loaded machine may take beyond what the contract says."""


async def raise_it() -> None:
    raise asyncio.CancelledError("mine")


async def await_a_cancelled_task() -> None:
    task = asyncio.create_task(asyncio.sleep(9))
    at(clock() + 1, task.cancel)
    await task


async def await_a_cancelled_future() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def raise_it_in_a_thread() -> None:
    raise asyncio.CancelledError("mine")


async def cancel_my_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(9)


TOOL_MADE = [
    raise_it,
    await_a_cancelled_task,
    await_a_cancelled_future,
    raise_it_in_a_thread,
    cancel_my_own_task,
]
tool_made = pytest.mark.parametrize("way", TOOL_MADE)


def confused(way: Callable[[], Any]) -> Tool:
    return Tool("confused", way, safe_parallel=True)


@tool(safe_parallel=True)
async def answer(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"after {seconds:g} s"


PAIR = calls(("confused", {}), ("answer", {"seconds": 2}))


@tool_made
def test_a_cancel_that_a_tool_makes_is_the_failure_of_that_call_alone(
    way: Callable[[], Any],
) -> None:
    """H1: while nobody cancels the host, `run` returns, and only the one call has failed."""

    async def main() -> TurnResult:
        turn = await Dispatcher([confused(way), answer]).run(PAIR)
        task = asyncio.current_task()
        assert task is not None
        assert (0, 2.0) == (task.cancelling(), clock())
        return turn

    turn = run_in_virtual_time(main())
    assert [False, True] == [result.ok for result in turn]
    assert FailureKind.CANCELLED is turn[0].failure.kind  # type: ignore[union-attr]
    if way is not cancel_my_own_task:  # asyncio cannot tell who has cancelled a task
        assert Status.ERROR is turn[0].status


@tool_made
def test_a_cancel_from_outside_comes_out_whatever_the_tools_do(way: Callable[[], Any]) -> None:
    """H1: the host's task is cancelled in the very step in which a tool cancels itself, or later:
    the cancel is raised again, and the results are with it."""

    async def main(moment: float) -> TurnResult:
        task = asyncio.create_task(Dispatcher([confused(way), answer]).run(PAIR))
        await asyncio.sleep(moment)
        return await cancelled(task)

    for moment in (0, 1, 1.5):
        turn = run_in_virtual_time(main(moment))
        assert [FailureKind.CANCELLED] * 2 == [r.failure and r.failure.kind for r in turn]
        assert Status.CANCELLED is turn[1].status


@pytest.mark.parametrize("stop", ["nobody", "token", "task"])
@tool_made
def test_the_stream_ends_whatever_is_cancelled(way: Callable[[], Any], stop: str) -> None:
    """H2: a reader of the events gets both results and then the end, however the tool's
    `CancelledError` came about."""

    async def read(turn: Turn) -> set[int]:
        return {result.index async for result in turn.events()}

    async def host(readers: "list[asyncio.Task[set[int]]]", token: CancelToken) -> None:
        async with Dispatcher([confused(way), answer]).turn(token=token) as turn:
            readers += [asyncio.create_task(read(turn)) for _ in range(2)]
            for call in PAIR:
                turn.submit(call)
            await turn.finish()

    async def main() -> list[set[int]]:
        readers: list[asyncio.Task[set[int]]] = []
        token = CancelToken()
        task = asyncio.create_task(host(readers, token))
        if stop != "nobody":
            at(1.5, task.cancel) if stop == "task" else at(1.5, token.cancel)
        await asyncio.wait([task])
        assert (stop == "task") == task.cancelled()
        async with asyncio.timeout(10):
            return await asyncio.gather(*readers)

    assert [{0, 1}] * 2 == run_in_virtual_time(main())


@pytest.mark.parametrize("policy", [BestEffort(), AllOrNothing()], ids=["waits", "cancels"])
@tool_made
def test_no_sibling_of_a_call_that_cancels_itself_outlives_the_run(
    way: Callable[[], Any], policy: Policy
) -> None:
    """H3: [self-cancel, sleep then write]: best effort waits for the write; all or nothing stops
    the writer, which then never writes."""
    written: list[str] = []

    @tool(safe_parallel=True)
    async def patch() -> None:
        await asyncio.sleep(5)
        written.append("patch")

    dispatcher = Dispatcher([confused(way), patch], policy=policy)

    async def main() -> list[str]:
        before = asyncio.all_tasks()
        await dispatcher.run(calls(("confused", {}), ("patch", {})))
        assert before == asyncio.all_tasks()
        at_the_end = list(written)
        await asyncio.sleep(100)
        return at_the_end

    expected = ["patch"] if policy == BestEffort() else []
    assert (expected, expected) == (run_in_virtual_time(main()), written)


@tool_made
def test_one_cancelled_subagent_of_three_costs_the_others_nothing(way: Callable[[], Any]) -> None:
    """H4: three subagents that call tools of their own; the second one's `CancelledError` is
    raised on by it: two reports, one call that was cancelled, and three ids answered."""

    @tool(safe_parallel=True)
    async def subagent(name: str, ctx: CallContext) -> str:
        for _ in range(3):
            (told,) = await ctx.run(calls(("answer", {"seconds": 1})))
            if name == "second":
                awaited = way()
                if awaited is not None:
                    await awaited
        return f"{name}: {told.unwrap()}"

    names = ("first", "second", "third")
    turn = run_in_virtual_time(
        Dispatcher([subagent, answer]).run(calls(*(("subagent", {"name": n}) for n in names)))
    )
    assert [True, False, True] == [result.ok for result in turn]
    assert ["first: after 1 s", "third: after 1 s"] == [turn[0].value, turn[2].value]
    assert FailureKind.CANCELLED is turn[1].failure.kind  # type: ignore[union-attr]
    reply = OpenAIChat().reply(turn)
    assert ["c0", "c1", "c2"] == [message.get("tool_call_id") for message in reply]


async def stop_task(task: "asyncio.Task[TurnResult]", token: CancelToken, d: Dispatcher) -> None:
    task.cancel()


async def stop_token(task: "asyncio.Task[TurnResult]", token: CancelToken, d: Dispatcher) -> None:
    token.cancel("abort")


async def stop_dispatcher(
    task: "asyncio.Task[TurnResult]", token: CancelToken, d: Dispatcher
) -> None:
    await d.aclose()


aborts = pytest.mark.parametrize("abort", [stop_task, stop_token, stop_dispatcher])


async def aborted_at(moment: float, one: Tool, abort: Any) -> tuple[TurnResult, float]:
    """One call of the tool, aborted at that time; its turn, and the seconds it took after that."""
    dispatcher, token = Dispatcher([one], grace=GRACE), CancelToken()
    task = asyncio.create_task(dispatcher.run(calls((one.name, {})), token=token))
    await asyncio.sleep(moment)
    before = clock()
    await abort(task, token, dispatcher)
    try:
        turn = await task
    except asyncio.CancelledError as error:
        turn = error.turn  # type: ignore[attr-defined]
    return turn, clock() - before


@aborts
@pytest.mark.parametrize("kind", ["hangs", "refuses"])
def test_an_abort_reaches_a_tool_that_hangs(kind: str, abort: Any) -> None:
    """H5: aborted at t = 1, a hanging tool is over at once, one that swallows every cancel is given
    up within two graces; in both cases its id has its result."""

    async def main() -> tuple[TurnResult, float]:
        release = asyncio.Event()
        one = hanging("t") if kind == "hangs" else refusing("t", release=release)
        try:
            return await aborted_at(1, one, abort)
        finally:
            release.set()

    turn, took = run_in_virtual_time(main())
    assert ["cancelled" if kind == "hangs" else "unknown"] == statuses(turn)
    assert took <= (0 if kind == "hangs" else 2 * GRACE + SETTLING)


@aborts
@pytest.mark.parametrize("kind", ["thread", "process"])
async def test_an_abort_reaches_what_runs_elsewhere(tmp_path: Path, kind: str, abort: Any) -> None:
    """H5: the same for a thread that cannot be stopped and for a process that ignores SIGTERM."""
    release = threading.Event()

    @tool(name="t", safe_parallel=True)
    async def process(ctx: CallContext) -> None:
        await ctx.run_process(sh("trap '' TERM; while :; do sleep 0.05; done"), cwd=tmp_path)

    one = process if kind == "process" else stuck("t", release=release)
    async with assert_no_leaks(within=SLACK):
        try:
            turn, took = await aborted_at(0.2, one, abort)
        finally:
            release.set()
    assert ["cancelled" if kind == "process" else "unknown"] == statuses(turn)
    assert took < 2 * GRACE + SLACK
    assert turn[0].content()


@pytest.mark.parametrize("siblings", [0, 1, 3])
@pytest.mark.parametrize("where", ["task", "thread", "nested"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_comes_out_once_and_the_same_way_with_or_without_siblings(
    error: type[BaseException], where: str, siblings: int
) -> None:
    """H8: the very exception that the tool raised, once, with the siblings cancelled and awaited;
    nobody else is told of it, no result is made of it, and the dispatcher can go on."""
    the_one = error("from a tool")
    told: list[Event] = []
    over: list[str] = []
    begun = threading.Semaphore(0)

    @tool(safe_parallel=True)
    async def task() -> None:
        await asyncio.sleep(1)
        raise the_one

    @tool(safe_parallel=True)
    def thread() -> None:
        for _ in range(siblings):
            assert begun.acquire(timeout=10)
        raise the_one

    @tool(safe_parallel=True)
    async def nested(ctx: CallContext) -> None:
        await ctx.run(calls(("task", {})))

    @tool(safe_parallel=True)
    async def sibling() -> None:
        begun.release()
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.2)
            over.append("over")

    dispatcher = Dispatcher([task, thread, nested, sibling, answer], sinks=[told.append])

    async def main() -> None:
        loop_errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: loop_errors.append(about))
        before = asyncio.all_tasks()
        with pytest.raises(error) as caught:
            await dispatcher.run(calls(*[("sibling", {})] * siblings, (where, {})))
        assert caught.value is the_one
        assert (["over"] * siblings, before) == (over, asyncio.all_tasks())
        again = await dispatcher.run(calls(("answer", {"seconds": 1})))
        assert (["ok"], []) == (statuses(again), loop_errors)

    run_in_virtual_time(main())
    assert "error" not in [getattr(event, "status", None) for event in told]
