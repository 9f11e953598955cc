"""Order that was asked for by name: `after`, places in the order, and what a failure means."""

import asyncio
from typing import Any

import pytest

from dispatch import Dispatcher, FailureKind, Phase, Status
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import WAYS, Stage, call, causes, kinds, played
from tests.timeline import SCHEDULES

DEPENDENCY, SKIPPED = FailureKind.DEPENDENCY, FailureKind.SKIPPED

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


@ways
@schedules
def test_a_call_starts_once_the_calls_it_names_have_settled(schedule: str, way: str) -> None:
    """Whether they stand before it or behind it, and though nothing else orders them."""
    stage = Stage()
    turn = [
        call("last", after=("first", "middle")),
        call("first"),
        call("middle", after=("first",)),
    ]
    result = played(stage, turn, schedule=schedule, way=way)
    assert ["last", "first", "middle"] == [each.value for each in result]
    assert {"first": (0, 1), "middle": (1, 2), "last": (2, 3)} == stage.spans


@ways
@schedules
def test_a_long_chain_of_names_runs_from_its_far_end(schedule: str, way: str) -> None:
    """200 calls, each after the next one: the last one first, and still in order in the results."""
    stage = Stage()
    turn = [call(f"m{n}", after=(f"m{n + 1}",)) for n in range(199)] + [call("m199")]
    result = played(stage, turn, schedule=schedule, way=way)
    assert [f"m{n}" for n in range(199, -1, -1)] == stage.marks
    assert [f"m{n}" for n in range(200)] == [each.value for each in result]
    assert 200.0 == result.stats.makespan


@ways
@schedules
def test_after_a_repeated_id_means_every_call_that_has_it(schedule: str, way: str) -> None:
    """The slower of two calls with one id is waited for too."""
    stage = Stage()
    turn = [
        call("short", call_id="x"),
        call("long", call_id="x", seconds=3.0),
        call("end", after=("x",)),
    ]
    played(stage, turn, schedule=schedule, way=way)
    assert stage.began("end") == max(end for _, end in (stage.spans["short"], stage.spans["long"]))


@ways
@schedules
def test_only_the_calls_on_a_cycle_fail_with_it(schedule: str, way: str) -> None:
    """B4: three that wait for each other never start; who waits for one of them, and the rest, run.

    The message names everybody on the cycle.
    """
    stage = Stage()
    turn = [
        call("a", after=("c",)),
        call("b", after=("a",)),
        call("other"),
        call("c", after=("b", "other")),
        call("behind", after=("a",)),
        call("self", after=("self",)),
    ]
    result = played(stage, turn, schedule=schedule, way=way)
    assert [DEPENDENCY, DEPENDENCY, None, DEPENDENCY, None, DEPENDENCY] == kinds(result)
    assert ["behind", "other"] == sorted(stage.marks)
    assert "[error] it waits for itself, by way of 'a', 'b', 'c'" == result[1].content()
    assert "[error] it waits for itself, by way of 'self'" == result[5].content()
    assert [0, None] == [result[0].attempts, result[0].started_at]


@ways
@schedules
def test_an_id_that_never_comes_fails_the_call_that_names_it(schedule: str, way: str) -> None:
    """When the turn closes, with the id in the message; who waits for that call goes on."""
    stage = Stage()
    turn = [call("a", after=("nowhere",)), call("b", after=("a",)), call("c")]
    result = played(stage, turn, schedule=schedule, way=way)
    assert [DEPENDENCY, None, None] == kinds(result)
    assert (
        "[error] it waits for 'nowhere', and no call of this turn has that id"
        == result[0].content()
    )
    assert 0.0 == result[0].finished_at


def test_an_id_may_come_until_the_turn_closes() -> None:
    """In a stream nothing is given up early: the named call comes at 5, its waiter runs at 6."""
    stage = Stage()

    async def main() -> None:
        async with Dispatcher(stage.tools).turn() as turn:
            turn.submit(call("waiter", after=("late",)))
            await asyncio.sleep(5)
            assert () == turn.snapshot()
            turn.submit(call("late"))
            result = await turn.finish()
        assert [None, None] == kinds(result)
        assert {"order": 6.0} == result[0].waits

    run_in_virtual_time(main())
    assert {"late": (5, 6), "waiter": (6, 7)} == stage.spans


def test_a_call_without_a_place_can_time_out_and_be_cancelled() -> None:
    """It waits for an id that has not come: its own time limit ends it, and so does the turn's."""
    stage = Stage()

    async def main() -> None:
        async with Dispatcher(stage.tools).turn(timeout=4) as turn:
            turn.submit(call("a", after=("z",), timeout=1))
            turn.submit(call("b", after=("z",)))
            turn.submit(call("c", after=("a",)))
            await asyncio.sleep(10)
            result = await turn.finish()
        assert [Status.TIMED_OUT] * 3 == [each.status for each in result]
        assert [1.0, 4.0, 4.0] == [each.finished_at for each in result]
        assert [Phase.ORDER] * 3 == [each.failure and each.failure.phase for each in result]

    run_in_virtual_time(main())
    assert [] == stage.marks


@schedules
def test_a_call_stands_behind_what_it_names_and_the_others_where_they_were(schedule: str) -> None:
    """`late` is written first but admitted last, so `early`, which writes the same key, is before
    it; that no name and conflict can form a cycle follows from this."""
    stage = Stage()
    turn = [
        call("late", "change", key="k", after=("named",)),
        call("early", "change", key="k"),
        call("named", "look", key="k"),
    ]
    result = played(stage, turn, schedule=schedule)
    assert ["early", "named", "late"] == stage.marks
    assert ["late", "early", "named"] == [each.value for each in result]


@ways
@schedules
def test_a_name_and_a_conflict_the_other_way_round_are_no_cycle(schedule: str, way: str) -> None:
    """A writer that wants to be after a later writer of the same key just runs after it."""
    stage = Stage()
    turn = [call("a", "change", key="k", after=("b",)), call("b", "change", key="k")]
    result = played(stage, turn, schedule=schedule, way=way)
    assert [None, None] == kinds(result)
    assert {"b": (0, 1), "a": (1, 2)} == stage.spans


@pytest.mark.parametrize("bad", ["unknown tool", "bad arguments"])
def test_who_names_a_call_that_never_ran_starts_at_once(bad: str) -> None:
    """Order is no success: by default a call runs after whatever became of those it names."""
    stage = Stage()
    wrong = call("a", "nothing") if bad == "unknown tool" else call("a", seconds="long")
    result = played(stage, [call("b", after=("a",)), wrong])
    assert {"b": (0, 1)} == stage.spans
    assert result[0].ok


def test_the_plan_shows_the_order_by_name() -> None:
    """Groups follow the names, the edge says that it was asked for, a cycle is refused in it."""
    dispatcher = Dispatcher(Stage().tools)
    plan = dispatcher.plan([call("b", after=("a",)), call("a"), call("x", after=("x",))])
    assert ((1, 2), (0,)) == plan.groups
    (edge,) = plan.edges
    assert "after" in edge.reason
    assert "waits for itself" in plan.to_text()


@schedules
def test_by_default_a_failure_does_not_stop_who_merely_conflicts(schedule: str) -> None:
    """An edit whose predecessor failed runs all the same: failing is information."""
    stage = Stage()
    turn = [call("a", "change", key="k", fails=True), call("b", "change", key="k")]
    result = played(stage, turn, schedule=schedule)
    assert [FailureKind.TOOL_ERROR, None] == kinds(result)
    assert {"a": (0, 1), "b": (1, 2)} == stage.spans


@ways
@schedules
def test_with_skip_a_failure_carries_on_to_all_that_depend_on_it(schedule: str, way: str) -> None:
    """Every skip names the first failure, not the skip between; what shares nothing runs."""
    stage = Stage()
    turn = [
        call("a", "change", key="k", fails=True),
        call("b", "change", key="k"),
        call("c", after=("b",)),
        call("d", "look", key="k"),
        call("free"),
        call("elsewhere", "change", key="other", after=("free",)),
    ]
    result = played(stage, turn, schedule=schedule, way=way, dependents="skip")
    assert [FailureKind.TOOL_ERROR, SKIPPED, SKIPPED, SKIPPED, None, None] == kinds(result)
    assert [None, 0, 0, 0, None, None] == causes(result)
    assert "[skipped] never started: change (call 0) failed" == result[2].content()
    assert ["a", "elsewhere", "free"] == sorted(stage.marks)


FIRST_FAILURES: dict[str, dict[str, Any]] = {
    "an error": {"fails": True},
    "a time-out": {"seconds": 9.0, "timeout": 1.0},
    "bad arguments": {"seconds": "long"},
}


@pytest.mark.parametrize("failing", FIRST_FAILURES.values(), ids=FIRST_FAILURES.keys())
def test_with_skip_every_sort_of_failure_counts(failing: dict[str, Any]) -> None:
    """Whoever named the call is skipped, whatever the call went wrong by."""
    stage = Stage()
    result = played(stage, [call("a", **failing), call("b", after=("a",))], dependents="skip")
    assert [None, 0] == causes(result)
    assert SKIPPED == kinds(result)[1]


def test_with_skip_a_missing_name_skips_those_behind_it() -> None:
    """A call that failed for its dependency is a failure like any other."""
    result = played(Stage(), [call("a", after=("z",)), call("b", after=("a",))], dependents="skip")
    assert [DEPENDENCY, SKIPPED] == kinds(result)
    assert [None, 0] == causes(result)


def test_with_skip_readers_do_not_depend_on_each_other() -> None:
    """A failed read says nothing about the next read, but the writer behind both is skipped."""
    stage = Stage()
    turn = [
        call("a", "look", key="k", fails=True),
        call("b", "look", key="k"),
        call("c", "change", key="k"),
    ]
    result = played(stage, turn, dependents="skip")
    assert [FailureKind.TOOL_ERROR, None, SKIPPED] == kinds(result)


def test_with_skip_a_call_that_comes_later_in_a_stream_is_skipped_too() -> None:
    """The failure is long over when the dependant arrives; it says the same."""
    stage = Stage()

    async def main() -> None:
        async with Dispatcher(stage.tools, dependents="skip").turn() as turn:
            turn.submit(call("a", "change", key="k", fails=True))
            await asyncio.sleep(5)
            turn.submit(call("b", "change", key="k"))
            turn.submit(call("c", after=("a",)))
            result = await turn.finish()
        assert [SKIPPED, SKIPPED] == kinds(result)[1:]
        assert [None, 0, 0] == causes(result)

    run_in_virtual_time(main())
    assert ["a"] == stage.marks


def test_with_skip_a_barrier_is_no_dependency() -> None:
    """Under `groups` the second group follows a failed call of the first, but depends only on its
    own predecessor."""
    stage = Stage()
    turn = [
        call("bad", "change", key="x", fails=True),
        call("a", "change", key="k"),
        call("b", "change", key="k"),
    ]
    result = played(stage, turn, schedule="groups", dependents="skip")
    assert [FailureKind.TOOL_ERROR, None, None] == kinds(result)
