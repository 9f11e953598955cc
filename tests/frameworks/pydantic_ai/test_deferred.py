"""Calls that are put off: deferred, waiting for approval, or run elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import (
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, ExternalToolset

from tests.frameworks.pydantic_ai.agents import FREE, Meeting, answers, asks, dispatched, scripted

OUTPUT = {"output_type": [str, DeferredToolRequests]}


def deleting(ran: list[str], kind: str) -> AbstractToolset[Any]:
    """A toolset whose `delete` needs approval, said in one of the ways that pydantic-ai has."""
    toolset = FunctionToolset[Any]()

    async def delete(ctx: RunContext[Any], path: str) -> str:
        if kind == "raised" and not ctx.tool_call_approved:
            raise ApprovalRequired({"path": path})
        ran.append(path)
        return f"deleted {path}"

    async def look(path: str) -> str:
        return f"saw {path}"

    toolset.add_function(delete, requires_approval=kind == "marked")
    toolset.add_function(look)
    if kind == "wrapped":
        return toolset.approval_required(lambda ctx, tool, arguments: tool.name == "delete")
    return toolset


TURN = asks(
    ("look", {"path": "a"}),
    ("delete", {"path": "b"}),
    ("delete", {"path": "c"}),
    ("look", {"path": "d"}),
)


@pytest.mark.parametrize("kind", ["raised", "marked", "wrapped"])
async def test_approved_calls_run_once_and_denied_ones_never(way: str, kind: str) -> None:
    """A call that needs approval is handed out; approved it runs once, denied it never does."""
    ran: list[str] = []
    agent = dispatched(way, scripted(TURN), deleting(ran, kind), agent=OUTPUT)
    first = await agent.run("go")
    requests = first.output
    assert isinstance(requests, DeferredToolRequests)
    assert ["c1", "c2"] == [call.tool_call_id for call in requests.approvals]
    assert [("c0", "success", "saw a"), ("c3", "success", "saw d")] == answers(first)
    assert [] == ran
    second = await agent.run(
        message_history=first.all_messages(),
        deferred_tool_results=DeferredToolResults(
            approvals={"c1": True, "c2": ToolDenied("not that one")}
        ),
    )
    assert ["b"] == ran
    told = answers(second.new_messages())
    assert [("c1", "success", "deleted b"), ("c2", "denied", "not that one")] == told
    assert "done" == second.output


@pytest.mark.parametrize("kind", ["raised", "marked"])
async def test_approval_while_the_run_goes_on(way: str, kind: str) -> None:
    """A capability that answers at once: the approved call runs once, in the same run."""
    ran: list[str] = []

    async def decide(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approve_all=True)

    agent = dispatched(
        way,
        scripted(TURN),
        deleting(ran, kind),
        agent={"capabilities": [HandleDeferredToolCalls(decide)]},
        descriptors={"delete": FREE, "look": FREE},
    )
    told = answers(await agent.run("go"))
    assert ["b", "c"] == sorted(ran)
    assert {"c0", "c1", "c2", "c3"} == {call_id for call_id, outcome, _ in told}
    assert {"success"} == {outcome for _, outcome, _ in told}


async def test_a_deferred_call_reaches_the_host_unchanged(way: str) -> None:
    """CallDeferred keeps its metadata and kind, and takes no retry; siblings have their results."""

    async def submit(n: int) -> str:
        raise CallDeferred({"task": n})

    async def ask() -> str:
        raise CallDeferred(kind="question")

    async def look() -> str:
        return "seen"

    agent = dispatched(
        way,
        scripted(asks(("submit", {"n": 5}), ("look", {}), ("ask", {}))),
        [submit, ask, look],
        agent=OUTPUT,
    )
    first = await agent.run("go")
    requests = first.output
    assert isinstance(requests, DeferredToolRequests)
    assert {"c0": {"task": 5}} == requests.metadata
    assert ["c0", "c2"] == [call.tool_call_id for call in requests.calls]
    assert ("external", "question") == (requests.kind("c0"), requests.kind("c2"))
    assert [("c1", "success", "seen")] == answers(first)
    second = await agent.run(
        message_history=first.all_messages(),
        deferred_tool_results=DeferredToolResults(calls={"c0": "result", "c2": "yes"}),
    )
    told = answers(second.new_messages())
    assert [("c0", "success", "result"), ("c2", "success", "yes")] == told


async def test_external_tools_are_never_called(way: str) -> None:
    """An external tool beside others is handed out, and holds up nobody."""
    meeting = Meeting(2)

    async def look() -> str:
        await meeting.join()
        return "seen"

    toolset = CombinedToolset(
        [FunctionToolset([look]), ExternalToolset([ToolDefinition(name="outside")])]
    )
    agent = dispatched(
        way,
        scripted(asks(("look", {}), ("outside", {}), ("look", {}))),
        toolset,
        agent=OUTPUT,
        descriptors={"look": FREE},
        patience=1000.0,
    )
    result = await agent.run("go")
    assert isinstance(result.output, DeferredToolRequests)
    assert ["c1"] == [call.tool_call_id for call in result.output.calls]
    assert [("c0", "success", "seen"), ("c2", "success", "seen")] == answers(result)


async def test_resumed_calls_wait_for_nobody_who_is_answered(way: str) -> None:
    """On resume, calls that have their results already are not waited for."""
    ran: list[str] = []
    agent = dispatched(way, scripted(TURN), deleting(ran, "marked"), agent=OUTPUT, patience=1000.0)
    first = await agent.run("go")
    results = DeferredToolResults(approvals={"c1": True, "c2": True})
    await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert ["b", "c"] == ran


async def test_a_call_approved_beside_an_external_one_waits_for_nobody(way: str) -> None:
    """An external call that is answered at once holds up no approved one behind it."""
    ran: list[str] = []

    async def decide(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approve_all=True, calls={"c0": "answer"})

    external = ExternalToolset[Any]([ToolDefinition(name="outside")])
    agent = dispatched(
        way,
        scripted(asks(("outside", {}), ("delete", {"path": "b"}))),
        CombinedToolset([external, deleting(ran, "marked")]),
        agent={"capabilities": [HandleDeferredToolCalls(decide)]},
        patience=1000.0,
    )
    told = answers(await agent.run("go"))
    assert ["b"] == ran
    assert {("c0", "success", "answer"), ("c1", "success", "deleted b")} == set(told)
