"""The driver of one turn: carries out what the turn machine asks for, on one event loop.

Owns everything that needs a clock, a loop or a tool; decides nothing. News from tools, timers,
other turns, threads and loops comes through an inbox, so the machine is never entered twice.

Invariants: every submitted call gets exactly one result; claims are given back only once the tool
has really ended, from its own thread if the loop is gone by then; a slot or a claim that arrives
in the same step as a cancel is given back unused.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial

from dispatch.call import Status, ToolResult
from dispatch.core.life import CallState, Do
from dispatch.core.policy import Policy
from dispatch.core.schedules import Schedule
from dispatch.core.turn import TurnMachine
from dispatch.runtime.admission import Admission, Admitted
from dispatch.runtime.broadcast import Broadcast, Teller
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.invoke import Outcome
from dispatch.runtime.limits import Limits
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.running import RunningCall
from dispatch.runtime.threads import WorkerPool

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """What a turn is run with. Times in seconds; None means no limit."""

    turn_id: str
    schedule: Schedule
    policy: Policy
    timeout: float | None
    call_timeout: float | None
    grace: float
    abandoned_wait: float
    admission: Admission
    table: ResourceTable
    limits: Limits
    pool: WorkerPool
    tell: Broadcast


class Driver:
    """Runs one turn machine on the loop it was made on. `ended` and `decided` are called back."""

    def __init__(
        self,
        settings: TurnSettings,
        token: CancelToken,
        *,
        ended: Callable[[ToolResult], None],
        decided: Callable[[], None],
        gone: Callable[[], None],
    ) -> None:
        self.number = next(_NUMBERS)
        self.machine = TurnMachine(settings.schedule)
        self.calls: list[RunningCall] = []
        self.fatal: BaseException | None = None
        self._settings = settings
        self._token = token
        self._reason = ""
        self._inbox = Inbox(self._step)
        self._loop = self._inbox.loop
        self._slots_wanted = False
        self._held_up_until: dict[int, float] = {}
        self._giving_back = threading.Lock()
        self._ended, self._decided, self._gone = ended, decided, gone
        teller = Teller(settings.turn_id, settings.tell, self._loop.time)
        self._tell = teller if settings.tell else None
        if self._tell is not None:
            self._tell.turn("open", 0)
        self._perform: dict[Do, Callable[[int], None]] = {
            Do.ENTER: self._enter,
            Do.REQUEST: self._request,
            Do.WITHDRAW: self._free,
            Do.PREFER: self._prefer,
            Do.SIGNAL: self._signal,
            Do.CANCEL: self._cancel,
            Do.FREE: self._free,
            Do.END: self._end,
            Do.SETTLE: self._settle,
            Do.DECIDE: lambda _: self._decide(),
            Do.LEAVE: lambda _: self._leave(),
        }

    @property
    def stranded(self) -> bool:
        """Whether the loop is gone, so that nothing will be decided any more."""
        return self._loop.is_closed()

    # From the host, on the loop

    def check_thread(self) -> None:
        """Raise `UsageError` anywhere but on the thread of the turn's loop."""
        self._inbox.check_thread()

    def submit(self, admitted: Admitted, variables: Context) -> int:
        """Enter the next call; `pump` lets it start."""
        now = self._loop.time()
        position = len(self.calls)
        call = RunningCall(admitted, position, now, variables)
        self.calls.append(call)
        self._told_call(position, CallState.PLANNED)
        self.machine.submit(admitted.claims, admitted.refusal)
        timeout = admitted.timeout or self._settings.call_timeout
        if timeout is not None and self.machine.calls[position].status is None:
            call.timer = self._loop.call_later(
                timeout, self._inbox.post, self._time_out, position, timeout
            )
        return position

    def close(self) -> None:
        """No more calls will come."""
        self.machine.close()
        self.pump()

    def stop(self, status: Status, reason: str) -> None:
        """Stop every call that has no result; later ones end at once. The first reason stays."""
        if self.machine.stopped is None:
            self._reason = reason
            self.machine.stop_all(status)
        self.pump()

    def pump(self) -> None:
        """Carry out what there is to do now."""
        self._inbox.pump()

    def _step(self) -> bool:
        actions, self.machine.actions = self.machine.actions, []
        for do, call in actions:
            self._perform[do](call)
        if self._slots_wanted and not self.machine.actions:
            self._slots_wanted = False
            self._settings.limits.grant()
            return True
        return bool(actions)

    # From anywhere

    def claims_granted(self, call: int) -> bool:
        """Told by the table."""
        return self._inbox.post(self.machine.granted, call)

    def claims_held_up(self, call: int) -> bool:
        """Told by the table."""
        return self._inbox.post(self._held_up, call)

    def slots_taken(self, request: int, call: int) -> bool:
        """Told by the limits."""
        return self._inbox.post(self._start, request, call)

    def cancel(self, reason: str) -> None:
        """Told by a token."""
        self._inbox.post(self._cancelled, reason)

    # News

    def _cancelled(self, reason: str) -> None:
        if self.machine.stopped is None:
            self._reason = reason
            self.machine.stop_all(Status.CANCELLED)

    def _time_out(self, position: int, timeout: float) -> None:
        call = self.calls[position]
        if self.machine.calls[position].asked is None:
            call.reason = f"timed out after {timeout:g} s"
        self.machine.stop(position, Status.TIMED_OUT)

    def _held_up(self, position: int) -> None:
        """It waits for an abandoned call of another turn: not for ever, if it has no time limit."""
        call = self.calls[position]
        holder = None if call.ticket is None else self._settings.table.held_up_by(call.ticket)
        if holder is None or call.timer is not None or self._settings.timeout is not None:
            return
        ticket, name = holder
        now = self._loop.time()
        until = self._held_up_until.setdefault(ticket, now + self._settings.abandoned_wait)
        if now < until:
            call.grace = self._loop.call_at(until, self._inbox.post, self._held_up, position)
        else:
            call.holder = f"{name} of another turn"
            self.machine.skip(position)

    def _start(self, request: int, position: int) -> None:
        if self._token.reason is not None:  # cancelled in the same step: cancel wins
            self._cancelled(self._token.reason)
        call = self.calls[position]
        if call.request != request or self.machine.calls[position].state is not CallState.READY:
            return
        call.started = self._loop.time()
        self.machine.started(position, heeds_token=call.heeds_token)
        self._told_call(position, CallState.RUNNING)
        call.start(
            self._loop,
            turn_id=self._settings.turn_id,
            pool=self._settings.pool,
            context=partial(self._context, call),
            done=partial(self._returned, position),
            ended=partial(self._thread_ended, call),
        )

    def _context(self, call: RunningCall) -> CallContext:
        def progress(text: str) -> None:
            if self._tell is not None:
                self._inbox.post(self._told_call, call.position, "progress", None, text)

        return CallContext(call.call, CancelToken(), self._settings.grace, progress)

    def _returned(self, position: int, outcome: Outcome) -> None:
        self._inbox.take(self._take_outcome, position, outcome)

    def _take_outcome(self, position: int, outcome: Outcome) -> None:
        call, record = self.calls[position], self.machine.calls[position]
        if call.scope is not None:
            call.scope.alive = False
        if record.state is not CallState.ENDED:  # else it was given up: its late result is dropped
            call.outcome = outcome
        if outcome.fatal:
            self.fatal = self.fatal or outcome.error
            call.reason = f"the tool raised {type(outcome.error).__name__}"
        elif outcome.foreign and record.asked is None:
            call.reason = "its task was cancelled from outside"
        self.machine.returned(position, *outcome.ending())
        if self.fatal is not None and self.machine.stopped is None:
            self._cancelled(f"another tool raised {type(self.fatal).__name__}")

    def _thread_ended(self, call: RunningCall) -> None:
        """In a worker thread: give back what the loop may never do for it, as it may be gone.

        That is a call that was given up, or one whose loop was closed in the middle of its turn.
        """
        if self._loop.is_closed() or self.machine.calls[call.position].state is CallState.ENDED:
            self._give_claims_back(call)
        if self._loop.is_closed():
            self._give_slots_back(call)
            self._settings.limits.grant()

    def _give_claims_back(self, call: RunningCall) -> None:
        if call.scope is not None:
            call.scope.alive = False
        with self._giving_back:
            ticket, call.ticket = call.ticket, None
        if ticket is not None:
            self._settings.table.leave(ticket)

    def _give_slots_back(self, call: RunningCall) -> None:
        with self._giving_back:
            request, call.request = call.request, None
        if request is not None:
            self._settings.limits.give_back(request)

    # Actions

    def _enter(self, position: int) -> None:
        call = self.calls[position]
        call.ordered = self._loop.time()
        claims = call.admitted.claims
        if call.ordered > call.submitted or self.machine.calls[position].serialized:
            claims = self._settings.admission.claims_now(call.admitted)
        call.ticket, granted = self._settings.table.enter(self, position, claims)
        self._told_call(position, CallState.QUEUED)
        if granted:
            self.machine.granted(position)
        else:
            self.machine.blocked(position)

    def _request(self, position: int) -> None:
        call = self.calls[position]
        call.locked = self._loop.time()
        if call.ordered is None:
            call.ordered = call.locked
        limits = self._settings.limits
        dimensions = limits.dimensions(call.call.name, call.admitted.tags)
        call.request = limits.request(self, position, dimensions, self.machine.chain(position))
        self._slots_wanted = True
        self._told_call(position, CallState.READY)

    def _prefer(self, position: int) -> None:
        request = self.calls[position].request
        if request is not None:
            self._settings.limits.prefer(request, self.machine.chain(position))

    def _free(self, position: int) -> None:
        self._give_slots_back(self.calls[position])
        self._slots_wanted = True

    def _signal(self, position: int) -> None:
        call = self.calls[position]
        call.grace = self._grace(position)
        self._told_call(position, CallState.STOPPING)
        if call.context is not None:
            call.context.token.cancel(call.reason or self._reason)

    def _cancel(self, position: int) -> None:
        call = self.calls[position]
        call.grace = self._grace(position)
        if call.invocation is not None:
            call.invocation.cancel()

    def _grace(self, position: int) -> asyncio.TimerHandle:
        return self._loop.call_later(
            self._settings.grace, self._inbox.post, self.machine.grace_over, position
        )

    def _end(self, position: int) -> None:
        call, record = self.calls[position], self.machine.calls[position]
        call.stop_timers()
        call.reason = call.reason or self._reason
        result = call.result(record, self._loop.time(), self._name(record.cause) or call.holder)
        if record.alive and call.ticket is not None:
            self._settings.table.abandon(call.ticket, call.call.name)
        self._told_call(position, CallState.ENDED, result.status)
        self._ended(result)

    def _settle(self, position: int) -> None:
        self._give_claims_back(self.calls[position])
        self._told_call(position, CallState.SETTLED, self.machine.calls[position].status)

    def _decide(self) -> None:
        if self._tell is not None:
            self._tell.turn("decided", len(self.calls))
        self._decided()

    def _leave(self) -> None:
        if self._tell is not None:
            self._tell.turn("gone", len(self.calls))
        self._gone()

    def _told_call(
        self, position: int, state: str, status: str | None = None, detail: str | None = None
    ) -> None:
        if self._tell is not None:
            call = self.calls[position].call
            self._tell.call(position, call, state, status=status, detail=detail)

    def _name(self, position: int | None) -> str:
        if position is None:
            return ""
        return f"{self.calls[position].call.name} (call {position})"
