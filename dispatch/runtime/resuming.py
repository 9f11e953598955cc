"""Answering the calls of a turn from an earlier turn that had them too, so that nothing runs twice.

Each result of the earlier turn answers one call of equal name, arguments, tags, `after` and claims,
the first to come first. What may have changed something is always answered. What has only read is
answered as long as nothing that conflicts with it was granted or given back since, or is to run
before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from dispatch.call import FailureKind, Phase, Status, ToolResult
from dispatch.claims import READ, TOOL, Claim
from dispatch.core.books import Duplicates
from dispatch.core.live import LiveIndex
from dispatch.runtime.admission import Admitted, identity

if TYPE_CHECKING:
    from dispatch.runtime.resources import ResourceTable
    from dispatch.runtime.running import RunningCall
    from dispatch.runtime.settings import TurnSettings


class Answer(NamedTuple):
    """The result of a call that ran.

    `began` is how often `table` had changed then, `targets` the results that it has taken.
    """

    result: ToolResult
    claims: tuple[Claim, ...] | None
    table: ResourceTable
    began: int
    targets: tuple[ToolResult, ...]


class Answers:
    """What an earlier turn has found out, and `rest`, which that turn was itself given and left."""

    def __init__(
        self,
        table: ResourceTable,
        ran: Iterable[tuple[RunningCall, ToolResult]],
        rest: Answers | None = None,
    ) -> None:
        self._by_call: dict[str, deque[Answer]] = {}
        self._to_run = LiveIndex()
        self._runs = 0
        self._unknown = False
        self._given: set[str | None] = set()
        by_id: dict[str, ToolResult] = {}
        for call, result in ran:
            targets = tuple(by_id[r.call_id] for r in call.admitted.refs if r.call_id in by_id)
            by_id[result.call.id] = result
            if _is_final(result, call.admitted):
                answer = Answer(result, call.claimed, call.began_in or table, call.began, targets)
                self._keep(answer)
        for left in rest._by_call.values() if rest is not None else ():
            for answer in left:
                self._keep(answer)

    def _keep(self, answer: Answer) -> None:
        key = identity(answer.result.call)
        if key is not None:
            self._by_call.setdefault(key, deque()).append(answer)

    def take(
        self,
        call: RunningCall,
        earlier: Iterable[RunningCall],
        table: ResourceTable | None,
        settings: TurnSettings,
    ) -> Answer | None:
        """What answers this call, if there is something; it answers no other call then.

        `earlier` are the calls of the new turn that stand before it. `table` is None where what the
        call reads may be changed by the call that the turn is nested in. Copies that would share
        one run share one answer. Where dependents of a failure are skipped, no failure answers: it
        has no place in the order by which they are found.
        """
        found = self._found(call.admitted)
        answer = found[0] if found else None
        fits = answer is not None and self._fits(answer, call.admitted, earlier, table)
        if answer is None or not fits or (settings.skips and not answer.result.ok):
            self._will_run(call.admitted)
            return None
        if len(found) > 1 or settings.duplicates is not Duplicates.COALESCE:
            found.popleft()
        self._given.add(identity(call.call))
        return answer

    def gave(self, call: RunningCall) -> bool:
        """Whether an equal call was answered."""
        return identity(call.call) in self._given

    def _found(self, admitted: Admitted) -> deque[Answer]:
        key = identity(admitted.call) if admitted.refusal is None else None
        return self._by_call.get(key, deque()) if key is not None else deque()

    def _fits(
        self,
        answer: Answer,
        admitted: Admitted,
        earlier: Iterable[RunningCall],
        table: ResourceTable | None,
    ) -> bool:
        if answer.claims != admitted.claims or not _same_values(answer, admitted, earlier):
            return False
        return not _only_reads(admitted) or self._stands(answer, admitted.claims, table)

    def _stands(
        self, answer: Answer, claims: tuple[Claim, ...] | None, table: ResourceTable | None
    ) -> bool:
        """Whether what the call has read is as it was."""
        if table is not answer.table or claims is None or self._unknown:
            return False
        return self._to_run.clear(claims) and not table.changed_since(answer.began, claims)

    def _will_run(self, admitted: Admitted) -> None:
        if admitted.claims is None:
            self._unknown = True
        elif admitted.claims and admitted.refusal is None:
            self._runs += 1
            self._to_run.add(self._runs, admitted.claims)


def _same_values(answer: Answer, admitted: Admitted, earlier: Iterable[RunningCall]) -> bool:
    """Whether the calls that this one refers to are answered by those that it referred to then."""
    if not admitted.refs:
        return True
    here = {call.call.id: call.answer for call in earlier}
    given = [here.get(ref.call_id) for ref in admitted.refs]
    return len(given) == len(answer.targets) and all(
        one is not None and one.value == then.value and then.ok
        for one, then in zip(given, answer.targets, strict=True)
    )


def _is_final(result: ToolResult, admitted: Admitted) -> bool:
    """Whether it is known how the call ended, or running it again could do it twice."""
    if result.status is Status.UNKNOWN:
        return not admitted.repeatable
    failure = result.failure
    ran = failure is not None and failure.phase is Phase.RUN
    copied = failure is not None and failure.kind is FailureKind.DUPLICATE
    return result.ok or (result.status is Status.ERROR and (ran or copied))


def _only_reads(admitted: Admitted) -> bool:
    if admitted.claims is not None:
        touched = [claim for claim in admitted.claims if claim.key[:1] != (TOOL,)]
        return bool(touched) and all(claim.mode == READ for claim in touched)
    declared = admitted.tool.concurrency if admitted.tool is not None else None
    return declared is not None and declared.only_reads
