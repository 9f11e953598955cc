"""The driver of one turn: carries out what the turn machine asks for, on one event loop.

Owns everything that needs a clock, a loop or a tool; decides nothing. News from tools, timers,
other turns, threads and loops comes through an inbox, so the machine is never entered twice.

Invariants: every submitted call gets exactly one result; claims are given back only once the tool
has really ended, from its own thread if the loop is gone by then; a slot or a claim that arrives
in the same step as a cancel is given back unused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial

from dispatch.call import Status, ToolResult
from dispatch.core.life import TURN, Action, CallState, Do
from dispatch.core.turn import TurnMachine
from dispatch.runtime import grouping
from dispatch.runtime.admission import Admitted
from dispatch.runtime.asking import Asking, stop_asking
from dispatch.runtime.broadcast import Teller
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.concluding import Concluding
from dispatch.runtime.fault import report
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.hosting import Hosting
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.nesting import Scope
from dispatch.runtime.place import place_of, stranded
from dispatch.runtime.running import RunningCall
from dispatch.runtime.settings import TurnSettings
from dispatch.runtime.starting import Starting
from dispatch.runtime.stopping import Stopping
from dispatch.runtime.undoing import Undoing


class Driver:
    """Runs one turn machine on the loop it was made on.

    `ended` is called back with every result, and again if it is revised; `decided` and `gone`
    once each. `parent` is what the turn is nested in.
    """

    def __init__(
        self,
        settings: TurnSettings,
        token: CancelToken,
        *,
        parent: Scope | None,
        whole: bool,
        ended: Callable[[ToolResult], None],
        decided: Callable[[], None],
        gone: Callable[[], None],
    ) -> None:
        place = place_of(settings, parent)
        table, keeper = place.table, place.keeper
        self.machine = TurnMachine(
            settings.schedule,
            settings.policies,
            whole=whole,
            holding=keeper is not None,
            skips=settings.skips,
            duplicates=settings.duplicates,
        )
        self.calls: list[RunningCall] = []
        self.fatal: BaseException | None = None
        self.admission = settings.admission
        if table is not settings.table:
            self.admission = settings.admission.on(table.check_modes)
        self._settings = settings
        self._parent = parent
        self._inbox = Inbox(self._step, self._fault)
        self._loop = self._inbox.loop
        self._concluding = Concluding(self.machine, self.calls, self._loop)
        self.results = self._concluding.results
        self._todo: deque[Action] = deque()
        teller = Teller(settings.turn_id, settings.tell, self._loop.time)
        self._tell = teller if settings.tell else None
        self._starting = Starting(
            self.machine,
            self.calls,
            self._inbox,
            settings,
            token,
            table,
            depth=place.depth,
            above=parent,
            tell=None if self._tell is None else self._told_call,
            cancelled=self._cancelled,
            interrupted=self._interrupted,
        )
        self._holdings = Holdings(
            self.machine,
            self.calls,
            self._inbox,
            table=table,
            limits=settings.limits,
            claims_now=lambda call: self.admission.claims_now(call.admitted),
            start=self._starting.start,
            abandoned_wait=None if settings.timeout else settings.abandoned_wait,
            name=f"the turn {settings.turn_id}",
            parent=place.owner,
            keeper=keeper,
            above=place.position,
            stranded=lambda: stranded(self.machine, parent),
        )
        self.hosting = Hosting(
            self.machine, self.calls, self._inbox, self._holdings, settings.make_turn
        )
        self._starting.holdings, self._starting.hosting = self._holdings, self.hosting
        self._asking = Asking(
            self.machine,
            self.calls,
            self.results,
            self._inbox,
            admission=self.admission,
            gates=settings.gates,
            turn_id=settings.turn_id,
            refuse=partial(grouping.refuse, settings),
        )
        stopping = Stopping(
            self.machine,
            self.calls,
            self._inbox,
            self.hosting,
            grace=settings.grace,
            why=self._concluding.why,
            tell=self._told_call,
        )
        self._undoing = Undoing(
            self.machine,
            self.calls,
            self._inbox,
            self._holdings,
            settings,
            table,
            depth=place.depth,
            above=parent,
            interrupted=self._interrupted,
        )
        self._ended, self._decided, self._gone = ended, decided, gone
        if self._tell is not None:
            self._tell.turn("open", 0)
        self._perform: dict[Do, Callable[[int], None]] = {
            Do.RESOLVE: self._asking.resolve,
            Do.ASK: self._asking.ask,
            Do.ENTER: self._enter,
            Do.REQUEST: self._request,
            Do.WITHDRAW: self._holdings.withdraw,
            Do.PREFER: self._holdings.prefer,
            Do.SIGNAL: stopping.signal,
            Do.CANCEL: stopping.cancel,
            Do.FREE: self._free,
            Do.END: self._end,
            Do.SETTLE: self._settle,
            Do.HOLD: self._hold,
            Do.UNDO: lambda _: self._undoing.start(),
            Do.REVISE: self._revise,
            Do.DECIDE: lambda _: self._decide(),
            Do.LEAVE: lambda _: self._leave(),
        }

    @property
    def stranded(self) -> bool:
        """Whether the loop is gone, so that nothing will be decided any more."""
        return self._loop.is_closed()

    @property
    def peak(self) -> int:
        """The most calls that ran at once so far; suspended ones do not run."""
        return self._starting.peak

    @property
    def now(self) -> float:
        """Seconds on the loop's clock."""
        return self._loop.time()

    # From the host, on the loop

    def check_thread(self) -> None:
        """Raise `UsageError` anywhere but on the thread of the turn's loop."""
        self._inbox.check_thread()

    def submit(self, admitted: Admitted, variables: Context) -> int:
        """Enter the next call; `pump` lets it start."""
        admitted = grouping.refuse(self._settings, admitted)
        call = RunningCall(admitted, len(self.calls), self._loop.time(), variables)
        self.calls.append(call)
        position = grouping.submit(self.machine, self._settings, call)
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

    def close_soon(self) -> None:
        """No more calls will come; from any thread."""
        self._inbox.hand(self.machine.close)

    def stop(self, status: Status, reason: str) -> None:
        """Stop every call that has no result; later ones end at once. The first reason stays."""
        if self.machine.stopped is None:
            self._concluding.reason = reason
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
            self._concluding.reason = reason
            self.machine.stop_all(Status.CANCELLED)

    def _time_out(self, position: int, timeout: float) -> None:
        call = self.calls[position]
        if self.machine.calls[position].asked is None:
            call.reason = f"timed out after {timeout:g} s"
        self.machine.stop(position, Status.TIMED_OUT)

    # Actions

    def _enter(self, position: int) -> None:
        if position != TURN:
            self._told_call(position, CallState.QUEUED)
        self._holdings.enter(position)

    def _request(self, position: int) -> None:
        self._told_call(position, CallState.READY)
        self._holdings.request(position)

    def _free(self, position: int) -> None:
        self._starting.stopped(position)
        if self.machine.calls[position].status is None:
            self.calls[position].suspended_at = self._loop.time()
            self._told_call(position, CallState.SUSPENDED)
        self._holdings.free(position)

    def _end(self, position: int) -> None:
        call, record = self.calls[position], self.machine.calls[position]
        call.stop_timers()
        call.reason = self._concluding.why(call)
        stop_asking(call)
        call.resumed(self._loop.time())
        self.hosting.go_on(call)
        self._ended(self._concluding.conclude(position))
        if record.may_never_settle:
            self._holdings.abandon(call)
        self._told_call(position, CallState.ENDED, self.results[position].status)

    def _revise(self, position: int) -> None:
        self._ended(self._concluding.conclude(position))
        self._told_call(position, "revised", self.results[position].status)

    def _settle(self, position: int) -> None:
        self._holdings.give_claims_back(self.calls[position])
        self._told_call(position, CallState.SETTLED, self.machine.calls[position].status)

    def _hold(self, position: int) -> None:
        self._holdings.hold(self.calls[position])
        self._told_call(position, CallState.SETTLED, self.machine.calls[position].status)

    def _decide(self) -> None:
        self._holdings.decide()
        if self._parent is not None and any(c.may_never_settle for c in self.machine.calls):
            self._parent.held_up_below()
        if self._tell is not None:
            self._tell.turn("decided", len(self.calls))
        self._decided()

    def _leave(self) -> None:
        self._holdings.leave()
        if self._tell is not None:
            self._tell.turn("gone", len(self.calls))
        self._gone()

    def _told_call(
        self, position: int, state: str, status: str | None = None, detail: str | None = None
    ) -> None:
        if self._tell is not None:
            call = self.calls[position].call
            self._tell.call(position, call, state, status=status, detail=detail)
