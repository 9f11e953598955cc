"""That the exploration finds what is wrong, and says so."""

import pytest

from dispatch.core.turn import TurnMachine
from dispatch.core.waits import Waits
from tests.exhaustive import campaign
from tests.exhaustive.explore import Exploration, Explored, Violation
from tests.exhaustive.parts import parts


def first_fault(part: str) -> Violation | None:
    """What is found first in a part, setup by setup."""
    setups, _ = next(one for one in parts(3) if one.name == part).setups()
    found = (Exploration(setup).run().violation for setup in setups)
    return next((violation for violation in found if violation is not None), None)


def test_a_table_without_the_passing_rule_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nested call queues behind who waits for its ancestor: the shortest way to it is told."""
    monkeypatch.setattr(Waits, "_passes", lambda *_: False)
    violation = first_fault("beside-one-3")
    assert violation is not None
    assert "waits for nothing" in violation.faults[0]
    assert 4 == len(violation.trace)


def test_a_turn_that_forgets_what_is_nested_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call settles though a turn lives in it."""
    monkeypatch.setattr(TurnMachine, "nested", lambda *_: None)
    violation = first_fault("nested-2")
    assert violation is not None
    assert "call 0 is settled before it has settled" in violation.faults


def test_the_campaign_tells_what_was_wrong_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The turn, the way to the fault, the fault, and a last line that counts it; exit status 1."""
    found = Explored(2, 1, Violation(("all is wrong",), (("submit", 0),)))
    monkeypatch.setattr(campaign, "_awaited", lambda pool, work, items: map(faked, items))

    def faked(item: object) -> object:
        return campaign._lay_out(item) if isinstance(item, str) else found

    assert 1 == campaign.main(["--part", "full-1", "--jobs", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert "full-1: turns=13 shapes=2 states=4 events=2 violations=2" == lines[0]
    assert ["  submit 0", "  -> all is wrong", "turns=13 states=4 violations=2"] == lines[-3:]
