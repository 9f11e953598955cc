import runpy

import pytest

from benchmarks import workloads
from benchmarks.bounds import lower_bound
from benchmarks.peers.dispatcher import Dispatch
from benchmarks.recording import Violations, limited
from benchmarks.work import KINDS, Workload
from benchmarks.workloads import NOOPS, ONE_NOOP, WORKLOADS
from tests.benchmarks.measured import CLOSE, measured

ALL = (*WORKLOADS, NOOPS, ONE_NOOP)
each_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


def test_every_workload_has_a_name_of_its_own() -> None:
    """The table and the JSON name workloads, so no two have one name."""
    names = [workload.name for workload in ALL]
    assert sorted(set(names)) == sorted(names)


def test_the_workloads_are_the_same_each_time_they_are_made() -> None:
    """Nothing is drawn from anything but the generators that their names seed."""
    assert WORKLOADS == runpy.run_path(workloads.__file__)["WORKLOADS"]


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)
def test_every_call_fits_its_tool_and_comes_in_its_order(workload: Workload) -> None:
    """Arguments are the tool's parameters, and no call arrives before the one it follows."""
    for turn in workload.turns:
        arrivals = [work.arrives for work in turn]
        assert sorted(arrivals) == arrivals
        assert [KINDS[work.tool].parameters for work in turn] == [tuple(w.arguments) for w in turn]


@each_workload
def test_every_limit_can_hold_a_call_back(workload: Workload) -> None:
    """More calls count against it than may run at once."""
    assert [] == [limit for jobs, limit in limited(workload) if len(jobs) <= limit]


@each_workload
def test_a_workload_takes_its_time_but_not_more(workload: Workload) -> None:
    """Long enough to be told from the timers' noise, short enough to be run by everyone."""
    assert 0.15 <= lower_bound(workload) <= 1
    assert 4 >= sum(work.seconds for turn in workload.turns for work in turn)


def test_no_op_calls_take_no_time() -> None:
    """Their bound is 0, so all that is measured is the cost of whoever runs them."""
    assert [0.0, 0.0] == [lower_bound(NOOPS), lower_bound(ONE_NOOP)]
    assert [1_000, 1] == [len(workload.turns[0]) for workload in (NOOPS, ONE_NOOP)]


@each_workload
def test_the_dispatcher_breaks_no_rule_and_beats_no_bound(workload: Workload) -> None:
    """Its runs have no violations, and none is shorter than the lower bound."""
    makespan, violations = measured(Dispatch(), workload)
    assert Violations() == violations
    assert makespan >= lower_bound(workload) - CLOSE


@pytest.mark.parametrize("schedule", ["groups", "clusters", "serial"])
@each_workload
def test_the_other_schedules_break_no_rule_either(workload: Workload, schedule: str) -> None:
    """They only add to what calls wait for."""
    makespan, violations = measured(Dispatch(schedule), workload)
    assert Violations() == violations
    assert makespan >= lower_bound(workload) - CLOSE


def test_only_schedules_that_need_the_whole_turn_lack_arrivals() -> None:
    """What stands in the table is what a schedule cannot do."""
    streamed = next(workload for workload in WORKLOADS if workload.streamed)
    plain = next(workload for workload in WORKLOADS if not workload.streamed)
    names = ("dataflow", "serial", "groups", "clusters")
    assert [(), (), ("arrivals",), ("arrivals",)] == [Dispatch(n).lacks(streamed) for n in names]
    assert [()] * 4 == [Dispatch(name).lacks(plain) for name in names]


def test_a_dispatcher_is_named_after_its_schedule() -> None:
    """The default one is plainly the dispatcher."""
    assert ["dispatch", "dispatch, groups"] == [Dispatch().name, Dispatch("groups").name]
