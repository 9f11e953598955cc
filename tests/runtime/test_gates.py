"""Gates: who is asked, in what state of things, and what each answer means for the others."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dispatch import (
    Allow,
    CallContext,
    CancelToken,
    Change,
    DeclarationError,
    Deny,
    Dispatcher,
    FailureKind,
    Gate,
    GateContext,
    Phase,
    Ref,
    Status,
    ToolCall,
    ToolResult,
    TurnResult,
    tool,
)
from dispatch.runtime.gates import Decision
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import WAYS, Desk, Stage, call, clock, kinds, played
from tests.timeline import SCHEDULES

REJECTED, INVALID = FailureKind.REJECTED, FailureKind.INVALID_ARGUMENTS

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)
both_kinds = pytest.mark.parametrize("rewrites", [False, True], ids=["asks", "rewrites"])


@schedules
def test_a_denial_is_no_failure_that_spreads(schedule: str) -> None:
    """Also with `dependents="skip"` only what depends on the denied call is skipped."""
    stage, desk = Stage(), Desk(a=Deny("no"))
    turn = [call("a", "change", key="k"), call("b", "change", key="k"), call("c")]
    result = played(stage, turn, schedule=schedule, gates=[desk], dependents="skip")
    assert [REJECTED, FailureKind.SKIPPED, None] == kinds(result)


@schedules
def test_calls_are_asked_about_side_by_side_and_before_their_turn(schedule: str) -> None:
    """Three calls in a chain of conflicts: one wait for all answers, then one after the other."""
    stage, desk = Stage(), Desk(2)
    turn = [call(mark, "change", key="k") for mark in "abc"]
    result = played(stage, turn, schedule=schedule, gates=[desk])
    assert dict.fromkeys("abc", 0.0) == desk.asked
    assert {"a": (2, 3), "b": (3, 4), "c": (4, 5)} == stage.spans
    assert [{"gate": 2.0, "order": float(n)} if n else {"gate": 2.0} for n in range(3)] == [
        each.waits for each in result
    ]


async def raises(call: ToolCall, context: GateContext) -> Decision:
    raise LookupError("no such rule")


async def cancels_itself(call: ToolCall, context: GateContext) -> Decision:
    raise asyncio.CancelledError


async def says_yes(call: ToolCall, context: GateContext) -> Any:
    return True


async def says_nothing(call: ToolCall, context: GateContext) -> Any:
    return None


async def gives_the_class(call: ToolCall, context: GateContext) -> Any:
    return Allow


async def takes_forever(call: ToolCall, context: GateContext) -> Decision:
    await asyncio.Event().wait()
    return Allow()


BROKEN: dict[str, tuple[Any, str]] = {
    "raises": (raises, "the gate 'raises' failed: LookupError: no such rule"),
    "cancels itself": (cancels_itself, "the gate 'cancels_itself' was cancelled"),
    "true": (says_yes, "the gate 'says_yes' returned bool, neither Allow, Deny nor Change"),
    "nothing": (says_nothing, "returned NoneType"),
    "a class": (gives_the_class, "returned type"),
    "too late": (Gate(takes_forever, timeout=3), "'takes_forever' did not answer within 3 s"),
}


@both_kinds
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_gate_that_does_not_answer_refuses_the_call(
    broken: tuple[Any, str], rewrites: bool
) -> None:
    """Fail closed: the tool never runs, the message says whose fault it was, siblings go on."""
    gate, message = broken
    timeout = gate.timeout if isinstance(gate, Gate) else None
    function = gate.function if isinstance(gate, Gate) else gate

    async def only_a(one: ToolCall, context: GateContext) -> Decision:
        answer: Decision = Allow() if one.id == "b" else await function(one, context)
        return answer

    only_a.__name__ = function.__name__
    stage = Stage()
    turn = [call("a", "change", key="k"), call("b", "change", key="k")]
    result = played(stage, turn, gates=[Gate(only_a, rewrites=rewrites, timeout=timeout)])
    assert REJECTED == kinds(result)[0]
    assert message in result[0].content()
    assert ["b"] == stage.marks


def test_gates_are_asked_one_after_the_other_and_see_what_was_changed() -> None:
    """The second gate sees the first one's arguments; after a denial nobody else is asked."""
    seen: list[Any] = []

    async def first(one: ToolCall, context: GateContext) -> Decision:
        return Deny("no") if one.id == "b" else Change({"mark": "changed"})

    async def second(one: ToolCall, context: GateContext) -> Decision:
        seen.append((one.id, context.arguments["mark"], context.tool.name, context.index))
        assert not context.token.cancelled
        return Allow()

    stage = Stage()
    result = played(stage, [call("b"), call("a")], gates=[first, second])
    assert [("a", "changed", "free", 1)] == seen
    assert [REJECTED, None] == kinds(result)


def test_a_call_that_cannot_run_is_not_asked_about() -> None:
    """Nobody is bothered with unknown tools, bad arguments, or names that never come."""
    desk = Desk(0)
    turn = [call("a", "nothing"), call("b", seconds="long"), call("c", after=("z",)), call("d")]
    played(Stage(), turn, gates=[desk])
    assert ["d"] == list(desk.asked)


@both_kinds
def test_a_gate_sees_the_values_that_refs_stand_for(rewrites: bool) -> None:
    """It is asked when they are known: what waits for them before is order, not approval."""
    seen: list[object] = []

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        await asyncio.sleep(2)
        seen.append(context.arguments["key"])
        return Allow()

    turn = [call("a", value="k"), call("b", "change", key=Ref("a"))]
    result = played(Stage(), turn, gates=[Gate(gate, rewrites=rewrites)])
    assert ["", "k"] == seen
    assert {"order": 3.0, "gate": 2.0} == result[1].waits


Stop = Callable[[CancelToken, "asyncio.Task[TurnResult]"], object]
STOPS: dict[str, Stop] = {
    "token": lambda token, task: token.cancel("enough"),
    "task": lambda token, task: task.cancel(),
}


@both_kinds
@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
def test_a_stopped_turn_takes_its_questions_with_it(stop: Stop, rewrites: bool) -> None:
    """The gates are cancelled, their tokens set, and no task is left; the calls never started."""
    tokens: list[CancelToken] = []
    desk = Desk(100)

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        tokens.append(context.token)
        return await desk(one, context)

    async def main() -> tuple[ToolResult, ...]:
        token = CancelToken()
        dispatcher = Dispatcher(Stage().tools, gates=[Gate(gate, rewrites=rewrites)])
        task = asyncio.create_task(dispatcher.run([call("a"), call("b")], token=token))
        await asyncio.sleep(1)
        stop(token, task)
        try:
            results = (await task).results
        except asyncio.CancelledError as error:
            results = error.turn.results  # type: ignore[attr-defined]
        assert 1.0 == clock()
        await asyncio.sleep(0)
        assert {asyncio.current_task()} == asyncio.all_tasks()
        return tuple(results)

    results = run_in_virtual_time(main())
    assert [Status.CANCELLED] * 2 == [each.status for each in results]
    assert [Phase.GATE] * 2 == [each.failure and each.failure.phase for each in results]
    assert ["a", "b"] == sorted(desk.stopped)
    assert [True, True] == [token.cancelled for token in tokens]


@both_kinds
def test_a_call_that_times_out_while_it_is_asked_about_says_so(rewrites: bool) -> None:
    """Its gate is cancelled; the call behind it goes on."""
    stage, desk = Stage(), Desk(5)
    turn = [call("a", "change", key="k", timeout=2), call("b", "change", key="k")]
    result = played(stage, turn, gates=[Gate(desk, rewrites=rewrites)])
    text = "[timed_out] timed out after 2 s while waiting for approval; it never started"
    assert text == result[0].content()
    assert ["a"] == desk.stopped
    assert 5.0 == stage.began("b")


def test_a_gate_that_will_not_stop_does_not_hold_up_the_turn() -> None:
    """It ignores its cancellation; the turn returns at its time limit, and the late answer is
    dropped."""

    async def stubborn(one: ToolCall, context: GateContext) -> Decision:
        while clock() < 50:
            try:
                await asyncio.sleep(50 - clock())
            except asyncio.CancelledError:
                continue
        return Allow()

    stage = Stage()

    async def main() -> None:
        result = await Dispatcher(stage.tools, gates=[stubborn]).run([call("a")], timeout=3)
        assert (3.0, Status.TIMED_OUT) == (clock(), result[0].status)
        await asyncio.sleep(60)

    run_in_virtual_time(main())
    assert [] == stage.marks


def test_nested_calls_pass_the_same_gates() -> None:
    """A tool cannot get around approval by starting the call itself; other turns are asked too."""
    stage, desk = Stage(), Desk(1, inner=Deny("not from inside either"))

    @tool(safe_parallel=True)
    async def agent(ctx: CallContext) -> str:
        return (await ctx.run([call("inner")]))[0].content()

    async def main() -> TurnResult:
        dispatcher = Dispatcher([*stage.tools, agent], gates=[desk])
        return await dispatcher.run([ToolCall("outer", "agent", {})])

    assert "[error] not from inside either" == run_in_virtual_time(main())[0].value
    assert {"outer": 0.0, "inner": 1.0} == desk.asked
    assert [] == stage.marks


def test_a_gate_that_would_block_the_loop_is_refused() -> None:
    """A plain function, by itself or with more said about it, before anything runs."""

    def plain(call: ToolCall, context: GateContext) -> Decision:
        return Allow()

    with pytest.raises(DeclarationError, match="a gate is an async function"):
        Dispatcher(Stage().tools, gates=[plain])  # type: ignore[list-item]
    with pytest.raises(DeclarationError, match="would block the event loop"):
        Gate(plain, rewrites=True)  # type: ignore[arg-type]
