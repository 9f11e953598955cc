"""Order that was declared, and rules about order: what happens when it is not kept."""

import asyncio
from typing import Literal

import pytest

from dispatch import (
    Allow,
    Deny,
    Dispatcher,
    FailureKind,
    GateContext,
    Status,
    ToolCall,
    ToolError,
    TurnResult,
    tool,
)
from dispatch.runtime.gates import Decision
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import WAYS, Stage, call, kinds, played
from tests.timeline import SCHEDULES

REJECTED = FailureKind.REJECTED

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dependents", ["run", "skip"])
def test_a_declared_order_is_kept_and_a_failed_prerequisite_means_what_was_chosen(
    dependents: Literal["run", "skip"], schedule: str
) -> None:
    """B4: `save_meal` is written first and runs second; if `save_room` fails it is run or skipped,
    as the host said; calls that wait for each other are refused before anything of them starts."""
    saved: list[str] = []

    @tool(safe_parallel=True)
    async def save(what: str, fails: bool = False) -> None:
        await asyncio.sleep(1)
        saved.append(what)
        if fails:
            raise ToolError("no such room")

    turn = [
        ToolCall("meal", "save", {"what": "meal"}, after=("room",)),
        ToolCall("room", "save", {"what": "room", "fails": True}),
        ToolCall("hen", "save", {"what": "hen"}, after=("egg",)),
        ToolCall("egg", "save", {"what": "egg"}, after=("hen",)),
    ]

    async def main() -> TurnResult:
        return await Dispatcher([save], schedule=schedule, dependents=dependents).run(turn)

    result = run_in_virtual_time(main())
    meal = Status.OK if dependents == "run" else Status.SKIPPED
    assert [meal, *[Status.ERROR] * 3] == [each.status for each in result]
    assert (["room", "meal"] if dependents == "run" else ["room"]) == saved
    if dependents == "skip":
        assert "[skipped] never started: save (call 1) failed" == result[0].content()
    assert [FailureKind.DEPENDENCY] * 2 == [r.failure and r.failure.kind for r in result[2:]]


class ReadFirst:
    """A rule as a gate: a file is only written if an earlier call of the session has read it."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    async def __call__(self, call: ToolCall, context: GateContext) -> Decision:
        key = context.arguments["key"]
        if context.tool.name == "look":
            self.read.add(key)
        elif context.tool.name == "change" and key not in self.read:
            return Deny(f"read {key} before you write it")
        return Allow()


@ways
@schedules
def test_read_before_write_is_a_rule_that_a_gate_can_keep(schedule: str, way: str) -> None:
    """B6: a write without an earlier read of the same file is refused, and only that one."""
    stage = Stage()
    turn = [
        call("w0", "change", key="g"),
        call("r", "look", key="f"),
        call("w1", "change", key="f"),
        call("w2", "change", key="h"),
    ]
    result = played(stage, turn, way=way, schedule=schedule, gates=[ReadFirst()])
    assert [REJECTED, None, None, REJECTED] == kinds(result)
    assert "[error] read h before you write it" == result[3].content()
    assert ["r", "w1"] == stage.marks
