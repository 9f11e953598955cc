"""Compensations that fail, take too long, cannot be stopped, or cannot be run."""

import asyncio
import threading

import pytest

from dispatch import (
    AllOrNothing,
    CallContext,
    Dispatcher,
    FailureKind,
    TurnResult,
    UsageError,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import (
    Diary,
    call,
    edit,
    fail,
    left_over,
    rolled_back,
    statuses,
    step,
    told,
    undoing,
)


def test_a_compensation_has_a_time_limit_of_its_own() -> None:
    """An `async def` one is cancelled; its call is in doubt and the older ones still run."""
    ran: list[str] = []

    async def older() -> None:
        ran.append("older")

    async def endless() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ran.append(f"stopped at {asyncio.get_running_loop().time():g}")

    turn = rolled_back(older, endless, timeout=2.0)
    assert ["stopped at 3", "older"] == ran
    failure = turn[0].failure
    assert failure is not None
    assert ("unknown", FailureKind.IN_DOUBT) == (turn[0].status, failure.kind)
    assert "endless was stopped after 2 s" in failure.message
    assert not failure.retryable


def test_a_compensation_that_ends_by_itself_after_its_limit_counts_as_it_ended() -> None:
    """It was told to stop and finished instead: what it undid is undone."""

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)

    turn = rolled_back(stubborn, timeout=2.0)
    assert "rolled_back" == turn[0].status


def test_a_compensation_in_a_thread_that_does_not_end_keeps_the_claims() -> None:
    """After its limit and the grace the turn is over; others wait for what it may still touch."""
    release = threading.Event()

    def stuck() -> None:
        release.wait(20)

    policy = AllOrNothing(rollback_timeout=0.1)
    tools = [undoing(stuck), fail, edit]
    dispatcher = Dispatcher(tools, policy=policy, grace=0.1, abandoned_wait=0.0)
    patient = Dispatcher(tools, resources=dispatcher.resources)
    turn = dispatcher.run_sync([call("act"), call("fail", seconds=0.0)])
    assert "stuck did not end within 0.1 s and could not be stopped" in turn[0].content()
    assert "unknown" == turn[0].status
    assert 1 == dispatcher.resources.statistics().held
    blocked = dispatcher.run_sync([call("edit", key="own")])
    assert ["skipped"] == statuses(blocked)
    assert "act (call 0) of another turn" in blocked[0].content()

    async def main() -> TurnResult:
        task = asyncio.create_task(patient.run([call("edit", 5.0, key="own")]))
        await asyncio.sleep(0.05)
        release.set()
        return await task

    assert ["ok"] == statuses(asyncio.run(main()))
    assert (0, 0, 0) == left_over(dispatcher, patient)


def test_a_compensation_in_a_nested_call_that_does_not_end_keeps_the_claims() -> None:
    """The claims are those of the nested call, though the turn above runs its compensation."""

    async def stuck() -> None:
        while asyncio.get_running_loop().time() < 50:
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                continue

    @tool(safe_parallel=True)
    async def agent(ctx: CallContext) -> None:
        await ctx.run([call("act")])

    policy = AllOrNothing(rollback_timeout=1.0)
    dispatcher = Dispatcher([undoing(stuck), agent, fail, edit], policy=policy, grace=0.5)

    async def main() -> tuple[TurnResult, TurnResult]:
        first = await dispatcher.run([call("agent"), call("fail")])
        return first, await dispatcher.run([call("edit", 100.0, key="own")])

    first, second = run_in_virtual_time(main())
    assert ["unknown", "error"] == statuses(first)
    assert (["ok"], 52.0) == (statuses(second), second[0].started_at)
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_compensation_that_was_given_up_starts_nothing_any_more() -> None:
    """Its turn is decided: whatever it begins now would be undone by nobody."""
    errors: list[BaseException] = []

    async def stuck(ctx: CallContext) -> None:
        while asyncio.get_running_loop().time() < 50:
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                continue
        try:
            await ctx.run([call("edit", key="x")])
        except UsageError as error:
            errors.append(error)

    @tool(safe_parallel=True)
    async def act(ctx: CallContext) -> None:
        ctx.on_rollback(stuck, ctx)

    async def main() -> None:
        policy = AllOrNothing(rollback_timeout=1.0)
        await Dispatcher([act, fail, edit], policy=policy).run([call("act"), call("fail")])
        await asyncio.sleep(100)

    run_in_virtual_time(main())
    assert 1 == len(errors)


def test_one_that_fails_leaves_its_call_in_doubt_and_the_others_run() -> None:
    """The failure is told; other calls are rolled back as usual."""
    diary = Diary()

    async def broken() -> None:
        raise LookupError("no backup")

    tools = [*diary.tools(), undoing(broken), fail]
    calls = [step("a", seconds=0), call("act"), step("b", seconds=0), call("fail")]
    turn = run_in_virtual_time(Dispatcher(tools, policy=AllOrNothing()).run(calls))
    assert ["rolled_back", "unknown", "rolled_back", "error"] == statuses(turn)
    assert {"-a", "-b"} == set(diary.undone)
    failure = turn[1].failure
    assert failure is not None
    assert FailureKind.IN_DOUBT is failure.kind
    assert "broken failed: LookupError: no backup" in failure.message


def test_a_compensation_that_cancels_itself_has_failed() -> None:
    """It ends neither the rollback nor the turn."""

    async def cancels() -> None:
        raise asyncio.CancelledError

    ran: list[str] = []
    turn = rolled_back(lambda: ran.append("older"), cancels)
    assert (["unknown", "error"], ["older"]) == (statuses(turn), ran)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_compensation_comes_out_after_the_others(
    kind: type[BaseException],
) -> None:
    """It is never turned into a result; nothing stays half undone because of it."""
    ran: list[str] = []

    async def interrupted() -> None:
        raise kind

    async def older() -> None:
        ran.append("older")

    dispatcher = Dispatcher([undoing(older, interrupted), fail], policy=AllOrNothing())
    with pytest.raises(kind):
        run_in_virtual_time(dispatcher.run([call("act"), call("fail")]))
    assert (["older"], (0, 0, 0)) == (ran, left_over(dispatcher))


def test_one_that_conflicts_with_an_abandoned_call_is_not_run() -> None:
    """What was given up may still write what would be undone; a compensation elsewhere runs."""
    diary = Diary()

    @tool(writes="key:a")
    async def refuse(ctx: CallContext) -> None:
        ctx.on_rollback(diary.undo, "refuse")
        while asyncio.get_running_loop().time() < 50:
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                continue

    tools = [*diary.tools(), refuse]
    dispatcher = Dispatcher(tools, policy=AllOrNothing(), grace=0.5)
    calls = [step("a"), step("b"), call("refuse", 3.0)]

    async def main() -> tuple[TurnResult, int]:
        turn = await dispatcher.run(calls)
        held = dispatcher.resources.statistics().held
        await asyncio.sleep(60)
        return turn, held

    turn, held = run_in_virtual_time(main())
    assert [("unknown", 1.0), ("rolled_back", 1.0), ("unknown", 4.0)] == told(turn)
    assert ["-b"] == diary.undone
    in_doubt, gone = turn[0].failure, turn[2].failure
    assert in_doubt is not None
    assert gone is not None
    assert (FailureKind.IN_DOUBT, FailureKind.ABANDONED) == (in_doubt.kind, gone.kind)
    assert "undo was not run: refuse (call 2) was given up" in in_doubt.message
    assert (1, (0, 0, 0)) == (held, left_over(dispatcher))


def test_a_rollback_goes_on_though_every_task_of_the_loop_is_cancelled() -> None:
    """A compensation that is cancelled from outside has failed; the older ones still run."""
    diary = Diary()

    async def main() -> TurnResult:
        dispatcher = Dispatcher(diary.tools(), policy=AllOrNothing())
        calls = [step("a", undo=1), step("b", "a", undo=9), step("c", "a", fate="fails")]
        task = asyncio.create_task(dispatcher.run(calls))
        await asyncio.sleep(4)
        for other in asyncio.all_tasks() - {task, asyncio.current_task()}:
            other.cancel()
        return await task

    turn = run_in_virtual_time(main())
    assert ["rolled_back", "unknown", "error"] == statuses(turn)
    assert ["-c", "-a"] == diary.undone


def test_a_system_without_threads_leaves_the_call_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A `def` compensation that gets no thread was not run; the others run, the turn ends."""
    ran: list[str] = []

    async def older() -> None:
        ran.append("older")

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    turn = rolled_back(older, lambda: ran.append("in a thread"))
    assert (["unknown", "error"], ["older"]) == (statuses(turn), ran)
    assert "was not run: can't start new thread" in turn[0].content()
