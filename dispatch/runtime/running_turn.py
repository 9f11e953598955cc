"""What the parts of a driver share: one turn while it lives.

The driver carries out; `Starting`, `Stopping`, `Asking`, `Undoing`, `Holdings` and `Hosting` each
own one side of it. Everything here belongs to the turn's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dispatch.call import Status, ToolResult
from dispatch.core.life import TURN, CallRecord
from dispatch.core.plan import Plan, counted
from dispatch.core.turn import TurnMachine
from dispatch.errors import UsageError
from dispatch.runtime.admission import Admission
from dispatch.runtime.broadcast import Teller
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.nesting import Host, Keeper, Scope
from dispatch.runtime.place import Place
from dispatch.runtime.resuming import Answers
from dispatch.runtime.running import RunningCall
from dispatch.runtime.settings import TurnSettings


@dataclass(slots=True, eq=False)
class RunningTurn:
    """`reason` is why the whole turn was stopped, `fatal` what must end the program."""

    turn_id: str
    settings: TurnSettings
    place: Place
    machine: TurnMachine
    inbox: Inbox
    admission: Admission
    teller: Teller | None
    calls: list[RunningCall] = field(default_factory=list)
    results: dict[int, ToolResult] = field(default_factory=dict)
    reason: str = ""
    fatal: BaseException | None = None
    depth: int = field(init=False)
    """How many turns this one is nested in."""

    def __post_init__(self) -> None:
        self.depth = self.place.depth

    @property
    def now(self) -> float:
        """Seconds on the loop's clock."""
        return self.inbox.loop.time()

    def both(self, position: int) -> tuple[RunningCall, CallRecord]:
        """The call as it runs, and what the machine knows of it."""
        return self.calls[position], self.machine.calls[position]

    def is_dead(self, call: int) -> bool:
        """Whether the call's loop is closed and no thread of its own is left that may end."""
        return self.inbox.loop.is_closed() and (call == TURN or not self.calls[call].in_thread)

    def stop(self, status: Status, reason: str) -> None:
        """Stop every call that has no result; later ones end at once. The first reason stays."""
        if self.machine.stopped is None:
            self.reason = reason
            self.machine.stop_all(status)

    def cancelled(self, reason: str) -> None:
        """Stop the turn because somebody cancelled it."""
        self.stop(Status.CANCELLED, reason)

    def stop_one(self, position: int, status: Status, reason: str) -> None:
        """Stop a call: its time is over, or the host cancelled it. The first reason stays."""
        call, record = self.both(position)
        if record.asked is None:
            call.reason = reason
        self.machine.stop(position, status)

    def interrupted(self, error: BaseException) -> None:
        """A tool or a compensation raised what must end the program."""
        self.fatal = self.fatal or error
        self.cancelled(f"{type(error).__name__} was raised")

    def plan(self) -> Plan:
        """What waited for what, and why."""
        admitted = [call.admitted for call in self.calls]
        return self.admission.describe(admitted, self.machine.graph, self.settings.schedule)

    def lower_bound(self, times: Sequence[float], limits: Mapping[str, int]) -> float:
        """No schedule that keeps the order ends sooner; seconds, `times` by position."""
        counts = [(call.call.name, call.admitted.tags) for call in self.calls]
        return self.machine.graph.lower_bound(times, counted(counts, limits))

    def answers(self, results: Iterable[ToolResult]) -> Answers:
        """What the calls of another turn may be answered with, once this one has these results."""
        if self.place.may_be_undone:
            raise UsageError("what this turn did may be undone by the turn that it is nested in")
        ran = zip(self.calls, results, strict=True)
        return Answers(self.place.table, ran, self.settings.answers)

    def let_go(self) -> None:
        """Nothing of the turn is left: keep what `plan` and `answers` need, and no outcome."""
        self.results.clear()
        for call in self.calls:
            call.context = call.outcome = None

    def scope(
        self,
        position: int,
        host: Host | None = None,
        *,
        owner: int = 0,
        keeper: Keeper | None = None,
        undoes: bool = False,
    ) -> Scope:
        """What a tool, or a compensation, of the call runs in."""
        return Scope(
            self.place.table,
            tool=self.calls[position].call.name,
            turn_id=self.turn_id,
            position=position,
            depth=self.depth,
            host=host,
            owner=owner,
            keeper=keeper,
            above=self.place.parent,
            undoes=undoes,
            loop=self.inbox.loop,
        )

    def tell(
        self, position: int, state: str, status: str | None = None, detail: str | None = None
    ) -> None:
        """Tell whoever listens that a call entered a state."""
        if self.teller is not None:
            call = self.calls[position].call
            self.teller.call(position, call, state, status=status, detail=detail)

    def tell_turn(self, state: str) -> None:
        """Tell whoever listens that the turn entered a state."""
        if self.teller is not None:
            self.teller.turn(state, len(self.calls))
