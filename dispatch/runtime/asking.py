"""What must be found out before a call can be ordered: values of other calls, answers of gates.

Owns the tasks in which gates are asked, one per call and side by side. A call that ends meanwhile
takes its task with it; a late answer is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dispatch.call import FailureKind, Phase, ToolResult
from dispatch.core.turn import TurnMachine
from dispatch.refs import Ref
from dispatch.runtime.admission import Admission, Admitted
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.gates import Gates
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.running import RunningCall


class Asking:
    """The open questions of one turn."""

    def __init__(
        self,
        machine: TurnMachine,
        calls: list[RunningCall],
        results: dict[int, ToolResult],
        inbox: Inbox,
        *,
        admission: Admission,
        gates: Gates,
        turn_id: str,
        refuse: Callable[[Admitted], Admitted],
    ) -> None:
        self._machine = machine
        self._calls = calls
        self._results = results
        self._inbox = inbox
        self._admission = admission
        self._gates = gates
        self._turn_id = turn_id
        self._refuse = refuse

    def resolve(self, position: int) -> None:
        """Fill in the values of the calls that this one refers to; they have succeeded."""
        call = self._calls[position]
        record = self._machine.calls[position]
        targets = {self._calls[target].call.id: target for target in record.ref_targets}

        def value_of(ref: Ref) -> object:
            return ref.value(self._results[targets[ref.call_id]].value)

        call.admitted = self._refuse(self._admission.resolve(call.admitted, value_of))
        if call.admitted.refusal is not None:
            self._machine.refused(position, call.admitted.refusal)
        elif call.admitted.claims is None:
            self._machine.resolved(position)
        else:
            self._machine.known(position, call.admitted.claims)

    def ask(self, position: int) -> None:
        """Ask the gates about the call, in a task of its own."""
        call = self._calls[position]
        call.asked = self._inbox.loop.time()
        call.gate_token = token = CancelToken()
        variables = call.variables.copy()
        call.asking = self._inbox.loop.create_task(self._ask(call, token), context=variables)

    async def _ask(self, call: RunningCall, token: CancelToken) -> None:
        answer = await self._gates.ask(
            call.admitted, self._admission, turn_id=self._turn_id, index=call.position, token=token
        )
        self._inbox.take(self._answered, call.position, answer)

    def _answered(self, position: int, answer: Admitted) -> None:
        call, record = self._calls[position], self._machine.calls[position]
        if record.status is not None:
            return
        call.allowed = self._inbox.loop.time()
        late = answer.claims is None
        if answer.refusal is None and late:
            warning = answer.warning
            answer = self._admission.claim(answer)
            answer = replace(answer, warning=answer.warning or warning)
        call.admitted = self._refuse(answer)
        if call.admitted.refusal is not None:
            denied = call.admitted.refusal is FailureKind.REJECTED
            phase = Phase.GATE if denied else None
            self._machine.refused(position, call.admitted.refusal, phase)
        elif late:
            self._machine.known(position, call.admitted.claims or ())
        else:
            known = set(record.claims)
            added = tuple(c for c in call.admitted.claims or () if c not in known)
            self._machine.allowed(position, added)


def stop_asking(call: RunningCall) -> None:
    """Cancel the question about this call: the gate's token first, then its task."""
    if call.asking is not None and not call.asking.done():
        if call.gate_token is not None:
            call.gate_token.cancel(call.reason or "the call has ended")
        call.asking.cancel()
