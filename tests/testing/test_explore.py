"""The explorer itself: other seeds, other interleavings; the same seed, the same one."""

import asyncio
import contextlib

import pytest

from dispatch.testing import ExplorerLoop, explore, explore_cancels


async def order(steps: int = 3) -> str:
    """Three tasks take turns; who went on, in order."""
    told: list[str] = []

    async def one(name: str) -> None:
        for _ in range(steps):
            told.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(one(name) for name in "abc"))
    return "".join(told)


def run_with(seed: int) -> str:
    with asyncio.Runner(loop_factory=lambda: ExplorerLoop(seed)) as runner:
        return runner.run(order())


def test_a_seed_is_an_interleaving() -> None:
    """The same one each time, and many different ones among a hundred seeds."""
    assert [run_with(seed) for seed in range(100)] == [run_with(seed) for seed in range(100)]
    assert len({run_with(seed) for seed in range(100)}) > 50
    assert "abcabcabc" == asyncio.run(order())


async def lost_update() -> None:
    """A read, a step in between, a write: twice at once."""
    count = 0

    async def add() -> None:
        nonlocal count
        seen = count
        for _ in range(2):
            await asyncio.sleep(0)
        count = seen + 1

    async def add_later() -> None:
        for _ in range(4):
            await asyncio.sleep(0)
        await add()

    await asyncio.gather(add(), add_later())
    assert 2 == count


def test_a_race_that_asyncio_never_shows_is_found_and_replays() -> None:
    """The seed is told in a note, and gives the same failure again."""
    asyncio.run(lost_update())
    with pytest.raises(AssertionError) as found:
        explore(lost_update)
    (note,) = found.value.__notes__
    seed = int(note.partition("seed ")[2].partition(";")[0])
    assert f"explore(…, seeds=[{seed}])" in note
    with pytest.raises(AssertionError, match="assert 2 == 1"):
        explore(lost_update, seeds=[seed])


def test_timers_fire_in_virtual_time_and_in_order() -> None:
    """An hour takes no time, and no seed lets a later timer fire first."""
    fired: list[float] = []

    async def sleeps() -> None:
        async def sleep(hours: float) -> None:
            await asyncio.sleep(hours * 3600)
            fired.append(hours)

        await asyncio.gather(*(sleep(hours) for hours in (3, 1, 2)))

    explore(sleeps, seeds=range(10))
    assert [1, 2, 3] * 10 == fired


async def two_halves() -> None:
    """Holds a resource over an await, and lets it go where nothing goes wrong."""
    held.append("held")
    await asyncio.sleep(1)
    held.remove("held")


held: list[str] = []


def test_a_cancel_is_tried_before_every_step() -> None:
    """What is not let go under a cancel is found; the step is told and replays."""

    async def scenario() -> None:
        held.clear()
        try:
            await asyncio.create_task(two_halves())
        finally:
            assert [] == held

    with pytest.raises(AssertionError) as found:
        explore_cancels(scenario)
    (note,) = found.value.__notes__
    step = int(note.partition("step ")[2].partition(";")[0])
    with pytest.raises(AssertionError):
        explore_cancels(scenario, at=[step])


def test_every_step_of_every_task_is_a_place_to_cancel_at() -> None:
    """The scenario, a task of its own and a task of that: one run for each step they take."""
    ended: list[str] = []

    async def scenario() -> None:
        try:
            await order(2)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("whole")

    runs = explore_cancels(scenario)
    steps = 2 + 3 * 3 + 1  # begin, each of the three tasks three times, and go on at the end
    assert (steps, steps + 1) == (runs, len(ended))
    assert {"cancelled", "whole"} == set(ended)


def test_what_must_end_the_program_comes_out() -> None:
    """A `KeyboardInterrupt` from a task is raised, with the seed."""

    async def scenario() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as found:
        explore(scenario, seeds=[7])
    assert "seed 7" in found.value.__notes__[0]


def test_sets_of_tasks_are_cancelled_in_one_order() -> None:
    """A task group that breaks off cancels a set; the seed alone says who ends first."""

    async def scenario() -> str:
        ended: list[str] = []

        async def one(name: str) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(name)

        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for name in "abcdef":
                    group.create_task(one(name))
                await asyncio.sleep(1)
                raise ValueError
        return "".join(ended)

    def run(seed: int) -> str:
        with asyncio.Runner(loop_factory=lambda: ExplorerLoop(seed)) as runner:
            return runner.run(scenario())

    assert 1 == len({run(7) for _ in range(20)})
    assert 1 < len({run(seed) for seed in range(20)})
