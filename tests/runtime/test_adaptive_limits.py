"""Adaptive limits through the dispatcher, against another side that refuses with 429."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    AdaptiveLimit,
    CallContext,
    CancelToken,
    Dispatcher,
    Limits,
    Status,
    Tool,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Layer, at, clock, kinds

MANY = 60
"""Calls in which every sane rule gets from the min to the max of these tests."""


class Busy(Exception):
    """As an HTTP client tells of a 429."""

    status_code = 429


class OtherSide:
    """Takes `capacity` calls at once, and refuses at once what comes above it."""

    def __init__(self, capacity: int = 1000) -> None:
        self.capacity = capacity
        self.busy = 0
        self.peak = 0
        self.refused = 0
        self.began: list[float] = []

    @property
    def tools(self) -> list[Tool]:
        """One tool, `ask`, with the tag `api`."""
        return [Tool("ask", self._ask, safe_parallel=True, tags=["api"])]

    async def _ask(self, seconds: float = 1.0, raises: Any = None) -> str:
        self.began.append(clock())
        if self.busy >= self.capacity:
            self.refused += 1
            raise Busy
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.busy -= 1
        if raises is not None:
            raise {"429": Busy, "other": ValueError}[raises]
        return "answer"


class Again(Layer):
    """Tries until it is not refused, with a second's pause in which it holds no slot."""

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        while True:
            try:
                return await self.following(call, context)
            except Busy:
                async with context.suspended():
                    await asyncio.sleep(1)


class FromMemory(Layer):
    """Never asks the other side."""

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        await asyncio.sleep(1)
        return "from memory"


class Instead(Layer):
    """Has an answer of its own where the other side refuses."""

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        try:
            return await self.following(call, context)
        except Busy:
            return "from the cache"


def asks(count: int, **arguments: Any) -> list[ToolCall]:
    """So many calls of `ask`."""
    return [ToolCall(f"c{n}", "ask", arguments) for n in range(count)]


def limits_of(kind: str, bounds: AdaptiveLimit) -> Limits:
    """Limits in which one of this kind is adaptive."""
    if kind == "total":
        return Limits(bounds)
    if kind == "tool":
        return Limits(99, per_tool={"ask": bounds})
    return Limits(99, per_tag={"api": bounds})


def height(limits: Limits) -> int:
    """The adaptive one's, whichever it is."""
    return min(limits.total, *limits.per_tool.values(), *limits.per_tag.values(), 99)


async def grown(dispatcher: Dispatcher) -> Dispatcher:
    """The dispatcher, after a turn of calls that all succeeded."""
    (await dispatcher.run(asks(MANY))).raise_for_failures()
    return dispatcher


each_kind = pytest.mark.parametrize("kind", ["total", "tool", "tag"])


@each_kind
def test_without_signals_it_goes_from_its_lowest_to_its_highest(kind: str) -> None:
    """Two start at first; in the end five run at once, and never six."""
    other, limits = OtherSide(), limits_of(kind, AdaptiveLimit(2, 5))
    run_in_virtual_time(grown(Dispatcher(other.tools, limits=limits)))
    assert (2, 5, 5) == (other.began.count(0.0), other.peak, height(limits))
    assert (0, 0) == (limits.running, limits.waiting)


@each_kind
def test_it_stays_near_what_the_other_side_takes(kind: str) -> None:
    """With retries all calls succeed; it fills a capacity of 3 and keeps away from its max."""
    other, limits = OtherSide(3), limits_of(kind, AdaptiveLimit(1, 40))
    dispatcher = Dispatcher(other.tools, limits=limits, middleware=[Again])
    result = run_in_virtual_time(dispatcher.run(asks(100)))
    assert [Status.OK] * 100 == [each.status for each in result]
    assert 3 == other.peak
    assert 0 < other.refused < 100
    assert 1 <= height(limits) < 20


def test_it_follows_a_capacity_that_moves() -> None:
    """From 2 to 12 and back to 2 under way: it is up in the middle, and down in the end."""
    other, limits = OtherSide(2), Limits(AdaptiveLimit(1, 40))
    seen: list[int] = []

    async def main() -> TurnResult:
        at(40, setattr, other, "capacity", 12)
        at(100, lambda: seen.append(limits.total))
        at(100, setattr, other, "capacity", 2)
        at(160, lambda: seen.append(limits.total))
        dispatcher = Dispatcher(other.tools, limits=limits, middleware=[Again])
        return await dispatcher.run(asks(1000))

    assert [None] * 1000 == kinds(run_in_virtual_time(main()))
    up, down = seen
    assert down < 6 < up


@each_kind
def test_a_signal_lowers_it_and_what_runs_goes_on(kind: str) -> None:
    """Of four that run one is refused: three finish, and a fifth waits until there is room."""
    other, limits = OtherSide(), limits_of(kind, AdaptiveLimit(1, 4))
    lowered: list[int] = []

    async def main() -> tuple[float, TurnResult]:
        dispatcher = await grown(Dispatcher(other.tools, limits=limits))
        at(clock() + 2, lambda: lowered.append(height(limits)))
        other.began.clear()
        calls = [*asks(1, raises="429"), *asks(3, seconds=10.0), *asks(1)]
        return clock(), await dispatcher.run(calls)

    began, result = run_in_virtual_time(main())
    assert ["error", "ok", "ok", "ok", "ok"] == [each.status for each in result]
    assert [1, 10] == [(result[n].finished_at or 0) - began for n in (0, 1)]
    assert [0, 0, 0, 0, 10] == [moment - began for moment in other.began]
    assert 1 <= lowered[0] < 4


@pytest.mark.parametrize("ending", ["other", "cancelled", "timed out"])
def test_no_other_ending_lowers_it(ending: str) -> None:
    """A failure of another kind, a cancel and a time-out say nothing of what can be taken."""
    other, limits = OtherSide(), Limits(AdaptiveLimit(1, 4))
    token = CancelToken()

    async def main() -> TurnResult:
        dispatcher = await grown(Dispatcher(other.tools, limits=limits))
        if ending == "other":
            return await dispatcher.run(asks(4, raises="other"))
        if ending == "cancelled":
            at(clock() + 1, token.cancel, "enough")
            return await dispatcher.run(asks(4, seconds=9.0), token=token)
        return await dispatcher.run(asks(4, seconds=9.0), timeout=1)

    result = run_in_virtual_time(main())
    assert (4, 4) == (sum(not each.ok for each in result), limits.total)


def test_a_failure_does_not_raise_it() -> None:
    """Only a success says that the other side has taken the call."""
    limits = Limits(AdaptiveLimit(1, 4))
    dispatcher = Dispatcher(OtherSide().tools, limits=limits)
    run_in_virtual_time(dispatcher.run(asks(MANY, raises="other")))
    assert 1 == limits.total


def test_a_refused_attempt_counts_although_the_call_succeeds() -> None:
    """Under a middleware that answers in its place the signal is heard all the same."""
    other, limits = OtherSide(), Limits(AdaptiveLimit(1, 4))

    async def main() -> TurnResult:
        dispatcher = Dispatcher(other.tools, limits=limits, middleware=[Instead])
        await grown(dispatcher)
        assert 4 == limits.total
        return await dispatcher.run([*asks(1, raises="429"), *asks(3, seconds=5.0)])

    result = run_in_virtual_time(main())
    assert ["from the cache", "answer", "answer", "answer"] == [each.value for each in result]
    assert 1 <= limits.total < 4


def test_an_answer_that_was_no_attempt_teaches_nothing() -> None:
    """What a middleware answers by itself says nothing of what the other side takes."""
    limits = Limits(AdaptiveLimit(1, 4))
    dispatcher = Dispatcher(OtherSide().tools, limits=limits, middleware=[FromMemory])
    run_in_virtual_time(grown(dispatcher))
    assert 1 == limits.total


def test_a_tool_in_a_thread_is_heard_too() -> None:
    """One `def` call at a time raises it from 1; its 429 then takes it back there."""
    limits = Limits(per_tool={"plain": AdaptiveLimit(1, 4)})

    @tool(safe_parallel=True)
    def plain(refused: bool) -> None:
        if refused:
            raise Busy

    def after(refused: bool) -> int:
        calls = [ToolCall("c", "plain", {"refused": refused})]
        for _ in range(1 if refused else MANY):
            Dispatcher([plain], limits=limits).run_sync(calls)
        return limits.per_tool["plain"]

    assert 1 < after(refused=False) <= 4
    assert 1 == after(refused=True)


def test_dispatchers_that_share_limits_share_what_they_learn() -> None:
    """What one was refused, the other starts no more; what one found, the other may use."""
    first, second = OtherSide(), OtherSide()
    limits = Limits(AdaptiveLimit(1, 4))

    async def main() -> tuple[int, int]:
        one, two = (Dispatcher(side.tools, limits=limits) for side in (first, second))
        await grown(one)
        await two.run(asks(9))
        before = second.began.count(second.began[0])
        await one.run([*asks(1, raises="429"), *asks(3, seconds=5.0)])
        second.began.clear()
        await two.run(asks(9))
        return before, second.began.count(second.began[0])

    before, after = run_in_virtual_time(main())
    assert (4, True) == (before, 1 <= after < 4)


def test_together_dispatchers_never_run_more_than_the_highest() -> None:
    """Two turns side by side on one object, each with more calls than it may ever take."""
    other = OtherSide()
    limits = Limits(AdaptiveLimit(1, 6))

    async def main() -> None:
        one, two = (Dispatcher(other.tools, limits=limits) for _ in range(2))
        await asyncio.gather(one.run(asks(MANY)), two.run(asks(MANY)))

    run_in_virtual_time(main())
    assert (6, 2 * MANY) == (other.peak, len(other.began))


def test_a_number_becomes_adaptive_under_way_and_a_number_again() -> None:
    """One at a time until 5 s; then up to three; from 60 s on two, and no signal changes that."""
    other = OtherSide()
    limits = Limits(99, per_tool={"ask": 1})
    seen: list[int] = []

    async def main() -> None:
        at(4.5, lambda: seen.append(other.peak))
        at(4.5, lambda: limits.change(per_tool={"ask": AdaptiveLimit(1, 3)}))
        at(59.5, lambda: seen.append(other.busy))
        at(59.5, lambda: limits.change(per_tool={"ask": 2}))
        at(80.5, lambda: seen.append(other.busy))
        dispatcher = Dispatcher(other.tools, limits=limits)
        await dispatcher.run(asks(250))
        await dispatcher.run(asks(9, raises="429"))

    run_in_virtual_time(main())
    assert ([1, 3, 2], {"ask": 2}) == (seen, dict(limits.per_tool))


def test_it_can_be_read() -> None:
    """The views tell its present height; `named`, for bounds of what can be, its highest."""
    limits = Limits(AdaptiveLimit(2, 9), {"a": AdaptiveLimit(1, 4)}, {"b": AdaptiveLimit(3, 3)})
    assert (2, {"a": 1}, {"b": 3}) == (limits.total, limits.per_tool, limits.per_tag)
    assert {"total": 9, "tool:a": 4, "tag:b": 3} == limits.named


def test_a_turn_is_measured_against_the_highest() -> None:
    """Eight seconds of work under at most four: no schedule takes less than two."""
    other = OtherSide()
    dispatcher = Dispatcher(other.tools, limits=Limits(AdaptiveLimit(1, 4)))
    stats = run_in_virtual_time(dispatcher.run(asks(8))).stats
    assert (2.0, True) == (stats.lower_bound, stats.lower_bound <= stats.makespan)


def test_an_attempt_lets_others_start_though_its_middleware_works_on() -> None:
    """The limit rises with the attempt, and whoever fits in then does not wait for the call."""

    class Slow(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> object:
            try:
                return await self.following(call, context)
            finally:
                await asyncio.sleep(5)

    other = OtherSide()
    limits = Limits(per_tag={"api": AdaptiveLimit(1, 4)})
    dispatcher = Dispatcher(other.tools, limits=limits, middleware=[Slow])
    run_in_virtual_time(dispatcher.run(asks(3)))
    assert [0.0, 1.0] == other.began[:2]
