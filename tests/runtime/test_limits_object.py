"""The `Limits` object itself: who is told what, and when, by hand-driven starters."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dispatch.core.rates import Rate
from dispatch.errors import DeclarationError
from dispatch.runtime.limits import Limits
from dispatch.testing import run_in_virtual_time


class LoopStarter:
    """A starter on the running loop that notes when its calls started."""

    def __init__(self, limits: Limits, number: int) -> None:
        self.number, self.limits = number, limits
        self.loop = asyncio.get_running_loop()
        self.started: list[tuple[float, int]] = []
        self.asked: list[float] = []

    def slots_taken(self, request: int, call: int) -> bool:
        return self._post(self._note, call)

    def _note(self, call: int) -> None:
        self.started.append((self.loop.time(), call))

    def call_limits_at(self, when: float) -> bool:
        self.asked.append(when)
        return self._post(self.loop.call_at, when, self._wake, when)

    def _wake(self, when: float) -> None:
        self.limits.grant(max(when, self.loop.time()))

    def limits_changed(self) -> bool:
        return self._post(lambda: self.limits.grant(self.loop.time()))

    def is_dead(self, call: int) -> bool:
        return self.loop.is_closed()

    def stranded(self) -> None:
        """Nothing waits for it."""

    def _post(self, do: Callable[..., object], *args: Any) -> bool:
        try:
            self.loop.call_soon_threadsafe(do, *args)
        except RuntimeError:
            return False
        return True


def test_rated_calls_start_on_time_with_one_timer_each() -> None:
    """Four calls of one rate: in order, on time, and one request to come back for each wait."""

    async def main() -> tuple[list[tuple[float, int]], list[float]]:
        limits = Limits(rates={"x": Rate(1, 2.7)})
        who = LoopStarter(limits, 1)
        for call in range(4):
            limits.request(who, call, limits.need("x", ()), 1)
        for _ in range(3):
            limits.grant(who.loop.time())
        await asyncio.sleep(20)
        return who.started, who.asked

    started, when = run_in_virtual_time(main())
    assert [0, 1, 2, 3] == [c for _, c in started]
    assert pytest.approx([0, 2.7, 5.4, 8.1]) == [t for t, _ in started]
    assert 3 == len(when)


def test_the_one_who_left_is_not_counted_on() -> None:
    """The starter that was asked to come back gives up its request: another one is asked."""

    async def main() -> tuple[object, ...]:
        limits = Limits(rates={"x": Rate(1, 2)})
        a, b = LoopStarter(limits, 1), LoopStarter(limits, 2)
        need = limits.need("x", ())
        limits.request(a, 0, need, 1)
        second = limits.request(a, 1, need, 1)
        limits.request(b, 0, need, 1)
        limits.grant(0.0)
        limits.give_back(second)
        limits.grant(0.5)
        await asyncio.sleep(5)
        return a.asked, b.asked, b.started, limits.waiting, limits.running

    assert ([2.0], [2.0], [(2.0, 0)], 0, 2) == run_in_virtual_time(main())


def test_a_starter_whose_loop_is_gone_is_taken_out() -> None:
    """A request that nobody can start any more does not hold up the rate's queue."""

    limits = Limits(rates={"x": Rate(1, 2)})
    need = limits.need("x", ())

    async def make(number: int) -> LoopStarter:
        return LoopStarter(limits, number)

    dead = asyncio.run(make(1))

    async def main() -> tuple[object, ...]:
        live = LoopStarter(limits, 2)
        limits.request(live, 0, need, 1)
        limits.request(dead, 1, need, 1)
        limits.request(live, 2, need, 1)
        limits.grant(0.0)
        await asyncio.sleep(5)
        return live.started, limits.waiting

    assert ([(0.0, 0), (2.0, 2)], 0) == run_in_virtual_time(main())


def test_a_change_starts_what_waits_and_may_come_from_any_thread() -> None:
    """A pause ends from another thread; a change that cannot be changes nothing."""

    async def main() -> tuple[object, ...]:
        limits = Limits(0, per_tool={"x": 0})
        who = LoopStarter(limits, 1)
        limits.request(who, 0, limits.need("x", ()), 1)
        limits.request(who, 1, limits.need("y", ()), 1)
        limits.grant(0.0)
        thread = threading.Thread(target=setattr, args=(limits, "total", 5))
        thread.start()
        thread.join()
        await asyncio.sleep(1)
        limits.change(per_tool={"x": None}, rates={"x": Rate(1, 1)})
        await asyncio.sleep(1)
        with pytest.raises(DeclarationError):
            limits.change(total=-1, per_tool={"x": 3})
        with pytest.raises(DeclarationError):
            limits.total = True
        return who.started, limits.named, dict(limits.per_tool), dict(limits.rates)

    assert ([(0.0, 1), (1.0, 0)], {"total": 5}, {}, {"x": Rate(1, 1)}) == run_in_virtual_time(
        main()
    )


def test_a_changed_rate_opens_earlier() -> None:
    """Who was told to come back in 100 s is told anew."""

    async def main() -> list[tuple[float, int]]:
        limits = Limits(rates={"x": Rate(1, 100)})
        who = LoopStarter(limits, 1)
        for call in range(2):
            limits.request(who, call, limits.need("x", ()), 1)
        limits.grant(0.0)
        limits.change(rates={"x": Rate(1, 3)})
        await asyncio.sleep(5)
        return who.started

    assert [(0.0, 0), (3.0, 1)] == run_in_virtual_time(main())


def test_swap_of_what_is_not_held_is_refused() -> None:
    """Only slots that are held can be exchanged."""

    async def main() -> tuple[bool, ...]:
        limits = Limits(1, per_tag={"a": 1})
        who = LoopStarter(limits, 1)
        held, waits = (limits.request(who, c, limits.need("x", ()), 1) for c in range(2))
        limits.grant(0.0)
        new = limits.need("x", {"a"})
        return limits.swap(held, new), limits.swap(waits, new), limits.swap(99, new)

    assert (True, False, False) == run_in_virtual_time(main())


@pytest.mark.parametrize(
    "bad",
    [
        {"total": -1},
        {"total": True},
        {"total": 1.5},
        {"per_tool": {"x": None}},
        {"per_tag": {"x": -1}},
        {"rates": {"x": None}},
        {"rates": {"x": 3}},
    ],
    ids=str,
)
def test_what_is_no_limit_is_refused(bad: dict[str, Any]) -> None:
    """None removes a limit in `change`; there is nothing to remove at first."""
    with pytest.raises(DeclarationError):
        Limits(**bad)
