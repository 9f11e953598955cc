"""Answering the calls of a turn from an earlier turn that had them too, so that nothing runs twice.

Each result of the earlier turn answers one call of equal name, arguments, tags and `after`, the
first to come first. What may have changed something is always answered. What has only read is
answered as long as nothing that conflicts with it was granted since, or is to run before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dispatch.call import Phase, Status, ToolResult
from dispatch.claims import READ, TOOL, conflict
from dispatch.runtime.admission import Admitted, identity

if TYPE_CHECKING:
    from dispatch.runtime.resources import ResourceTable
    from dispatch.runtime.running import RunningCall


class Answers:
    """What an earlier turn has found out: results of calls that ran, and when each of them began.

    `table` is the one that the earlier turn had its claims in.
    """

    def __init__(self, table: ResourceTable, ran: Iterable[tuple[RunningCall, ToolResult]]) -> None:
        self._table = table
        self._by_call: dict[str, deque[tuple[int, ToolResult]]] = {}
        for call, result in ran:
            key = identity(result.call) if _is_final(result, call.admitted) else None
            if key is not None:
                self._by_call.setdefault(key, deque()).append((call.began, result))

    def take(
        self, admitted: Admitted, earlier: Iterable[RunningCall], table: ResourceTable
    ) -> tuple[int, ToolResult | None]:
        """The result for this call, if there is one for it, and when that call began.

        It answers no other call then. `earlier` are the calls of the new turn that stand before it.
        """
        key = identity(admitted.call) if admitted.refusal is None else None
        found = self._by_call.get(key) if key is not None else None
        if not found:
            return 0, None
        began, _ = found[0]
        if _only_reads(admitted) and not self._stands(admitted, began, earlier, table):
            return 0, None
        return found.popleft()

    def _stands(
        self,
        admitted: Admitted,
        began: int,
        earlier: Iterable[RunningCall],
        table: ResourceTable,
    ) -> bool:
        """Whether what the call has read is as it was."""
        if table is not self._table or admitted.claims is None:
            return False
        to_run = [one.admitted.claims for one in earlier if one.answer is None]
        if any(claims is None or conflict(claims, admitted.claims) for claims in to_run):
            return False
        return not table.changed_since(began, admitted.claims)


def _is_final(result: ToolResult, admitted: Admitted) -> bool:
    """Whether it is known how the call ended, or running it again could do it twice."""
    if result.status is Status.UNKNOWN:
        return not admitted.repeatable
    ran = result.failure is not None and result.failure.phase is Phase.RUN
    return result.ok or (result.status is Status.ERROR and ran)


def _only_reads(admitted: Admitted) -> bool:
    if admitted.claims is not None:
        touched = [claim for claim in admitted.claims if claim.key[:1] != (TOOL,)]
        return bool(touched) and all(claim.mode == READ for claim in touched)
    declared = admitted.tool.concurrency if admitted.tool is not None else None
    return declared is not None and declared.only_reads
