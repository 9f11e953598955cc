"""`DispatchMiddleware`: the calls of LangChain's `create_agent`, each a task of its own, as turns.

Middleware is listed from the outside in. Put this one last: then approvals, retries and whatever
else wraps a call waits without holding what the call claims, and an attempt that is made again
stands in line again. It is where a history is put in order, too: at the start of a run in the
state, so that it stays so, and before each call of the model in what is sent.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Unpack

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from dispatch.adapters.hosted import HostedTools, HostedTurns, HostOptions
from dispatch.adapters.langgraph.earlier import Earlier
from dispatch.adapters.langgraph.histories import Unheard, is_same, thread_of
from dispatch.adapters.langgraph.limits import cut_off, refusal
from dispatch.adapters.langgraph.marks import ANYTHING, arguments, see, with_arguments
from dispatch.adapters.langgraph.outputs import (
    Asked,
    Output,
    checked,
    is_pause,
    output_of,
)
from dispatch.call import ToolCall, ToolResult
from dispatch.concurrency import ToolConcurrency
from dispatch.tool import Tool

MESSAGES = "messages"
KEPT = 256
"""Messages whose calls are remembered."""


@dataclass(slots=True)
class _Memory:
    """What is known of the calls of one message."""

    earlier: Earlier
    waited_for: set[int]
    """The positions of those that have not been told what came of them."""
    kept: dict[int, Output] = field(default_factory=dict)
    """What calls have given that were cancelled, for when the turn is resumed."""

    def told(self, position: int) -> None:
        """The call has been told. Once all have, nothing big is kept."""
        self.waited_for.discard(position)
        if not self.waited_for:
            self.earlier.all_told()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a call stands, and which ids are expected before it."""

    key: Hashable
    position: int
    before: tuple[str, ...]
    tool: Tool
    memory: _Memory
    thread: object
    message: AIMessage | None
    unheard: Unheard

    def result(self, result: ToolResult) -> None:
        """The call is over, however it was."""
        self.unheard.note(self.thread, self.message, self.position, result)

    def ended(self, output: Output) -> Output:
        """The call has its output."""
        self.memory.earlier.ended(self.position, output)
        return checked(output)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note that it runs, and if what runs in here waits for a human."""
        self.unheard.began(self.thread, self.message, self.position)
        try:
            yield
        except Exception as error:
            if is_pause(error):
                self.memory.earlier.paused(self.position)
            raise


class DispatchMiddleware(AgentMiddleware[Any, Any, Any]):
    """Runs the tool calls that a model makes in one message as one turn of a dispatcher.

    For `create_agent(..., middleware=[..., DispatchMiddleware()])`, last in the list. A call that
    the dispatcher ended (timed out, skipped, refused) is answered by a `ToolMessage` with status
    `error` that says so; what the tool raises is raised unchanged. Cancelling a call stops it,
    waits for that at most two graces, and is raised then.

    Args:
        descriptors: `ToolConcurrency` by tool name, in place of what the tools carry in `metadata`
            or `extras` under `dispatch`.
        undeclared: Whether tools that say nothing run alone, or may run beside everything.
        trust_annotations: Whether `read_only` and `readOnlyHint`, `idempotent` and
            `idempotentHint` in a tool's metadata count. Servers write these as they like.
        options: The keywords of `Dispatcher`, without those that need a whole turn at once:
            `AllOrNothing` and the schedules `groups` and `clusters` raise `UsageError`.
    """

    def __init__(
        self,
        *,
        descriptors: Mapping[str, ToolConcurrency] | None = None,
        undeclared: Literal["exclusive", "parallel"] = "exclusive",
        trust_annotations: bool = False,
        **options: Unpack[HostOptions],
    ) -> None:
        super().__init__()
        self._known = HostedTools(descriptors=descriptors, undeclared=undeclared)
        self._turns = HostedTurns(self._known, **options)
        self._trusted = trust_annotations
        self._remembered: OrderedDict[Hashable, _Memory] = OrderedDict()
        self._unheard = Unheard()

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Put the history in order: a run that was stopped may have left calls unanswered."""
        messages = state.get(MESSAGES) or []
        closed = self._unheard.close(thread_of(runtime), messages)
        if is_same(messages, closed):
            return None
        return {MESSAGES: [RemoveMessage(REMOVE_ALL_MESSAGES), *closed]}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """The same on a loop."""
        return self.before_agent(state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send a history that is in order, whatever has been cut out of it in this run."""
        return handler(self._closed(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """The same on a loop."""
        return await handler(self._closed(request))

    def _closed(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        state: Any = request.state.get(MESSAGES) or []
        closed = self._unheard.close(thread_of(request.runtime), request.messages, state)
        if is_same(request.messages, closed):
            return request
        return request.override(messages=closed)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Output]
    ) -> Output:
        """Run the call in its turn, on a loop in the background, its tool in a worker thread."""
        if (refused := self._refused(request)) is not None:
            return refused
        place, call = self._placed(request)

        def invoke(given: dict[str, Any]) -> Output:
            with place.noting():
                output = handler(self._request(request, place, given))
            return place.ended(output)

        result = self._turns.run_sync(
            place.key, call, invoke, before=place.before, tool=place.tool, ended=place.result
        )
        place.memory.told(place.position)
        return output_of(result, request.tool_call)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Output]]
    ) -> Output:
        """Run the call in its turn, on this loop."""
        if (refused := self._refused(request)) is not None:
            return refused
        place, call = self._placed(request)

        async def invoke(given: dict[str, Any]) -> Output:
            with place.noting():
                output = await handler(self._request(request, place, given))
            return place.ended(output)

        if place.position in place.memory.kept:
            return place.ended(place.memory.kept.pop(place.position))
        try:
            result = await self._turns.run(
                place.key, call, invoke, before=place.before, tool=place.tool, ended=place.result
            )
        except asyncio.CancelledError:  # LangGraph may have lost what has ended by now
            place.memory.kept.update(place.memory.earlier.done)
            raise
        place.memory.told(place.position)
        return output_of(result, request.tool_call)

    def _refused(self, request: ToolCallRequest) -> ToolMessage | None:
        """The answer to a call that the model did not write to its end, or LangChain read wrong."""
        asked = request.tool_call
        if not asked["name"]:
            text = f"[error] {self._known.unknown('')}"
            return ToolMessage(text, tool_call_id=asked["id"] or "", status="error")
        if (asked["id"] or "") == cut_off(_message(request.state)[0]):
            return refusal(asked)
        return None

    def _placed(self, request: ToolCallRequest) -> tuple[_Place, ToolCall]:
        asked = request.tool_call
        if request.tool is None:
            tool = self._known.see(asked["name"], ANYTHING, sync=True)
        else:  # sync: a thread that is given something to await hands it to the loop
            tool = see(self._known, request.tool, sync=True, trusted=self._trusted)
        call = ToolCall(asked["id"] or "", asked["name"], arguments(request.tool, asked["args"]))
        message, answered = _message(request.state)
        siblings: list[Any] = [asked] if message is None else list(message.tool_calls)
        position = _position(asked, siblings)
        before = tuple(one["id"] or "" for one in siblings[:position] if one["id"] not in answered)
        key = _key(request, message)
        memory = self._memory(key, siblings, answered)
        memory.earlier.arrived(position, call)
        thread = thread_of(request.runtime)
        self._unheard.came(thread, message)
        place = _Place(key, position, before, tool, memory, thread, message, self._unheard)
        return place, call

    def _memory(self, key: Hashable, siblings: list[Any], answered: set[str]) -> _Memory:
        if (memory := self._remembered.get(key)) is None:
            open_ones = {at for at, one in enumerate(siblings) if one["id"] not in answered}
            memory = _Memory(Earlier(self._turns.dispatcher, MESSAGES), open_ones)
            memory = self._remembered.setdefault(key, memory)
            while len(self._remembered) > KEPT:
                self._remembered.popitem(last=False)
        return memory

    def _request(
        self, request: ToolCallRequest, place: _Place, given: dict[str, Any]
    ) -> ToolCallRequest:
        """The request with the arguments and the state that the call has by now."""
        state = place.memory.earlier.enter(place.position, request.state, request.runtime.config)
        asked: Any = with_arguments(request.tool_call, request.tool, given)
        if state is not request.state:
            request = request.override(state=state)
        return request if asked == request.tool_call else request.override(tool_call=asked)


def _position(asked: Asked, siblings: list[Any]) -> int:
    """Where the call stands in its message; calls of one id are told apart by what they ask for."""
    of_id = [at for at, one in enumerate(siblings) if one["id"] == asked["id"]]
    for at in of_id:
        if (siblings[at]["name"], siblings[at]["args"]) == (asked["name"], asked["args"]):
            return at
    return of_id[0] if of_id else 0


def _message(state: Any) -> tuple[AIMessage | None, set[str]]:
    """The model's message, and which of its calls have been answered already."""
    mapping = isinstance(state, Mapping)
    messages = state.get(MESSAGES, ()) if mapping else getattr(state, MESSAGES, ())
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return message, answered
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
    return None, answered


def _key(request: ToolCallRequest, message: AIMessage | None) -> Hashable:
    """The same for all calls of one message in one run, different for all others."""
    run = getattr(request.runtime, "execution_info", None)
    if run is None:
        return id(message)
    graph = run.checkpoint_ns.rpartition("|")[0]
    return run.thread_id, graph, run.checkpoint_id
