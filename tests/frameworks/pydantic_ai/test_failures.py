"""Failures stay with their call, and what is fatal leaves nothing going on."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.exceptions import UserError

from tests.frameworks.pydantic_ai.agents import (
    FILE,
    FREE,
    MEND,
    Files,
    answers,
    asks,
    dispatched,
    scripted,
    some_steps,
)


async def test_one_failure_of_27_stays_alone(way: str) -> None:
    """G1, G2: one call of 27 fails; 26 real results and one error reach the model."""

    async def grep(n: int) -> str:
        await some_steps(2)
        if n == 3:
            raise LookupError("no match")
        return f"match {n}"

    turn = asks(*[("grep", {"n": n}) for n in range(27)])
    agent = dispatched(way, scripted(turn), [grep], descriptors={"grep": FREE})
    told = answers(await agent.run("go"))
    assert 26 == sum(outcome == "success" for _, outcome, _ in told)
    assert ("c3", "failed", f"[error] LookupError: no match{MEND}") == told[3]


async def test_fragile_writers_harm_nobody(way: str) -> None:
    """G2: writers of one file go on behind one that failed."""
    files = Files(f="a b c")

    async def edit(path: str, old: str, new: str) -> str:
        if old == "b":
            raise OSError("disk")
        return await files.edit(path, old, new)

    turn = asks(*[("edit", {"path": "f", "old": c, "new": c.upper()}) for c in "abc"])
    agent = dispatched(way, scripted(turn), [edit], descriptors={"edit": FILE})
    told = answers(await agent.run("go"))
    assert ["success", "failed", "success"] == [outcome for _, outcome, _ in told]
    assert "A b C" == files.texts["f"]


async def test_a_skip_names_its_cause(way: str) -> None:
    """G3: with dependents="skip" the error stays with its call, and the skipped one names it."""

    async def edit(path: str) -> str:
        raise OSError("disk full")

    turn = asks(("edit", {"path": "f"}), ("edit", {"path": "f"}))
    agent = dispatched(way, scripted(turn), [edit], descriptors={"edit": FILE}, dependents="skip")
    first, second = answers(await agent.run("go"))
    assert ("c0", "failed", f"[error] OSError: disk full{MEND}") == first
    assert ("c1", "failed") == second[:2]
    assert "edit (call 0) failed" in second[2]


async def test_siblings_of_a_raise_keep_their_results(way: str) -> None:
    """G4: [ok, raise, ok] keeps two outputs."""

    async def act(n: int) -> int:
        if n == 1:
            raise RuntimeError("one")
        return n

    turn = asks(*[("act", {"n": n}) for n in range(3)])
    agent = dispatched(way, scripted(turn), [act], descriptors={"act": FREE})
    told = answers(await agent.run("go"))
    assert [0, f"[error] RuntimeError: one{MEND}", 2] == [content for _, _, content in told]


@pytest.mark.parametrize("fatal", ["a usage mistake", "any error, if the host says so"])
async def test_nothing_is_written_after_a_fatal_error(way: str, fatal: str) -> None:
    """G5, G6: what ends the run stops the siblings first; nothing happens once it was raised."""
    written = []
    started = asyncio.Event()

    async def fails() -> str:
        await started.wait()
        if fatal == "a usage mistake":
            raise UserError("cannot go on")
        raise RuntimeError("cannot go on")

    async def patch() -> str:
        started.set()
        await some_steps(50)
        written.append("late")
        return "patched"

    agent = dispatched(
        way,
        scripted(asks(("fails", {}), ("patch", {}))),
        [fails, patch],
        descriptors={"fails": FREE, "patch": FREE},
        tool_errors="raise",
        grace=0.0,
    )
    with pytest.raises(RuntimeError, match="cannot go on"):
        await agent.run("go")
    await some_steps(100)
    assert [] == written


async def test_the_sibling_of_a_fatal_error_is_cancelled_and_awaited(way: str) -> None:
    """G8, G9: the sibling sees its cancel, and has cleaned up before the error is raised."""
    seen = []
    started = asyncio.Event()

    async def slow() -> str:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await some_steps()
            seen.append("closed")
            raise
        return "never"

    async def fails() -> str:
        await started.wait()
        raise RuntimeError("fatal")

    agent = dispatched(
        way,
        scripted(asks(("slow", {}), ("fails", {}))),
        [slow, fails],
        descriptors={"slow": FREE, "fails": FREE},
        tool_errors="raise",
        grace=0.01,
    )
    with pytest.raises(RuntimeError, match="fatal"):
        await agent.run("go")
    assert ["closed"] == seen
