"""One result per call, with its true reason, in its place, and nothing that comes too late."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic_ai import ModelMessage, capture_run_messages

from dispatch import Allow, Deny
from tests.frameworks.pydantic_ai.agents import (
    FILE,
    FREE,
    answers,
    asks,
    dispatched,
    scripted,
    some_steps,
)

TENANT: ContextVar[str] = ContextVar("tenant_side_by_side", default="nobody")


async def test_a_late_result_of_an_abandoned_call_is_dropped(way: str) -> None:
    """D9: a call that was given up returns after all: its one answer is that it was given up."""
    goes_on, returned = asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        while not goes_on.is_set():
            try:
                await goes_on.wait()
            except asyncio.CancelledError:
                continue
        returned.set()
        return "late"

    async def free() -> str:
        goes_on.set()
        await returned.wait()
        await some_steps()
        return "free"

    agent = dispatched(
        way,
        scripted(asks(("stubborn", {})), asks(("free", {}), first=1)),
        [stubborn, free],
        descriptors={"stubborn": FREE, "free": FREE},
        call_timeout=1.0,
        grace=0.02,
    )
    told = answers(await agent.run("go"))
    assert [("c0", "failed"), ("c1", "success")] == [one[:2] for one in told]
    assert "may still be running" in told[0][2]
    assert "late" not in told[0][2]


async def test_each_reason_is_true(way: str) -> None:
    """D12: done, failed, timed out, denied and never started: each call is told its own."""

    async def act(path: str) -> str:
        if path == "fails":
            raise LookupError("no match")
        if path == "hangs":
            try:
                await asyncio.Event().wait()
            finally:  # until the call behind it has timed out too
                await asyncio.sleep(0.5)
        return path

    async def gate(call: Any, context: Any) -> Any:
        return Deny("not this one") if call.arguments["path"] == "denied" else Allow()

    paths = ("fine", "fails", "denied", "hangs", "hangs")
    agent = dispatched(
        way,
        scripted(asks(*[("act", {"path": path}) for path in paths])),
        [act],
        descriptors={"act": FILE},
        gates=[gate],
        call_timeout=0.1,
        grace=10.0,
    )
    told = answers(await agent.run("go"))
    reasons = [content.split("\n")[0] for _, _, content in told]
    assert "fine" == reasons[0]
    assert "[error] LookupError: no match" == reasons[1]
    assert "not this one" in reasons[2]
    assert "[timed_out] timed out after 0.1 s while running" == reasons[3]
    assert "never started" in reasons[4]
    assert not [reason for reason in reasons if "cancel" in reason]


async def test_reasons_after_the_host_cancels(way: str) -> None:
    """D12: after a cancel a result is a result, an error an error; only the open calls are open.

    Of those pydantic-ai says that they were interrupted, whether they ran or waited.
    """
    hangs = asyncio.Event()

    async def act(path: str) -> str:
        if path == "fails":
            raise LookupError("no match")
        if path == "hangs":
            hangs.set()
            await asyncio.Event().wait()
        return path

    paths = ("fine", "fails", "hangs", "hangs")
    agent = dispatched(
        way,
        scripted(asks(*[("act", {"path": path}) for path in paths])),
        [act],
        descriptors={"act": FILE},
        grace=0.01,
    )
    with capture_run_messages() as captured:
        running = asyncio.create_task(agent.run("go"))
        await hangs.wait()
        await some_steps()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    messages: list[ModelMessage] = list(captured)
    told = answers(await agent.run("go on", message_history=messages))
    assert [
        ("c0", "success", "fine"),
        ("c1", "failed", "[error] LookupError: no match"),
        ("c2", "interrupted", "The tool call was interrupted before a result was produced."),
        ("c3", "interrupted", "The tool call was interrupted before a result was produced."),
    ] == [(call_id, outcome, content.split("\n")[0]) for call_id, outcome, content in told]


async def test_a_denied_call_keeps_its_place(way: str) -> None:
    """D8: a call that a gate denies at once is told behind the slow one before it."""
    denied = asyncio.Event()

    async def act(n: int) -> str:
        await denied.wait()
        return f"did {n}"

    async def gate(call: Any, context: Any) -> Any:
        if call.arguments["n"] == 1:
            denied.set()
            return Deny("not this one")
        return Allow()

    agent = dispatched(
        way,
        scripted(asks(*[("act", {"n": n}) for n in range(3)])),
        [act],
        descriptors={"act": FREE},
        gates=[gate],
    )
    told = answers(await agent.run("go"))
    outcomes = [("c0", "success"), ("c1", "failed"), ("c2", "success")]
    assert outcomes == [one[:2] for one in told]
    assert "not this one" in told[1][2]


async def test_threads_side_by_side_have_their_own_context(way: str) -> None:
    """M4: two tools in threads at the same time see the caller's variable, not the other's."""
    both = threading.Barrier(2)

    def who(name: str) -> tuple[str, str]:
        seen = TENANT.get()
        both.wait(10)
        TENANT.set(name)
        both.wait(10)  # both have set theirs before either looks again
        return seen, TENANT.get()

    agent = dispatched(
        way,
        scripted(asks(("who", {"name": "a"}), ("who", {"name": "b"}))),
        [who],
        descriptors={"who": FREE},
    )
    TENANT.set("acme")
    told = [content for _, _, content in answers(await agent.run("go"))]
    assert [("acme", "a"), ("acme", "b")] == told
    assert "acme" == TENANT.get()
