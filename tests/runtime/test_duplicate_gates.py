"""Identical calls and gates: one question for all copies, and what its answer holds for."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    Allow,
    Change,
    Deny,
    FailureKind,
    Gate,
    GateContext,
    ToolCall,
)
from dispatch.runtime.gates import Decision
from tests.runtime.ledger import THREE, Ledger, append
from tests.runtime.stage import WAYS, kinds
from tests.timeline import SCHEDULES

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.mark.parametrize("rewrites", [False, True], ids=["asks", "rewrites"])
@pytest.mark.parametrize("duplicates", ["coalesce", "reject"])
@schedules
def test_gates_are_asked_once(schedule: str, duplicates: str, rewrites: bool) -> None:
    """The copies of a call are not asked about, and the leader's answer holds for all that join."""
    asked: list[str] = []

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        asked.append(one.id)
        await asyncio.sleep(2)
        return Change({"file": "f", "text": "y"}) if rewrites else Allow()

    ledger = Ledger()
    options: dict[str, Any] = {"schedule": schedule, "duplicates": duplicates}
    result = ledger.run(THREE, gates=[Gate(gate, rewrites=rewrites)], **options)
    assert ["1"] == asked
    assert ["f+y" if rewrites else "f+x"] == ledger.done
    assert [result[0].ok] * 3 == [duplicates == "reject" or each.ok for each in result]


@pytest.mark.parametrize("rewrites", [False, True], ids=["asks", "rewrites"])
def test_a_denial_is_shared_by_the_copies(rewrites: bool) -> None:
    """Denied once, denied for all: nobody is asked three times about the same thing."""
    asked: list[str] = []

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        asked.append(one.id)
        await asyncio.sleep(2)
        return Deny("not today")

    ledger = Ledger()
    result = ledger.run(THREE, gates=[Gate(gate, rewrites=rewrites)], duplicates="coalesce")
    assert [] == ledger.done
    assert ["1"] == asked
    assert [FailureKind.REJECTED] * 3 == kinds(result)
    assert {"[error] not today"} == {each.content() for each in result}


@pytest.mark.parametrize("rewrites", [False, True], ids=["asks", "rewrites"])
def test_after_a_conflicting_call_a_denied_call_is_asked_about_again(rewrites: bool) -> None:
    """The denial was about another state of the file."""
    asked: list[str] = []

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        asked.append(one.id)
        return Allow() if one.name == "replace" else Deny("not today")

    turn = [append("1"), ToolCall("b", "replace", {"file": "f"}), append("2")]
    Ledger().run(turn, gates=[Gate(gate, rewrites=rewrites)], duplicates="coalesce")
    assert ["1", "2", "b"] == sorted(asked)


def test_calls_that_a_gate_makes_equal_are_not_copies() -> None:
    """The model's own words count: two different calls both run, whatever they are changed to."""

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        return Change({"file": "f", "text": "same"})

    ledger = Ledger()
    turn = [append("1"), append("2", text="y")]
    ledger.run(turn, gates=[Gate(gate, rewrites=True)], duplicates="coalesce")
    assert ["f+same"] * 2 == ledger.done
