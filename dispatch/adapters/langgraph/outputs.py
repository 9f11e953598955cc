"""What a call of LangGraph gives: the output of its tool, or what the dispatcher decided instead.

An output is a `ToolMessage`, a `Command`, or a list of them. LangGraph stops a tool by exceptions
too (an interrupt, a command for the parent graph): those are no failures and are raised again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command

from dispatch.adapters.answers import told
from dispatch.call import ToolResult
from dispatch.errors import ToolError
from dispatch.render import render

try:
    from langgraph.errors import is_invalid_resume
except ImportError:  # older ones know no such error

    def is_invalid_resume(error: BaseException) -> bool:
        """Whether an interrupt was answered with something it does not take."""
        return False


Asked = Mapping[str, Any]
"""A tool call as LangChain has it: `name`, `args`, `id`."""

Output = Any
"""A `ToolMessage`, a `Command`, or a list of them."""


class AnsweredFailure(ToolError):
    """The tool failed, and the host's own error handling made a message of that: its `output`."""

    def __init__(self, output: ToolMessage) -> None:
        super().__init__(render(output.content))
        self.output = output


def checked(output: Output) -> Output:
    """The output. Raises `AnsweredFailure` for one that tells of a failure, so that it counts."""
    if isinstance(output, ToolMessage) and output.status == "error":
        raise AnsweredFailure(output)
    return output


def is_pause(error: BaseException | None) -> bool:
    """Whether the call is to go on later, once a human has answered."""
    return isinstance(error, GraphInterrupt) or (error is not None and is_invalid_resume(error))


def is_fatal(result: ToolResult) -> bool:
    """Whether it must be raised: an error that nobody handles, or a jump out of the graph."""
    error = result.exception
    if error is None or is_pause(error) or isinstance(error, AnsweredFailure):
        return False
    return result.status == "error" and isinstance(error, Exception) and not _is_told(result)


def _is_told(result: ToolResult) -> bool:
    """Whether the dispatcher, a gate or a middleware of it failed the call: told, never raised."""
    failure = result.failure
    told = failure is None or failure.kind != "tool_error" or "middleware" in failure.details
    return told and not isinstance(result.exception, GraphBubbleUp)


def output_of(result: ToolResult, asked: Asked) -> Output:
    """The call's output. Raises what LangGraph or the host must see: see `is_pause`, `is_fatal`."""
    if result.ok:
        return result.value if result.attempts else answer_of(result.value, asked)
    if isinstance(result.exception, AnsweredFailure):
        return answer_of(result.exception.output, asked)
    if result.exception is not None and (is_pause(result.exception) or is_fatal(result)):
        raise result.exception
    return ToolMessage(
        content=told(result),
        name=asked["name"],
        tool_call_id=asked["id"],
        status="error",
    )


def answer_of(output: Output, asked: Asked) -> Output:
    """What the output of another call, which this one has joined, is to this one.

    That is its answer, under the id of this call. What else a `Command` does is done once. A jump
    to the parent graph carries the answer that it wants to carry, and stays as it is.
    """
    answers = [one for one in messages_in(output) if isinstance(one, ToolMessage)]
    if not answers:
        return output
    return answers[-1].model_copy(update={"tool_call_id": asked["id"], "id": None})


def messages_in(output: Output) -> list[Any]:
    """The messages in an output for its own graph."""
    outputs = output if isinstance(output, list) else [output]
    told = [one for one in outputs if not isinstance(one, Command)]
    for update in updates_of(output):
        values = update.values() if isinstance(update, Mapping) else [update]
        told += [one for value in values if isinstance(value, list) for one in value]
    return told


def updates_of(output: Output) -> list[Any]:
    """What the output changes in the state of its own graph, beside the answer itself."""
    commands = output if isinstance(output, list) else [output]
    return [
        command.update
        for command in commands
        if isinstance(command, Command) and command.graph is None and command.update
    ]


def with_state(runtime: Any, state: Any) -> Any:
    """The tool runtime with another state."""
    return runtime if state is runtime.state else replace(runtime, state=state)
