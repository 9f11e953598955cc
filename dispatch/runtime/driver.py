"""The driver of one turn: carries out what the turn machine asks for, on one event loop.

Owns everything that needs a clock, a loop or a tool; decides nothing. News from tools, timers,
other turns, threads and loops comes through an inbox, so the machine is never entered twice.

Invariants: every submitted call gets exactly one result; claims are given back only once the tool
has really ended, from its own thread if the loop is gone by then; a slot or a claim that arrives
in the same step as a cancel is given back unused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial

from dispatch.call import Status, ToolResult
from dispatch.core.life import Action, CallState, Do
from dispatch.core.policy import Policy
from dispatch.core.schedules import Schedule
from dispatch.core.turn import TurnMachine
from dispatch.runtime.admission import Admission, Admitted
from dispatch.runtime.broadcast import Broadcast, Teller
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.runtime.fault import report
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.invoke import Outcome
from dispatch.runtime.limits import Limits
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.running import RunningCall
from dispatch.runtime.threads import WorkerPool

LEAST_GRACE = 0.01
"""Seconds: a cancelled task needs a few steps of the loop to end, even if no time is given."""


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
        self.machine = TurnMachine(settings.schedule)
        self.calls: list[RunningCall] = []
        self.fatal: BaseException | None = None
        self._settings = settings
        self._token = token
        self._reason = ""
        self._inbox = Inbox(self._step, self._fault)
        self._loop = self._inbox.loop
        self._todo: deque[Action] = deque()
        self._holdings = Holdings(
            self.machine,
            self.calls,
            self._inbox,
            admission=settings.admission,
            table=settings.table,
            limits=settings.limits,
            start=self._start,
            abandoned_wait=None if settings.timeout else settings.abandoned_wait,
        )
        self._ended, self._decided, self._gone = ended, decided, gone
        teller = Teller(settings.turn_id, settings.tell, self._loop.time)
        self._tell = teller if settings.tell else None
        if self._tell is not None:
            self._tell.turn("open", 0)
        self._perform: dict[Do, Callable[[int], None]] = {
            Do.ENTER: self._enter,
            Do.REQUEST: self._request,
            Do.WITHDRAW: self._holdings.free,
            Do.PREFER: self._holdings.prefer,
            Do.SIGNAL: self._signal,
            Do.CANCEL: self._cancel,
            Do.FREE: self._holdings.free,
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
        self.machine.submit(admitted.claims, admitted.refusal)
        self._told_call(position, CallState.PLANNED)
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
        if self.machine.actions:
            self._todo.extend(self.machine.actions)
            self.machine.actions.clear()
        if self._todo:
            while self._todo:  # what one of them raises leaves the others for the next step
                do, call = self._todo.popleft()
                self._perform[do](call)
            return True
        if self._holdings.slots_wanted:
            self._holdings.grant()
            return True
        return False

    def _fault(self, error: BaseException) -> None:
        """Something foreign raised where nobody expects it; the turn goes on."""
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._interrupted(error)
        else:
            report("a turn went on after a fault", error, turn=self._settings.turn_id)

    def _interrupted(self, error: BaseException) -> None:
        self.fatal = self.fatal or error
        self._cancelled(f"{type(error).__name__} was raised")

    # From anywhere

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

    def _start(self, request: int, position: int) -> None:
        if self._token.reason is not None:  # cancelled in the same step: cancel wins
            self._cancelled(self._token.reason)
        call = self.calls[position]
        if call.request != request or self.machine.calls[position].state is not CallState.READY:
            return
        call.started = self._loop.time()
        self.machine.started(position, heeds_token=call.heeds_token)
        self._told_call(position, CallState.RUNNING)
        try:
            call.start(
                self._loop,
                turn_id=self._settings.turn_id,
                pool=self._settings.pool,
                context=partial(self._context, call),
                done=partial(self._returned, position),
                ended=partial(self._holdings.thread_ended, call),
            )
        except Exception as error:  # noqa: BLE001 - no thread to be had, an odd task factory
            self._take_outcome(position, Outcome(error=error))

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
        if not outcome.began:
            call.started = None
        if outcome.fatal:
            call.reason = f"the tool raised {type(outcome.error).__name__}"
        elif outcome.foreign and record.asked is None:
            call.reason = "its task was cancelled from outside"
        self.machine.returned(position, *outcome.ending(), ran=outcome.began)
        if outcome.fatal and outcome.error is not None:
            self._interrupted(outcome.error)

    # Actions

    def _enter(self, position: int) -> None:
        self._told_call(position, CallState.QUEUED)
        self._holdings.enter(position)

    def _request(self, position: int) -> None:
        self._told_call(position, CallState.READY)
        self._holdings.request(position)

    def _signal(self, position: int) -> None:
        call = self.calls[position]
        if self._came_too_late(call):
            return
        call.grace = self._grace(position)
        self._told_call(position, CallState.STOPPING)
        if call.context is not None:
            call.context.token.cancel(call.reason or self._reason)

    def _cancel(self, position: int) -> None:
        call = self.calls[position]
        if self._came_too_late(call):
            return
        call.grace = self._grace(position)
        if not call.heeds_token:  # else it was told when the token was set
            self._told_call(position, CallState.STOPPING)
        if call.invocation is not None:
            call.invocation.cancel()

    def _came_too_late(self, call: RunningCall) -> bool:
        """Whether the tool had returned before the stop reached it: then its result counts."""
        finished = call.invocation is not None and call.invocation.finished
        if finished:
            self.machine.missed(call.position)
            call.reason = ""
        return finished

    def _grace(self, position: int) -> asyncio.TimerHandle:
        return self._loop.call_later(
            max(self._settings.grace, LEAST_GRACE),
            self._inbox.post,
            self.machine.grace_over,
            position,
        )

    def _end(self, position: int) -> None:
        call, record = self.calls[position], self.machine.calls[position]
        call.stop_timers()
        call.reason = call.reason or self._reason
        result = call.result(record, self._loop.time(), self._name(record.cause) or call.holder)
        if record.alive:
            self._holdings.abandon(call)
        self._told_call(position, CallState.ENDED, result.status)
        self._ended(result)

    def _settle(self, position: int) -> None:
        self._holdings.give_claims_back(self.calls[position])
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
