"""A host's calls as turns of a dispatcher: a whole turn at once, or each call in a task of its own.

Calls that come one by one are admitted in the model's order: each waits for those before it that
are still expected, so that an outer hook that takes its time does not turn the order round, and at
most `patience` seconds, so that a call that never comes holds up nobody. The turn is open while
calls of it are in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict, Unpack

from dispatch.adapters.hosted.background import in_background
from dispatch.adapters.hosted.tools import INVOKE, SHOWN, HostedTools, Invoke
from dispatch.call import ToolCall, ToolResult
from dispatch.core.schedules import Schedule
from dispatch.errors import UsageError
from dispatch.runtime.dispatcher import Dispatcher
from dispatch.runtime.futures import Signal, uncancelled
from dispatch.runtime.turn import Turn
from dispatch.tool import Tool

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from dispatch.core.policy import Policy
    from dispatch.events import Sink
    from dispatch.runtime.gates import Gate, GateFunction
    from dispatch.runtime.limits import Limits
    from dispatch.runtime.middleware import Middleware
    from dispatch.runtime.options import TurnOptions
    from dispatch.runtime.resources import ResourceTable
    from dispatch.runtime.result import TurnResult

KEPT = 1024
"""Turns of which is remembered which calls have come, though none is in flight."""

Hosted = tuple[ToolCall, Invoke]


class HostOptions(TypedDict, total=False):
    """The keywords of `Dispatcher` that a host's tools leave open; see there."""

    root: str | os.PathLike[str] | None
    max_concurrent: int | None
    limits: Limits | None
    schedule: Schedule | str
    policy: Policy | None
    policies: Mapping[str, Policy] | None
    resources: ResourceTable | None
    gates: Iterable[Gate | GateFunction]
    middleware: Iterable[Middleware]
    sinks: Iterable[Sink]
    call_timeout: float | None
    turn_timeout: float | None
    grace: float
    abandoned_wait: float
    duplicates: str
    dependents: str
    max_depth: int


@dataclass(slots=True)
class _Arrivals:
    """One turn of the host: what has come of it. `passed`: admitted, or not waited for any more."""

    turn: Turn | None = None
    in_flight: int = 0
    names: list[str] = field(default_factory=list)
    arrived: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    news: Signal = field(default_factory=Signal)

    def is_past(self, call_id: str) -> None:
        self.passed.add(call_id)
        self.news.set()

    async def until_next(self, before: Sequence[str], patience: float) -> None:
        """Wait until no call before this one is expected any more."""
        while waited := [call_id for call_id in before if call_id not in self.passed]:
            try:
                async with asyncio.timeout(patience):
                    await self.news.wait()
            except TimeoutError:
                self.passed.update(call_id for call_id in waited if call_id not in self.arrived)
                self.news.set()


class HostedTurns:
    """The calls of a host's turns, run by one `Dispatcher` of its tools.

    Args:
        tools: The host's tools.
        one_by_one: Whether calls come by `run`. Then nothing can be chosen that waits for the end
            of a turn (the schedules `groups` and `clusters`, `AllOrNothing`): `UsageError`.
        patience: Seconds that a call waits for an earlier one of its turn that does not come.
        options: The keywords of `Dispatcher`.
    """

    def __init__(
        self,
        tools: HostedTools,
        *,
        one_by_one: bool = True,
        patience: float = 0.05,
        **options: Unpack[HostOptions],
    ) -> None:
        if not (isinstance(patience, int | float) and patience >= 0):
            raise ValueError(f"patience must be a number of seconds, not {patience!r}")
        self.tools = tools
        self.dispatcher = Dispatcher(tools, **options)  # type: ignore[arg-type]
        if one_by_one:
            self._check()
        self._patience = patience
        self._arrivals: dict[Hashable, _Arrivals] = {}

    def _check(self) -> None:
        schedule = self.dispatcher.schedule
        if schedule in (Schedule.GROUPS, Schedule.CLUSTERS):
            raise UsageError(
                f"the schedule {schedule.value!r} starts nothing before the whole turn is known,"
                " and this host hands its calls over one by one; use dataflow or serial"
            )
        if any(policy.atomic for policy in self.dispatcher.policies.values()):
            raise UsageError(
                "AllOrNothing has no result before the whole turn is decided, and this host waits"
                " for one call after the other; use BestEffort or Quorum"
            )

    async def run(
        self,
        key: Hashable,
        call: ToolCall,
        invoke: Invoke,
        *,
        before: Sequence[str] = (),
        tool: Tool | None = None,
        ended: Callable[[ToolResult], None] | None = None,
    ) -> ToolResult:
        """Run one call of the turn `key` and return its result; a tool's failure raises nothing.

        `before` are the ids of the calls before it that are expected too. `tool` is what `see`
        gave, where hosts with other tools of that name may use these turns, too. Cancelling stops
        this call alone, waits for it at most two graces, and is raised then; what must end the
        program (`KeyboardInterrupt`, `SystemExit`) is raised as it is. `ended` is told the result
        in each of these cases, unless the call was cancelled before it was admitted.
        """
        arrivals = self._of(key)
        arrivals.in_flight += 1
        arrivals.arrived.add(call.id)
        arrivals.news.set()
        try:
            others = [call_id for call_id in before if call_id != call.id]  # ids may be repeated
            await arrivals.until_next(others, self._patience)
            return await self._result(arrivals, call, invoke, tool, ended)
        finally:
            arrivals.is_past(call.id)
            self._leave(arrivals)

    async def _result(
        self,
        arrivals: _Arrivals,
        call: ToolCall,
        invoke: Invoke,
        tool: Tool | None,
        ended: Callable[[ToolResult], None] | None,
    ) -> ToolResult:
        turn = arrivals.turn
        if turn is None:
            turn = self.dispatcher.turn()
            turn.open()
            arrivals.turn = turn
        arrivals.names.append(call.name)
        tokens = INVOKE.set(invoke), SHOWN.set(tool)
        try:
            position = turn.submit(call)
        finally:
            INVOKE.reset(tokens[0])
            SHOWN.reset(tokens[1])
        arrivals.is_past(call.id)
        try:
            result = await turn.wait(position)
        except asyncio.CancelledError:
            turn.cancel(position)
            ending = asyncio.ensure_future(turn.wait(position))
            try:
                await uncancelled(ending)
            finally:
                if ended is not None:
                    ended(ending.result())
            raise
        if ended is not None:
            ended(result)
        if isinstance(result.exception, KeyboardInterrupt | SystemExit):
            raise result.exception
        return result

    def run_sync(
        self,
        key: Hashable,
        call: ToolCall,
        invoke: Invoke,
        *,
        before: Sequence[str] = (),
        tool: Tool | None = None,
        ended: Callable[[ToolResult], None] | None = None,
    ) -> ToolResult:
        """`run` from a thread, on a loop in the background. See `run`."""
        running = self.run(key, call, invoke, before=before, tool=tool, ended=ended)
        return in_background(running)

    async def run_all(self, calls: Iterable[Hosted], **options: Unpack[TurnOptions]) -> TurnResult:
        """Run a whole turn and return one result per call, in order. See `Dispatcher.run`."""
        calls = list(calls)
        try:
            return await self.dispatcher.turn(**options).run(_each(calls))
        finally:
            self.tell(call.name for call, _ in calls)

    def run_all_sync(self, calls: Iterable[Hosted], **options: Unpack[TurnOptions]) -> TurnResult:
        """`run_all` from sync code, also where that blocks a running loop."""
        return in_background(self.run_all(calls, **options))

    def drop(self, key: Hashable, call_id: str) -> None:
        """Wait for this call of the turn no more: it will not come. On the turn's loop."""
        self._of(key).is_past(call_id)

    def _of(self, key: Hashable) -> _Arrivals:
        place = (id(asyncio.get_running_loop()), key)
        if (arrivals := self._arrivals.get(place)) is None:
            self._forget()
            arrivals = self._arrivals[place] = _Arrivals()
        return arrivals

    def _forget(self) -> None:
        """Forget the oldest turns of which nothing is in flight, if there are too many."""
        surplus = len(self._arrivals) - KEPT
        if surplus > 0:
            idle = [place for place, one in list(self._arrivals.items()) if not one.in_flight]
            for place in idle[:surplus]:
                self._arrivals.pop(place, None)

    def _leave(self, arrivals: _Arrivals) -> None:
        arrivals.in_flight -= 1
        if arrivals.in_flight:
            return
        if arrivals.turn is not None:
            arrivals.turn.close()
            arrivals.turn = None
        names, arrivals.names = arrivals.names, []
        self.tell(names)

    def tell(self, names: Iterable[str]) -> None:
        """Log, once per tool, which of these ran alone: for want of a declaration, or of a name."""
        names = list(names)
        if alone := self.tools.tell_alone(names):
            _warn(
                "these tools declare nothing, so each of their calls ran alone; describe them with"
                ' descriptors={name: ToolConcurrency(…)}, or pass undeclared="parallel"',
                tools=alone,
            )
        if unclear := self.tools.tell_unclear(names):
            _warn("what a call of these tools touches could not be told", tools=unclear)


def _warn(event: str, *, tools: object) -> None:
    import structlog  # only here: it brings rich along

    structlog.get_logger("dispatch").warning(event, tools=tools)


def _each(calls: Iterable[Hosted]) -> Iterator[ToolCall]:
    """The calls; what runs each is set in the context in which it is taken and submitted."""
    for call, invoke in calls:
        token = INVOKE.set(invoke)
        yield call
        INVOKE.reset(token)
