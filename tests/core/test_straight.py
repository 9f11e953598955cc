"""The short way of a plain call into the graph comes to the same as all the steps."""

import random

import pytest

from dispatch.call import FailureKind, Status
from dispatch.core.groups import Group
from dispatch.core.life import CallState, GateKind
from dispatch.core.policy import AllOrNothing, Policy, Quorum
from dispatch.core.schedules import Schedule
from dispatch.core.turn import TurnMachine
from tests.core.turns import random_claims


class StepByStep(TurnMachine):
    """A turn machine that never takes the short way."""

    def _goes_straight(self, group: Group) -> bool:
        return False


class Counting(TurnMachine):
    """A turn machine that counts how often the short way was taken."""

    taken = 0

    def _goes_straight(self, group: Group) -> bool:
        taken = super()._goes_straight(group)
        self.taken += taken
        return taken


POLICIES: tuple[dict[str, Policy], ...] = (
    {},
    {"": AllOrNothing()},
    {"q": Quorum(2)},
    {"": AllOrNothing(), "q": Quorum(1)},
)


def event(rng: random.Random, machine: TurnMachine) -> tuple[str, list[object]]:
    """Something that may happen now, as the name of a method and its arguments."""
    states = {state: [c.position for c in machine.calls if c.state is state] for state in CallState}
    pick = rng.random()
    if states[CallState.QUEUED] and pick < 0.3:
        return "granted", [rng.choice(states[CallState.QUEUED])]
    if states[CallState.READY] and pick < 0.5:
        return "started", [rng.choice(states[CallState.READY])]
    if states[CallState.RUNNING] and pick < 0.75:
        position = rng.choice(states[CallState.RUNNING])
        if rng.random() < 0.6:
            return "returned", [position, Status.OK]
        return "returned", [position, Status.ERROR, FailureKind.TOOL_ERROR]
    if states[CallState.STOPPING] and pick < 0.8:
        return "grace_over", [rng.choice(states[CallState.STOPPING])]
    waiting = [c.position for c in machine.calls if c.late and c.status is None and not c.refs]
    if waiting and pick < 0.85:
        return "known", [rng.choice(waiting), random_claims(rng)]
    if machine.calls and pick < 0.88:
        return "stop", [rng.randrange(len(machine.calls)), Status.CANCELLED]
    return "submit", []


def submission(rng: random.Random, number: int, groups: list[str]) -> dict[str, object]:
    """The arguments of the next call: mostly plain."""
    odd = rng.random()
    return {
        "claims": None if odd < 0.08 else random_claims(rng),
        "refused": FailureKind.UNKNOWN_TOOL if 0.08 < odd < 0.12 else None,
        "call_id": f"c{number}",
        "names": (f"c{rng.randint(0, number + 1)}",) if 0.12 < odd < 0.22 else (),
        "group": rng.choice(groups),
        "gate": GateKind.ASKS if 0.22 < odd < 0.28 else GateKind.NONE,
    }


def compared(
    seed: int, schedule: Schedule, policies: dict[str, Policy], *, skips: bool, whole: bool
) -> int:
    """Drive both machines through the same events; how often the short way was taken."""
    rng = random.Random(seed)
    short = Counting(schedule, policies, skips=skips, whole=whole)
    long = StepByStep(schedule, policies, skips=skips, whole=whole)
    groups = list({"": None, **policies})
    for number in range(60):
        name, arguments = event(rng, short)
        keywords = submission(rng, number, groups) if name == "submit" else {}
        for machine in (short, long):
            getattr(machine, name)(*arguments, **keywords)
        assert long.actions == short.actions, (name, arguments, keywords)
        for machine in (short, long):
            machine.actions.clear()
            machine.validate()
        assert long.dump() == short.dump(), (name, arguments, keywords)
    for machine in (short, long):
        machine.close()
    assert long.actions == short.actions
    return short.taken


@pytest.mark.parametrize("policies", POLICIES, ids=["best effort", "atomic", "quorum", "both"])
@pytest.mark.parametrize("skips", [False, True], ids=["runs", "skips"])
def test_the_short_way_comes_to_the_same(policies: dict[str, Policy], skips: bool) -> None:
    """After every event both machines ask for the same and have the same books."""
    taken = [
        compared(seed, Schedule.DATAFLOW, policies, skips=skips, whole=whole)
        for seed in range(25)
        for whole in (False, True)
    ]
    assert sum(taken) > 0


@pytest.mark.parametrize("schedule", [one for one in Schedule if one is not Schedule.DATAFLOW])
def test_a_schedule_with_barriers_has_no_short_way(schedule: Schedule) -> None:
    """Where a call's place depends on the calls around it, every step is taken."""
    assert 0 == compared(1, schedule, {}, skips=False, whole=True)
