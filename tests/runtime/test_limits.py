"""Slots and rates through the dispatcher: what they count, who shares them, changes under way."""

import asyncio
import threading
from typing import Any

import pytest

from dispatch import (
    CancelToken,
    Dispatcher,
    Limits,
    Phase,
    Rate,
    Status,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Stage, at, begins, call, kinds, played, row


def test_a_call_that_times_out_in_a_limit_or_rate_names_the_phase() -> None:
    """Waiting for slots and for rates are two phases, and neither has started the tool."""
    limits = Limits(per_tag={"s": 1}, rates={"r": Rate(1, 100)})
    turn = [
        call("a", tags=("r",), seconds=9.0),
        call("rate", tags=("r",), timeout=2),
        call("b", tags=("s",), seconds=9.0),
        call("slot", tags=("s",), timeout=2),
    ]
    result = played(Stage(), turn, limits=limits)
    assert [None, Phase.RATE, None, Phase.SLOT] == [r.failure and r.failure.phase for r in result]
    assert "timed out after 2 s while waiting for its rate; it never started" in (
        result[1].content()
    )
    assert [{"rate": 2.0}, {"slot": 2.0}] == [result[1].waits, result[3].waits]


def test_dispatchers_share_limits_and_rates() -> None:
    """Two dispatchers with one `Limits`: never more than 2 together, one start a second."""
    stage = Stage()
    limits = Limits(2, rates={"free": Rate(1, 1)})

    async def main() -> None:
        one, two = (Dispatcher(stage.tools, limits=limits) for _ in range(2))
        await asyncio.gather(
            one.run(row(3, seconds=5.0)), two.run([call("x", seconds=5.0), call("y", seconds=5.0)])
        )

    run_in_virtual_time(main())
    assert 2 == stage.peak
    moments = sorted(began for began, _ in stage.spans.values())
    assert [0.0, 1.0, 5.0, 6.0, 10.0] == moments
    assert (0, 0) == (limits.running, limits.waiting)


def test_threads_with_loops_of_their_own_share_limits() -> None:
    """Four threads, each with its own loop: never more than two calls in all, and all are done."""
    limits, lock = Limits(2), threading.Lock()
    running, peak, done = 0, 0, 0

    @tool(safe_parallel=True)
    async def count() -> None:
        nonlocal running, peak, done
        with lock:
            running += 1
            peak = max(peak, running)
        await asyncio.sleep(0.005)
        with lock:
            running -= 1
            done += 1

    def work() -> None:
        calls = [ToolCall(str(n), "count", {}) for n in range(5)]
        Dispatcher([count], limits=limits).run_sync(calls).raise_for_failures()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (2, 20) == (peak, done)
    assert (0, 0) == (limits.running, limits.waiting)


@pytest.mark.parametrize("kind", ["total", "tool", "tag"])
def test_a_limit_of_0_pauses_and_a_raised_one_goes_on(kind: str) -> None:
    """Calls wait as long as it is 0; others are not paused with them; then they start at once."""
    stage = Stage()
    limits = {
        "total": Limits(0),
        "tool": Limits(8, per_tool={"free": 0}),
        "tag": Limits(8, per_tag={"t": 0}),
    }[kind]

    changes: dict[str, dict[str, Any]] = {
        "total": {"total": 8},
        "tool": {"per_tool": {"free": 1}},
        "tag": {"per_tag": {"t": None}},
    }

    async def main() -> TurnResult:
        at(3.0, lambda: limits.change(**changes[kind]))
        turn = [*row(2, tags=("t",)), call("other", "look", key="k")]
        return await Dispatcher(stage.tools, limits=limits).run(turn)

    result = run_in_virtual_time(main())
    assert [3.0, 4.0 if kind == "tool" else 3.0] == [stage.began("0"), stage.began("1")]
    assert (3.0 if kind == "total" else 0.0) == stage.began("other")
    assert {"slot": 3.0} == result[0].waits


def test_a_lowered_limit_lets_running_calls_finish() -> None:
    """Four run when it becomes 1: none is stopped, and then they go one by one; it is paused at 3
    and goes on at 10, while calls wait."""
    stage = Stage()
    limits = Limits(4)

    async def main() -> TurnResult:
        at(0.5, setattr, limits, "total", 1)
        at(2.5, setattr, limits, "total", 0)
        at(10.0, setattr, limits, "total", 2)
        return await Dispatcher(stage.tools, limits=limits).run(row(8))

    assert [None] * 8 == kinds(run_in_virtual_time(main()))
    assert [0, 0, 0, 0, 1, 2, 10, 10] == begins(stage)


def test_a_change_from_another_thread_starts_what_waits() -> None:
    """A paused turn in one thread goes on when another thread raises the limit."""
    limits = Limits(0)
    threading.Timer(0.02, limits.change, kwargs={"total": 3}).start()
    result = Dispatcher(Stage().tools, limits=limits).run_sync(row(2, seconds=0.0))
    assert [None] * 2 == kinds(result)


def test_a_changed_rate_counts_from_then_on() -> None:
    """One in 100 s becomes one in 2 s; at 3 the rate is taken away, and the rest starts."""
    stage = Stage()
    limits = Limits(rates={"free": Rate(1, 100)})

    async def main() -> None:
        at(0.0, lambda: limits.change(rates={"free": Rate(1, 2)}))
        at(3.0, lambda: limits.change(rates={"free": None}))
        await Dispatcher(stage.tools, limits=limits).run(row(5))

    run_in_virtual_time(main())
    assert [0.0, 2.0, 3.0, 3.0, 3.0] == begins(stage)
    assert {} == limits.rates


def test_a_cancelled_turn_leaves_no_slot_and_no_place_in_a_queue_behind() -> None:
    """Of two that run and four that wait for slots and rates nothing is left in the limits."""
    limits = Limits(2, rates={"look": Rate(1, 100)})
    token = CancelToken()

    async def main() -> TurnResult:
        at(1.0, token.cancel, "enough")
        turn = [call(f"l{n}", "look", key="k", seconds=9.0) for n in range(3)]
        dispatcher = Dispatcher(Stage().tools, limits=limits)
        return await dispatcher.run([*turn, *row(3, seconds=9.0)], token=token)

    result = run_in_virtual_time(main())
    assert [Status.CANCELLED] * 6 == [each.status for each in result]
    assert (0, 0) == (limits.running, limits.waiting)


def test_limits_can_be_read() -> None:
    """Totals, names and rates as they are now; the views cannot be written to."""
    limits = Limits(3, {"a": 1}, {"b": 2}, {"c": Rate(1, 2)})
    assert (3, {"a": 1}, {"b": 2}) == (limits.total, limits.per_tool, limits.per_tag)
    assert {"c": Rate(1, 2)} == limits.rates
    assert {"total": 3, "tool:a": 1, "tag:b": 2} == limits.named
    with pytest.raises(TypeError):
        limits.per_tool["a"] = 5  # type: ignore[index]


def test_the_rules_of_one_dispatcher_do_not_bind_another() -> None:
    """Without a shared object each has its own 8."""
    stage = Stage()

    async def main() -> None:
        one, two = (Dispatcher(stage.tools) for _ in range(2))
        await asyncio.gather(one.run(row(10)), two.run([call(f"x{n}") for n in range(10)]))

    run_in_virtual_time(main())
    assert 16 == stage.peak
