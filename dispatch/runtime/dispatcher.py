"""The dispatcher: tools, limits and a table, from which turns are made."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from dispatch.call import ToolCall
from dispatch.claims import FileKeys
from dispatch.core.plan import Plan
from dispatch.core.policy import BestEffort, Policy
from dispatch.core.schedules import Schedule
from dispatch.errors import DispatcherClosed, UsageError
from dispatch.events import Sink
from dispatch.runtime.admission import Admission
from dispatch.runtime.broadcast import Broadcast
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.driver import TurnSettings
from dispatch.runtime.limits import DEFAULT_TOTAL, Limits
from dispatch.runtime.nesting import refuse_inside_tool
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.result import TurnResult
from dispatch.runtime.threads import WorkerPool
from dispatch.runtime.turn import Turn
from dispatch.tool import Tool, Toolbox

SETTLING = 0.25
"""Seconds beyond two graces in which every turn has its results."""

Tools = Toolbox | Iterable[Tool | Callable[..., Any]]


class Dispatcher:
    """Runs the tool calls of a model's turns: as much at once as is safe, one result per call.

    Args:
        tools: A `Toolbox`, or tools; plain functions are tools that declare nothing.
        root: The folder that file claims are relative to; the working directory by default.
        max_concurrent: The most calls at once, 8 by default. Or give `limits`, not both.
        limits: A `Limits` object, which several dispatchers may share.
        schedule: dataflow, groups, clusters or serial.
        policy: What a failure means for the turn.
        resources: A `ResourceTable` to share with other dispatchers; one of its own by default.
        sinks: Callables that are given every event. One that raises is removed and logged.
        call_timeout: Default seconds from submission to result of a call; None is no limit.
        turn_timeout: Default seconds for a whole turn; None is no limit.
        grace: Seconds a tool has to notice its token, and again to end once its task is cancelled.
        abandoned_wait: Seconds that a call without a time limit waits for a call of another turn
            that was given up and never ends.

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
        resources: ResourceTable | None = None,
        sinks: Iterable[Sink] = (),
        call_timeout: float | None = None,
        turn_timeout: float | None = None,
        grace: float = 0.5,
        abandoned_wait: float = 10.0,
    ) -> None:
        if limits is not None and max_concurrent is not None:
            raise ValueError(
                "give max_concurrent or limits, not both; limits has a total of its own"
            )
        self.toolbox = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.schedule = _schedule(schedule)
        self.policy = policy or BestEffort()
        self.resources = resources or ResourceTable(root=root)
        self.limits = limits or Limits(DEFAULT_TOTAL if max_concurrent is None else max_concurrent)
        self._call_timeout = _seconds("call_timeout", call_timeout)
        self._turn_timeout = _seconds("turn_timeout", turn_timeout)
        if not grace >= 0:
            raise ValueError(f"grace must be 0 seconds or more, not {grace}")
        if not abandoned_wait >= 0:
            raise ValueError(f"abandoned_wait must be 0 seconds or more, not {abandoned_wait}")
        self._grace = grace
        self._abandoned_wait = abandoned_wait
        self._admission = Admission(self.toolbox, FileKeys(root), self.resources.check_modes)
        self._pool = WorkerPool()
        self._tell = Broadcast(sinks)
        self._closing = CancelToken()
        self._lock = threading.Lock()
        self._turns: set[Turn] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def run(
        self,
        calls: Iterable[ToolCall],
        *,
        policy: Policy | None = None,
        schedule: Schedule | str | None = None,
        timeout: float | None = None,
        token: CancelToken | None = None,
        turn_id: str | None = None,
    ) -> TurnResult:
        """Run the calls of one turn and return one result per call, in their order.

        `timeout` is for the whole turn, in seconds. Cancelling stops what runs, waits for it at
        most two graces, and raises with the `TurnResult` as the exception's `turn`. See `turn`.
        """
        calls = list(calls)
        self._admission.check(calls)
        turn = self.turn(
            policy=policy, schedule=schedule, timeout=timeout, token=token, turn_id=turn_id
        )
        return await turn.run(calls)

    def run_sync(
        self,
        calls: Iterable[ToolCall],
        *,
        policy: Policy | None = None,
        schedule: Schedule | str | None = None,
        timeout: float | None = None,
        token: CancelToken | None = None,
        turn_id: str | None = None,
    ) -> TurnResult:
        """`run` for callers without an event loop. Raises `UsageError` where one is running."""
        refuse_inside_tool("a turn")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(
                self.run(
                    calls,
                    policy=policy,
                    schedule=schedule,
                    timeout=timeout,
                    token=token,
                    turn_id=turn_id,
                )
            )
        raise UsageError(
            "run_sync was called on a running event loop; write `await dispatcher.run(…)`"
        )

    def turn(
        self,
        *,
        policy: Policy | None = None,
        schedule: Schedule | str | None = None,
        timeout: float | None = None,
        token: CancelToken | None = None,
        turn_id: str | None = None,
    ) -> Turn:
        """A turn to which calls are submitted one by one: `async with dispatcher.turn() as turn`.

        Cancelling `token`, from any thread, stops the turn. Raises `DispatcherClosed` after
        `aclose`.
        """
        if self._closing.cancelled:
            raise DispatcherClosed("this dispatcher was closed; make another one")
        settings = TurnSettings(
            turn_id=turn_id or uuid.uuid4().hex,
            schedule=self.schedule if schedule is None else _schedule(schedule),
            policy=policy or self.policy,
            timeout=self._turn_timeout if timeout is None else _seconds("timeout", timeout),
            call_timeout=self._call_timeout,
            grace=self._grace,
            abandoned_wait=self._abandoned_wait,
            admission=self._admission,
            table=self.resources,
            limits=self.limits,
            pool=self._pool,
            tell=self._tell,
        )
        tokens = [self._closing] if token is None else [self._closing, token]
        return Turn(settings, tokens, opened=self._add, gone=self._discard)

    def plan(self, calls: Sequence[ToolCall], *, schedule: Schedule | str | None = None) -> Plan:
        """What would wait for what, and why, if these calls were one turn; nothing runs."""
        chosen = self.schedule if schedule is None else _schedule(schedule)
        return Admission(self.toolbox, self._admission.files).plan(calls, chosen)

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
        self._open_turns()
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
    return Admission(toolbox, FileKeys(root)).plan(calls, _schedule(schedule))


def _schedule(name: Schedule | str) -> Schedule:
    try:
        return Schedule(name)
    except ValueError:
        known = ", ".join(Schedule)
        raise ValueError(f"{name!r} is no schedule; there are: {known}") from None


def _seconds(name: str, value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise ValueError(f"{name} must be above 0 seconds, not {value}")
    return value
