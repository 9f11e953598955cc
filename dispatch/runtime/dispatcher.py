"""The dispatcher: tools, limits and a table, from which turns are made."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from dispatch.call import ToolCall
from dispatch.claims import FileKeys
from dispatch.concurrency import ToolConcurrency
from dispatch.core.books import Duplicates
from dispatch.core.durations import Durations
from dispatch.core.life import GateKind
from dispatch.core.plan import Plan
from dispatch.core.policy import BestEffort, Policy
from dispatch.core.requests import Need
from dispatch.core.schedules import Schedule
from dispatch.core.stats import DispatcherStats
from dispatch.errors import DispatcherClosed, UsageError
from dispatch.events import Sink
from dispatch.runtime.admission import Admission
from dispatch.runtime.attempts import innermost
from dispatch.runtime.broadcast import Broadcast
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.gates import Gate, GateFunction, Gates
from dispatch.runtime.limits import Limits
from dispatch.runtime.middleware import Middleware, build
from dispatch.runtime.nesting import MAX_DEPTH, Scope, current, wait_in_thread
from dispatch.runtime.options import (
    TurnOptions,
    checked_answers,
    checked_choice,
    checked_grace,
    checked_limits,
    checked_options,
    checked_policies,
    checked_schedule,
    checked_seconds,
)
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.result import TurnResult
from dispatch.runtime.settings import TurnSettings
from dispatch.runtime.threads import WorkerPool
from dispatch.runtime.totals import Totals
from dispatch.runtime.turn import Turn
from dispatch.tool import Tool, Toolbox

SETTLING = 0.25
"""Seconds beyond two graces in which every turn has its results."""

FEW_TURNS = 16

Tools = Toolbox | Iterable[Tool | Callable[..., Any]]


class Dispatcher:
    """Runs the tool calls of a model's turns: as much at once as is safe, one result per call.

    Args:
        tools: A `Toolbox`, or tools; plain functions are tools that declare nothing.
        root: The folder that file claims are relative to; the working directory by default.
        max_concurrent: The most calls at once, 8 by default. Or give `limits`, not both.
        limits: A `Limits` object, which several dispatchers may share.
        schedule: dataflow, groups, clusters or serial.
        policy: What a failure means for the turn: `BestEffort`, `AllOrNothing` or `Quorum`.
        policies: Policies by tag, for the calls with that tag; `policy` is for the others.
        resources: A `ResourceTable` to share with other dispatchers; one of its own by default. A
            dispatcher without one that runs inside a tool uses the table of that tool's call.
        gates: Who is asked about each call before it takes any lock or slot. See `Gate`.
        middleware: What wraps each invocation inside its locks, the first outermost: classes that
            take the next handler.
        sinks: Callables that are given every event. One that raises is removed and logged.
        call_timeout: Default seconds from submission to result of a call; None is no limit.
        turn_timeout: Default seconds for a whole turn; None is no limit.
        grace: Seconds a tool has to notice its token, and again to end once its task is cancelled.
        abandoned_wait: Seconds that a call without a time limit waits for a call of another turn
            that was given up and never ends.
        duplicates: What becomes of identical calls: run, coalesce (one runs, all get its outcome),
            or reject.
        dependents: Whether a call whose predecessor failed should run or skip.
        undeclared: Whether tools that declare nothing are exclusive, or may run parallel to all.
        descriptors: `ToolConcurrency` by tool name, in place of what the tools declare.
        refs: Whether `{"$ref": id, "path": …}` in arguments stands for another call's value.
        max_depth: How deep turns may be nested in tools.
        learn_durations: Whether the chain of calls that goes first when slots are scarce is the
            longest in seconds, as tools have taken so far, or (False) in calls.

    Usable from several threads and loops at once. `run` works without `async with`, which closes
    the dispatcher at its end. Raises `DeclarationError` or `ValueError` for what cannot be right.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        root: str | os.PathLike[str] | None = None,
        max_concurrent: int | None = None,
        limits: Limits | None = None,
        schedule: Schedule | str = Schedule.DATAFLOW,
        policy: Policy | None = None,
        policies: Mapping[str, Policy] | None = None,
        resources: ResourceTable | None = None,
        gates: Iterable[Gate | GateFunction] = (),
        middleware: Iterable[Middleware] = (),
        sinks: Iterable[Sink] = (),
        call_timeout: float | None = None,
        turn_timeout: float | None = None,
        grace: float = 0.5,
        abandoned_wait: float = 10.0,
        duplicates: Duplicates | str = Duplicates.RUN,
        dependents: Literal["run", "skip"] = "run",
        undeclared: Literal["exclusive", "parallel"] = "exclusive",
        descriptors: Mapping[str, ToolConcurrency] | None = None,
        refs: bool = False,
        max_depth: int = MAX_DEPTH,
        learn_durations: bool = True,
    ) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits must be a Limits object, not {limits!r}")
        checked_choice("dependents", dependents, ("run", "skip"))
        checked_choice("undeclared", undeclared, ("exclusive", "parallel"))
        toolbox = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.toolbox = toolbox.described(descriptors, undeclared=undeclared)
        self.schedule = checked_schedule(schedule)
        self.policy = BestEffort() if policy is None else policy
        self._tag_policies = dict(policies or {})
        self.policies = checked_policies(self.policy, policies)
        self.resources = ResourceTable(root=root) if resources is None else resources
        self._own_table = resources is None
        self.limits = checked_limits(limits, max_concurrent)
        self._call_timeout = checked_seconds("call_timeout", call_timeout)
        self._turn_timeout = checked_seconds("turn_timeout", turn_timeout)
        self._grace = checked_grace("grace", grace)
        self._abandoned_wait = checked_grace("abandoned_wait", abandoned_wait)
        if not max_depth > 0:
            raise ValueError(f"max_depth must be at least 1, not {max_depth}")
        self._max_depth = max_depth
        self._duplicates = Duplicates(checked_choice("duplicates", duplicates, tuple(Duplicates)))
        self._skips = dependents == "skip"
        self._gates = Gates(tuple(gates))
        self._middleware = build(middleware, innermost)
        self._totals = Totals()
        self._durations = Durations() if learn_durations else None
        self._needs: dict[Tool | None, Need] = {}
        self._admission = Admission(
            self.toolbox,
            FileKeys(root),
            self.resources.check_modes,
            late_claims=self._gates.kind is GateKind.REWRITES,
            twins=self._duplicates is not Duplicates.RUN,
            refs=refs,
        )
        self._pool = WorkerPool()
        self._tell = Broadcast(sinks)
        self._closing = CancelToken()
        self._lock = threading.Lock()
        self._turns: set[Turn] = set()
        self._most_turns = FEW_TURNS
        """With so many open turns it is time to forget those whose loop was closed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def run(self, calls: Iterable[ToolCall], **options: Unpack[TurnOptions]) -> TurnResult:
        """Run the calls of one turn and return one result per call, in their order.

        `options` are those of `TurnOptions`. Cancelling stops what runs, waits for it at most two
        graces, and raises with the `TurnResult` as the exception's `turn`. See `turn`.
        """
        calls = list(calls)
        self._admission.check(calls)
        return await self.turn(**options).run_checked(calls)

    def run_sync(self, calls: Iterable[ToolCall], **options: Unpack[TurnOptions]) -> TurnResult:
        """`run` for callers without an event loop. Raises `UsageError` where one is running.

        Ctrl-C settles the calls and is raised as `KeyboardInterrupt`, with the `TurnResult` as its
        `turn`.

        Inside a `def` tool it runs the calls on the loop of that tool's turn, nested in its call.
        """
        scope = current()
        loop = None if scope is None else scope.loop
        if loop is not None:
            return wait_in_thread(self.run(calls, **options), loop)
        calls = list(calls)
        self._admission.check(calls)
        turn = self.turn(**options)
        try:
            return run_here(turn.run_checked(calls))
        except KeyboardInterrupt as interrupt:
            interrupt.turn = turn.result  # type: ignore[attr-defined]
            raise

    def turn(self, **options: Unpack[TurnOptions]) -> Turn:
        """A turn to which calls are submitted one by one: `async with dispatcher.turn() as turn`.

        Inside a tool it is nested in the tool's call. `resume=` an earlier turn (whose stream died,
        or that was cancelled) answers equal calls from it: those that may have changed something
        always, those that only read as long as nothing that conflicts was granted since. Raises
        `DispatcherClosed` after `aclose`, and `ValueError` for `resume` with all or nothing, which
        could not undo what the earlier turn did.
        """
        inside = current()
        undoes = inside is not None and inside.undoes
        if self._closing.cancelled and not undoes:
            raise DispatcherClosed("this dispatcher was closed; make another one")
        return self._turn(options)

    def _turn(self, options: TurnOptions, scope: Scope | None = None) -> Turn:
        settings = self._with(checked_options(options)) if options else self._settings
        inside, token = current(), options.get("token")
        shielded = inside is not None and inside.undoes  # what is undone is undone to its end
        tokens = [one for one in (None if shielded else self._closing, token) if one is not None]
        turn_id = options.get("turn_id") or os.urandom(16).hex()
        return Turn(turn_id, settings, tokens, opened=self._add, gone=self._discard, scope=scope)

    @cached_property
    def _settings(self) -> TurnSettings:
        """Those of every turn that has no options of its own."""
        return self._with({})

    def _with(self, options: TurnOptions) -> TurnSettings:
        schedule, timeout = options.get("schedule"), options.get("timeout")
        policies = self._policies(options)
        return TurnSettings(
            schedule=self.schedule if schedule is None else checked_schedule(schedule),
            policies=policies,
            timeout=self._turn_timeout if timeout is None else checked_seconds("timeout", timeout),
            call_timeout=self._call_timeout,
            grace=self._grace,
            abandoned_wait=self._abandoned_wait,
            max_depth=self._max_depth,
            duplicates=self._duplicates,
            skips=self._skips,
            admission=self._admission,
            gates=self._gates,
            middleware=self._middleware,
            table=self.resources,
            own_table=self._own_table,
            limits=self.limits,
            pool=self._pool,
            tell=self._tell,
            totals=self._totals,
            durations=self._durations,
            needs=self._needs,
            answers=checked_answers(options.get("resume"), policies),
            make_turn=self._turn,
        )

    def _policies(self, options: TurnOptions) -> Mapping[str, Policy]:
        policy, policies = options.get("policy"), options.get("policies")
        if policy is None and policies is None:
            return self.policies
        return checked_policies(
            self.policy if policy is None else policy,
            self._tag_policies if policies is None else policies,
        )

    def statistics(self) -> DispatcherStats:
        """Sums over the turns that have been decided so far, and what runs now. From any thread."""
        return self._totals.statistics()

    def plan(self, calls: Sequence[ToolCall], *, schedule: Schedule | str | None = None) -> Plan:
        """What would wait for what, and why, if these calls were one turn; nothing runs."""
        chosen = self.schedule if schedule is None else checked_schedule(schedule)
        return self._admission.for_plans().plan(calls, chosen)

    async def aclose(self) -> None:
        """Refuse new turns, stop the open ones, and wait for their results two graces and 0.25 s.

        Never waits for threads: one that cannot be stopped keeps its claims until it ends.
        """
        self._closing.cancel("the dispatcher was closed")
        waiting = [asyncio.ensure_future(turn.over()) for turn in self._open_turns()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=2 * self._grace + SETTLING)
            for one in late:  # its loop was stopped, or a tool never lets it go on
                one.cancel()
        self._pool.close()

    def _open_turns(self) -> list[Turn]:
        with self._lock:
            self._turns = {turn for turn in self._turns if not turn.stranded}
            return list(self._turns)

    def _add(self, turn: Turn) -> None:
        if len(self._turns) >= self._most_turns:
            self._most_turns = 2 * len(self._open_turns()) + FEW_TURNS
        with self._lock:
            self._turns.add(turn)

    def _discard(self, turn: Turn) -> None:
        with self._lock:
            self._turns.discard(turn)


def plan(
    calls: Sequence[ToolCall],
    tools: Tools,
    *,
    root: str | os.PathLike[str] | None = None,
    schedule: Schedule | str = Schedule.DATAFLOW,
) -> Plan:
    """The plan of one turn: groups, waits with their reasons, clusters, bounds. Nothing runs."""
    toolbox = tools if isinstance(tools, Toolbox) else Toolbox(tools)
    return Admission(toolbox, FileKeys(root)).plan(calls, checked_schedule(schedule))


def run_here(coroutine: Coroutine[Any, Any, TurnResult]) -> TurnResult:
    """Run it in an event loop made for it. Raises `UsageError` where one is running."""
    if _is_in_loop():
        coroutine.close()
        raise UsageError(
            "run_sync was called on a running event loop; write `await dispatcher.run(…)`"
        )
    return asyncio.run(coroutine)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
