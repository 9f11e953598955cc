"""What tools say of themselves: metadata, sequential, annotations, and what the host overrides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, FunctionToolset, RunContext, ToolDefinition
from structlog.testing import capture_logs

from dispatch import DeclarationError, ToolConcurrency, write
from dispatch.adapters.pydantic_ai import DispatchToolset
from dispatch.adapters.pydantic_ai.marks import ALONE, marks_of
from tests.frameworks.pydantic_ai.agents import (
    FILE,
    FREE,
    Meeting,
    Overlap,
    answers,
    asks,
    dispatched,
    scripted,
    some_steps,
)

HINTS = {"annotations": {"readOnlyHint": True, "idempotentHint": True}}


@pytest.mark.parametrize(
    ("tool", "trusted", "declared", "idempotent"),
    [
        (ToolDefinition(name="t"), True, ToolConcurrency(), False),
        (ToolDefinition(name="t", sequential=True), False, ALONE, False),
        (ToolDefinition(name="t", metadata={"dispatch": FREE}), False, FREE, False),
        (
            ToolDefinition(name="t", metadata={"dispatch": FILE}, sequential=True),
            False,
            FILE,
            False,
        ),
        (ToolDefinition(name="t", metadata=HINTS), False, ToolConcurrency(), False),
        (ToolDefinition(name="t", metadata=HINTS), True, ToolConcurrency(read_only=True), True),
        (ToolDefinition(name="t", metadata={"annotations": None}), True, ToolConcurrency(), False),
        (ToolDefinition(name="t", metadata={**HINTS, "dispatch": FREE}), True, FREE, True),
        (
            ToolDefinition(name="t", metadata={"annotations": {"readOnlyHint": "yes"}}),
            True,
            ToolConcurrency(),
            False,
        ),
    ],
    ids=["none", "sequential", "own", "own first", "untrusted", "trusted", "null", "both", "odd"],
)
def test_which_mark_counts(
    tool: ToolDefinition, trusted: bool, declared: ToolConcurrency, idempotent: bool
) -> None:
    """Own metadata goes before `sequential`; an MCP server's word counts only if it is trusted."""
    marks = marks_of(tool, trust_annotations=trusted)
    assert {"declared": declared, "idempotent": idempotent} == marks


def test_metadata_that_is_no_declaration() -> None:
    """A mistake in the metadata says so, with the tool's name, rather than being guessed at."""
    with pytest.raises(DeclarationError, match=r"'t'.*ToolConcurrency"):
        marks_of(
            ToolDefinition(name="t", metadata={"dispatch": "parallel"}), trust_annotations=False
        )


async def test_metadata_declares(way: str) -> None:
    """A ToolConcurrency in the metadata, under "dispatch", is what the tool declares."""
    meeting = Meeting(2)

    async def act(n: int) -> int:
        await meeting.join()
        return n

    toolset = FunctionToolset[Any]()
    toolset.add_function(act, metadata={"dispatch": FREE})
    agent = dispatched(way, scripted(asks(("act", {"n": 0}), ("act", {"n": 1}))), toolset)
    assert [0, 1] == [content for _, _, content in answers(await agent.run("go"))]


async def test_descriptors_go_before_all_marks(way: str) -> None:
    """descriptors={name: …} is the host's word, whatever the tool says."""
    overlap = Overlap()

    async def act(n: int) -> int:
        async with overlap:
            await some_steps(3)
        return n

    toolset = FunctionToolset[Any]()
    toolset.add_function(act, metadata={"dispatch": FREE})
    agent = dispatched(
        way,
        scripted(asks(("act", {"n": 0}), ("act", {"n": 1}))),
        toolset,
        descriptors={"act": ToolConcurrency(writes="state:act")},
    )
    await agent.run("go")
    assert 1 == overlap.peak


@pytest.mark.parametrize("trusted", [False, True])
async def test_annotations_of_a_server(way: str, trusted: bool) -> None:
    """Tools that an MCP server calls read-only overlap only if the host trusts it."""
    overlap = Overlap()

    async def look(n: int) -> int:
        async with overlap:
            await some_steps(5)
        return n

    toolset = FunctionToolset[Any]()
    toolset.add_function(look, metadata=HINTS)
    agent = dispatched(
        way,
        scripted(asks(*[("look", {"n": n}) for n in range(3)])),
        toolset,
        trust_annotations=trusted,
    )
    await agent.run("go")
    assert (3 if trusted else 1) == overlap.peak


async def test_sequential_tools_of_two_runs_keep_apart(way: str) -> None:
    """`sequential` is a barrier of one turn to pydantic-ai; dispatch keeps it across runs too."""
    overlap = Overlap()

    async def alone() -> str:
        async with overlap:
            await some_steps(5)
        return "ok"

    toolset = FunctionToolset[Any]()
    toolset.add_function(alone, sequential=True)
    agent = dispatched(way, scripted(asks(("alone", {}))), toolset, undeclared="parallel")
    await asyncio.gather(agent.run("go"), agent.run("go"))
    assert 1 == overlap.peak


async def test_undeclared_tools_are_told_once(way: str) -> None:
    """One warning names the tools that ran alone because undeclared; a second run adds nothing."""

    async def act() -> None: ...

    async def other() -> None: ...

    async def known() -> None: ...

    agent = dispatched(
        way,
        scripted(asks(("act", {}), ("other", {}), ("known", {}), ("act", {}))),
        [act, other, known],
        descriptors={"known": FREE},
    )
    with capture_logs() as logs:
        await agent.run("go")
        await agent.run("go")
    assert [("warning", ["act", "other"])] == [(log["log_level"], log["tools"]) for log in logs]


async def test_nothing_is_told_of_tools_that_are_let_loose(way: str) -> None:
    """undeclared="parallel" is a decision: nothing ran alone, and nothing is told."""

    async def act() -> None: ...

    agent = dispatched(way, scripted(asks(("act", {}))), [act], undeclared="parallel")
    with capture_logs() as logs:
        await agent.run("go")
    assert [] == logs


class Edit(BaseModel):
    """What to edit."""

    path: str


async def test_claims_get_the_validated_arguments(way: str) -> None:
    """resource_keys sees what the tool gets: objects, where the tool takes objects."""
    overlap = Overlap()
    seen = []

    async def edit(edit: Edit) -> str:
        async with overlap:
            await some_steps(3)
        return edit.path

    def keys(arguments: Any) -> Any:
        seen.append(type(arguments["edit"]))
        return [write("file", arguments["edit"].path)]

    agent = dispatched(
        way,
        scripted(asks(("edit", {"path": "f"}), ("edit", {"path": "./f"}))),
        [edit],
        descriptors={"edit": ToolConcurrency(resource_keys=keys)},
    )
    assert ["f", "./f"] == [content for _, _, content in answers(await agent.run("go"))]
    assert 1 == overlap.peak
    assert {Edit} == set(seen)


class Named(BaseModel):
    """The only argument of a tool, one of whose fields has another name for the model."""

    path: str = Field(alias="filePath")
    times: int = 1


@dataclass
class Plain:
    """The same as a dataclass."""

    path: str
    times: int = 1


async def edit_named(edit: Named) -> str:
    """Edit."""
    return edit.path


async def edit_plain(edit: Plain) -> str:
    """Edit."""
    return edit.path


@pytest.mark.parametrize(
    ("tool", "name"), [(edit_named, "filePath"), (edit_plain, "path")], ids=["model", "dataclass"]
)
async def test_templates_name_the_fields_of_an_only_argument(
    way: str, tool: Callable[..., Any], name: str
) -> None:
    """What the model is shown as arguments can be named in templates, and is not a guess."""
    declared = {tool.__name__: ToolConcurrency(writes=f"file:{{{name}}}")}
    model = scripted(asks(*[(tool.__name__, {name: path}) for path in ("f", "g")]))
    meeting = Meeting(2)

    @wraps(tool)
    async def meet(edit: Any) -> Any:
        await meeting.join()
        return await tool(edit)

    with capture_logs() as logs:
        result = await dispatched(way, model, [meet], descriptors=declared).run("go")
    assert ["f", "g"] == [content for _, _, content in answers(result)]
    assert [] == logs


async def test_a_descriptor_that_does_not_fit_its_tool(way: str) -> None:
    """A template with a name that is no argument of the tool is refused before anything runs."""

    async def edit(file: str) -> str:
        return file

    agent = dispatched(
        way, scripted(asks(("edit", {"file": "f"}))), [edit], descriptors={"edit": FILE}
    )
    with pytest.raises(DeclarationError, match="'path', which is no argument"):
        await agent.run("go")


async def test_a_descriptor_that_raises_makes_its_call_exclusive(way: str) -> None:
    """Claims that cannot be told are all there are: the call runs, alone, and it is said once."""
    overlap = Overlap()

    async def act(n: int) -> int:
        async with overlap:
            await some_steps(3)
        return n

    def keys(arguments: Any) -> Any:
        raise KeyError("path")

    agent = dispatched(
        way,
        scripted(asks(("act", {"n": 0}), ("act", {"n": 1}))),
        [act],
        descriptors={"act": ToolConcurrency(resource_keys=keys)},
    )
    with capture_logs() as logs:
        told = answers(await agent.run("go"))
        await agent.run("go")
    assert [0, 1] == [content for _, _, content in told]
    assert 1 == overlap.peak
    assert ["KeyError" in log["tools"]["act"] for log in logs] == [True]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"descriptors": {"act": "parallel"}}, DeclarationError),
        ({"undeclared": "maybe"}, ValueError),
        ({"tool_errors": "swallow"}, ValueError),
        ({"descriptors": [FREE]}, DeclarationError),
        ({"patience": -1}, ValueError),
        ({"patience": "long"}, ValueError),
    ],
    ids=["descriptor", "undeclared", "tool_errors", "descriptors", "negative", "patience"],
)
def test_options_that_cannot_be_right(options: dict[str, Any], error: type[Exception]) -> None:
    """Mistakes in the options are told where they are made."""
    with pytest.raises(error):
        DispatchToolset(FunctionToolset[Any](), **options)


@pytest.mark.parametrize("wrapped", [[edit_plain], edit_plain], ids=["list", "function"])
def test_what_is_no_toolset_cannot_be_wrapped(wrapped: Any) -> None:
    """Functions in the place of a toolset are told where the wrapper is made."""
    with pytest.raises(TypeError, match="FunctionToolset"):
        DispatchToolset(wrapped)


async def test_metadata_of_a_prepared_tool_counts() -> None:
    """Metadata that a wrapper outside adds when the run prepares its tools is seen, too."""
    meeting = Meeting(2)

    async def act(n: int) -> int:
        await meeting.join()
        return n

    toolset = DispatchToolset(FunctionToolset[Any]([act])).with_metadata(dispatch=FREE)
    agent = Agent(scripted(asks(("act", {"n": 0}), ("act", {"n": 1}))), toolsets=[toolset])
    assert [0, 1] == [content for _, _, content in answers(await agent.run("go"))]


async def test_the_context_is_the_runs(way: str) -> None:
    """A tool's RunContext is the one that pydantic-ai made for its call."""

    async def who(ctx: RunContext[Any]) -> tuple[str | None, int]:
        return ctx.tool_name, ctx.run_step

    agent = dispatched(way, scripted(asks(("who", {}))), [who])
    assert [("c0", "success", ("who", 1))] == answers(await agent.run("go"))
