"""State that tools share, and the host's say over what runs side by side."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dispatch import Dispatcher, Limits, ResourceTable, Status, Tool, tool
from dispatch.testing import run_in_virtual_time
from tests.timeline import SCHEDULES, Timeline, calls, dispatched, gathered


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "declared",
    [{}, {"writes": "state:counter"}, {"serializes_with": "increment", "read_only": True}],
    ids=["undeclared", "declared", "serializes with itself"],
)
def test_a_shared_counter_loses_no_increment(declared: dict[str, Any], schedule: str) -> None:
    """T1: ten read-await-write increments end at ten, also if nobody declared anything."""
    counter = 0

    async def increment() -> int:
        nonlocal counter
        before = counter
        await asyncio.sleep(1)
        counter = before + 1
        return counter

    increments = Tool("increment", increment, **declared)
    turn = calls(*[("increment", {})] * 10)
    gathered([increments], turn)
    assert 1 == counter

    counter = 0
    result = dispatched([increments], turn, schedule=schedule)
    assert 10 == counter
    assert list(range(1, 11)) == [each.value for each in result]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_two_calls_append_is_there_in_intent_order(schedule: str) -> None:
    """T2: both read the list, wait, and write it whole; nothing is overwritten, whichever is
    slower."""
    state: dict[str, list[str]] = {"items": []}

    async def append(text: str, seconds: float) -> None:
        items = state["items"]
        await asyncio.sleep(seconds)
        state["items"] = [*items, text]

    appends = Tool("append", append, writes="state:items")
    turn = calls(*(("append", {"text": t, "seconds": s}) for t, s in (("a", 3), ("b", 1))))
    gathered([appends], turn)
    assert ["a"] == state["items"]

    state["items"] = []
    dispatched([appends], turn, schedule=schedule)
    assert ["a", "b"] == state["items"]


def test_a_session_store_keeps_the_writes_of_two_agents() -> None:
    """T4: two dispatchers, in one call each, change one session through one table; each update is
    atomic, those of another session do not wait for it."""
    sessions: dict[str, dict[str, int]] = {"s": {}, "other": {}}
    timeline = Timeline()

    @tool(writes="session:{session}")
    async def save(session: str, name: str) -> None:
        with timeline.span(f"{session}/{name}"):
            before = dict(sessions[session])
            await asyncio.sleep(1)
            sessions[session] = before | {name: len(before)}

    async def main() -> None:
        table = ResourceTable()
        agents = [Dispatcher([save], resources=table) for _ in range(2)]
        turns = (
            agent.run(calls(*(("save", {"session": s, "name": name}) for s in sessions)))
            for agent, name in zip(agents, "ab", strict=True)
        )
        await asyncio.gather(*turns)

    run_in_virtual_time(main())
    assert {"s": {"a": 0, "b": 1}, "other": {"a": 0, "b": 1}} == sessions
    assert not timeline.overlap("s/a", "s/b")
    assert timeline.overlap("s/a", "other/a")


@pytest.mark.parametrize(
    ("schedule", "declared"),
    [("serial", False), *((schedule, True) for schedule in SCHEDULES)],
)
def test_a_later_call_sees_what_an_earlier_one_set(schedule: str, declared: bool) -> None:
    """T6: [set(k), use(k)]: one by one the state is passed on; side by side if it is declared."""
    state = {"k": "old"}

    async def set_(value: str) -> None:
        await asyncio.sleep(1)
        state["k"] = value

    async def use() -> str:
        return state["k"]

    claims: list[dict[str, Any]] = (
        [{"writes": "state:k"}, {"reads": "state:k"}] if declared else [{"safe_parallel": True}] * 2
    )
    tools = [Tool("set", set_, **claims[0]), Tool("use", use, **claims[1])]
    turn = calls(("set", {"value": "new"}), ("use", {}))
    assert [None, "old"] == gathered(tools, turn)
    state["k"] = "old"
    assert "new" == dispatched(tools, turn, schedule=schedule)[1].value


def test_two_final_answers_are_both_there() -> None:
    """T5: neither of two final answers is dropped: both ran, both results are to be seen."""
    given: list[str] = []

    @tool
    async def final_answer(answer: str) -> str:
        given.append(answer)
        return answer

    turn = calls(("final_answer", {"answer": "x"}), ("final_answer", {"answer": "y"}))
    result = dispatched([final_answer], turn)
    assert ["x", "y"] == given
    assert ["x", "y"] == [each.content() for each in result]


@pytest.mark.parametrize(
    ("of_dispatcher", "of_turn"),
    [("serial", None), ("dataflow", "serial")],
    ids=["dispatcher", "turn"],
)
def test_the_host_runs_them_one_by_one_whatever_the_model_sent(
    of_dispatcher: str, of_turn: str | None
) -> None:
    """U1, U2: with `schedule="serial"` three calls that came at once run one after the other, in
    intent order, and no two at a time; said for the dispatcher or for the turn."""
    timeline = Timeline()

    @tool(safe_parallel=True)
    async def fetch(name: str) -> None:
        with timeline.span(name):
            await asyncio.sleep(1)

    async def main() -> None:
        turn = calls(*(("fetch", {"name": name}) for name in "cab"))
        result = await Dispatcher([fetch], schedule=of_dispatcher).run(turn, schedule=of_turn)
        assert (1, 1.0) == (result.stats.peak, result.stats.parallelism_factor)

    run_in_virtual_time(main())
    assert {"c": (0, 1), "a": (1, 2), "b": (2, 3)} == timeline.spans


@pytest.mark.parametrize("given", ["max_concurrent", "limits"])
def test_a_limit_of_one_is_a_peak_of_one(given: str) -> None:
    """U2: the same by a limit instead of a schedule."""

    @tool(safe_parallel=True)
    async def fetch() -> None:
        await asyncio.sleep(1)

    async def main() -> None:
        one: dict[str, Any] = {"max_concurrent": 1} if given != "limits" else {"limits": Limits(1)}
        result = await Dispatcher([fetch], **one).run(calls(*[("fetch", {})] * 3))
        assert [Status.OK] * 3 == [each.status for each in result]
        assert (1, 3.0) == (result.stats.peak, result.stats.makespan)

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("sequential", "spans"),
    [
        (
            {},  # says nothing, so it is alone
            {"r1": (0, 1), "r2": (0, 1), "seq": (1, 2), "r3": (2, 3), "r4": (2, 3)},
        ),
        (
            {"resource_keys": lambda given: [], "serializes_with": "seq"},  # alone of its kind
            {"r1": (0, 1), "r2": (0, 1), "seq": (0, 1), "r3": (0, 1), "r4": (0, 1)},
        ),
        (
            {"resource_keys": lambda given: [], "serializes_with": "read_file"},  # not beside reads
            {"r1": (0, 1), "r2": (0, 1), "seq": (1, 2), "r3": (2, 3), "r4": (2, 3)},
        ),
    ],
    ids=["undeclared", "with itself", "with the reads"],
)
def test_one_sequential_tool_does_not_make_the_turn_serial(
    sequential: dict[str, Any], spans: dict[str, tuple[float, float]]
) -> None:
    """U3: [read, read, seq, read, read]: `seq` alone runs alone, the reads overlap."""
    timeline = Timeline()

    async def work(name: str) -> None:
        with timeline.span(name):
            await asyncio.sleep(1)

    tools = [Tool("read_file", work, read_only=True), Tool("seq", work, **sequential)]
    names = ["r1", "r2", "seq", "r3", "r4"]
    turn = calls(*(("seq" if name == "seq" else "read_file", {"name": name}) for name in names))
    dispatched(tools, turn)
    assert spans == timeline.spans


def test_two_calls_of_a_sequential_tool_are_apart_beside_reads() -> None:
    """U3: a tool that serializes with itself holds back its own calls and nobody else's."""
    timeline = Timeline()

    async def work(name: str) -> None:
        with timeline.span(name):
            await asyncio.sleep(1)

    sequential = Tool("seq", work, resource_keys=lambda given: [], serializes_with="seq")
    tools = [Tool("read_file", work, read_only=True), sequential]
    turn = calls(
        ("read_file", {"name": "r1"}),
        ("seq", {"name": "s1"}),
        ("seq", {"name": "s2"}),
        ("read_file", {"name": "r2"}),
    )
    dispatched(tools, turn)
    assert {"r1": (0, 1), "r2": (0, 1), "s1": (0, 1), "s2": (1, 2)} == timeline.spans
