"""Gates that change arguments: what the tool gets, and what becomes of order and overlap."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    Allow,
    Change,
    Dispatcher,
    FailureKind,
    Gate,
    GateContext,
    ToolCall,
    TurnResult,
)
from dispatch.runtime.gates import Decision
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import WAYS, Desk, Stage, call, kinds, played
from tests.timeline import SCHEDULES

REJECTED, INVALID = FailureKind.REJECTED, FailureKind.INVALID_ARGUMENTS

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)
both_kinds = pytest.mark.parametrize("rewrites", [False, True], ids=["asks", "rewrites"])


@ways
@both_kinds
def test_changed_arguments_reach_the_tool_and_not_the_history(rewrites: bool, way: str) -> None:
    """The tool gets the gate's arguments; the result shows the call as the model wrote it."""
    stage, desk = Stage(), Desk(a=Change({"mark": "changed", "key": "k"}))
    given = call("a", "change", key="k")
    result = played(stage, [given], way=way, gates=[Gate(desk, rewrites=rewrites)])
    assert ["changed"] == stage.marks
    assert result[0].call is given
    assert () == result.warnings


@both_kinds
@pytest.mark.parametrize(
    "arguments",
    [{"key": "k"}, {"mark": "a", "key": 5}, {"mark": "a", "key": "k", "more": 1}, None, [1]],
    ids=str,
)
def test_changed_arguments_are_validated(arguments: Any, rewrites: bool) -> None:
    """A gate cannot make a tool run on what its schema forbids; the message names the gate."""
    stage, desk = Stage(), Gate(Desk(a=Change(arguments)), rewrites=rewrites)
    result = played(stage, [call("a", "change", key="k")], gates=[desk])
    assert [INVALID] == kinds(result)
    assert "the gate 'Desk' changed them: " in result[0].content()
    assert [] == stage.marks


@schedules
def test_a_change_without_the_mark_keeps_its_place_and_never_overlaps(schedule: str) -> None:
    """`a` is moved from key k to key z: it is granted both, so nobody on either overlaps it, not
    even another turn; the turn says that its order on z is not promised."""
    stage = Stage()
    desk = Desk(a=Change({"mark": "a", "key": "z", "seconds": 3}))
    turn = [
        call("a", "change", key="k"),
        call("k", "change", key="k", seconds=3.0),
        call("z", "change", key="z", seconds=3.0),
    ]

    async def main() -> TurnResult:
        async with Dispatcher(stage.tools, schedule=schedule, gates=[desk]) as dispatcher:
            other = Dispatcher(stage.tools, resources=dispatcher.resources)
            outside = asyncio.create_task(
                other.run([call("out k", "change", key="k"), call("out z", "change", key="z")])
            )
            result = await dispatcher.run(turn)
            await outside
            return result

    result = run_in_virtual_time(main())
    began, ended = stage.spans["a"]
    for mark in ("k", "z", "out k", "out z"):
        other_began, other_ended = stage.spans[mark]
        assert other_ended <= began or ended <= other_began, mark
    assert ended <= stage.began("k")
    assert [
        "change: the gate 'Desk' changed what it touches; the order of what it newly touches is not"
        " promised"
    ] == list(result.warnings)


def test_the_one_ticket_of_an_all_or_nothing_turn_has_the_changed_claims_too() -> None:
    """`a` is moved to key z before the turn takes all its claims: while the turn lives, nobody
    else is on k or z."""
    stage = Stage()
    desk = Desk(a=Change({"mark": "a", "key": "z"}))

    async def main() -> None:
        dispatcher = Dispatcher(stage.tools, gates=[desk], policy=AllOrNothing())
        other = Dispatcher(stage.tools, resources=dispatcher.resources)
        turn = [call("b", "change", key="k", seconds=5.0), call("a", "change", key="k")]
        first = asyncio.create_task(dispatcher.run(turn))
        await asyncio.sleep(1.5)
        await other.run([call("k", "change", key="k"), call("z", "change", key="z")])
        await first

    run_in_virtual_time(main())
    assert (6.0, 7.0, 7.0) == (stage.began("a"), stage.began("k"), stage.began("z"))


@ways
@schedules
def test_a_gate_that_may_rewrite_keeps_the_order_of_what_is_newly_touched(
    schedule: str, way: str
) -> None:
    """`a` is moved to the key of `b`, which is behind it and was allowed sooner: `a` goes first."""
    stage = Stage()

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        if one.id != "a":
            return Allow()
        await asyncio.sleep(5)
        return Change({"mark": "a", "key": "z"})

    turn = [call("a", "change", key="k"), call("b", "change", key="z"), call("c")]
    options: dict[str, Any] = {"schedule": schedule, "gates": [Gate(gate, rewrites=True)]}
    result = played(stage, turn, way=way, **options)
    assert (5, 6) == (stage.began("a"), stage.began("b"))
    assert () == result.warnings
    assert [None] * 3 == kinds(result)


def test_until_a_rewriting_gate_answers_only_what_claims_something_is_held_back() -> None:
    """What claims nothing passes; the rest goes on when the claims are known, not when `a` ends."""
    stage = Stage()

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        await asyncio.sleep(5 if one.id == "a" else 0)
        return Allow()

    turn = [
        call("a", "change", key="k", seconds=9.0),
        call("b", "change", key="other"),
        call("free", after=()),
    ]
    played(stage, turn, gates=[Gate(gate, rewrites=True)])
    assert (5, 5) == (stage.began("a"), stage.began("b"))
