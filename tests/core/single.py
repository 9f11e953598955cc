"""One turn alone, driven by hand: nothing of other turns stands in its way."""

from dispatch.call import FailureKind, Status
from dispatch.claims import READ, WRITE, Claim
from dispatch.core.life import Do
from dispatch.core.policy import Policy
from dispatch.core.schedules import Schedule
from dispatch.core.turn import TurnMachine

Claims = tuple[Claim, ...]
Ending = tuple[Status | None, FailureKind | None, int | None]

F: Claims = (Claim(("file", "f"), WRITE),)
G: Claims = (Claim(("file", "g"), WRITE),)
READ_F: Claims = (Claim(("file", "f"), READ),)
ALL = frozenset(range(100))
FINE: Ending = (Status.OK, None, None)
SKIPPED = (Status.SKIPPED, FailureKind.SKIPPED)
CANCELLED = (Status.CANCELLED, FailureKind.CANCELLED)


def endings(machine: TurnMachine) -> list[Ending]:
    """How each call ended, by status, kind and cause."""
    return [(call.status, call.kind, call.cause) for call in machine.calls]


def asked(machine: TurnMachine, wanted: Do) -> list[int]:
    """The positions for which this is asked now, taken out of the actions."""
    found = [position for do, position in machine.actions if do is wanted]
    machine.actions = [action for action in machine.actions if action[0] is not wanted]
    return found


def fail(machine: TurnMachine, position: int) -> None:
    """The call's tool raises."""
    machine.returned(position, Status.ERROR, FailureKind.TOOL_ERROR)


def judged_by(policy: Policy, *claims: Claims, whole: bool = False) -> TurnMachine:
    """A closed turn of these calls under one policy; nothing has started."""
    machine = TurnMachine(policies={"": policy}, whole=whole)
    for one in claims:
        machine.submit(one)
    machine.close()
    return machine


def drive(machine: TurnMachine, *, hold: frozenset[int] = frozenset()) -> list[int]:
    """Grant and start all that may; calls in `hold` run on, the others return. Starts in order."""
    started = []
    while machine.actions:
        do, call = machine.actions.pop(0)
        if do is Do.ENTER:
            machine.granted(call)
        elif do is Do.REQUEST:
            started.append(call)
            machine.started(call, heeds_token=True)
            if call not in hold:
                machine.returned(call, Status.OK)
    return started


def turn_of(*claims: Claims, schedule: Schedule = Schedule.DATAFLOW) -> TurnMachine:
    machine = TurnMachine(schedule)
    for one in claims:
        machine.submit(one)
    return machine
