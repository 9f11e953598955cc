"""The driver of one turn: carries out what the turn machine asks for, on one event loop.

Owns everything that needs a clock, a loop or a tool; decides nothing. News from tools, timers,
other turns, threads and loops comes through an inbox, so the machine is never entered twice.

Invariants: every submitted call gets exactly one result; claims are given back only once the tool
has really ended, from its own thread if the loop is gone by then; a slot or a claim that arrives
in the same step as a cancel is given back unused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import replace
from functools import cached_property

from dispatch.call import FailureKind, Status, ToolResult
from dispatch.core.books import Duplicates
from dispatch.core.life import TURN, Action, CallState, Do
from dispatch.core.turn import TurnMachine
from dispatch.runtime import grouping
from dispatch.runtime.admission import Admitted
from dispatch.runtime.asking import Asking, stop_asking
from dispatch.runtime.broadcast import Teller
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.concluding import conclude, why
from dispatch.runtime.fault import report
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.hosting import Hosting
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.nesting import Scope
from dispatch.runtime.place import place_of
from dispatch.runtime.resuming import Answers
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn
from dispatch.runtime.settings import TurnSettings
from dispatch.runtime.slots import Slots
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
        turn_id: str,
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
        table = place.table
        admission = settings.admission
        self._undoable = place.may_be_undone
        self._may_refuse = len(settings.policies) > 1
        self.machine = TurnMachine(
            settings.schedule,
            settings.policies,
            whole=whole,
            holding=place.keeper is not None,
            skips=settings.skips,
            duplicates=settings.duplicates,
        )
        self._inbox = Inbox(self._step, self._fault)
        self.loop = self._inbox.loop
        teller = None
        if settings.tell:
            inside = None if parent is None else parent.call
            teller = Teller(turn_id, settings.tell, self.loop.time, inside)
        self.turn = RunningTurn(
            turn_id,
            settings,
            place,
            self.machine,
            self._inbox,
            admission if table is settings.table else admission.on(table.check_modes),
            teller,
        )
        self._todo: deque[Action] = deque()
        self._slots = Slots(self.turn)
        self._holdings = Holdings(self.turn, self._slots)
        self._hosting = Hosting(self.turn, self._holdings, self._slots)
        self._starting = Starting(self.turn, token, self._slots, self._holdings, self._hosting)
        self._slots.start = self._starting.start
        self._slots.stranded = self._holdings.stranded
        self._ended, self._decided, self._gone = ended, decided, gone
        self.turn.tell_turn("open")

    @cached_property
    def _asking(self) -> Asking:
        return Asking(self.turn)

    @cached_property
    def _stopping(self) -> Stopping:
        return Stopping(self.turn, self._hosting)

    @cached_property
    def _undoing(self) -> Undoing:
        return Undoing(self.turn, self._holdings)

    @property
    def stranded(self) -> bool:
        """Whether the loop is gone, so that nothing will be decided any more."""
        return self.loop.is_closed()

    @property
    def peak(self) -> int:
        """The most calls that ran at once so far; suspended ones do not run."""
        return self._starting.peak

    # From the host, on the loop

    def check_thread(self) -> None:
        """Raise `UsageError` anywhere but on the thread of the turn's loop."""
        self._inbox.check_thread()

    def submit(self, admitted: Admitted, variables: Context) -> int:
        """Enter the next call; `pump` lets it start."""
        turn, settings = self.turn, self.turn.settings
        reversible = admitted.tool is None or admitted.tool.reversible is not False
        if self._may_refuse or settings.limits.rated or not reversible:
            admitted = grouping.refuse(settings, admitted, undoable=self._undoable)
        call = RunningCall(admitted, len(turn.calls), self.loop.time(), variables)
        if settings.answers is not None:
            self._answer(call, settings.answers)
        turn.calls.append(call)
        position = grouping.submit(self.machine, settings, call)
        if turn.teller is not None:
            turn.tell(position, CallState.PLANNED)
        timeout = admitted.timeout or settings.call_timeout
        if timeout is not None and self.machine.calls[position].status is None:
            reason = f"timed out after {timeout:g} s"
            call.timer = self.loop.call_later(
                timeout, self._inbox.post, turn.stop_one, position, Status.TIMED_OUT, reason
            )
        return position

    def _answer(self, call: RunningCall, answers: Answers) -> None:
        """Answer the call from an earlier turn, if that can be done."""
        turn = self.turn
        table = turn.place.table if turn.place.parent is None else None
        answer = answers.take(call, turn.calls, table, turn.settings)
        if answer is not None:
            call.answer, call.began, call.began_in = answer.result, answer.began, answer.table
        elif turn.settings.duplicates is Duplicates.REJECT and answers.gave(call):
            message = "the same as an earlier call, whose result stands; ask again later"
            refused = FailureKind.DUPLICATE
            call.admitted = replace(call.admitted, refusal=refused, message=message)

    def close(self) -> None:
        """No more calls will come."""
        self._close()
        self.pump()

    def close_soon(self) -> None:
        """No more calls will come; from any thread."""
        if not self._inbox.hand(self._close):
            self._holdings.stranded()

    def _close(self) -> None:
        durations, calls = self.turn.settings.durations, self.turn.calls
        if durations is None or len(calls) < 2:
            self.machine.close()
        else:
            tools = [call.admitted.tool for call in calls]  # a name may be anything
            self.machine.close(durations.of(["" if tool is None else tool.name for tool in tools]))

    def stop(self, status: Status, reason: str) -> None:
        """Stop every call that has no result; later ones end at once. The first reason stays."""
        self.turn.stop(status, reason)
        self.pump()

    def stop_call(self, position: int, reason: str) -> None:
        """Stop one call, if it has no result yet."""
        self.turn.stop_one(position, Status.CANCELLED, reason)
        self.pump()

    def pump(self) -> None:
        """Carry out what there is to do now."""
        self._inbox.pump()

    def _step(self) -> bool:
        actions, todo = self.machine.actions, self._todo
        active = False
        if actions or todo:
            active = True
            todo.extend(actions)
            actions.clear()
            while todo:  # what one of them raises leaves the others for the next step
                do, call = todo.popleft()
                _PERFORM[do](self, call)
        if self._slots.wanted and not actions:
            active = True
            self._slots.grant()
        return active

    def _fault(self, error: BaseException) -> None:
        """Something foreign raised where nobody expects it; the turn goes on."""
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self.turn.interrupted(error)
        else:
            report("a turn went on after a fault", error, turn=self.turn.turn_id)

    # From anywhere

    def cancel(self, reason: str) -> None:
        """Told by a token."""
        self._inbox.post(self.turn.cancelled, reason)

    # Actions

    def _enter(self, position: int) -> None:
        if position != TURN:
            self.turn.tell(position, CallState.QUEUED)
        self._holdings.enter(position)

    def _request(self, position: int) -> None:
        if self.turn.teller is not None:
            self.turn.tell(position, CallState.READY)
        self._slots.request(position)

    def _free(self, position: int) -> None:
        self._starting.stopped(position)
        if self.machine.calls[position].status is None:
            self.turn.calls[position].suspended_at = self.turn.now
            self.turn.tell(position, CallState.SUSPENDED)
        self._slots.free(position)

    def _end(self, position: int) -> None:
        call, record = self.turn.calls[position], self.machine.calls[position]
        if call.timer or call.grace or call.abandoned_wait:
            call.stop_timers()
        if record.status is not Status.OK:
            call.reason = why(self.turn, call)
        if call.asking is not None:
            stop_asking(call)
        if call.suspended_at is not None:
            call.resumed(self.turn.now)
        if call.waiters:
            self._hosting.go_on(call)
        result = conclude(self.turn, call, record)
        durations = self.turn.settings.durations
        if durations is not None and result.status is Status.OK and call.started is not None:
            durations.learn(call.call.name, result.finished_at - call.started)
        self._ended(result)
        if (record.alive or record.held_up) and record.may_never_settle:
            self._holdings.abandon(call)
        if self.turn.teller is not None:
            self.turn.tell(position, CallState.ENDED, self.turn.results[position].status)

    def _revise(self, position: int) -> None:
        self._ended(conclude(self.turn, *self.turn.both(position)))
        self.turn.tell(position, "revised", self.turn.results[position].status)

    def _settle(self, position: int) -> None:
        call = self.turn.calls[position]
        if call.ticket is not None or call.owner:
            self._holdings.give_claims_back(call)
        call.settled()
        if self.turn.teller is not None:
            self.turn.tell(position, CallState.SETTLED, self.machine.calls[position].status)

    def _hold(self, position: int) -> None:
        self._holdings.hold(self.turn.calls[position])
        self.turn.calls[position].settled()
        self.turn.tell(position, CallState.SETTLED, self.machine.calls[position].status)

    def _decide(self) -> None:
        self._holdings.decide()
        parent = self.turn.place.parent
        if parent is not None and any(call.may_never_settle for call in self.machine.calls):
            parent.held_up_below()
        self.turn.tell_turn("decided")
        self._decided()

    def _leave(self) -> None:
        self._holdings.leave()
        self.turn.tell_turn("gone")
        self._gone()
        if self._slots.wanted:
            self._slots.grant()
        self._let_go()

    def _let_go(self) -> None:
        """Refer back to nothing, so that all is freed with the last reference to the turn."""
        self._ended = self._decided = self._gone = _nothing
        self._slots.start = self._slots.stranded = _nothing
        self._inbox.retire()
        self.turn.let_go()


def _nothing(*_: object) -> None:
    """Told to nobody."""


_PERFORM: Mapping[Do, Callable[[Driver, int], None]] = {
    Do.RESOLVE: lambda driver, call: driver._asking.resolve(call),
    Do.ASK: lambda driver, call: driver._asking.ask(call),
    Do.ENTER: Driver._enter,
    Do.REQUEST: Driver._request,
    Do.WITHDRAW: lambda driver, call: driver._holdings.withdraw(call),
    Do.PREFER: lambda driver, call: driver._slots.prefer(call),
    Do.SIGNAL: lambda driver, call: driver._stopping.signal(call),
    Do.CANCEL: lambda driver, call: driver._stopping.cancel(call),
    Do.FREE: Driver._free,
    Do.END: Driver._end,
    Do.SETTLE: Driver._settle,
    Do.HOLD: Driver._hold,
    Do.UNDO: lambda driver, _: driver._undoing.start(),
    Do.REVISE: Driver._revise,
    Do.DECIDE: lambda driver, _: driver._decide(),
    Do.LEAVE: lambda driver, _: driver._leave(),
}
"""What is done about each action of the machine."""
