import asyncio

import pytest

from benchmarks.recording import Recording, Violations, violations
from benchmarks.work import Work, Workload
from dispatch.testing import run_in_virtual_time

Interval = tuple[float, float]


def work(tool: str, what: str, arrives: float = 0.0, tags: tuple[str, ...] = ()) -> Work:
    """A call of a tool with one argument that takes a second."""
    name = {"edit": "path", "read": "path", "fetch": "url", "shell": "session", "grep": "folder"}
    arguments = {name[tool]: what}
    return Work(tool=tool, arguments=arguments, seconds=1, arrives=arrives, tags=frozenset(tags))


def of(*turns: tuple[Work, ...], limit: int | None = None, **limits: dict[str, int]) -> Workload:
    """A workload."""
    return Workload(name="w", about="", turns=turns, limit=limit, **limits)


def judged(workload: Workload, *turns: list[Interval]) -> Violations:
    """What is wrong with a run in which the calls had these intervals and the right answers."""
    recording = Recording(workload)
    recording.intervals = {
        workload.job(turn, position): interval
        for turn, intervals in enumerate(turns)
        for position, interval in enumerate(intervals)
    }
    return violations(workload, recording, right(workload))


def right(workload: Workload) -> list[list[str | None]]:
    """The answers that a run should give."""
    return [
        [workload.job(turn, position) for position in range(len(works))]
        for turn, works in enumerate(workload.turns)
    ]


EDITS = of((work("edit", "a"), work("edit", "a")))


@pytest.mark.parametrize(
    ("expected", "second"),
    [
        pytest.param(Violations(), (1.0, 2.0), id="one behind the other"),
        pytest.param(Violations(overlaps=1), (0.9, 1.9), id="both at once for a moment"),
        pytest.param(Violations(overlaps=1), (0.2, 0.8), id="one within the other"),
        pytest.param(Violations(overlaps=1), (0.0, 1.0), id="together"),
        pytest.param(Violations(reordered=1), (-1.0, 0.0), id="the later one first"),
    ],
)
def test_conflicting_calls_of_a_turn_run_one_by_one_in_order(
    expected: Violations, second: Interval
) -> None:
    """Two of them at once is an overlap; the later one before the earlier one is reordered."""
    assert expected == judged(EDITS, [(0.0, 1.0), second])


@pytest.mark.parametrize(
    ("expected", "first", "second"),
    [
        pytest.param(0, work("read", "a"), work("read", "a"), id="two readers"),
        pytest.param(1, work("read", "a"), work("edit", "a"), id="reader and writer"),
        pytest.param(0, work("edit", "a"), work("edit", "b"), id="two files"),
        pytest.param(0, work("edit", "a"), work("edit", "ab"), id="two files of like names"),
        pytest.param(1, work("grep", "a"), work("edit", "a/b"), id="a folder and a file in it"),
        pytest.param(1, work("grep", ""), work("edit", "a"), id="everything and a file"),
        pytest.param(1, work("shell", "s"), work("shell", "s"), id="one session"),
        pytest.param(0, work("shell", "s"), work("shell", "t"), id="two sessions"),
    ],
)
def test_only_calls_that_conflict_can_overlap(expected: int, first: Work, second: Work) -> None:
    """What the kinds of the calls claim decides whether they may run at once."""
    assert Violations(overlaps=expected) == judged(of((first, second)), [(0, 1), (0, 1)])


def test_turns_may_come_in_any_order_but_not_overlap() -> None:
    """Between two turns a conflict says that calls exclude each other, and no more."""
    turns = of((work("edit", "a"),), (work("edit", "a"),))
    assert Violations() == judged(turns, [(1, 2)], [(0, 1)])
    assert Violations(overlaps=1) == judged(turns, [(1, 2)], [(0, 1.5)])


@pytest.mark.parametrize(
    "limits",
    [{"limit": 2}, {"per_tool": {"fetch": 2}}, {"per_tag": {"web": 2}}],
    ids=["all calls", "a tool", "a tag"],
)
def test_a_start_above_a_limit_is_counted(limits: dict[str, object]) -> None:
    """Each call that starts while as many run as may run is one; who starts at an end is none."""
    calls = tuple(work("fetch", str(n), tags=("web",)) for n in range(4))
    workload = Workload(name="w", about="", turns=(calls,), **limits)  # type: ignore[arg-type]
    assert Violations() == judged(workload, [(0, 1), (0, 1), (1, 2), (1, 2)])
    assert Violations(over_limit=1) == judged(workload, [(0, 1), (0, 1), (0.5, 2), (1, 2)])
    assert Violations(over_limit=2) == judged(workload, [(0, 1), (0, 1), (0, 1), (0, 1)])


def test_a_limit_counts_the_calls_of_all_turns() -> None:
    """Two turns share the slots."""
    workload = of((work("fetch", "1"),), (work("fetch", "2"),), limit=1)
    assert Violations(over_limit=1) == judged(workload, [(0, 1)], [(0.5, 1.5)])


def test_a_limit_counts_only_its_own_calls() -> None:
    """Calls of other tools may run beside those of a limited one."""
    workload = of((work("fetch", "1"), work("read", "a")), per_tool={"fetch": 1})
    assert Violations() == judged(workload, [(0, 1), (0, 1)])


@pytest.mark.parametrize(
    ("expected", "answers"),
    [
        pytest.param(0, [["0.0", "0.1"]], id="right"),
        pytest.param(1, [["0.0", None]], id="missing"),
        pytest.param(1, [["0.0"]], id="cut short"),
        pytest.param(2, [["0.1", "0.0"]], id="swapped"),
        pytest.param(1, [["0.0", "0.0"]], id="another call's"),
        pytest.param(1, [["0.0", "0.1", "0.1"]], id="one too many"),
        pytest.param(2, [], id="a whole turn"),
    ],
)
def test_every_result_stands_in_its_place(expected: int, answers: list[list[str | None]]) -> None:
    """A result that is missing, another's, misplaced or too many is lost."""
    recording = Recording(EDITS)
    recording.intervals = {"0.0": (0, 1), "0.1": (1, 2)}
    assert Violations(lost=expected) == violations(EDITS, recording, answers)


def test_a_call_that_never_ran_is_judged_by_its_result() -> None:
    """It has no interval, so it can only be lost."""
    assert Violations() == judged(EDITS, [(0, 1)])


def test_a_total_counts_every_kind() -> None:
    """The table shows one number."""
    assert 10 == Violations(overlaps=1, reordered=2, over_limit=3, lost=4).total


def test_a_recording_says_when_jobs_ran_and_calls_arrived() -> None:
    """Times count from the start, on the clock that it was given."""
    workload = of((work("fetch", "1", arrives=1), work("fetch", "2", arrives=3)))

    async def run() -> tuple[list[float], float, dict[str, Interval]]:
        await asyncio.sleep(5)
        recording = Recording(workload, clock=asyncio.get_running_loop().time)
        recording.start()
        arrived = [recording.now() async for _ in recording.arrivals(0)]
        assert "0.0" == await recording.perform("0.0")
        await recording.message(0)
        return arrived, recording.now(), recording.intervals

    arrived, now, intervals = run_in_virtual_time(run())
    assert [1, 3] == pytest.approx(arrived)
    assert 4 == pytest.approx(now)
    assert (3, 4) == pytest.approx(intervals["0.0"])


def test_the_whole_message_is_there_with_its_last_call() -> None:
    """Who does not take calls one by one waits for it."""
    workload = of((work("fetch", "1", arrives=1), work("fetch", "2", arrives=3)))

    async def run() -> float:
        recording = Recording(workload, clock=asyncio.get_running_loop().time)
        recording.start()
        await recording.message(0)
        return recording.now()

    assert 3 == pytest.approx(run_in_virtual_time(run()))
