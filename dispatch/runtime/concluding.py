"""From how a call ended to its one result, and to the sentence that says why."""

from __future__ import annotations

from dispatch.call import ToolResult
from dispatch.core.life import CallRecord
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn


def why(turn: RunningTurn, call: RunningCall) -> str:
    """Why it ends: its own reason, its group's, or the turn's."""
    record = turn.machine.calls[call.position]
    verdict = turn.machine.groups[record.group].verdict
    if not call.reason and record.by_policy and verdict is not None:
        return verdict.reason or "its group is decided"
    return call.reason or record.note or turn.reason


def conclude(turn: RunningTurn, call: RunningCall, record: CallRecord) -> ToolResult:
    """Make the call's result, or make it again."""
    before = turn.results.get(call.position)
    now = turn.inbox.loop.time() if before is None else before.finished_at
    leader = call.answer or (turn.results.get(record.leader) if record.leader >= 0 else None)
    if leader is not None and leader.status is record.status:
        result = call.copied(leader, now)
    else:
        cause = "" if record.cause is None else _name(turn, record.cause)
        result = call.result(record, now, call.holder or cause)
    turn.results[call.position] = result
    return result


def _name(turn: RunningTurn, position: int) -> str:
    return f"{turn.calls[position].call.name} (call {position})"
