"""Agents with a scripted model, and dispatch in them by either way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pydantic_ai import (
    Agent,
    AgentRunResult,
    FunctionToolset,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.toolsets import AbstractToolset

from dispatch import ToolConcurrency
from dispatch.adapters.pydantic_ai import DispatchCapability, DispatchToolset

FREE = ToolConcurrency(safe_parallel=True)
FILE = ToolConcurrency(writes="file:{path}")
READS = ToolConcurrency(reads="file:{path}")

MEND = "\nDo not repeat the same call; mend what it says, or do it another way."
CHECK = "\nIt may have done its work, or a part of it: check that before you call it again."
"""What the model is told to do after a failure, and after a call that was stopped."""

Asked = tuple[str, Mapping[str, Any]]


def asks(*calls: Asked, first: int = 0) -> ModelResponse:
    """A model's message with these calls; their ids are c0, c1, … in intent order."""
    return ModelResponse(
        [
            ToolCallPart(name, dict(arguments), f"c{index}")
            for index, (name, arguments) in enumerate(calls, start=first)
        ]
    )


def scripted(*steps: ModelResponse) -> FunctionModel:
    """A model that says these one after the other, then "done"; also as a stream."""

    def step(messages: list[ModelMessage]) -> ModelResponse:
        said = sum(isinstance(message, ModelResponse) for message in messages)
        return steps[said] if said < len(steps) else ModelResponse([TextPart("done")])

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return step(messages)

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        for index, part in enumerate(step(messages).parts):
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                delta = DeltaToolCall(
                    part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id
                )
                yield {index: delta}

    return FunctionModel(answer, stream_function=stream)


def dispatched(
    way: str,
    model: FunctionModel,
    tools: Sequence[Any] | AbstractToolset[Any],
    *,
    agent: Mapping[str, Any] | None = None,
    **options: Any,
) -> Agent[Any, Any]:
    """An agent whose tools run through dispatch with these options, by this way."""
    toolset = tools if isinstance(tools, AbstractToolset) else FunctionToolset[Any](tools)
    given = dict(agent or {})
    if way == "toolset":
        return Agent(model, toolsets=[DispatchToolset(toolset, **options)], **given)
    capabilities = [*given.pop("capabilities", ()), DispatchCapability[Any](**options)]
    return Agent(model, toolsets=[toolset], capabilities=capabilities, **given)


def answers(result: AgentRunResult[Any] | Sequence[ModelMessage]) -> list[tuple[str, str, Any]]:
    """What the model was told of its calls: id, outcome and content, in the order told."""
    messages = result if isinstance(result, Sequence) else result.all_messages()
    return [
        (part.tool_call_id, part.outcome, part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


class Meeting:
    """Lets nobody on before `parties` have come: proof that so many run at once."""

    def __init__(self, parties: int) -> None:
        self._barrier = asyncio.Barrier(parties)

    async def join(self) -> None:
        """Wait for the others."""
        await self._barrier.wait()


class Overlap:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.peak = max(self.peak, self.now)

    async def __aexit__(self, *_: object) -> None:
        self.now -= 1


class Files:
    """Files whose tools read, wait and write the whole, as a careless editor does."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    async def edit(self, path: str, old: str, new: str) -> str:
        """Replace text in a file."""
        text = self.texts[path]
        await some_steps()
        self.texts[path] = text.replace(old, new)
        return f"{old} is {new}"

    async def read(self, path: str) -> str:
        """Read a file."""
        await some_steps(3)
        return self.texts[path]


async def some_steps(count: int = 20) -> None:
    """Let everything else go on."""
    for _ in range(count):
        await asyncio.sleep(0)
