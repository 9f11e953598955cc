"""The guarantees of the contract, over random turns in virtual time."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch import CancelToken, Dispatcher, Limits, ResourceTable, Schedule, Status, TurnResult
from dispatch.claims import conflict
from dispatch.testing import run_in_virtual_time
from tests.runtime.world import Recorder, Spec, turns

pytestmark = pytest.mark.timeout(120)
schedules = st.sampled_from(list(Schedule))
limits = st.builds(
    lambda total, tool, tag: (total, {"a": tool}, {"x": tag}),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 3),
)
LimitSpec = tuple[int, dict[str, int], dict[str, int]]


def run(specs: list[Spec], schedule: Schedule, limit: LimitSpec) -> tuple[Recorder, TurnResult]:
    recorder = Recorder()

    async def main() -> TurnResult:
        async with Dispatcher(recorder.tools(), limits=Limits(*limit)) as dispatcher:
            calls = [spec.call(number) for number, spec in enumerate(specs)]
            return await dispatcher.run(calls, schedule=schedule)

    return recorder, run_in_virtual_time(main())


@given(turns, schedules, limits)
def test_one_result_per_call_in_intent_order(
    specs: list[Spec], schedule: Schedule, limit: LimitSpec
) -> None:
    """Guarantee 1: also after failures, refusals and tools that cancel themselves."""
    _, turn = run(specs, schedule, limit)
    assert [spec.call(n) for n, spec in enumerate(specs)] == [result.call for result in turn]
    assert list(range(len(specs))) == [result.index for result in turn]
    fine = {"ok", "bad descriptor"}
    expected = [spec.runs and spec.fate in fine for spec in specs]
    assert expected == [result.ok for result in turn]
    assert all(result.content() for result in turn)


@given(turns, schedules, limits)
def test_conflicting_calls_run_in_order(
    specs: list[Spec], schedule: Schedule, limit: LimitSpec
) -> None:
    """Guarantee 2: of two conflicting calls the later starts only after the earlier has ended."""
    recorder, _ = run(specs, schedule, limit)
    assert [] == recorder.overlaps
    for later, spec in enumerate(specs):
        for earlier in range(later):
            both = spec.runs and specs[earlier].runs
            if both and conflict(spec.effective, specs[earlier].effective):
                assert recorder.ended[earlier] <= recorder.started[later]


@given(turns, limits)
def test_nobody_waits_without_need(specs: list[Spec], limit: LimitSpec) -> None:
    """Guarantee 4: a call whose conflicting predecessors have ended waits only for a full limit."""
    recorder, _ = run(specs, Schedule.DATAFLOW, limit)
    moments = sorted({*recorder.started.values(), *recorder.ended.values()})
    for number, spec in enumerate(specs):
        if not spec.runs:
            continue
        before = [e for e in range(number) if conflict(spec.effective, specs[e].effective)]
        ready = max((recorder.ended[e] for e in before), default=0.0)
        for moment in moments:
            if ready <= moment < recorder.started[number]:
                assert _full(moment, spec, specs, recorder, limit), (number, moment)


@given(turns, schedules, limits)
def test_never_more_at_once_than_any_limit_says(
    specs: list[Spec], schedule: Schedule, limit: LimitSpec
) -> None:
    """Guarantee 5: in all, per tool, per tag, at every moment."""
    recorder, turn = run(specs, schedule, limit)
    total, per_tool, per_tag = limit
    for moment in recorder.started.values():
        at_once = [
            specs[n] for n in recorder.started if recorder.started[n] <= moment < recorder.ended[n]
        ]
        assert len(at_once) <= total
        assert sum(spec.tool == "a" for spec in at_once) <= per_tool["a"]
        assert sum("x" in spec.tags for spec in at_once) <= per_tag["x"]
    assert turn.stats.peak <= total


@given(turns, schedules, limits)
def test_what_is_wrong_never_runs(specs: list[Spec], schedule: Schedule, limit: LimitSpec) -> None:
    """Guarantee 8: a refused call never reaches its tool, and harms nobody else."""
    recorder, turn = run(specs, schedule, limit)
    assert {n for n, spec in enumerate(specs) if spec.runs} == set(recorder.started)
    for spec, result in zip(specs, turn, strict=True):
        if not spec.runs:
            assert (Status.ERROR, 0, None) == (result.status, result.attempts, result.started_at)


@given(turns, schedules, limits)
def test_the_same_turn_gives_the_same_schedule_and_the_same_bytes(
    specs: list[Spec], schedule: Schedule, limit: LimitSpec
) -> None:
    """Guarantee 9: every start, every end and every model-facing text is equal in a second run."""
    first, one = run(specs, schedule, limit)
    second, two = run(specs, schedule, limit)
    assert (first.started, first.ended) == (second.started, second.ended)
    assert [r.content().encode() for r in one] == [r.content().encode() for r in two]


@given(st.lists(turns, min_size=2, max_size=3), schedules, st.lists(st.integers(0, 3), min_size=3))
def test_turns_that_share_a_table_never_overlap(
    several: list[list[Spec]], schedule: Schedule, arrivals: list[int]
) -> None:
    """Guarantee 3 without nesting: three dispatchers, one table, conflicting calls never meet."""
    recorder = Recorder()

    async def main() -> list[TurnResult]:
        table = ResourceTable()

        async def one(number: int, specs: list[Spec]) -> TurnResult:
            await asyncio.sleep(arrivals[number])
            dispatcher = Dispatcher(recorder.tools(), resources=table)
            calls = [spec.call(100 * number + at) for at, spec in enumerate(specs)]
            return await dispatcher.run(calls, schedule=schedule)

        results = await asyncio.gather(*(one(n, specs) for n, specs in enumerate(several)))
        assert 0 == table.statistics().held == table.statistics().waiting
        return results

    results = run_in_virtual_time(main())
    assert [] == recorder.overlaps
    assert [len(specs) for specs in several] == [len(turn) for turn in results]


@pytest.mark.parametrize("schedule", list(Schedule))
@given(specs=turns, moment=st.integers(0, 8), cut=st.sampled_from(["cancel", "token", "timeout"]))
def test_a_turn_that_is_cut_short_still_answers_every_call(
    schedule: Schedule, specs: list[Spec], moment: int, cut: str
) -> None:
    """Guarantee 1 again: whoever had ended keeps its result, whoever had not says so, in time."""
    recorder = Recorder()

    async def main() -> tuple[TurnResult, float]:
        loop = asyncio.get_running_loop()
        token = CancelToken()
        dispatcher = Dispatcher(recorder.tools(), max_concurrent=2, grace=0.5)
        calls = [spec.call(number) for number, spec in enumerate(specs)]
        timeout = moment + 0.5 if cut == "timeout" else None
        task = asyncio.create_task(
            dispatcher.run(calls, schedule=schedule, timeout=timeout, token=token)
        )
        if cut != "timeout":
            await asyncio.sleep(moment + 0.5)
            task.cancel() if cut == "cancel" else token.cancel("stop")
        try:
            return await task, loop.time()
        except asyncio.CancelledError as error:
            turn: TurnResult = error.turn  # type: ignore[attr-defined]
            return turn, loop.time()

    turn, when = run_in_virtual_time(main())
    assert [spec.call(n) for n, spec in enumerate(specs)] == [result.call for result in turn]
    assert when <= moment + 0.5 + 2 * 0.5 + 0.25
    stopped = Status.TIMED_OUT if cut == "timeout" else Status.CANCELLED
    for result in turn:
        if result.index in recorder.started and recorder.ended[result.index] < moment + 0.5:
            assert result.status is not stopped
        if result.status is stopped:
            assert (result.started_at is not None) == (result.index in recorder.started)


def _full(
    moment: float, spec: Spec, specs: list[Spec], recorder: Recorder, limit: LimitSpec
) -> bool:
    """Whether one of the limits that this call needs is used up at this moment."""
    total, per_tool, per_tag = limit
    running = [
        specs[n] for n in recorder.started if recorder.started[n] <= moment < recorder.ended[n]
    ]
    return (
        len(running) >= total
        or (spec.tool == "a" and sum(s.tool == "a" for s in running) >= per_tool["a"])
        or ("x" in spec.tags and sum("x" in s.tags for s in running) >= per_tag["x"])
    )
