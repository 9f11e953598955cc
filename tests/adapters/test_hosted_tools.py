"""What a host shows of its tools, and what is made of it."""

import asyncio
from typing import Any

import pytest
import structlog

from dispatch import (
    DeclarationError,
    FailureKind,
    ToolCall,
    ToolConcurrency,
)
from dispatch.adapters.hosted import HostedTools, HostedTurns
from tests.adapters.hosts import FREE, SCHEMA, WRITES, Arguments, change, hosted


async def test_a_call_runs_by_the_marks_that_its_host_showed() -> None:
    """What another host shows under the same name while a call waits is not that call's."""
    tools = HostedTools()
    turns = HostedTurns(tools, patience=5.0)
    inside, peak = 0, 0

    async def invoke(arguments: Arguments) -> None:
        nonlocal inside, peak
        inside += 1
        peak = max(peak, inside)
        await asyncio.sleep(0)
        inside -= 1

    writes = tools.see("change", WRITES, schema=SCHEMA)
    waiting = [
        asyncio.create_task(turns.run("turn", change(one), invoke, before=["a"], tool=writes))
        for one in ("b", "c")
    ]
    await asyncio.sleep(0)
    tools.see("change", FREE)
    turns.drop("turn", "a")
    await asyncio.gather(*waiting)
    assert 1 == peak


async def test_claims_that_could_not_be_told_are_told_of_once() -> None:
    """A call that ran alone for an error of its descriptor is in one warning, with the error."""
    turns = hosted()

    async def invoke(arguments: Arguments) -> None:
        return None

    with structlog.testing.capture_logs() as logs:
        for call_id in ("a", "b", "c"):
            await turns.run("turn", ToolCall(call_id, "change", {}), invoke)
    assert ["KeyError" in log["tools"]["change"] for log in logs] == [True]


async def test_tools_that_ran_alone_are_told_once() -> None:
    """Each undeclared tool is named in one warning, not with every turn."""
    tools = HostedTools()
    for name in ("vague", "vaguer"):
        tools.see(name)
    tools.see("free", FREE)
    turns = HostedTurns(tools)

    async def invoke(arguments: Arguments) -> Any:
        return None

    with structlog.testing.capture_logs() as logs:
        for names in (("vague", "free"), ("vague", "vaguer")):
            await turns.run_all([(ToolCall(name, name, {}), invoke) for name in names])
    assert [["vague"], ["vaguer"]] == [entry["tools"] for entry in logs]


def test_descriptors_come_before_marks() -> None:
    """What the host says of a tool by name counts, also for a tool that comes later."""
    tools = HostedTools(descriptors={"later": FREE}, undeclared="parallel")
    tools.see("later", WRITES, schema=SCHEMA)
    tools.see("vague")
    assert () == tools["later"].claims({"key": "k"})[0]
    assert ["tool"] == [claim.key[0] for claim in tools["vague"].claims({})[0]]


def test_a_tool_may_change_its_marks() -> None:
    """What a host shows of a tool later counts from then on."""
    tools = HostedTools()
    tools.see("tool", FREE)
    tools.see("tool", ToolConcurrency(read_only=True))
    assert tools["tool"].concurrency.read_only


def test_a_template_with_a_misspelt_argument_is_refused() -> None:
    """The host hears of it when it shows the tool, not in the middle of a turn."""
    with pytest.raises(DeclarationError, match="'kye', which is no argument"):
        HostedTools().see("tool", ToolConcurrency(writes="key:{kye}"), schema=SCHEMA)


async def test_an_unknown_tool_is_an_error_result() -> None:
    """F4: a tool that the host never showed is refused, with the names there are."""

    async def invoke(arguments: Arguments) -> Any:
        raise AssertionError("it ran")

    result = await hosted().run("turn", ToolCall("a", "chnage", {}), invoke)
    failure = result.failure
    assert failure is not None
    assert (FailureKind.UNKNOWN_TOOL, True) == (failure.kind, "'change'" in failure.message)
