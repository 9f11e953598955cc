"""Into which group a call goes, and what its group or its rates refuse before it starts. No I/O."""

from __future__ import annotations

from dataclasses import replace

from dispatch.call import FailureKind
from dispatch.claims import Claim
from dispatch.core.groups import REST
from dispatch.core.life import GateKind
from dispatch.core.turn import TurnMachine
from dispatch.render import preview, safe_str
from dispatch.runtime.admission import Admitted
from dispatch.runtime.running import RunningCall
from dispatch.runtime.settings import TurnSettings


def groups_of(settings: TurnSettings, admitted: Admitted) -> list[str]:
    """The tags of the call that have a policy of their own."""
    return sorted(admitted.tags & settings.policies.keys())


def refuse(settings: TurnSettings, admitted: Admitted, *, undoable: bool) -> Admitted:
    """The call, with its cost; or refused, if it can never run as this turn wants it to.

    `undoable` if a turn above this one may have to undo it.
    """
    tool = admitted.tool
    if tool is None or admitted.refusal is not None:
        return admitted
    groups = groups_of(settings, admitted) if len(settings.policies) > 1 else []
    if len(groups) > 1:
        shown = " and ".join(map(repr, groups))
        return _rejected(admitted, f"it is in the groups {shown}; a call can be in one group only")
    group = groups[0] if groups else REST
    atomic = undoable or settings.policies[group].atomic
    if atomic and tool.reversible is False:
        message = f"{tool.name} cannot be undone, so it cannot be part of all or nothing"
        return _rejected(admitted, message)
    return _with_cost(settings, admitted) if admitted.arguments is not None else admitted


def submit(machine: TurnMachine, settings: TurnSettings, call: RunningCall) -> int:
    """Enter the call into the machine, and return its position."""
    admitted, group = call.admitted, REST
    if len(settings.policies) > 1:
        group = next(iter(groups_of(settings, admitted)), REST)  # the first, if it is in several
    names = admitted.call.after
    refs: tuple[str, ...] = ()
    if admitted.refs:
        refs = tuple(dict.fromkeys(ref.call_id for ref in admitted.refs))
        names = tuple(dict.fromkeys((*names, *refs)))
    claims: tuple[Claim, ...] | None = admitted.claims
    if call.answer is not None:
        failure = call.answer.failure
        answer = (call.answer.status, failure.kind if failure is not None else None)
        return machine.submit(answer=answer, call_id=admitted.call.id, group=group)
    return machine.submit(
        claims,
        admitted.refusal,
        call_id=admitted.call.id,
        names=names,
        refs=refs,
        same=admitted.same,
        group=group,
        gate=settings.gates.kind if admitted.refusal is None else GateKind.NONE,
    )


def _with_cost(settings: TurnSettings, admitted: Admitted) -> Admitted:
    tool = admitted.tool
    assert tool is not None  # noqa: S101 - unknown tools have been refused
    if not settings.limits.rates:
        return admitted
    try:
        cost = tool.cost(admitted.arguments or {})
    except Exception as error:  # noqa: BLE001 - the host's function: fail closed
        reason = f"{type(error).__name__}: {preview(safe_str(error))}"
        return _rejected(admitted, f"its cost could not be told ({reason})")
    admitted = replace(admitted, cost=cost)
    need = settings.limits.need(tool.name, admitted.tags, cost)
    rate = settings.limits.refused(need)
    if rate is None:
        return admitted
    message = f"its cost of {cost:g} is above the burst of the rate {rate!r}: it could never run"
    return replace(admitted, refusal=FailureKind.RATE_LIMITED, message=message)


def _rejected(admitted: Admitted, message: str) -> Admitted:
    return replace(admitted, refusal=FailureKind.REJECTED, message=message)
