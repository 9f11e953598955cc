"""What pydantic-ai's tools can do, they still can: retries, limits, outputs, streams, context."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    FunctionToolset,
    ModelRetry,
    RunContext,
    ToolFailed,
    ToolReturn,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import (
    ModelRequest,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import UsageLimits

from dispatch.adapters.pydantic_ai import DispatchToolset
from tests.frameworks.pydantic_ai.agents import (
    FREE,
    MEND,
    Meeting,
    answers,
    asks,
    dispatched,
    scripted,
    some_steps,
)


@pytest.fixture
def own_loop() -> Iterator[None]:
    """An event loop for run_sync, which leaves the one that it makes open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


async def test_a_retry_is_asked_for_and_counted(way: str) -> None:
    """ModelRetry reaches the model as a retry prompt, and the next success is the answer."""

    async def fetch(ctx: RunContext[None]) -> str:
        if ctx.retry == 0:
            raise ModelRetry("say which")
        return f"after {ctx.retry}"

    agent = dispatched(way, scripted(asks(("fetch", {})), asks(("fetch", {}), first=1)), [fetch])
    told = answers(await agent.run("go"))
    assert [("c0", "retried", "say which"), ("c1", "success", "after 1")] == told


async def test_the_budget_of_retries_is_the_hosts(way: str) -> None:
    """A tool that asks for more retries than it has ends the run, as without dispatch."""
    tries = []

    async def fetch() -> str:
        tries.append(1)
        raise ModelRetry("again")

    steps = [asks(("fetch", {}), first=n) for n in range(5)]
    agent = dispatched(way, scripted(*steps), [fetch], agent={"retries": 2})
    with pytest.raises(UnexpectedModelBehavior, match="exceeded max retries count of 2"):
        await agent.run("go")
    assert 3 == len(tries)


async def test_a_tool_may_fail_for_good(way: str) -> None:
    """ToolFailed is a failed result with the tool's own words, and no retry."""

    async def fetch() -> str:
        raise ToolFailed("no such page")

    agent = dispatched(way, scripted(asks(("fetch", {}))), [fetch], agent={"retries": 0})
    assert [("c0", "failed", "no such page")] == answers(await agent.run("go"))


async def test_arguments_that_do_not_validate_are_a_retry(way: str) -> None:
    """A validation error is the model's to repair; the tool does not run on guessed arguments."""
    ran = []

    async def add(n: int) -> int:
        ran.append(n)
        return n + 1

    steps = [asks(("add", {"n": "x"}), ("add", {"n": 1})), asks(("add", {"n": 2}), first=2)]
    agent = dispatched(way, scripted(*steps), [add])
    told = answers(await agent.run("go"))
    assert ["retried", "success", "success"] == [outcome for _, outcome, _ in told]
    assert [1, 2] == ran


async def test_an_unknown_tool_is_a_retry(way: str) -> None:
    """F4: an unknown name is told with the names there are; its siblings run."""

    async def search() -> str:
        return "found"

    agent = dispatched(way, scripted(asks(("serch", {}), ("search", {}))), [search])
    told = answers(await agent.run("go"))
    assert ("c0", "retried") == told[0][:2]
    assert "'search'" in told[0][2]
    assert ("c1", "success", "found") == told[1]


async def test_a_limit_of_calls_starts_none_too_many(way: str) -> None:
    """L8: under a limit of six a batch of eight starts none: the run ends by the host's rule."""
    ran = []

    async def act() -> None:
        ran.append(1)

    agent = dispatched(way, scripted(asks(*[("act", {})] * 8)), [act], descriptors={"act": FREE})
    with pytest.raises(UsageLimitExceeded):
        await agent.run("go", usage_limits=UsageLimits(tool_calls_limit=6))
    assert [] == ran
    result = await agent.run("go", usage_limits=UsageLimits(tool_calls_limit=8))
    assert 8 == result.usage.tool_calls == len(ran)


async def test_only_calls_that_succeed_are_counted(way: str) -> None:
    """A failed call is not counted as a tool call, as without dispatch."""

    async def act(n: int) -> int:
        if n:
            raise ToolFailed("no")
        return n

    agent = dispatched(way, scripted(asks(("act", {"n": 0}), ("act", {"n": 1}))), [act])
    assert 1 == (await agent.run("go")).usage.tool_calls


async def test_a_tools_own_time_limit_is_the_hosts(way: str) -> None:
    """A tool's timeout is a retry prompt, and counts only while the tool runs."""
    toolset = FunctionToolset[Any]()

    @toolset.tool_plain(timeout=0.05)
    async def slow() -> str:
        await Meeting(2).join()
        return "never"

    agent = dispatched(way, scripted(asks(("slow", {}), ("slow", {}))), toolset)
    told = answers(await agent.run("go"))
    text = "Timed out after 0.05 seconds."
    assert [("c0", "retried", text), ("c1", "retried", text)] == told


async def test_a_return_with_content_and_metadata(way: str) -> None:
    """ToolReturn keeps its value, its metadata, and the content for the model."""

    async def look() -> ToolReturn[int]:
        return ToolReturn(return_value=7, content="a picture", metadata={"from": "camera"})

    agent = dispatched(way, scripted(asks(("look", {}))), [look])
    messages = (await agent.run("go")).all_messages()
    returned, shown = messages[2].parts
    assert isinstance(returned, ToolReturnPart)
    assert (7, {"from": "camera"}) == (returned.content, returned.metadata)
    assert isinstance(shown, UserPromptPart)
    assert "a picture" == shown.content


async def test_deps_and_context_variables_reach_the_tool(way: str) -> None:
    """M4: a tool sees the deps, its call's id, and the context variables of the agent's caller."""

    async def who(ctx: RunContext[str]) -> tuple[str, str | None, str]:
        seen = TENANT.get()
        TENANT.set(f"{ctx.tool_call_id}")
        return ctx.deps, ctx.tool_call_id, seen

    agent = dispatched(
        way, scripted(asks(("who", {}), ("who", {}))), [who], agent={"deps_type": str}
    )
    token = TENANT.set("acme")
    try:
        told = answers(await agent.run("go", deps="d"))
        assert "acme" == TENANT.get()
    finally:
        TENANT.reset(token)
    assert [("d", "c0", "acme"), ("d", "c1", "acme")] == [content for _, _, content in told]


@dataclass
class Final:
    """The output of the run."""

    text: str


@pytest.mark.parametrize("strategy", ["early", "graceful", "exhaustive"])
async def test_outputs_and_end_strategies(way: str, strategy: str) -> None:
    """Output tools do not go through dispatch; which tools still run is the strategy's decision."""
    ran = []

    async def act(n: int) -> int:
        await some_steps(3)
        ran.append(n)
        return n

    turn = asks(
        ("act", {"n": 0}), ("act", {"n": 1}), ("final_result", {"text": "x"}), ("act", {"n": 2})
    )
    agent = dispatched(
        way, scripted(turn), [act], agent={"output_type": Final, "end_strategy": strategy}
    )
    result = await agent.run("go")
    assert Final("x") == result.output
    assert ([] if strategy == "early" else [0, 1, 2]) == ran
    assert ["c0", "c1", "c2", "c3"] == sorted(call_id for call_id, _, _ in answers(result))


@pytest.mark.usefixtures("own_loop")
def test_a_run_without_a_loop(way: str) -> None:
    """run_sync works, several times over."""

    async def act(n: int) -> int:
        await some_steps(2)
        return n

    agent = dispatched(way, scripted(asks(("act", {"n": 0}), ("act", {"n": 1}))), [act])
    for _ in range(3):
        assert [0, 1] == [content for _, _, content in answers(agent.run_sync("go"))]


class Repairs(AbstractCapability[Any]):
    """Knows an answer to an exception of a tool."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_tool_execute_error(
        self, ctx: RunContext[Any], *, error: Exception, **_: Any
    ) -> Any:
        self.seen.append(repr(error))
        if isinstance(error, LookupError):
            return "repaired"
        raise error


async def test_hooks_of_others_see_what_a_tool_raised() -> None:
    """With the capability, hooks of others may answer a tool's exception before it is told."""
    repairs = Repairs()

    async def act(n: int) -> int:
        raise LookupError(n) if n else ValueError(n)

    agent = dispatched(
        "capability",
        scripted(asks(("act", {"n": 0}), ("act", {"n": 1}))),
        [act],
        agent={"capabilities": [repairs]},
    )
    told = answers(await agent.run("go"))
    assert ["ValueError(0)", "LookupError(1)"] == repairs.seen
    assert [("c0", "failed", f"[error] ValueError: 0{MEND}"), ("c1", "success", "repaired")] == told


async def test_a_missing_result_never_reaches_the_model(way: str) -> None:
    """Whatever the calls do, the next request answers every call once, in order."""

    async def act(n: int) -> int:
        if n == 1:
            raise ModelRetry("1")
        if n == 2:
            raise ToolFailed("2")
        if n == 3:
            raise ValueError("3")
        return n

    turn = asks(*[("act", {"n": n}) for n in range(5)], ("odd", {}), ("act", {}))
    agent = dispatched(way, scripted(turn), [act])
    messages = (await agent.run("go")).all_messages()
    request = messages[2]
    assert isinstance(request, ModelRequest)
    told = [(part.tool_call_id, part.outcome) for part in request.parts]  # type: ignore[union-attr]
    outcomes = ["success", "retried", "failed", "failed", "success", "retried", "retried"]
    assert [(f"c{n}", outcome) for n, outcome in enumerate(outcomes)] == told


@pytest.mark.usefixtures("own_loop")
def test_the_agent_needs_nothing_else() -> None:
    """The wrapper can be put around a toolset where the agent is made, or into it per run."""
    agent = Agent(scripted(asks(("act", {}))))

    def act() -> str:
        return "ok"

    result = agent.run_sync("go", toolsets=[DispatchToolset(FunctionToolset([act]))])
    assert [("c0", "success", "ok")] == answers(result)
