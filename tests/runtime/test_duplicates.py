"""Identical calls in one turn: run each, run one for all, or refuse the later ones."""

import asyncio
import json

import pytest

from dispatch import (
    Dispatcher,
    FailureKind,
    Phase,
    Quorum,
    Ref,
    Status,
    ToolCall,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.ledger import THREE, Ledger, append
from tests.runtime.stage import WAYS, Stage, call, causes, kinds, played
from tests.timeline import SCHEDULES

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


@ways
@schedules
def test_by_default_every_copy_runs(schedule: str, way: str) -> None:
    """A10: two equal calls may well be meant: three appends are three."""
    ledger = Ledger()
    result = ledger.run(THREE, way, schedule=schedule)
    assert ["f+x"] * 3 == ledger.done
    assert [1, 2, 3] == [each.value for each in result]


@ways
@schedules
def test_one_run_answers_all_copies(schedule: str, way: str) -> None:
    """A10: each id has its own result, of its own call, with the one value and no attempt."""
    ledger = Ledger()
    result = ledger.run(THREE, way, schedule=schedule, duplicates="coalesce")
    assert ["f+x"] == ledger.done
    assert ["1", "2", "3"] == [each.call.id for each in result]
    assert [0, 1, 2] == [each.index for each in result]
    assert [1, 1, 1] == [each.value for each in result]
    assert [1, 0, 0] == [each.attempts for each in result]
    assert [0.0, None, None] == [each.started_at for each in result]
    assert [1.0, 1.0, 1.0] == [each.finished_at for each in result]


@ways
@schedules
@pytest.mark.parametrize(
    "between",
    [("replace", {"file": "f"}), ("read", {"file": "f"}), ("append", {"file": "f", "text": "y"})],
    ids=["a write", "a read", "another append"],
)
def test_a_conflicting_call_in_between_reopens_the_window(
    between: tuple[str, dict[str, str]], way: str, schedule: str
) -> None:
    """A10: what was asked for after another change of the file is not what was asked before."""
    ledger = Ledger()
    turn = [append("1"), append("2"), ToolCall("b", *between), append("3"), append("4")]
    result = ledger.run(turn, way, schedule=schedule, duplicates="coalesce")
    assert 2 == ledger.done.count("f+x")
    assert [1, 0, 1, 1, 0] == [each.attempts for each in result]


@ways
def test_a_call_in_between_that_shares_nothing_changes_nothing(way: str) -> None:
    """Another file is another matter."""
    ledger = Ledger()
    turn = [append("1"), ToolCall("b", "replace", {"file": "g"}), append("2")]
    ledger.run(turn, way, duplicates="coalesce")
    assert ["f+x", "g="] == ledger.done


DIFFERENT: dict[str, tuple[ToolCall, ToolCall]] = {
    "arguments": (append("1"), append("2", text="y")),
    "tags": (append("1"), append("2", tags=frozenset({"t"}))),
    "after": (append("1"), append("2", after=("0",))),
    "a type": (append("1", given={"fails": False}), append("2", given={"fails": 0})),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_calls_that_differ_in_anything_that_matters_both_run(
    pair: tuple[ToolCall, ToolCall],
) -> None:
    """Name, arguments, tags and `after` must be equal; `false` is not 0."""
    ledger = Ledger()
    result = ledger.run([append("0", file="g"), *pair], duplicates="coalesce")
    assert FailureKind.DUPLICATE not in kinds(result)
    assert [0] * 3 != [each.attempts for each in result[1:]]
    assert 0 not in [each.attempts for each in result if each.ok]


@pytest.mark.parametrize(
    "other",
    [
        ToolCall("2", "append", {"text": "x", "file": "f"}),
        ToolCall("2", "append", json.dumps({"text": "x", "file": "f"}, indent=4)),
        append("2", timeout=30.0),
        append("1"),
    ],
    ids=["order of keys", "JSON text", "time limit", "the same id"],
)
def test_the_same_call_written_otherwise_is_the_same(other: ToolCall) -> None:
    """The order of keys, white space, a time limit and the id make no difference."""
    ledger = Ledger()
    ledger.run([append("1"), other], duplicates="coalesce")
    assert ["f+x"] == ledger.done


@schedules
def test_copies_share_a_failure(schedule: str) -> None:
    """The leader's failure is everybody's, word for word; nobody tries again on their own."""
    ledger = Ledger()
    turn = [append(str(n), given={"fails": True}) for n in range(3)]
    result = ledger.run(turn, schedule=schedule, duplicates="coalesce")
    assert ["f+x"] == ledger.done
    assert {"[error] disk full"} == {each.content() for each in result}
    assert [1, 0, 0] == [each.attempts for each in result]


def test_copies_share_a_time_out_and_a_cancelled_turn() -> None:
    """Whatever ends the leader ends those who joined it."""
    result = played(Stage(), [call("a", seconds=9.0, timeout=1)] * 2, duplicates="coalesce")
    assert [Status.TIMED_OUT] * 2 == [each.status for each in result]

    async def main() -> None:
        turn = Dispatcher(Stage().tools, duplicates="coalesce").turn(timeout=2)
        async with turn:
            turn.submit(call("a", seconds=9.0))
            turn.submit(call("a", seconds=9.0))
            result = await turn.finish()
        assert [Status.TIMED_OUT] * 2 == [each.status for each in result]

    run_in_virtual_time(main())


def test_a_copy_has_its_own_time_limit_and_still_one_result() -> None:
    """D9: it ends at 1 on its own account; the leader's outcome at 3 is for the leader alone."""
    stage = Stage()

    async def main() -> None:
        async with Dispatcher(stage.tools, duplicates="coalesce").turn() as turn:
            turn.submit(call("a", seconds=3.0))
            turn.submit(call("a", seconds=3.0, timeout=1))
            turn.close()
            ended = [(each.index, each.finished_at) async for each in turn.events()]
            result = await turn.finish()
        assert [(1, 1.0), (0, 3.0)] == ended
        assert [Status.OK, Status.TIMED_OUT] == [each.status for each in result]

    run_in_virtual_time(main())
    assert ["a"] == stage.marks


@pytest.mark.parametrize("duplicates", ["run", "coalesce", "reject"])
@schedules
def test_one_id_used_many_times_has_one_result_per_call(schedule: str, duplicates: str) -> None:
    """D9: never two results for one call, nor one for two: as many as there are calls, in order."""
    seen: list[int] = []

    async def main() -> None:
        dispatcher = Dispatcher(Stage().tools, schedule=schedule, duplicates=duplicates)
        async with dispatcher.turn() as turn:
            for number in range(9):
                turn.submit(call(f"m{number % 3}", "change", call_id="x", key="k"))
            turn.close()
            seen.extend([each.index async for each in turn.events()])
            result = await turn.finish()
        assert [f"m{n % 3}" for n in range(9)] == [json_mark(each.call) for each in result]

    run_in_virtual_time(main())
    assert list(range(9)) == sorted(seen)


def json_mark(one: ToolCall) -> object:
    assert not isinstance(one.arguments, str)
    return one.arguments["mark"]


def test_a_copy_of_a_call_that_has_settled_runs_itself() -> None:
    """In a stream the second comes when the first is long over: it is asked for anew."""
    stage = Stage()

    async def main() -> None:
        async with Dispatcher(stage.tools, duplicates="coalesce").turn() as turn:
            for wait in (0.5, 5.0, 0.5):
                turn.submit(call("a"))
                await asyncio.sleep(wait)
                stage.spans.clear()
            result = await turn.finish()
        assert [1, 0, 1] == [each.attempts for each in result]

    run_in_virtual_time(main())


def test_copies_count_once_for_a_policy() -> None:
    """Three copies of one success are one success: a quorum of two is not met by them."""
    copies = [call("a") for _ in range(3)]
    missed = played(
        Stage(), [*copies, call("b", fails=True)], duplicates="coalesce", policy=Quorum(2)
    )
    assert not missed.satisfied
    met = played(Stage(), [*copies, call("b")], duplicates="coalesce", policy=Quorum(2))
    assert met.satisfied


def test_what_depends_on_a_copy_waits_for_its_leader() -> None:
    """`after` the id of a copy, and a `Ref` to one, mean the run that answers it."""
    stage = Stage()
    turn = [
        call("a", call_id="1", value=["made"]),
        call("a", call_id="2", value=["made"]),
        call("b", after=("2",)),
        call("c", value=Ref("2", "0")),
    ]
    result = played(stage, turn, duplicates="coalesce")
    assert (1.0, 1.0) == (stage.began("b"), stage.began("c"))
    assert "made" == result[3].value


def test_copies_with_equal_refs_are_one() -> None:
    """Two calls that take the same value of the same call run once."""
    stage = Stage()
    turn = [
        call("a"),
        call("b", call_id="1", value=Ref("a")),
        call("b", call_id="2", value=Ref("a")),
        call("c", call_id="3", value={"$ref": "a"}),
        call("c", call_id="4", value={"$ref": "a"}),
    ]
    result = played(stage, turn, duplicates="coalesce", refs=True)
    assert ["a", "b", "c"] == stage.marks
    assert ["a"] * 5 == [each.value for each in result]


@ways
@schedules
def test_rejecting_keeps_the_first(schedule: str, way: str) -> None:
    """A4: the first stands, its copies are refused as duplicates of it, the rest is unaffected."""
    ledger = Ledger()
    turn = [append("1"), append("2"), append("g", file="g")]
    result = ledger.run(turn, way, schedule=schedule, duplicates="reject")
    assert ["f+x", "g+x"] == sorted(ledger.done)
    assert [None, FailureKind.DUPLICATE, None] == kinds(result)
    assert [None, 0, None] == causes(result)
    assert Phase.ORDER == (result[1].failure and result[1].failure.phase)
    assert 0.0 == result[1].finished_at
    assert (
        "[error] the same as append (call 0), whose result stands; ask again later if it must run"
        " twice" == result[1].content()
    )


def test_rejecting_looks_at_the_whole_turn() -> None:
    """A copy of a call that is long over is a copy; after a write in between it is none."""
    ledger = Ledger()

    async def main() -> None:
        async with Dispatcher(ledger.tools, duplicates="reject").turn() as turn:
            turn.submit(append("1"))
            await asyncio.sleep(5)
            turn.submit(append("2"))
            turn.submit(ToolCall("b", "replace", {"file": "f"}))
            turn.submit(append("3"))
            result = await turn.finish()
        assert [None, FailureKind.DUPLICATE, None, None] == kinds(result)

    run_in_virtual_time(main())
    assert ["f+x", "f=", "f+x"] == ledger.done


def test_calls_that_are_refused_are_no_leaders() -> None:
    """Each of two unknown tools gets its own error, not the other's as a duplicate."""
    result = played(Stage(), [call("a", "nothing")] * 2, duplicates="reject")
    assert [FailureKind.UNKNOWN_TOOL] * 2 == kinds(result)
