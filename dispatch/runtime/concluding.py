"""From how a call ended to its one result, and to the sentence that says why."""

from __future__ import annotations

import asyncio

from dispatch.call import ToolResult
from dispatch.core.turn import TurnMachine
from dispatch.runtime.running import RunningCall


class Concluding:
    """The results of one turn by position; `reason` is why the whole turn was stopped."""

    def __init__(
        self, machine: TurnMachine, calls: list[RunningCall], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.results: dict[int, ToolResult] = {}
        self.reason = ""
        self._machine = machine
        self._calls = calls
        self._loop = loop

    def why(self, call: RunningCall) -> str:
        """Why it ends: its own reason, its group's, or the turn's."""
        record = self._machine.calls[call.position]
        verdict = self._machine.groups[record.group].verdict
        if not call.reason and record.by_policy and verdict is not None:
            return verdict.reason or "its group is decided"
        return call.reason or record.note or self.reason

    def conclude(self, position: int) -> ToolResult:
        """Make the call's result, or make it again."""
        call, record = self._calls[position], self._machine.calls[position]
        leader = self.results.get(record.leader)
        if leader is not None and leader.status is record.status:
            result = call.copied(leader, self._loop.time())
        else:
            before = self.results.get(position)
            now = self._loop.time() if before is None else before.finished_at
            cause = call.holder or self._name(record.cause)
            result = call.result(record, now, cause)
        self.results[position] = result
        return result

    def _name(self, position: int | None) -> str:
        if position is None:
            return ""
        return f"{self._calls[position].call.name} (call {position})"
