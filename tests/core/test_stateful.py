"""The real machines against the reference.

`DISPATCH_STEPS` says how many events each of the four parts makes; 3,000 if it does not.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.core.stateful import Pair

STEPS = int(os.environ.get("DISPATCH_STEPS", "3000"))
BURST, BURSTS = 25, 4
"""Events of one rule, and rules of one example: drawing costs more than an event does."""


class Turns(RuleBasedStateMachine):
    """Many turns on one table, nested ones included; in the end all calls return."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.agreed = True

    @rule(choices=st.binary(min_size=4 * BURST, max_size=4 * BURST))
    def go_on(self, choices: bytes) -> None:
        self.agreed = False
        for at in range(0, len(choices), 4):
            self.pair.step(*choices[at : at + 4])
        self.agreed = True

    def teardown(self) -> None:
        if self.agreed:
            self.pair.finish()
            table = self.pair.driven.table.dump()
            assert ([], [], []) == (table["tickets"], table["parents"], table["abandoned"])
        type(self).made += self.pair.steps


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(4))
def test_the_machines_agree_with_the_reference(part: int) -> None:
    """After every event: the same states, results, victims, tickets and blockers, through JSON;

    and once all calls return every turn ends, and nothing is left in the table.
    """
    made = Turns.made
    run_state_machine_as_test(
        seed(part)(Turns),  # each part makes other events, and the same ones each time
        settings=settings(
            max_examples=STEPS // (BURST * BURSTS) + 1,
            stateful_step_count=BURSTS,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Turns.made - made >= STEPS, part
