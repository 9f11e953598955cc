"""Sessions, and which result belongs to which call: kept, in order, and honest about the rest."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from dispatch import (
    CallContext,
    CallEvent,
    CancelToken,
    Dispatcher,
    FailureKind,
    Status,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    TurnResult,
    tool,
)
from dispatch.events import Event
from dispatch.runtime.middleware import Handler
from dispatch.testing import run_in_virtual_time
from tests.timeline import SCHEDULES, Timeline, calls, dispatched, gathered


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_clicks_on_one_page_come_in_the_order_of_the_model(schedule: str) -> None:
    """C5: five clicks on a page type the word, none on a stale element; another page goes on."""
    typed: dict[str, list[str]] = {"page1": [], "page2": []}
    timeline = Timeline()

    @tool(resource_keys=lambda given: [], session=lambda given: f"browser:{given['page']}")
    async def click(page: str, letter: str, at: int) -> str:
        with timeline.span(f"{page} {at}"):
            elements = len(typed[page])
            await asyncio.sleep(5 - at)  # the first click takes longest
            if elements != len(typed[page]):
                raise ToolError("stale element")
            typed[page].append(letter)
        return letter

    word = [
        ("click", {"page": "page1", "letter": letter, "at": n}) for n, letter in enumerate("hello")
    ]
    turn = calls(*word, ("click", {"page": "page2", "letter": "x", "at": 0}))
    outcomes = gathered([click], turn)
    assert 4 == sum(isinstance(each, ToolError) for each in outcomes)

    timeline.spans.clear()
    typed = {"page1": [], "page2": []}
    result = dispatched([click], turn, schedule=schedule)
    assert [Status.OK] * 6 == [each.status for each in result]
    assert {"page1": list("hello"), "page2": ["x"]} == typed
    assert (schedule != "serial") == timeline.overlap("page1 0", "page2 0")


def waiting_tools() -> list[Tool]:
    @tool(safe_parallel=True)
    async def answer(text: str, after: float) -> str:
        await asyncio.sleep(after)
        return text

    @tool(safe_parallel=True)
    async def fail(text: str, after: float) -> str:
        await asyncio.sleep(after)
        raise ToolError(text)

    @tool(safe_parallel=True)
    async def hang() -> str:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return [answer, fail, hang]


def answer(text: str, after: float) -> tuple[str, dict[str, str | float]]:
    return "answer", {"text": text, "after": after}


TWO_FAST_ONE_HANGS = calls(answer("a", 0.1), answer("b", 0.2), ("hang", {}))


def assert_two_kept_one_cancelled(results: Sequence[ToolResult]) -> None:
    assert [Status.OK, Status.OK, Status.CANCELLED] == [each.status for each in results]
    assert ["a", "b", None] == [each.value for each in results]
    assert results[2].failure is not None
    assert FailureKind.CANCELLED == results[2].failure.kind
    assert 0.0 == results[2].started_at, "it was running when the turn was stopped"


def test_finished_results_survive_a_cancelled_turn() -> None:
    """D2: a sibling hangs and the host gives up at t = 1: two real results and one cancelled."""

    async def main() -> None:
        async with Dispatcher(waiting_tools()) as dispatcher:
            running = asyncio.create_task(dispatcher.run(TWO_FAST_ONE_HANGS))
            await asyncio.sleep(1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await running
            turn = getattr(caught.value, "turn", None)
            assert isinstance(turn, TurnResult)
            assert_two_kept_one_cancelled(turn.results)

    run_in_virtual_time(main())


def test_finished_results_survive_a_cancelled_token() -> None:
    """D2: the same with a token: nothing is raised, and the time is the token's, not the hang's."""

    async def main() -> None:
        token = CancelToken()
        loop = asyncio.get_running_loop()
        loop.call_at(1.0, token.cancel, "the user pressed escape")
        async with Dispatcher(waiting_tools()) as dispatcher:
            result = await dispatcher.run(TWO_FAST_ONE_HANGS, token=token)
        assert_two_kept_one_cancelled(result.results)
        assert "the user pressed escape" in result[2].content()
        assert 1.0 == loop.time()

    run_in_virtual_time(main())


def test_finished_results_can_be_read_while_a_sibling_hangs() -> None:
    """D2: what has ended is there at once, not when the whole turn is over."""

    async def main() -> None:
        async with Dispatcher(waiting_tools()) as dispatcher, dispatcher.turn(timeout=2) as turn:
            for call in TWO_FAST_ONE_HANGS:
                turn.submit(call)
            await asyncio.sleep(1)
            assert ["a", "b"] == [each.value for each in turn.snapshot()]

    run_in_virtual_time(main())


@pytest.mark.parametrize("schedule", ["dataflow", "groups", "clusters"])
def test_results_are_in_intent_order_though_they_end_otherwise(schedule: str) -> None:
    """D6: [slow, fast] comes back as slow, fast; only the events tell which was first."""

    async def main() -> None:
        dispatcher = Dispatcher(waiting_tools())
        async with dispatcher.turn(schedule=schedule) as turn:
            for call in calls(answer("slow", 5), answer("fast", 1)):
                turn.submit(call)
            turn.close()
            ended = [each.value async for each in turn.events()]
            result = await turn.finish()
        assert ["fast", "slow"] == ended
        assert ["slow", "fast"] == [each.value for each in result]
        assert [0, 1] == [each.index for each in result]

    run_in_virtual_time(main())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_timing_does_not_change_a_byte_of_what_the_model_reads(schedule: str) -> None:
    """D7: the same turn in every order of ending: the same bytes, so the prompt cache holds."""
    told = set()
    for times in itertools.permutations((0.5, 1.0, 1.5)):
        turn = calls(
            answer("one", times[0]),
            ("fail", {"text": "two", "after": times[1]}),
            ("nothing", {}),
            answer("three", times[2]),
            ("answer", "{"),
        )
        result = dispatched(waiting_tools(), turn, schedule=schedule)
        told.add(json.dumps([(each.call.id, each.ok, each.content()) for each in result]).encode())
    assert 1 == len(told)


@pytest.mark.parametrize("denied", [("nothing", {}), ("answer", "not json")], ids=["tool", "json"])
def test_a_refusal_is_not_reported_before_an_earlier_slow_call(
    denied: tuple[str, dict[str, str] | str],
) -> None:
    """D8: [slow ok, refused] comes back as ok, refused, though the refusal was known at once."""
    result = dispatched(waiting_tools(), calls(answer("slow", 5), denied))
    assert [Status.OK, Status.ERROR] == [each.status for each in result]
    assert 5.0 == result[0].finished_at
    assert 0.0 == result[1].finished_at


def test_a_call_that_is_answered_twice_has_one_result() -> None:
    """D9: a copy times out before the call it has joined is done: the answer that comes then is
    the other call's alone; with one id for both there are still two results, by position."""

    async def main() -> None:
        dispatcher = Dispatcher(waiting_tools(), duplicates="coalesce")
        async with dispatcher.turn() as turn:
            turn.submit(ToolCall("same id", *answer("a", 3)))
            turn.submit(ToolCall("same id", *answer("a", 3), timeout=1.0))
            turn.close()
            told = [(each.index, each.status) async for each in turn.events()]
            result = await turn.finish()
        assert [(1, Status.TIMED_OUT), (0, Status.OK)] == told
        assert [Status.OK, Status.TIMED_OUT] == [each.status for each in result]
        assert ["a", None] == [each.value for each in result]

    run_in_virtual_time(main())


def test_an_answer_beside_the_real_run_drops_the_real_one_and_tells() -> None:
    """D9: a cache in a middleware answers while the tool runs: one result, and an event that the

    other one was dropped; the same for what a tool returns that was given up."""
    seen: list[tuple[int, str]] = []

    def sink(event: Event) -> None:
        if isinstance(event, CallEvent) and event.state in ("ended", "late"):
            seen.append((event.index, event.state))

    class Cache:
        def __init__(self, following: Handler) -> None:
            self.following = following

        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            real = asyncio.ensure_future(self.following(call, context))
            await asyncio.sleep(1)
            return "cached" if call.id == "hit" else await real

    @tool(safe_parallel=True)
    async def stubborn() -> str:
        await ignores_cancelling(3)
        return "real"

    async def main() -> TurnResult:
        dispatcher = Dispatcher([stubborn], middleware=[Cache], sinks=[sink])
        calls = [ToolCall("hit", "stubborn", {}), ToolCall("slow", "stubborn", {}, timeout=1.5)]
        turn = await dispatcher.run(calls)
        await asyncio.sleep(5)
        return turn

    turn = run_in_virtual_time(main())
    assert [(Status.OK, "cached"), (Status.UNKNOWN, None)] == [(r.status, r.value) for r in turn]
    assert [(0, "ended"), (0, "late")] == sorted(one for one in seen if one[0] == 0)
    assert [(1, "ended"), (1, "late")] == [one for one in seen if one[0] == 1]


async def ignores_cancelling(seconds: float) -> None:
    """Sleep, whoever asks to stop."""
    end = asyncio.get_running_loop().time() + seconds
    while (left := end - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


def test_a_result_that_is_missing_says_the_true_reason() -> None:
    """D12: no two ways of having no result read alike, and none claims that a user cancelled."""

    @tool(safe_parallel=True)
    async def hang() -> None:
        await asyncio.Event().wait()

    @tool(writes="file:{path}")
    async def stubborn(path: str) -> None:
        await ignores_cancelling(100)

    @tool(safe_parallel=True)
    async def confused() -> None:
        raise asyncio.CancelledError

    @tool(writes="file:{path}")
    async def edit(path: str) -> None:
        await asyncio.sleep(100)

    turn = [
        ToolCall("0", "hang", {}, timeout=2.0),
        ToolCall("1", "edit", {"path": "a"}),
        ToolCall("2", "edit", {"path": "a"}, timeout=1.0),
        ToolCall("3", "edit", {"path": "a"}),
        ToolCall("4", "stubborn", {"path": "b"}, timeout=1.0),
        ToolCall("5", "edit", {"path": "b"}),
        ToolCall("6", "confused", {}),
        ToolCall("7", "hung", {}),
    ]

    async def main() -> list[str]:
        dispatcher = Dispatcher([hang, stubborn, confused, edit])
        token = CancelToken()
        asyncio.get_running_loop().call_at(10.0, token.cancel, "the budget is spent")
        return [each.content() for each in await dispatcher.run(turn, token=token)]

    assert [
        "[timed_out] timed out after 2 s while running",
        "[cancelled] stopped while running: the budget is spent",
        "[timed_out] timed out after 1 s while waiting for an earlier call; it never started",
        "[cancelled] never started: the budget is spent",
        "[unknown] timed out after 1 s, and it did not stop: it may still be running, and what it"
        " does may or may not have happened",
        "[skipped] never started: it waits for stubborn (call 4), which could not be stopped",
        "[error] the tool cancelled itself: it raised CancelledError though nobody had stopped it",
        "[error] no tool is named 'hung'. Did you mean 'hang'?"
        " Available: hang, stubborn, confused, edit.",
    ] == run_in_virtual_time(main())
