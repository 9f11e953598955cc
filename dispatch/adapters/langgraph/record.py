"""Each call of a turn as a task of its own in a graph of its own, inside the node.

That is what gives every call its own interrupts, which can be answered one by one, and what keeps
what is finished: LangGraph saves the output of each task as it ends, and on resuming, after an
interrupt, a cancellation or a crash, runs only those that have none. A task only waits for its
call; the turn runs them, with all of LangGraph's limits on tasks lifted, so that none stands in the
way of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import threading
from collections.abc import Awaitable
from contextvars import ContextVar, copy_context
from dataclasses import replace
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.errors import GraphInterrupt
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from dispatch.adapters.langgraph.outputs import Output, is_fatal, is_pause
from dispatch.adapters.langgraph.turn import NodeTurn
from dispatch.call import ToolResult
from dispatch.runtime.futures import resolve, uncancelled

CALL = "call"
OWN_THREADS = 2
"""What a graph that runs without a loop needs beside its tasks: for its stream, and for saving."""


class RecordedTurn:
    """A turn whose calls are tasks of LangGraph. It belongs to the event loop it was made on."""

    def __init__(self, turn: NodeTurn, config: RunnableConfig) -> None:
        self.turn = turn
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._outputs: dict[int, Output] = {}
        self._awaited = set(range(len(turn.calls)))
        self._here: set[int] = set()
        self._all_here = asyncio.Event()
        self._over = asyncio.Event()
        self._running: asyncio.Future[None] | None = None
        self._ending: BaseException | None = None

    async def outputs(self) -> list[Output]:
        """Run what has no output yet; the outputs of all, in order."""
        return await self._ran(self._follow())

    async def outputs_by_thread(self) -> list[Output]:
        """The same for a graph that runs without a loop: its checkpointer may know none."""
        return await self._ran(self._follow_by_thread())

    async def _ran(self, following: Awaitable[None]) -> list[Output]:
        self._running = asyncio.ensure_future(self._run())
        try:
            await following
        except GraphInterrupt:
            if self.turn.fault is None and self._ending is None:
                raise
        finally:
            self.turn.stop("the graph was stopped")
            self._all_here.set()
            await uncancelled(self._running)
        if error := self._ending or self.turn.fault:
            raise error
        return [self._outputs[position] for position in range(len(self.turn.calls))]

    async def _run(self) -> None:
        """Run the turn, once all calls that have no output yet are here."""
        try:
            await self._all_here.wait()
            if self._here:
                await self.turn.run(sorted(self._here))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - raised by `outputs`: here it ends the loop
            self._ending = error
        finally:
            self._over.set()

    async def _follow(self) -> None:
        token = _RECORDED.set(self)
        try:
            async for mode, chunk in GRAPH.astream(*self._input(), stream_mode=_MODES):
                self._take(mode, chunk)
        finally:
            _RECORDED.reset(token)

    async def _follow_by_thread(self) -> None:
        done: asyncio.Future[BaseException | None] = self._loop.create_future()

        def follow() -> None:
            _RECORDED.set(self)
            error: BaseException | None = None
            try:
                for mode, chunk in GRAPH.stream(*self._input(), stream_mode=_MODES):
                    self._take(mode, chunk)
            except BaseException as raised:  # noqa: BLE001 - raised below
                error = raised
            self._loop.call_soon_threadsafe(resolve, done, error)

        threading.Thread(
            target=copy_context().run, args=(follow,), name="dispatch-graph", daemon=True
        ).start()
        try:
            error = await asyncio.shield(done)
        except asyncio.CancelledError:
            self.turn.stop("the graph was cancelled")
            await uncancelled(done)
            raise
        if error is not None:
            raise error

    def _input(self) -> tuple[Any, Any]:
        count = len(self.turn.calls)
        return {"count": count}, {**self._config, "max_concurrency": count + OWN_THREADS}

    def _take(self, mode: str, chunk: Any) -> None:
        """Note the outputs. One whose task has not begun was there before: that call runs no more.

        LangGraph tells those before it starts the tasks that are left.
        """
        if mode == "custom":
            self.turn.runtimes[0].stream_writer(chunk)
            return
        told = chunk.get(CALL) if mode == "updates" else chunk
        for position, output in (told or {}).get("outputs", {}).items():
            self._outputs[position] = output
            if position not in self._here:
                self._awaited.discard(position)
                self.turn.earlier.ended(position, output)

    async def call(self, position: int, config: RunnableConfig) -> Output:
        """One task: wait for its call. Raises what leaves it without an output."""
        runtime = self.turn.runtimes[position]
        own = {**runtime.config, "configurable": config["configurable"]}
        self.turn.runtimes[position] = replace(runtime, config=own)
        self._here.add(position)
        if self._here == self._awaited:
            self._all_here.set()
        try:
            result = await self.turn.result(position)
        except asyncio.CancelledError:  # of the graph: what has ended is saved all the same
            self.turn.stop("the graph was cancelled")
            self._all_here.set()
            with contextlib.suppress(asyncio.CancelledError):
                await uncancelled(asyncio.ensure_future(self._over.wait()))
            result = await self.turn.result(position)
            if self._is_open(position, result):
                raise
        if self._is_open(position, result):
            raise GraphInterrupt(())  # without a question: the task is left as it is
        if self.turn.stopping and position in self.turn.earlier.done:
            return self.turn.earlier.done[position]
        return self.turn.output(position, result)

    def _is_open(self, position: int, result: ToolResult) -> bool:
        """Whether the call is left without an output, whether or not `outputs` raises why."""
        error = result.exception
        told = is_fatal(result) or isinstance(error, KeyboardInterrupt | SystemExit)
        stopped = self.turn.stopping and is_pause(error)
        return told or stopped or self.turn.is_open(position, result)

    def call_by_thread(self, position: int, config: RunnableConfig) -> Output:
        """`call`, for a task in a thread."""
        return asyncio.run_coroutine_threadsafe(self.call(position, config), self._loop).result()


_RECORDED: ContextVar[RecordedTurn] = ContextVar("dispatch_recorded_turn")
_MODES: list[Any] = ["updates", "values", "custom"]


class _State(TypedDict):
    count: int
    outputs: Annotated[dict[int, Any], operator.or_]


def _call(position: int, config: RunnableConfig) -> dict[str, Any]:
    return {"outputs": {position: _RECORDED.get().call_by_thread(position, config)}}


async def _acall(position: int, config: RunnableConfig) -> dict[str, Any]:
    return {"outputs": {position: await _RECORDED.get().call(position, config)}}


def _calls(state: _State) -> list[Send]:
    return [Send(CALL, position) for position in range(state["count"])]


def _graph() -> Any:
    builder = StateGraph(_State)
    task: Any = RunnableLambda(_call, _acall)
    builder.add_node(CALL, task)
    builder.add_conditional_edges(START, _calls, [CALL])
    return builder.compile(name="dispatch")


GRAPH = _graph()
