from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bounds import lower_bound
from benchmarks.recording import limited
from benchmarks.work import KINDS, Work, Workload, conflict

Ends = Mapping[str, tuple[float, float]]


def call(tool: str, seconds: float, *arguments: str, arrives: float = 0.0) -> Work:
    """A call, its arguments in the order of the tool's parameters."""
    named = dict(zip(KINDS[tool].parameters, arguments, strict=True))
    tags = frozenset({"web"} if tool == "fetch" else ())
    return Work(tool=tool, arguments=named, seconds=seconds, arrives=arrives, tags=tags)


def of(*turns: Sequence[Work], limit: int | None = None, **limits: dict[str, int]) -> Workload:
    """A workload."""
    turns_of_calls = tuple(tuple(turn) for turn in turns)
    return Workload(name="w", about="", turns=turns_of_calls, limit=limit, **limits)


FETCHES = [call("fetch", 2, str(n)) for n in range(6)]
CHAIN = [call("edit", 2, "a"), call("read", 3, "a"), call("read", 1, "a"), call("edit", 2, "a")]


@pytest.mark.parametrize(
    ("expected", "workload"),
    [
        pytest.param(0, of([]), id="nothing"),
        pytest.param(5, of([call("fetch", 5, "1"), call("fetch", 3, "2")]), id="longest call"),
        pytest.param(7, of(CHAIN), id="longest chain"),
        pytest.param(8, of(CHAIN, limit=1), id="all work over one slot"),
        pytest.param(4, of(FETCHES, limit=3), id="work over the limit"),
        pytest.param(6, of(FETCHES, per_tool={"fetch": 2}), id="work over a tool's limit"),
        pytest.param(12, of(FETCHES, per_tag={"web": 1}), id="work over a tag's limit"),
        pytest.param(
            12,
            of([call("edit", 10, "a", arrives=2), call("read", 1, "b")]),
            id="arrival and call",
        ),
        pytest.param(
            6,
            of([call("edit", 1, "a"), call("edit", 2, "a", arrives=4)]),
            id="a chain with an arrival in it",
        ),
        pytest.param(
            7,
            of([call("edit", 3, "a"), *(call("copy", 2, "a", str(n)) for n in range(4))], limit=2),
            id="nobody can start before a head is over",
        ),
        pytest.param(
            7,
            of([*(call("copy", 2, str(n), "a") for n in range(2)), call("read", 3, "a")]),
            id="a tail",
        ),
        pytest.param(
            5,
            of(
                [call("fetch", 3, "1"), *(call("fetch", 2, "2", arrives=1) for _ in range(3))],
                limit=2,
            ),
            id="work shared out evenly between arrivals",
        ),
        pytest.param(
            9, of([call("edit", 4, "a")], [call("edit", 5, "a")]), id="turns that write one file"
        ),
        pytest.param(
            9,
            of([call("edit", 4, "a/b")], [call("read", 5, "a/b"), call("read", 1, "a/b")]),
            id="a writer and one of the readers",
        ),
        pytest.param(
            9, of([call("edit", 4, "a/b")], [call("format", 5, "a")]), id="a folder and its file"
        ),
        pytest.param(
            12,
            of(
                [call("edit", 3, "b"), call("move", 4, "a", "b")],
                [call("edit", 3, "c"), call("move", 5, "a", "c")],
            ),
            id="turns that exclude each other behind their heads",
        ),
        pytest.param(
            5, of([call("shell", 2, "s")], [call("shell", 3, "s")]), id="turns in one session"
        ),
        pytest.param(5, of([call("read", 4, "a")], [call("read", 5, "a")]), id="turns that read"),
    ],
)
def test_the_bound_is_the_greatest_of_what_no_run_can_avoid(
    expected: float, workload: Workload
) -> None:
    """In each of these one reason decides, and the best run is just as long."""
    assert expected == lower_bound(workload)
    assert expected == shortest(workload)


PATHS = ("", "a", "a/x", "a/y", "b")


@st.composite
def calls(draw: st.DrawFn, arrives: float) -> Work:
    """Any call, of a few seconds."""
    tool = draw(st.sampled_from(sorted(KINDS)))
    values = {"session": ("s", "t"), "url": ("1",)}
    arguments = [draw(st.sampled_from(values.get(p, PATHS))) for p in KINDS[tool].parameters]
    return call(tool, draw(st.integers(1, 6)), *arguments, arrives=arrives)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Up to six calls in up to three turns, with any limits."""
    cuts = sorted(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True)))
    turns = []
    for first, last in pairwise([0, *cuts]):
        arrivals = sorted(draw(st.integers(0, 5)) for _ in range(last - first))
        turns.append([draw(calls(arrives)) for arrives in arrivals])
    small = st.integers(1, 3)
    return of(
        *turns,
        limit=draw(st.none() | small),
        per_tool=draw(st.dictionaries(st.sampled_from(sorted(KINDS)), small, max_size=2)),
        per_tag=draw(st.dictionaries(st.just("web"), small, max_size=1)),
    )


def shortest(workload: Workload) -> float:
    """The makespan of the best run, found by trying all.

    Calls are placed one after the other, each as early as it fits between those that stand already,
    in every order that keeps the order of conflicts; one of these orders gives the best run.
    """
    jobs = [
        workload.job(turn, position)
        for turn, works in enumerate(workload.turns)
        for position in range(len(works))
    ]
    behind = {job: [other for other in jobs if _is_before(workload, other, job)] for job in jobs}
    best = sum(work.seconds + work.arrives for turn in workload.turns for work in turn)

    def place(placed: Ends) -> None:
        nonlocal best
        made = max((ended for _, ended in placed.values()), default=0.0)
        if len(placed) == len(jobs):
            best = min(best, made)
        elif made < best:
            for job in jobs:
                if job not in placed and all(other in placed for other in behind[job]):
                    place({**placed, job: _earliest(workload, job, behind[job], placed)})

    place({})
    return best


def _is_before(workload: Workload, first: str, second: str) -> bool:
    same_turn = first.split(".")[0] == second.split(".")[0]
    return same_turn and first < second and conflict(workload.work(first), workload.work(second))


def _earliest(
    workload: Workload, job: str, behind: Sequence[str], placed: Ends
) -> tuple[float, float]:
    work = workload.work(job)
    ready = max([work.arrives, *(placed[other][1] for other in behind)])
    moments = sorted({ready, *(ended for _, ended in placed.values() if ended > ready)})
    runs = ((began, began + work.seconds) for began in moments)
    return next(run for run in runs if _fits(workload, job, run, placed))


def _fits(workload: Workload, job: str, run: tuple[float, float], placed: Ends) -> bool:
    began, ended = run
    beside = {o: r for o, r in placed.items() if r[0] < ended and began < r[1]}
    if any(conflict(workload.work(job), workload.work(other)) for other in beside):
        return False
    moments = [began, *(start for start, _ in beside.values() if start > began)]
    for counted, limit in limited(workload):
        if job in counted:
            those = [beside[other] for other in counted if other in beside]
            if any(sum(b <= moment < e for b, e in those) >= limit for moment in moments):
                return False
    return True


@settings(max_examples=150, deadline=None)
@given(workloads())
def test_no_run_is_shorter_than_the_bound(workload: Workload) -> None:
    """Not even the best that there is, found by trying every order."""
    assert lower_bound(workload) <= shortest(workload) + 1e-9


@settings(max_examples=150, deadline=None)
@given(workloads())
def test_the_bound_is_no_less_than_what_is_plain_to_see(workload: Workload) -> None:
    """It covers each call from its arrival on, and the whole work over the limit."""
    works = [work for turn in workload.turns for work in turn]
    assert lower_bound(workload) >= max(work.arrives + work.seconds for work in works)
    slots = workload.limit or len(works)
    assert lower_bound(workload) >= sum(work.seconds for work in works) / slots - 1e-9
