"""What the model is told to do next must be true of what became of its call."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    CallContext,
    CancelToken,
    Deadlock,
    Deny,
    Dispatcher,
    Failure,
    FailureKind,
    Limits,
    Quorum,
    Rate,
    Ref,
    Status,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    tool,
)
from dispatch.adapters.answers import told
from dispatch.advice import advice
from dispatch.call import STATUS_KINDS, Phase
from dispatch.middleware import AttemptTimeout
from dispatch.testing import run_in_virtual_time

NOTHING = "Nothing was"
DOUBT = "may have done"
WAITING = (Phase.GATE, Phase.ORDER, Phase.LOCK, Phase.SLOT, Phase.RATE)


@tool
async def slow() -> None:
    """Runs alone, for a long time."""
    await asyncio.sleep(99)


@tool(safe_parallel=True, idempotent=True)
async def again() -> None:
    """As often as you like."""
    await asyncio.sleep(99)


@tool
async def stubborn() -> None:
    """Does not stop when it is asked to."""
    for _ in range(20):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue


@tool
async def quick(context: CallContext, number: int = 0) -> int:
    """Can be undone."""
    context.on_rollback(lambda: None)
    return number


@tool
async def regretted(context: CallContext) -> str:
    """Cannot be undone, though it says so."""

    def undo() -> None:
        raise OSError("no way back")

    context.on_rollback(undo)
    return "done"


@tool
async def fails() -> None:
    """Always."""
    raise ToolError("there is no x")


@tool
async def busy() -> None:
    """Now."""
    raise ToolError("try later", retryable=True)


@tool
async def stuck() -> None:
    """In a circle."""
    raise Deadlock("waits for b, which waits for a")


@tool
async def gives_up() -> None:
    """By itself."""
    raise asyncio.CancelledError


TOOLS = [slow, again, stubborn, quick, regretted, fails, busy, stuck, gives_up]
Names = Sequence[str | ToolCall]


async def ran(names: Names, *, stop: bool = False, **options: Any) -> list[ToolResult]:
    """The results of calls of these names; the turn is stopped after a second."""
    calls = [
        ToolCall(f"c{place}", one, {}) if isinstance(one, str) else one
        for place, one in enumerate(names)
    ]
    own = {
        name: options.pop(name)
        for name in ("gates", "limits", "middleware", "duplicates", "max_concurrent", "tools")
        if name in options
    }
    token = CancelToken()
    if stop:
        asyncio.get_running_loop().call_later(1, token.cancel, "the user has left")
    async with Dispatcher(**{"tools": TOOLS, **own}) as dispatcher:
        return [*await dispatcher.run(calls, token=token, **options)]


async def withdrawn() -> list[ToolResult]:
    async with Dispatcher(TOOLS) as dispatcher, dispatcher.turn(timeout=1) as turn:
        turn.submit(ToolCall("a", "slow", {}))
        turn.submit(ToolCall("b", "slow", {}))
        await asyncio.sleep(0.5)
        turn.withdraw("the stream broke")
        return [*await turn.finish()]


async def denying(call: ToolCall, context: object) -> Deny:
    return Deny("not today")


async def thinking(call: ToolCall, context: object) -> Deny:
    await asyncio.sleep(99)
    return Deny("too late")


def late(name: str, **more: Any) -> ToolCall:
    return ToolCall("late", name, {}, timeout=1, **more)


dear = Tool("dear", lambda: None, safe_parallel=True, cost=9)
named = ToolCall("named", "quick", {"number": Ref("c0", "")})
SCENARIOS: dict[str, tuple[Callable[[], Awaitable[list[ToolResult]]], list[str]]] = {
    "stopped": (lambda: ran(["slow", "slow"], stop=True), ["cancelled", "cancelled"]),
    "stopped, and can be run twice": (lambda: ran(["again"], stop=True), ["cancelled"]),
    "withdrawn": (withdrawn, ["timed_out", "cancelled"]),
    "too late, and behind another": (
        lambda: ran([late("slow"), late("slow")]),
        ["timed_out", "timed_out"],
    ),
    "too late for a slot": (
        lambda: ran(["again", late("again")], max_concurrent=1, timeout=2),
        ["timed_out", "timed_out"],
    ),
    "too late for an answer": (lambda: ran([late("slow")], gates=[thinking]), ["timed_out"]),
    "an attempt too late": (
        lambda: ran(["slow"], middleware=[AttemptTimeout(1)]),
        ["timed_out"],
    ),
    "given up": (lambda: ran(["stubborn", "slow"], stop=True), ["unknown", "cancelled"]),
    "behind what was given up": (
        lambda: ran([late("stubborn"), "slow"]),
        ["unknown", "skipped"],
    ),
    "without what it needs": (lambda: ran(["fails", named]), ["error", "skipped"]),
    "behind a failure": (
        lambda: ran(["fails", "quick"], policy=AllOrNothing()),
        ["error", "skipped"],
    ),
    "undone": (lambda: ran(["quick", "fails"], policy=AllOrNothing()), ["rolled_back", "error"]),
    "undone for the user": (
        lambda: ran(["quick", "slow", "quick"], policy=AllOrNothing(), stop=True),
        ["rolled_back", "cancelled", "cancelled"],
    ),
    "not undone": (
        lambda: ran(["regretted", "fails"], policy=AllOrNothing()),
        ["unknown", "error"],
    ),
    "enough": (
        lambda: ran(["quick", "slow"], policy=Quorum(required=1)),
        ["ok", "cancelled"],
    ),
    "the same": (
        lambda: ran(["again", "again"], duplicates="reject", timeout=1),
        ["timed_out", "error"],
    ),
    "unknown": (lambda: ran(["slwo"]), ["error"]),
    "invalid": (lambda: ran([ToolCall("a", "quick", {"number": "x"})]), ["error"]),
    "named in vain": (lambda: ran([ToolCall("a", "quick", {}, after=("z",))]), ["error"]),
    "denied": (lambda: ran(["slow"], gates=[denying]), ["error"]),
    "too dear": (
        lambda: ran(["dear"], tools=[dear], limits=Limits(rates={"dear": Rate(1, 1)})),
        ["error"],
    ),
    "failed": (lambda: ran(["fails", "busy", "stuck", "gives_up"]), ["error"] * 4),
}


@pytest.mark.parametrize("case", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_the_advice_is_true(
    case: tuple[Callable[[], Awaitable[list[ToolResult]]], list[str]],
) -> None:
    """D12: what never ran is never in doubt, and of what ran it is never said that nothing was."""
    scenario, statuses = case

    async def main() -> list[ToolResult]:
        return await scenario()

    results = run_in_virtual_time(main())
    assert statuses == [result.status for result in results]
    for result in results:
        if result.failure is not None:
            said = advice(result.status, result.failure)
            wrong = DOUBT if result.started_at is None else NOTHING
            assert wrong not in said, (result.content(), said)
            assert told(result) == f"{result.content()}\n{said}"


def said_of(names: Names, **options: Any) -> list[str]:
    """The advice that follows each failure."""

    async def main() -> list[ToolResult]:
        return await ran(names, **options)

    results = run_in_virtual_time(main())
    return [advice(one.status, one.failure) for one in results if one.failure is not None]


def test_what_ran_and_was_stopped_is_in_doubt() -> None:
    """D12: it is not told as something that nobody has done, unless running it twice is as good."""
    assert [True, False] == [DOUBT in said for said in said_of(["slow", "slow"], stop=True)]
    assert [False] == [DOUBT in said for said in said_of(["again"], stop=True)]
    assert [True] == [DOUBT in said for said in said_of(["gives_up"])]


def test_the_same_again_is_advised_only_where_it_may_help() -> None:
    """A failure that will come again is not to be repeated as it is."""
    failed, busy, stuck = said_of(["fails", "busy", "stuck"])
    assert "Do not repeat the same call" in failed
    assert busy == stuck == "Calling it again may help."
    assert (
        "Do not repeat"
        in said_of(["dear"], tools=[dear], limits=Limits(rates={"dear": Rate(1, 1)}))[0]
    )


def test_every_failure_has_one_short_advice() -> None:
    """Whatever the kind, the phase and the rest are, it is a sentence or two, never empty."""
    pairs = [(status, kind) for status, kinds in STATUS_KINDS.items() for kind in kinds]
    assert {kind for _, kind in pairs} == set(FailureKind)
    for (status, kind), phase, retryable, cause in itertools.product(
        pairs, [None, *Phase], [False, True], [None, 0]
    ):
        failure = Failure(kind=kind, message="x", phase=phase, retryable=retryable, cause=cause)
        said = advice(status, failure)
        assert 20 < len(said) < 100
        assert said.endswith(".")
        assert 2 >= said.count(".")


@pytest.mark.parametrize("phase", [None, *Phase])
@pytest.mark.parametrize(
    ("status", "kind"),
    [(Status.TIMED_OUT, FailureKind.TIMEOUT), (Status.CANCELLED, FailureKind.CANCELLED)],
)
def test_only_what_waited_is_said_not_to_have_been_done(
    status: Status, kind: FailureKind, phase: Phase | None
) -> None:
    """Where nobody knows whether the tool ran, it may have."""
    said = advice(status, Failure(kind=kind, message="x", phase=phase))
    assert (phase in WAITING) is (NOTHING in said)
    assert (phase not in WAITING) is (DOUBT in said)
