"""What a peer can do to the others: nothing."""

import multiprocessing

import pytest

from benchmarks.roster import Entry
from benchmarks.runs import Contest, Entrant, Outcome
from benchmarks.work import Work, Workload
from benchmarks.worker import Job

JOB = Job(
    workload=Workload(
        name="one",
        about="one call",
        turns=((Work(tool="read", arguments={"path": "a"}, seconds=0.0),),),
    ),
    timeout=0.5,
)


def entrant(way: str) -> Entrant:
    """One that behaves like this."""
    module = "tests.benchmarks.hostile"
    entry = Entry(name=way, module=module, make="Hostile", arguments={"way": way})
    return Entrant(name=way, entry=entry)


def raced(*ways: str) -> dict[str, Outcome]:
    """What comes of them, all in one contest."""
    with Contest([entrant(way) for way in ways]) as contest:
        return contest.compete(contest.entrants, JOB, rounds=2)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("raises", "RuntimeError: no"),
        ("hangs", "hangs: no end after 0.5 s"),
        ("blocks", "hangs: nothing was heard of it for 4.5 s"),
        ("dies", "its process ended"),
    ],
)
def test_a_failure_is_told_and_spoils_no_other(way: str, why: str) -> None:
    """A peer that fails has its reason in the table; the one after it has its time."""
    found = raced(way, "works")
    assert (why, None) == (found[way].failed, found["works"].failed)
    assert (True, False) == (found[way].seconds is None, found["works"].seconds is None)


def test_what_is_left_behind_is_counted() -> None:
    """Tasks and threads of a run that do not end by themselves stand in its outcome."""
    found = raced("leaks")["leaks"]
    assert (1, 1, ("manners",)) == (found.tasks, found.threads, found.lacks)


def test_no_process_outlives_its_contest() -> None:
    """Interrupted while its peers are there, a contest leaves no process."""

    def interrupted() -> None:
        with Contest([entrant("works")]) as contest:
            contest.compete(contest.entrants, JOB, rounds=1)
            assert 1 == len(multiprocessing.active_children())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [] == multiprocessing.active_children()
