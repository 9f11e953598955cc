"""The server that answers 429, its callers, what is counted of them, and the rule that they test.

Everything is in virtual time but the one test over HTTP, which waits for no clock.
"""

import asyncio
from collections import deque
from itertools import pairwise

import pytest

from benchmarks.adaptive import (
    ADAPTIVE,
    CALLERS,
    Scene,
    Seen,
    Server,
    compared,
    curves,
    over_http,
    play,
    rate,
    seconds_to_follow,
)
from benchmarks.targets import THROUGHPUT
from dispatch import AdaptiveLimit
from dispatch.core.adaptive import Height
from dispatch.testing import run_in_virtual_time

SHORT = Scene(capacities=(4, 2), seconds=1.0)


class Traffic:
    """Calls that use a limit up and end in the order in which they began."""

    def __init__(self, bounds: AdaptiveLimit) -> None:
        self.height = Height(bounds)
        self._starts = 0
        self._running: deque[int] = deque()
        self._fill()

    def round(self) -> int:
        """All that run now succeed, each followed by another; the limit after that."""
        for _ in range(len(self._running)):
            self.height.succeeded(self._running[0], self._starts, len(self._running))
            self._running.popleft()
            self._fill()
        return self.height.limit

    def reject(self) -> int:
        """The call that began last is rejected; the limit after that."""
        self.height.rejected(self._starts, len(self._running))
        self._running.pop()
        self._fill()
        return self.height.limit

    def _fill(self) -> None:
        while len(self._running) < self.height.limit:
            self._starts += 1
            self._running.append(self._starts)


def test_before_a_signal_every_success_raises_the_limit() -> None:
    """With calls enough it doubles with every round trip, up to its highest."""
    traffic = Traffic(AdaptiveLimit(1, 20))
    assert [2, 4, 8, 16, 20, 20] == [traffic.round() for _ in range(6)]


def test_after_a_signal_the_steps_begin_at_one_and_double() -> None:
    """What ran at the signal changes nothing; then come one, two, four, and one after another."""
    traffic = Traffic(AdaptiveLimit(10, 64))
    assert 20 == traffic.round()
    assert 19 == traffic.reject()
    assert [19, 20, 22, 26, 34] == [traffic.round() for _ in range(5)]
    assert [33, 32] == [traffic.reject() for _ in range(2)]
    assert [32, 33] == [traffic.round() for _ in range(2)]


def test_a_call_that_ran_at_a_signal_never_raises_the_limit() -> None:
    """However late it succeeds, and though others have raised the limit since."""
    height = Height(AdaptiveLimit(4, 64))
    height.limit = 5
    height.rejected(5, used=5)
    height.succeeded(6, 9, used=4)
    height.succeeded(10, 20, used=5)
    assert 6 == height.limit
    height.succeeded(1, 20, used=6)
    assert 6 == height.limit
    height.succeeded(7, 20, used=6)
    assert 7 == height.limit


def test_each_signal_lowers_the_limit_to_what_was_accepted_and_not_below_its_lowest() -> None:
    """One below what ran; a signal that comes when more run than the limit says changes nothing."""
    traffic = Traffic(AdaptiveLimit(2, 8))
    assert 4 == traffic.round()
    assert [3, 2, 2] == [traffic.reject() for _ in range(3)]
    height = Height(AdaptiveLimit(2, 8))
    height.limit = 5
    height.rejected(12, used=12)
    assert 5 == height.limit
    height.rejected(12, used=3)
    assert 2 == height.limit


def test_success_below_the_limit_says_nothing_of_the_capacity() -> None:
    """Only a call that succeeds while the limit is used up raises it."""
    height = Height(AdaptiveLimit(4, 8))
    height.succeeded(1, 3, used=3)
    assert 4 == height.limit
    height.succeeded(2, 4, used=4)
    assert 5 == height.limit


def test_a_height_that_was_stored_goes_on_as_it_was() -> None:
    """Stored in the middle of a round trip, it raises by as much as the other one."""
    traffic = Traffic(AdaptiveLimit(10, 64))
    traffic.round()
    traffic.reject()
    for _ in range(3):
        traffic.round()
    stored = Height.load(traffic.height.dump())
    assert traffic.height.dump() == stored.dump()
    before, traffic.height = traffic.height.limit, stored
    assert before + 4 == traffic.round()


@pytest.mark.parametrize("after", [0.05, None], ids=["with Retry-After", "without"])
def test_the_server_rejects_at_once_what_is_above_its_capacity(after: float | None) -> None:
    """As many as it can are served, the next is told to wait if the scene says so."""

    async def run() -> list[tuple[int, dict[str, str]]]:
        server = Server(Scene(capacities=(2,), seconds=1.0, retry_after=after))
        responses = await asyncio.gather(*(server.answer() for _ in range(3)))
        return [(status, dict(headers)) for status, headers in responses]

    told = {} if after is None else {"Retry-After": "0.05"}
    assert [(200, {}), (200, {}), (429, told)] == run_in_virtual_time(run())


def test_the_same_scene_gives_the_same_numbers() -> None:
    """Virtual time and seeds leave nothing to the machine."""
    assert play(SHORT, ADAPTIVE) == play(SHORT, ADAPTIVE)


@pytest.mark.parametrize("limit", [2, 4])
def test_a_fixed_limit_is_rejected_only_above_the_capacity(limit: int) -> None:
    """Of 4 at once the server rejects none while it can serve 4, and some when it can serve 2."""
    seen = play(SHORT, limit)
    assert [] == [moment for moment in seen.rejected if moment < 1.0 or limit == 2]
    assert (limit == 4) == bool(seen.rejected)
    assert [(0.0, limit)] == seen.limits


@pytest.mark.parametrize("after", [0.05, None], ids=["with Retry-After", "without"])
def test_an_adaptive_limit_does_as_well_as_whoever_knows_the_capacity(after: float | None) -> None:
    """At least 95 % of the throughput of the fixed limit that is the capacity, from a start at 1;
    and it finds the capacity again that has moved, both ways."""
    constant = Scene(capacities=(6,), seconds=4.0, retry_after=after)
    ours, best = (rate(play(constant, limit).served, 0, 4) for limit in (ADAPTIVE, 6))
    assert ours >= 0.95 * best
    moving = Scene(capacities=(3, 9, 3), seconds=2.0, retry_after=after)
    assert None not in seconds_to_follow(moving, play(moving, ADAPTIVE)).values()


def test_a_real_client_is_understood() -> None:
    """A 429 that httpx raises over a socket lowers the limit, and all requests are served."""
    seen = over_http(Scene(capacities=(2,), seconds=0.1), AdaptiveLimit(1, 8))
    assert seen.rejected
    assert any(after < before for (_, before), (_, after) in pairwise(seen.limits))
    assert len(seen.served) >= CALLERS


def test_following_is_counted_from_the_move_to_the_first_limit_that_is_close() -> None:
    """Within one, or a tenth of large ones; none if it is not before the next move."""
    scene = Scene(capacities=(4, 30, 5, 6, 20), seconds=1.0)
    seen = Seen(limits=[(0.0, 1), (0.25, 3), (1.25, 20), (1.5, 27), (2.75, 6), (4.5, 17)])
    expected = {
        "from 0 to 4": 0.25,
        "from 4 to 30": 0.5,
        "from 30 to 5": 0.75,
        "from 5 to 6": 0.0,
        "from 6 to 20": None,
    }
    assert expected == seconds_to_follow(scene, seen)


def test_curves_have_a_point_where_something_changes_and_one_at_the_end() -> None:
    """Seconds and a number, sampled; what does not last until the next sample is left out."""
    seen = Seen(limits=[(0.0, 1), (0.11, 2), (0.12, 3), (0.41, 2)])
    scene = Scene(capacities=(4, 2), seconds=0.3)
    expected = {
        "adaptive limit": [[0.0, 1], [0.2, 3], [0.5, 2]],
        "hidden capacity": [[0.0, 4], [0.3, 2], [0.5, 2]],
    }
    assert expected == curves(scene, seen)


def test_the_comparison_is_with_the_best_of_all_fixed_limits() -> None:
    """The best is the one with the most successes while the scene lasts; of equal ones the
    lowest."""
    scene = Scene(capacities=(1, 2), seconds=2.0)
    late = [4.0, 4.5]
    fixed = {
        1: Seen(served=[1.0, 2.0, *late]),
        2: Seen(served=[0.5, 1.0, 2.0, 3.0], rejected=[1.5, 1.75, *late]),
        3: Seen(served=[0.0, 1.0, 2.0, 3.0], rejected=[1.5]),
    }
    ours = Seen(served=[0.0, 2.0, 3.0, *late], rejected=[2.5], limits=[(0.0, 1)])
    found = compared(scene, ours, fixed)
    assert (0.75, 2) == (found[THROUGHPUT], found["best fixed limit"])
    assert {"adaptive": 0.75, "fixed": 1.0} == found["successes/s"]
    assert {"adaptive": 0.25, "fixed": 0.5} == found["429s/s"]
    by_capacity = {"adaptive": {"1": 0.5, "2": 1.0}, "fixed": {"1": 1.0, "2": 1.0}}
    assert by_capacity == found["successes/s by capacity"]
