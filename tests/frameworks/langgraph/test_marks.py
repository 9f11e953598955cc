"""What tools already say about themselves, and what a host says in its place."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from langchain_core.tools import BaseTool, StructuredTool, tool
from pydantic import BaseModel, ConfigDict, Field, field_validator

from dispatch import Change, DeclarationError, GateContext, ToolCall, ToolConcurrency
from dispatch.adapters.langgraph import DispatchToolNode
from tests.frameworks.langgraph.graphs import (
    FILE,
    FREE,
    Meeting,
    Overlap,
    answers,
    asks,
    dispatched,
    run,
    some_steps,
)


def meeting_tool(parties: int, **marks: Any) -> BaseTool:
    """A tool whose calls end only if so many run at once."""
    meeting = Meeting(parties)

    async def meet(x: int) -> str:
        """Meet."""
        await meeting.join()
        return "met"

    return StructuredTool.from_function(coroutine=meet, name="meet", **marks)


def counting_tool(overlap: Overlap, **marks: Any) -> BaseTool:
    """A tool that counts how many of its calls run at once."""

    async def count(x: int) -> str:
        """Count."""
        async with overlap:
            await some_steps()
        return "counted"

    return StructuredTool.from_function(coroutine=count, name="count", **marks)


MEETS = asks(("meet", {"x": 1}), ("meet", {"x": 2}))
COUNTS = asks(("count", {"x": 1}), ("count", {"x": 2}))


@pytest.mark.parametrize("place", ["metadata", "extras"])
async def test_a_declaration_in_the_tool_counts(way: str, place: str) -> None:
    """A `ToolConcurrency` under `dispatch` in `metadata` or `extras` is the tool's declaration."""
    one = meeting_tool(2, **{place: {"dispatch": FREE}})
    told = answers(await run(dispatched(way, MEETS, [one])))
    assert ["met", "met"] == [content for _, _, content in told]


async def test_descriptors_replace_what_the_tool_says(way: str) -> None:
    """`descriptors={name: …}` is stronger than the tool's own declaration."""
    overlap = Overlap()
    one = counting_tool(overlap, metadata={"dispatch": FREE})
    writes = ToolConcurrency(writes="file:one")
    await run(dispatched(way, COUNTS, [one], descriptors={"count": writes}))
    assert 1 == overlap.peak


HINTS: list[dict[str, Any]] = [
    {"read_only": True},
    {"readOnlyHint": True},
    {"annotations": {"readOnlyHint": True}},
]


@pytest.mark.parametrize("hint", HINTS, ids=["read_only", "readOnlyHint", "annotations"])
async def test_a_hint_counts_only_if_the_host_trusts_it(way: str, hint: dict[str, Any]) -> None:
    """N7: what a server may have written is ignored, unless `trust_annotations=True`."""
    overlap = Overlap()
    await run(dispatched(way, COUNTS, [counting_tool(overlap, metadata=hint)]))
    assert 1 == overlap.peak
    one = meeting_tool(2, metadata=hint)
    told = answers(await run(dispatched(way, MEETS, [one], trust_annotations=True)))
    assert ["met", "met"] == [content for _, _, content in told]


@pytest.mark.parametrize("forged", [{"safe_parallel": True}, "parallel", True])
async def test_a_server_cannot_forge_a_declaration(way: str, forged: object) -> None:
    """Only a `ToolConcurrency` object counts under `dispatch`: a server can send no such thing."""
    overlap = Overlap()
    one = counting_tool(overlap, metadata={"dispatch": forged})
    await run(dispatched(way, COUNTS, [one], trust_annotations=True))
    assert 1 == overlap.peak


async def test_templates_use_validated_arguments(way: str) -> None:
    """`writes="file:{path}"` reads an argument that was left out from the tool's default."""
    overlap, meeting = Overlap(), Meeting(2)

    async def edit(path: str = "same", meet: bool = False) -> str:
        """Edit."""
        async with overlap:
            await (meeting.join() if meet else some_steps())
        return path

    one = StructuredTool.from_function(coroutine=edit, name="edit")
    writes = {"edit": ToolConcurrency(writes="file:{path}")}
    message = asks(("edit", {}), ("edit", {"path": "same"}))
    await run(dispatched(way, message, [one], descriptors=writes))
    assert 1 == overlap.peak
    message = asks(("edit", {"meet": True}), ("edit", {"path": "other", "meet": True}))
    told = answers(await run(dispatched(way, message, [one], descriptors=writes)))
    assert ["same", "other"] == [content for _, _, content in told]


async def test_tags_of_a_tool_count_against_limits(way: str) -> None:
    """A tool's `tags` are labels whose limits its calls count against."""
    from dispatch import Limits

    overlap = Overlap()
    one = counting_tool(overlap, tags=["db"], metadata={"dispatch": FREE})
    message = asks(*[("count", {"x": at}) for at in range(6)])
    await run(dispatched(way, message, [one], limits=Limits(8, per_tag={"db": 2})))
    assert 2 == overlap.peak


async def test_tools_that_ran_alone_are_named_once(way: str) -> None:
    """Which tools ran alone because nothing was declared is said, once per tool."""
    graph = dispatched(way, COUNTS, [counting_tool(Overlap())])
    with structlog.testing.capture_logs() as logs:
        await run(graph)
        if way == "node":
            await run(graph)
    assert [["count"]] == [log["tools"] for log in logs if log["log_level"] == "warning"]


async def test_nothing_is_said_of_tools_that_are_declared(way: str) -> None:
    """No warning for tools with a declaration, nor with `undeclared="parallel"`."""
    declared = counting_tool(Overlap(), metadata={"dispatch": FREE})
    with structlog.testing.capture_logs() as logs:
        await run(dispatched(way, COUNTS, [declared]))
        await run(dispatched(way, COUNTS, [counting_tool(Overlap())], undeclared="parallel"))
    assert [] == logs


class Stripped(BaseModel):
    """Arguments that are not what the model wrote."""

    path: str

    @field_validator("path")
    @classmethod
    def strip(cls, value: str) -> str:
        """Without blanks."""
        return value.strip()


class Renamed(BaseModel):
    """An argument with a name of its own for the model, a default, and whatever else comes."""

    model_config = ConfigDict(extra="allow")
    path: str = Field("same", alias="filePath")


@pytest.mark.parametrize(
    ("schema", "written"),
    [(Stripped, ({"path": "f "}, {"path": " f"})), (Renamed, ({"filePath": "same"}, {}))],
    ids=["validator", "alias"],
)
async def test_claims_are_made_of_what_the_tool_gets(
    way: str, schema: type[BaseModel], written: tuple[dict[str, Any], ...]
) -> None:
    """Two spellings of one file are one file, by the validators and aliases of the tool's own."""
    overlap = Overlap()

    @tool(args_schema=schema)
    async def edit(path: str) -> str:
        """Edit."""
        async with overlap:
            await some_steps()
        return path

    message = asks(*[("edit", arguments) for arguments in written])
    with structlog.testing.capture_logs() as logs:
        state = await run(dispatched(way, message, [edit], descriptors={"edit": FILE}))
    assert 1 == len({content for _, _, content in answers(state)})
    assert (1, []) == (overlap.peak, logs)


async def test_what_a_gate_changes_reaches_the_tool(way: str) -> None:
    """Under an alias, in place, beside what nobody changed; the model's message stays as it was."""

    @tool(args_schema=Renamed)
    async def edit(path: str, extra: list[str]) -> str:
        """Edit."""
        return f"{path} {extra}"

    async def gate(call: ToolCall, context: GateContext) -> Change:
        context.arguments["extra"].remove("bad")
        return Change({**context.arguments, "path": "changed"})

    message = asks(("edit", {"filePath": "f", "extra": ["good", "bad"]}))
    state = await run(dispatched(way, message, [edit], gates=[gate]))
    assert [("c0", "success", "changed ['good']")] == answers(state)
    assert {"filePath": "f", "extra": ["good", "bad"]} == message.tool_calls[0]["args"]


async def test_a_gate_cannot_change_the_message_by_mistake(way: str) -> None:
    """What a gate does to arguments in place, which no schema checks, is done to its own copy."""

    async def act(**arguments: Any) -> str:
        """Act."""
        return str(arguments)

    async def gate(call: ToolCall, context: GateContext) -> Change:
        context.arguments["words"].remove("bad")
        return Change(context.arguments)

    schema = {"type": "object", "properties": {"words": {"type": "array"}}}
    one = StructuredTool(name="act", description="Act.", args_schema=schema, coroutine=act)
    message = asks(("act", {"words": ["good", "bad"]}))
    state = await run(dispatched(way, message, [one], gates=[gate]))
    assert [("c0", "success", "{'words': ['good']}")] == answers(state)
    assert {"words": ["good", "bad"]} == message.tool_calls[0]["args"]


async def test_a_descriptor_for_a_tool_that_is_not_there() -> None:
    """A misspelt name is told when the node is made, with the names there are."""
    with pytest.raises(DeclarationError, match=r"'cuont'.*: count"):
        DispatchToolNode([counting_tool(Overlap())], descriptors={"cuont": FREE})
