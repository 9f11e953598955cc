"""`DispatchToolNode`: LangGraph's `ToolNode`, whose calls run as one turn of a dispatcher."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Unpack

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolRuntime
from langgraph.runtime import Runtime

from dispatch.adapters.hosted import HostedTools, HostedTurns, HostOptions
from dispatch.adapters.hosted.background import in_background
from dispatch.adapters.langgraph.histories import Unheard, asking, thread_of
from dispatch.adapters.langgraph.limits import cut_off, refusal
from dispatch.adapters.langgraph.marks import ANYTHING, has_coroutine, has_function, see
from dispatch.adapters.langgraph.record import RecordedTurn
from dispatch.adapters.langgraph.turn import AtOnce, NodeTurn
from dispatch.concurrency import ToolConcurrency
from dispatch.runtime.nesting import current, wait_in_thread


class NodeOptions(HostOptions, total=False):
    """The keywords of `ToolNode`, then those of `Dispatcher`."""

    name: str
    tags: list[str] | None
    handle_tool_errors: Any
    messages_key: str
    wrap_tool_call: Callable[..., Any] | None
    awrap_tool_call: Callable[..., Awaitable[Any]] | None


class DispatchToolNode(ToolNode):
    """A `ToolNode` that runs the calls of a message as one turn: in order where they conflict.

    It takes what `ToolNode` takes and gives what it gives. A call that the dispatcher ended (timed
    out, cancelled, skipped, refused) is answered by a `ToolMessage` with status `error` that says
    so. An error that `handle_tool_errors` does not handle stops the other calls, waits for them at
    most two graces, and is raised then. Cancelling the node does the same.

    Args:
        tools: Tools and functions, as `ToolNode` takes them.
        descriptors: `ToolConcurrency` by tool name, in place of what the tools carry in `metadata`
            or `extras` under `dispatch`.
        undeclared: Whether tools that say nothing run alone, or may run beside everything.
        trust_annotations: Whether `read_only` and `readOnlyHint`, `idempotent` and
            `idempotentHint` in a tool's metadata count. Servers write these as they like.
        resumable: With a checkpointer: whether each call is saved as it ends, and has interrupts of
            its own. A resumed turn runs only what has not ended.
        options: The keywords of `ToolNode` and of `Dispatcher`.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        *,
        descriptors: Mapping[str, ToolConcurrency] | None = None,
        undeclared: Literal["exclusive", "parallel"] = "exclusive",
        trust_annotations: bool = False,
        resumable: bool = True,
        **options: Unpack[NodeOptions],
    ) -> None:
        ours: dict[str, Any] = {}
        theirs: dict[str, Any] = {}
        for option, value in options.items():
            (ours if option in HostOptions.__annotations__ else theirs)[option] = value
        super().__init__(tools, **theirs)
        ours["middleware"] = (*ours.get("middleware", ()), AtOnce)
        known = HostedTools(descriptors=descriptors, undeclared=undeclared)
        self._host = HostedTurns(known, one_by_one=False, **ours)
        self._resumable = resumable
        self._unheard = Unheard()
        self._thread_wrapper = theirs.get("wrap_tool_call") is not None
        self._loop_wrapper = theirs.get("awrap_tool_call") is not None
        if not (self._thread_wrapper or self._loop_wrapper):  # these may bring tools
            known.check_described(self.tools_by_name)
        for tool in self.tools_by_name.values():
            threads = self._thread_wrapper or has_function(tool)
            see(known, tool, sync=threads, trusted=trust_annotations)

    # All that is used of ToolNode beyond its public methods stands below: it offers none that take
    # one call at a time without starting a thread pool, whose threads a stuck tool keeps for ever.

    def _func(self, input: Any, config: RunnableConfig, runtime: Runtime) -> Any:  # noqa: A002
        asked, kind = self._parse_input(input)
        return self._combine_tool_outputs(
            in_background(self._outputs(input, asked, kind, config, runtime, sync=True)), kind
        )

    async def _afunc(self, input: Any, config: RunnableConfig, runtime: Runtime) -> Any:  # noqa: A002
        asked, kind = self._parse_input(input)
        outputs = await self._outputs(input, asked, kind, config, runtime, sync=False)
        return self._combine_tool_outputs(outputs, kind)

    async def _outputs(
        self,
        given: Any,
        asked: Sequence[Any],
        kind: Any,
        config: RunnableConfig,
        runtime: Runtime,
        *,
        sync: bool,
    ) -> list[Any]:
        if not asked:
            return []
        asked = [{**one, "id": one["id"] or ""} for one in asked]  # answered by position
        if self._thread_wrapper or self._loop_wrapper:
            for one in asked:
                if one["name"] not in self.tools_by_name:  # a wrapper may bring the tool
                    self._host.tools.see(one["name"], ANYTHING, sync=True)
        cut = cut_off(asking(given, self._messages_key))

        def start(one: Any, its_runtime: ToolRuntime) -> Any:
            if one["id"] == cut:
                return refusal(one)
            return self._start(one, kind, its_runtime, sync=sync)

        turn = NodeTurn(
            self._host,
            asked,
            self._runtimes(given, asked, config, runtime),
            start,
            tools=self.tools_by_name,
            messages_key=self._messages_key,
            at_once=config.get("max_concurrency"),
        )
        try:
            if not self._resumable or not _is_saved(runtime):
                return await turn.outputs()
            recorded = RecordedTurn(turn, config)
            return await (recorded.outputs_by_thread() if sync else recorded.outputs())
        except BaseException:
            message = asking(given, self._messages_key)
            self._unheard.note_all(thread_of(runtime), message, turn.known())
            raise

    def close_open_calls(self, messages: Sequence[Any]) -> list[AnyMessage]:
        """`close_open_calls`, with what this node still knows of turns that were stopped.

        For the node that calls the model; it knows that of its own thread alone, and in memory.
        """
        return self._unheard.close(_thread(), messages)

    def _runtimes(
        self, given: Any, asked: Sequence[Any], config: RunnableConfig, runtime: Runtime
    ) -> list[ToolRuntime]:
        return [
            ToolRuntime(
                state=self._extract_state(given, own),  # type: ignore[arg-type]
                tool_call_id=one["id"],
                config=own,
                context=runtime.context,
                store=runtime.store,
                stream_writer=runtime.stream_writer,
                tools=list(self.tools_by_name.values()),
                execution_info=runtime.execution_info,
                server_info=runtime.server_info,
            )
            for one, own in zip(asked, get_config_list(config, len(asked)), strict=True)
        ]

    def _start(self, asked: Any, kind: Any, runtime: ToolRuntime, *, sync: bool) -> Any:
        """The call's output if it runs in this thread, else what gives it on the loop."""
        if self._runs_here(self.tools_by_name.get(asked["name"]), sync=sync):
            return self._run_one(asked, kind, runtime)
        return self._arun_one(asked, kind, runtime)

    def _runs_here(self, tool: BaseTool | None, *, sync: bool) -> bool:
        if self._thread_wrapper and (sync or not self._loop_wrapper):
            return True
        if tool is None or (self._loop_wrapper and not sync):
            return False
        return has_function(tool) and (sync or not has_coroutine(tool))

    def _execute_tool_sync(self, request: Any, input_type: Any, config: RunnableConfig) -> Any:
        """Run the tool for a wrapper in a thread; one that needs a loop is sent to the turn's."""
        scope = current()
        loop = None if scope is None else scope.loop
        if loop is None or request.tool is None or has_function(request.tool):
            return super()._execute_tool_sync(request, input_type, config)
        return wait_in_thread(self._execute_tool_async(request, input_type, config), loop)


def _is_saved(runtime: Runtime) -> bool:
    """Whether a checkpointer may be there: it never is without a thread."""
    return runtime.execution_info is not None and runtime.execution_info.thread_id is not None


def _thread() -> object:
    """The thread of the run that this is called in; None outside of runs."""
    try:
        return get_config().get("configurable", {}).get("thread_id")
    except RuntimeError:
        return None
