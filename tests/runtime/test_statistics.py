"""Statistics of a turn: exact numbers in virtual time."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    Allow,
    CallContext,
    Dispatcher,
    GateContext,
    Limits,
    Quorum,
    Rate,
    ResourceTable,
    Status,
    ToolCall,
    TurnResult,
    TurnStats,
    commute,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Stage, call, played
from tests.timeline import SCHEDULES


def stats(*turn: ToolCall, **options: Any) -> TurnStats:
    """Those of the turn."""
    return played(Stage(), turn, **options).stats


WORKED = (
    call("a", "change", key="k", seconds=2.0),
    call("b", "change", key="k", seconds=3.0),
    call("c", seconds=4.0),
)


def test_a_worked_example() -> None:
    """Two writers of one key, 2 s and 3 s, beside a call of 4 s: 9 s of work in 5 s."""
    measured = stats(*WORKED)
    assert (
        TurnStats(
            calls=3,
            makespan=5.0,
            run_time=9.0,
            conflicting=1,
            conflict_serialized=1,
            peak=2,
            waits={"order": 2.0},
            lower_bound=5.0,
            statuses={Status.OK: 3},
        )
        == measured
    )
    assert (1.8, 0.0, 1.0) == (
        measured.parallelism_factor,
        measured.cancellation_rate,
        measured.stretch,
    )


@pytest.mark.parametrize(
    ("schedule", "makespan", "peak", "waits"),
    [
        ("dataflow", 5.0, 2, 2.0),
        ("groups", 7.0, 2, 4.0),
        ("clusters", 5.0, 2, 2.0),
        ("serial", 9.0, 1, 7.0),
    ],
)
def test_every_schedule_is_measured_against_the_same_bound(
    schedule: str, makespan: float, peak: int, waits: float
) -> None:
    """The work, its conflicts and its lower bound are the same; only the makespan differs."""
    measured = stats(*WORKED, schedule=schedule)
    assert (makespan, peak, {"order": waits}) == (measured.makespan, measured.peak, measured.waits)
    assert (9.0, 1, 1, 5.0) == (
        measured.run_time,
        measured.conflicting,
        measured.conflict_serialized,
        measured.lower_bound,
    )
    assert makespan / 5.0 == measured.stretch


def test_a_turn_without_calls_has_neutral_measures() -> None:
    """Nothing is divided by nothing."""
    measured = stats()
    assert (0, 0.0, 0, {}) == (measured.calls, measured.makespan, measured.peak, measured.waits)
    assert (1.0, 0.0, 1.0) == (
        measured.parallelism_factor,
        measured.cancellation_rate,
        measured.stretch,
    )


def test_conflicting_is_not_yet_serialized() -> None:
    """In a stream the second writer comes when the first has settled: it conflicts, but did not
    wait; the third comes while the second runs, and does."""

    async def main() -> TurnStats:
        async with Dispatcher(Stage().tools).turn() as turn:
            for wait in (5.0, 0.5, 0.0):
                turn.submit(call("a", "change", key="k"))
                await asyncio.sleep(wait)
            return (await turn.finish()).stats

    measured = run_in_virtual_time(main())
    assert (2, 1) == (measured.conflicting, measured.conflict_serialized)
    assert {"order": 0.5} == measured.waits


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_order_without_a_conflict_is_not_conflicting(schedule: str) -> None:
    """Names, barriers and one-at-a-time are waits for order, but nobody conflicts."""
    measured = stats(call("a"), call("b", after=("a",)), call("c"), schedule=schedule)
    assert (0, 0) == (measured.conflicting, measured.conflict_serialized)
    assert 0.0 < measured.waits["order"]


def test_a_name_beside_a_conflict_is_a_conflict() -> None:
    """Asked to be after a writer of its own key, it has a conflicting predecessor all the same."""
    measured = stats(call("a", "change", key="k"), call("b", "change", key="k", after=("a",)))
    assert (1, 1) == (measured.conflicting, measured.conflict_serialized)


def test_what_commutes_does_not_conflict() -> None:
    """Appends to one log overlap, and so do reads."""

    @tool(resource_keys=lambda given: [commute("append", "log")])
    async def append() -> None:
        await asyncio.sleep(1)

    async def main() -> TurnStats:
        calls = [ToolCall(str(n), "append", {}) for n in range(3)]
        return (await Dispatcher([append]).run(calls)).stats

    measured = run_in_virtual_time(main())
    assert (0, 0, 3, 3.0) == (
        measured.conflicting,
        measured.conflict_serialized,
        measured.peak,
        measured.parallelism_factor,
    )


def test_another_turns_call_counts_as_a_conflict() -> None:
    """The key is held from outside until 3: the call conflicts and has waited, for a lock."""
    table = ResourceTable()
    stage = Stage()

    async def main() -> TurnStats:
        one, two = (Dispatcher(stage.tools, resources=table) for _ in range(2))
        first = asyncio.create_task(one.run([call("a", "change", key="k", seconds=3.0)]))
        await asyncio.sleep(1)
        measured = (await two.run([call("b", "look", key="k"), call("c")])).stats
        await first
        return measured

    measured = run_in_virtual_time(main())
    assert (1, 1, {"lock": 2.0}) == (
        measured.conflicting,
        measured.conflict_serialized,
        measured.waits,
    )
    assert (3.0, 2.0) == (measured.makespan, measured.run_time)


def test_each_second_of_waiting_has_one_cause() -> None:
    """One call that waits 1 s for a gate, then 2 s for order, 3 s for a lock, 4 s for a slot and
    5 s for its rate, and is suspended for 2 s; the phases follow each other and add up."""
    table, stage = ResourceTable(), Stage()
    limits = Limits(8, per_tag={"t": 1}, rates={"r": Rate(1, 15.0)})

    async def gate(one: ToolCall, context: GateContext) -> Allow:
        await asyncio.sleep(1 if one.id == "w" else 0)
        return Allow()

    @tool(writes="key:{key}")
    async def wait(key: str, ctx: CallContext) -> None:
        async with ctx.suspended():
            await asyncio.sleep(2)
        await asyncio.sleep(1)

    async def main() -> TurnResult:
        dispatcher = Dispatcher([*stage.tools, wait], resources=table, limits=limits, gates=[gate])
        other = Dispatcher(stage.tools, resources=table, limits=limits)
        outside = asyncio.create_task(
            other.run(
                [
                    call("lock", "look", key="k", seconds=6.0),
                    call("slot", seconds=10.0, tags=("t", "r")),
                ]
            )
        )
        await asyncio.sleep(0)
        result = await dispatcher.run(
            [
                call("order", "look", key="k", seconds=3.0),
                ToolCall("w", "wait", {"key": "k"}, tags=frozenset({"t", "r"})),
            ]
        )
        await outside
        return result

    result = run_in_virtual_time(main())
    waits = {"gate": 1.0, "order": 2.0, "lock": 3.0, "slot": 4.0, "rate": 5.0, "suspended": 2.0}
    assert waits == result[1].waits
    assert dict(sorted(waits.items())) == result.stats.waits
    assert 15.0 == result[1].started_at
    assert (18.0, 4.0) == (result[1].finished_at, result.stats.run_time)


def test_the_bound_knows_the_limits() -> None:
    """Three calls of 1 s with two slots take at least 1.5 s, and took 2."""
    measured = stats(*(call(str(n)) for n in range(3)), max_concurrent=2)
    assert (2.0, 1.5, 4 / 3) == (measured.makespan, measured.lower_bound, measured.stretch)
    assert {"slot": 1.0} == measured.waits
    by_tag = Limits(8, per_tag={"t": 1})
    measured = stats(call("a", tags=("t",)), call("b", tags=("t",)), call("c"), limits=by_tag)
    assert (2.0, 1.0) == (measured.lower_bound, measured.stretch)


def test_the_cancellation_rate_counts_cancelled_calls_alone() -> None:
    """Two of five are cancelled by a met quorum; a time-out, an error and a skip are none."""
    quorum = stats(*(call(str(n), seconds=n + 1.0) for n in range(5)), policy=Quorum(3))
    assert (0.4, 3.0) == (quorum.cancellation_rate, quorum.makespan)
    assert {Status.OK: 3, Status.CANCELLED: 2} == quorum.statuses
    others = stats(
        call("a", fails=True),
        call("b", timeout=0.5),
        call("c", after=("a",)),
        dependents="skip",
    )
    assert 0.0 == others.cancellation_rate
    assert {Status.ERROR: 1, Status.TIMED_OUT: 1, Status.SKIPPED: 1} == others.statuses


def test_calls_that_end_where_others_begin_are_no_peak() -> None:
    """Ten calls one after the other were never two at once; refused calls never ran at all."""
    chain = [call(str(n), "change", key="k") for n in range(10)]
    measured = stats(*chain, call("x", "nothing"))
    assert (1, 10.0, 10.0) == (measured.peak, measured.run_time, measured.makespan)


def test_what_was_undone_is_counted_as_rolled_back() -> None:
    """A success that its group took back is not a success in the books either."""
    measured = stats(call("a"), call("b", seconds=2.0, fails=True), policy=AllOrNothing())
    assert {Status.ROLLED_BACK: 1, Status.ERROR: 1} == measured.statuses
