"""What must be found out before a call can be ordered: values of other calls, answers of gates.

Owns the tasks in which gates are asked, one per call and side by side. A call that ends meanwhile
takes its task with it; a late answer is dropped.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dispatch.call import FailureKind, Phase
from dispatch.refs import Ref
from dispatch.runtime import grouping
from dispatch.runtime.admission import Admitted
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn


class Asking:
    """The open questions of one turn."""

    def __init__(self, turn: RunningTurn) -> None:
        self._turn = turn
        undoable = turn.place.may_be_undone
        self._refuse = partial(grouping.refuse, turn.settings, undoable=undoable)

    def resolve(self, position: int) -> None:
        """Fill in the values of the calls that this one refers to; they have succeeded."""
        turn = self._turn
        call, record = turn.both(position)
        targets = {turn.calls[target].call.id: target for target in record.ref_targets}

        def value_of(ref: Ref) -> object:
            return ref.value(turn.results[targets[ref.call_id]].value)

        call.admitted = self._refuse(turn.admission.resolve(call.admitted, value_of))
        if call.admitted.refusal is not None:
            turn.machine.refused(position, call.admitted.refusal)
        elif call.admitted.claims is None:
            turn.machine.resolved(position)
        else:
            turn.machine.known(position, call.admitted.claims)

    def ask(self, position: int) -> None:
        """Ask the gates about the call, in a task of its own."""
        call = self._turn.calls[position]
        call.asked = self._turn.now
        call.gate_token = token = CancelToken()
        variables = call.variables.copy()
        call.asking = self._turn.inbox.loop.create_task(self._ask(call, token), context=variables)

    async def _ask(self, call: RunningCall, token: CancelToken) -> None:
        settings = self._turn.settings
        answer = await settings.gates.ask(
            call.admitted,
            self._turn.admission,
            turn_id=self._turn.turn_id,
            index=call.position,
            token=token,
        )
        self._turn.inbox.take(self._answered, call.position, answer)

    def _answered(self, position: int, answer: Admitted) -> None:
        machine = self._turn.machine
        call, record = self._turn.both(position)
        if record.status is not None:
            return
        call.allowed = self._turn.now
        late = answer.claims is None
        if answer.refusal is None and late:
            warning = answer.warning
            answer = self._turn.admission.claim(answer)
            answer = replace(answer, warning=answer.warning or warning)
        call.admitted = self._refuse(answer)
        if call.admitted.refusal is not None:
            denied = call.admitted.refusal is FailureKind.REJECTED
            phase = Phase.GATE if denied else None
            machine.refused(position, call.admitted.refusal, phase)
        elif late:
            machine.known(position, call.admitted.claims or ())
        else:
            known = set(record.claims)
            added = tuple(c for c in call.admitted.claims or () if c not in known)
            machine.allowed(position, added)


def stop_asking(call: RunningCall) -> None:
    """Cancel the question about this call: the gate's token first, then its task."""
    if call.asking is not None and not call.asking.done():
        if call.gate_token is not None:
            call.gate_token.cancel(call.reason or "the call has ended")
        call.asking.cancel()
