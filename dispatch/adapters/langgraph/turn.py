"""The tool calls of one message, as one turn of the dispatcher.

A call runs as `ToolNode` runs it. What LangGraph must see (an interrupt, an error that the node
does not handle, a jump to the parent graph) comes out of the call's result and is raised by the
node once everything has settled; an error that nobody handles stops the calls beside it first.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt

from dispatch.adapters.hosted import HostedTurns
from dispatch.adapters.hosted.tools import INVOKE
from dispatch.adapters.langgraph.earlier import Earlier
from dispatch.adapters.langgraph.marks import arguments, with_arguments
from dispatch.adapters.langgraph.outputs import (
    Asked,
    Output,
    checked,
    is_fatal,
    is_pause,
    output_of,
    with_state,
)
from dispatch.call import Status, ToolCall, ToolResult
from dispatch.runtime.context import CallContext
from dispatch.runtime.middleware import Handler
from dispatch.runtime.turn import Turn

RunCall = Callable[[Any, Any], Any]
"""Runs a call with its tool runtime: gives its output, or an awaitable of that."""

OPEN = frozenset({Status.CANCELLED, Status.SKIPPED, Status.ROLLED_BACK})
"""Nothing came of the call, or nothing is left of it: it may be run another time."""


class NodeTurn:
    """The calls of one message; `run` runs some of them, `output` tells what one gave."""

    def __init__(
        self,
        host: HostedTurns,
        asked: Sequence[Asked],
        runtimes: Sequence[Any],
        run_call: RunCall,
        *,
        tools: Mapping[str, BaseTool],
        messages_key: str,
        at_once: int | None,
    ) -> None:
        self.asked = asked
        self.runtimes = list(runtimes)
        self.calls = [
            ToolCall(one["id"], one["name"], arguments(tools.get(one["name"]), one["args"]))
            for one in asked
        ]
        self.earlier = Earlier(host.dispatcher, messages_key)
        for position, call in enumerate(self.calls):
            self.earlier.arrived(position, call)
        self.stopping = False
        self.fault: BaseException | None = None
        self._host = host
        self._tools = tools
        self._turn: Turn = host.dispatcher.turn()
        self._run_call = run_call
        self._at_once = at_once
        self._slots: asyncio.Semaphore | None = None
        self._places: dict[int, int] = {}
        self._submitted = asyncio.Event()

    async def outputs(self) -> list[Output]:
        """Run all calls and return their outputs, in order. Raises what LangGraph must see."""
        results = await self.run(range(len(self.calls)))
        if self.fault is not None:
            raise self.fault
        pauses = [one.exception for one in results if is_pause(one.exception)]
        interrupts = [one for one in pauses if isinstance(one, GraphInterrupt)]
        for error in pauses:
            if error is not None and error not in interrupts:
                raise error
        if interrupts:
            raise GraphInterrupt(tuple(asks for one in interrupts for asks in one.args[0]))
        return [self.output(at, result) for at, result in enumerate(results)]

    async def run(self, positions: Sequence[int]) -> Sequence[ToolResult]:
        """Run the calls at these positions as one turn. Cancelling stops them and waits for it."""
        self._places = {position: place for place, position in enumerate(positions)}
        self._slots = asyncio.Semaphore(self._at_once) if self._at_once else None
        watching = asyncio.ensure_future(self._watch())
        try:
            return await self._turn.run(self._each(positions))
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            self._submitted.set()
            self._host.tell(call.name for call in self.calls)

    async def result(self, position: int) -> ToolResult:
        """Wait for the result of one of the calls that run. Cancelling it changes nothing."""
        await self._submitted.wait()
        return await self._turn.wait(self._places[position])

    def stop(self, reason: str) -> None:
        """Stop all calls."""
        self.stopping = True
        self._turn.token.cancel(reason)

    def output(self, position: int, result: ToolResult) -> Output:
        """What the call gave. Raises its interrupt, or the error that nobody handles."""
        return output_of(result, self.asked[position])

    def known(self) -> dict[int, ToolResult | Output]:
        """By position, the results that there are, and the outputs of what ended before."""
        results = self._turn.snapshot() if self._places else ()
        ran = {at: results[place] for at, place in self._places.items() if place < len(results)}
        return {**self.earlier.done, **ran}

    def is_open(self, position: int, result: ToolResult) -> bool:
        """Whether the call has yet to run: its turn was stopped, or it waits for one paused."""
        undone = result.status is Status.ROLLED_BACK
        if result.status not in OPEN or (position in self.earlier.done and not undone):
            return False
        cause = result.failure.cause if result.failure is not None else None
        paused = cause is not None and is_pause(self._turn.snapshot()[cause].exception)
        return self.stopping or paused

    def _each(self, positions: Sequence[int]) -> Iterator[ToolCall]:
        for position in positions:
            token = INVOKE.set(_Invocation(self, position))
            yield self.calls[position]
            INVOKE.reset(token)
        self._submitted.set()

    async def _watch(self) -> None:
        """Stop everything as soon as a call ends in a way that the node must raise."""
        await self._submitted.wait()
        async for result in self._turn.events():
            if self.fault is None and not self.stopping and is_fatal(result):
                self.fault = result.exception
                self.stop(f"{result.call.name} failed, and nothing handles that error")

    def _start(self, position: int, given: dict[str, Any]) -> Any:
        asked = self.asked[position]
        asked = with_arguments(asked, self._tools.get(asked["name"]), given)
        runtime = self.runtimes[position]
        state = self.earlier.enter(position, runtime.state, runtime.config)
        return self._run_call(asked, with_state(runtime, state))

    def _ended(self, position: int, output: Output) -> Output:
        self.earlier.ended(position, output)
        return checked(output)


class _Invocation:
    """Runs one call, in a thread or, if there is something to await, then on the loop."""

    def __init__(self, turn: NodeTurn, position: int) -> None:
        self.turn = turn
        self._position = position

    def __call__(self, arguments: dict[str, Any]) -> Any:
        try:
            output = self.turn._start(self._position, arguments)
        except Exception:
            self.turn.earlier.paused(self._position)  # what stands behind it does not run
            raise
        if inspect.isawaitable(output):
            return self._awaited(output)
        return self.turn._ended(self._position, output)

    async def _awaited(self, coming: Awaitable[Output]) -> Output:
        try:
            output = await coming
        except Exception:
            self.turn.earlier.paused(self._position)
            raise
        return self.turn._ended(self._position, output)


class AtOnce:
    """Middleware: runs no more calls of a turn at once than `max_concurrency` of its config."""

    def __init__(self, inner: Handler) -> None:
        self._inner = inner

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        """Run the call once there is room."""
        invocation = INVOKE.get()
        slots = invocation.turn._slots if isinstance(invocation, _Invocation) else None
        if slots is None:
            return await self._inner(call, context)
        async with slots:
            return await self._inner(call, context)
