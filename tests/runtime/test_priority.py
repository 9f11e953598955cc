"""Which call of a turn goes first when slots are scarce: the longest chain in seconds, if known."""

import asyncio

import pytest

from dispatch import Dispatcher, Limits, ToolCall
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import WAYS, Stage, call, run

CALLS = [
    *(call(f"quick{n}", "change", key="a") for n in range(3)),
    call("slow", "look", key="b", seconds=9.0),
]
"""Three calls of a second each, one after the other, and one of nine seconds."""
BY_NUMBER = ["quick0", "quick1", "slow", "quick2"]  # of the last two, the one ready first
BY_SECONDS = ["slow", "quick0", "quick1", "quick2"]


def orders(*turns: list[ToolCall], way: str = "whole", learn: bool = True) -> list[list[str]]:
    """In which order the calls of each turn began, one at a time, by one dispatcher."""
    stage = Stage()

    async def main() -> list[list[str]]:
        dispatcher = Dispatcher(stage.tools, max_concurrent=1, learn_durations=learn)
        found = []
        for calls in turns:
            stage.marks.clear()
            await run(dispatcher, calls, way)
            found.append(list(stage.marks))
        return found

    return run_in_virtual_time(main())


def test_once_durations_are_known_the_longest_in_seconds_goes_first() -> None:
    """The first turn goes by the number of calls, the second by what its tools have taken."""
    assert [BY_NUMBER, BY_SECONDS] == orders(CALLS, CALLS)


def test_it_can_be_left_out() -> None:
    """With `learn_durations=False` every turn goes by the number of calls."""
    assert [BY_NUMBER] * 3 == orders(CALLS, CALLS, CALLS, learn=False)


def test_a_streamed_turn_is_ranked_when_it_is_closed() -> None:
    """What has started has started; of those that wait the longest in seconds goes first."""
    assert [BY_NUMBER, ["quick0", "slow", "quick1", "quick2"]] == orders(
        CALLS, CALLS, way="streamed"
    )


def test_seconds_add_up_along_a_chain() -> None:
    """Two of six seconds each on one key go before one of nine."""
    pair = [call(f"pair{n}", "free", after=("pair0",)[:n], seconds=6.0) for n in range(2)]
    turn = [call("nine", "look", key="b", seconds=9.0), *pair]
    (_first, second) = orders(turn, turn)
    assert ["pair0", "nine", "pair1"] == second


def test_a_tool_that_has_not_run_counts_as_the_mean_of_the_others() -> None:
    """Known 1 s and 9 s: the new one stands between them, although it came last."""
    known = [call("quick", "change", key="a"), call("slow", "look", key="b", seconds=9.0)]
    assert ["slow", "new", "quick"] == orders(known, [*known, call("new")])[1]


def test_a_tool_that_has_become_slow_is_known_anew() -> None:
    """The estimate follows what a tool takes now."""
    brief = [*CALLS[:3], call("slow", "look", key="b", seconds=0.5)]
    found = orders(brief, brief, *[CALLS] * 9)
    assert [["quick0", "quick1", "quick2", "slow"], BY_SECONDS] == [found[1], found[-1]]


def test_a_call_that_failed_says_nothing_of_how_long_its_tool_takes() -> None:
    """Nine seconds to a failure teach nothing: the next turn goes by the number of calls."""
    failing = [*CALLS[:3], call("slow", "look", key="b", seconds=9.0, fails=True)]
    assert [BY_NUMBER] * 2 == orders(failing, failing)


def test_between_turns_the_call_that_was_ready_first_still_goes_first() -> None:
    """A long chain of one turn does not pass the short calls of another."""
    stage = Stage()

    async def main() -> None:
        dispatcher = Dispatcher(stage.tools, max_concurrent=1)
        await dispatcher.run(CALLS)
        stage.marks.clear()
        quick = [call(f"first{n}", "change", key=str(n)) for n in range(3)]
        slow = [call("second", "look", key="b", seconds=9.0)]
        await asyncio.gather(dispatcher.run(quick), dispatcher.run(slow))

    run_in_virtual_time(main())
    assert ["first0", "first1", "first2", "second"] == stage.marks


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("limit", [1, 2])
def test_a_short_call_is_passed_eight_times_its_limit_and_no_more(way: str, limit: int) -> None:
    """Forty longer calls under its tag's limit: 8 x the limit start before it, then it goes."""
    stage = Stage()
    limits = Limits(99, per_tag={"t": 0})

    async def main() -> None:
        dispatcher = Dispatcher(stage.tools, limits=limits)
        await dispatcher.run(CALLS)
        stage.marks.clear()
        short = call("short", "change", key="a", tags=("t",))
        slow = [call(f"slow{n}", "look", key=f"b{n}", tags=("t",), seconds=9.0) for n in range(40)]
        turn = asyncio.create_task(run(dispatcher, [short, *slow], way))
        await asyncio.sleep(1)
        limits.change(per_tag={"t": limit})
        await turn

    run_in_virtual_time(main())
    assert 8 * limit == stage.marks.index("short")
