import pytest

from benchmarks.bounds import lower_bound
from benchmarks.peers.baselines import BASELINES, Baseline, generations
from benchmarks.recording import Violations
from benchmarks.work import Work, Workload
from benchmarks.workloads import WORKLOADS
from tests.benchmarks.measured import measured

HARMLESS = {"keys", "readers", "arrivals"}
"""Who lacks only these waits too much, and does nothing wrong."""
NAMED = {baseline.name: baseline for baseline in BASELINES}
each_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


def named(name: str) -> Workload:
    """One of the workloads."""
    return next(workload for workload in WORKLOADS if workload.name == name)


@each_workload
def test_a_serial_loop_breaks_no_rule(workload: Workload) -> None:
    """One call at a time is always right, and takes the sum of all."""
    makespan, violations = measured(NAMED["serial loop"], workload)
    assert Violations() == violations
    assert makespan >= sum(work.seconds for turn in workload.turns for work in turn) - 1e-6


@each_workload
@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.name)
def test_a_baseline_goes_wrong_only_where_it_lacks_something(
    baseline: Baseline, workload: Workload
) -> None:
    """What it has a word for it does right; no answer is ever lost."""
    lacks = set(baseline.lacks(workload)) - HARMLESS
    violations = measured(baseline, workload).violations
    assert not violations.total or lacks
    assert 0 == violations.lost


@each_workload
def test_gather_goes_wrong_wherever_there_is_a_conflict_or_a_limit(workload: Workload) -> None:
    """It knows neither, and the workloads are such that this shows."""
    gather = NAMED["gather"]
    violations = measured(gather, workload).violations
    assert ("order" in gather.lacks(workload)) == bool(violations.overlaps)
    assert ("limits" in gather.lacks(workload)) == bool(violations.over_limit)


def test_semaphores_keep_limits_and_nothing_else() -> None:
    """They hold back calls without regard to what these touch."""
    _, violations = measured(NAMED["gather, semaphore"], named("200 random calls, limit 8"))
    assert 0 == violations.over_limit
    assert violations.overlaps > 0


def test_locks_per_key_lose_the_order_of_calls_with_several_keys() -> None:
    """A call that waits for its first lock is passed by one that needs only its second."""
    _, violations = measured(NAMED["gather, lock per key"], named("moves and copies"))
    assert 0 == violations.overlaps
    assert violations.reordered > 0


def test_locks_per_key_do_not_see_that_a_file_is_in_a_folder() -> None:
    """A search runs beside the edit of a file that it reads."""
    _, violations = measured(NAMED["gather, lock per key"], named("greps over edits"))
    assert violations.overlaps > 0


def test_waves_wait_for_the_slowest_of_each() -> None:
    """The chains go on only when the straggler is over."""
    workload = named("straggler")
    slowest = max(work.seconds for work in workload.turns[0])
    makespan, violations = measured(NAMED["waves"], workload)
    assert Violations() == violations
    assert makespan > 1.5 * slowest


def test_dataflow_by_hand_waits_for_nothing_else() -> None:
    """The chains go on beside the straggler; only the limits and other turns are left to be met."""
    for name in ("straggler", "reads and edits", "streamed"):
        workload = named(name)
        makespan, violations = measured(NAMED["dataflow by hand"], workload)
        assert Violations() == violations
        assert makespan <= 1.001 * lower_bound(workload)


def test_generations_are_levels_of_the_conflict_graph() -> None:
    """A call stands one level above the highest of those it waits for."""
    edits = ("a", "b", "a", "a/b", "c", "")
    works = [Work(tool="format", arguments={"folder": path}, seconds=1) for path in edits]
    assert [[0, 1, 4], [2], [3], [5]] == generations(works)
    assert [] == generations([])


def test_what_is_lacking_is_named() -> None:
    """The table says what a baseline has nothing for, and only what the workload needs."""
    greps, turns = named("greps over edits"), named("several turns")
    assert ("keys",) == NAMED["serial loop"].lacks(greps)
    assert ("order",) == NAMED["gather"].lacks(greps)
    assert ("readers", "subtrees") == NAMED["gather, lock per key"].lacks(greps)
    assert ("turns",) == NAMED["waves"].lacks(turns)
    assert ("arrivals",) == NAMED["gather, semaphore"].lacks(named("streamed"))
