"""What an all-or-nothing turn claimed is held until it is decided, and gone afterwards."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch import (
    AllOrNothing,
    Allow,
    BestEffort,
    CallContext,
    Dispatcher,
    FailureKind,
    GateContext,
    ResourceTable,
    ToolCall,
    ToolError,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import Diary, left_over, statuses, step, texts, told
from tests.timeline import SCHEDULES

KEYS = ("a", "b", "c")


class Store:
    """Values by key; tools that write with an undo, and that read."""

    def __init__(self) -> None:
        self.values = dict.fromkeys(KEYS, "-")
        self.seen: list[tuple[str, float]] = []

    async def restore(self, key: str, value: str) -> None:
        self.values[key] = value

    def dispatcher(self, table: ResourceTable, **keywords: Any) -> Dispatcher:
        @tool(writes="store:{key}")
        async def put(
            key: str, value: str, ctx: CallContext, seconds: float = 1.0, fails: bool = False
        ) -> None:
            ctx.on_rollback(self.restore, key, self.values[key])
            await asyncio.sleep(seconds / 2)
            self.values[key] = value
            await asyncio.sleep(seconds / 2)
            if fails:
                raise ToolError(f"{value} fails")

        @tool(reads="store:{key}")
        async def get(key: str) -> str:
            self.seen.append((self.values[key], asyncio.get_running_loop().time()))
            return self.values[key]

        @tool(safe_parallel=True)
        async def agent(ctx: CallContext, puts: list[dict[str, Any]], atomic: bool = False) -> bool:
            policy = AllOrNothing() if atomic else BestEffort()
            calls = [ToolCall("", "put", arguments) for arguments in puts]
            return (await ctx.run(calls, policy=policy)).satisfied

        return Dispatcher([put, get, agent], resources=table, **keywords)


def put(key: str, value: str, seconds: float = 1.0, fails: bool = False, **more: Any) -> ToolCall:
    arguments = {"key": key, "value": value, "seconds": seconds, "fails": fails}
    return ToolCall(value, "put", arguments, **more)


def get(key: str) -> ToolCall:
    return ToolCall("", "get", {"key": key})


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "rolls back"])
@pytest.mark.parametrize("how", ["whole", "streamed", "tag", "nested", "nested in nested"])
def test_no_other_turn_reads_what_may_be_rolled_back(how: str, fails: bool) -> None:
    """The write ends at 1 s, its turn is decided at 4 s: a read that comes at 2 s waits."""
    store, table = Store(), ResourceTable()
    mine, other = store.dispatcher(table), store.dispatcher(table)
    calls = [put("a", "new"), put("b", "more", 4.0, fails)]
    nested = {"puts": [{"key": "a", "value": "new"}], "atomic": how == "nested in nested"}

    async def write() -> TurnResult:
        if how == "whole":
            return await mine.run(calls, policy=AllOrNothing())
        if how == "tag":
            tag = frozenset({"all"})
            first, second = put("a", "new", tags=tag), put("b", "more", 4.0, fails, tags=tag)
            return await mine.run([first, get("c"), second], policies={"all": AllOrNothing()})
        if how.startswith("nested"):
            first = ToolCall("", "agent", nested)
            return await mine.run([first, calls[1]], policy=AllOrNothing())
        async with mine.turn(policy=AllOrNothing()) as turn:
            for one in calls:
                turn.submit(one)
            return await turn.finish()

    async def main() -> list[TurnResult]:
        writing = asyncio.create_task(write())
        await asyncio.sleep(2)
        assert "new" == store.values["a"]
        reading = await other.run([get("a"), get("c")])
        return [await writing, reading]

    writing, reading = run_in_virtual_time(main())
    assert ["-" if fails else "new", "-"] == texts(reading)
    assert [("ok", 4.0), ("ok", 2.0)] == told(reading)
    assert ("rolled_back" if fails else "ok") == writing[0].status
    assert fails != writing.satisfied
    assert (0, 0, 0) == left_over(mine, other)


def test_the_claims_of_others_in_the_turn_are_given_back_at_once() -> None:
    """Only the group's calls hold until the turn is decided."""
    store, table = Store(), ResourceTable()
    mine, other = store.dispatcher(table), store.dispatcher(table)

    async def main() -> TurnResult:
        calls = [put("a", "x", tags=frozenset({"all"})), put("b", "y"), put("c", "z", 9.0)]
        task = asyncio.create_task(mine.run(calls, policies={"all": AllOrNothing()}))
        await asyncio.sleep(2)
        turn = await other.run([get("a"), get("b")])
        await task
        return turn

    assert [("ok", 9.0), ("ok", 2.0)] == told(run_in_virtual_time(main()))


def test_a_call_that_never_ran_holds_nothing() -> None:
    """It has its claims and waits for a slot when its group fails: others have the key at once."""

    async def main() -> tuple[list[tuple[str, float]], list[str]]:
        store, table = Store(), ResourceTable()
        turn = store.dispatcher(table, max_concurrent=1).turn(policy=AllOrNothing())
        async with turn:
            turn.submit(put("a", "first", seconds=2, fails=True))
            turn.submit(put("b", "second"))
            await asyncio.sleep(3)
            await store.dispatcher(table).run([get("b")])
            await asyncio.sleep(7)
        return store.seen, statuses(await turn.finish())

    seen, ended = run_in_virtual_time(main())
    assert [("-", 3.0)] == seen
    assert ["error", "skipped"] == ended


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_calls_of_one_turn_pass_each_others_holds(schedule: str) -> None:
    """The turn is an ancestor of its own calls: edits of one key in a row do not wait for it."""
    diary = Diary()
    dispatcher = Dispatcher(diary.tools(), policy=AllOrNothing(), schedule=schedule)

    async def streamed() -> TurnResult:
        async with dispatcher.turn() as turn:
            for name in "abc":
                turn.submit(step(name, "k"))
                await asyncio.sleep(0.5)
            return await turn.finish()

    whole = run_in_virtual_time(dispatcher.run([step(name, "k") for name in "abc"]))
    assert [("ok", 1.0), ("ok", 2.0), ("ok", 3.0)] == told(whole)
    assert ["ok"] * 3 == statuses(run_in_virtual_time(streamed()))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_flat_whole_turns_never_deadlock(schedule: str) -> None:
    """[f, g] and [g, f] at once: one ticket each, so one after the other, in order of arrival."""
    store, table = Store(), ResourceTable()
    first = store.dispatcher(table, policy=AllOrNothing(), schedule=schedule)
    second = store.dispatcher(table, policy=AllOrNothing(), schedule=schedule)

    async def main() -> list[TurnResult]:
        one = first.run([put("a", "1"), put("b", "1", after=("1",))])
        two = second.run([put("b", "2"), put("a", "2", after=("2",))])
        return list(await asyncio.gather(one, two))

    turns = run_in_virtual_time(main())
    assert [True, True] == [turn.satisfied for turn in turns]
    assert turns[1][0].started_at == turns[0][1].finished_at
    assert (0, 0, 0) == left_over(first, second)


def test_a_turn_that_grows_its_holds_is_rolled_back_if_it_is_the_younger() -> None:
    """Streamed: the cycle is found at once, the older turn goes on, the message names it."""
    store, table = Store(), ResourceTable()
    older, younger = (store.dispatcher(table, policy=AllOrNothing()) for _ in range(2))

    async def grow(dispatcher: Dispatcher, name: str, keys: str, pause: float) -> TurnResult:
        async with dispatcher.turn(turn_id=name) as turn:
            for key in keys:
                turn.submit(put(key, name))
                await asyncio.sleep(pause)
            return await turn.finish()

    async def main() -> list[TurnResult]:
        both = grow(older, "old", "ab", 3), grow(younger, "young", "ba", 2)
        return list(await asyncio.gather(*both))

    old, young = run_in_virtual_time(main())
    assert (True, ["ok", "ok"]) == (old.satisfied, statuses(old))
    assert (False, ["rolled_back", "error"]) == (young.satisfied, statuses(young))
    failure = young[1].failure
    assert failure is not None
    assert (FailureKind.DEADLOCK, True) == (failure.kind, failure.retryable)
    assert "put (call 1)" in failure.message
    assert (["old", "old"], (0, 0, 0)) == (
        [store.values[key] for key in "ab"],
        left_over(older, younger),
    )


@pytest.mark.parametrize("how", ["cancel", "turn", "call"])
def test_a_turn_that_waits_for_its_ticket_can_be_ended(how: str) -> None:
    """Nothing of it has started, nothing of it is left; whoever is behind it goes on."""
    store, table = Store(), ResourceTable()
    first, second, third = (store.dispatcher(table, policy=AllOrNothing()) for _ in range(3))

    async def main() -> tuple[TurnResult, TurnResult]:
        loop = asyncio.get_running_loop()
        holding = asyncio.create_task(first.run([put("a", "1", 10.0)]))
        await asyncio.sleep(1)
        limit = 2.0 if how == "call" else None
        calls = [put("b", "2", timeout=limit), put("a", "2")]
        waiting = asyncio.create_task(second.run(calls, timeout=2.0 if how == "turn" else None))
        if how == "cancel":
            loop.call_later(2, waiting.cancel)
        await asyncio.sleep(1)
        behind = await third.run([get("b")])
        try:
            turn = await waiting
        except asyncio.CancelledError as error:
            turn = error.turn  # type: ignore[attr-defined]
        await holding
        return turn, behind

    turn, behind = run_in_virtual_time(main())
    ended = {"cancel": "cancelled", "turn": "timed_out", "call": "timed_out"}[how]
    assert (ended, 3.0, 0) == (turn[0].status, turn[0].finished_at, turn[0].attempts)
    assert not turn[1].attempts
    failure = turn[0].failure
    assert failure is not None
    assert "lock" == failure.phase
    assert [("ok", 3.0)] == told(behind)
    assert (0, 0, 0) == left_over(first, second, third)


def test_no_lock_is_taken_while_a_gate_is_asked() -> None:
    """The one ticket of a whole turn comes after its gates: a question holds nobody up."""
    store, table = Store(), ResourceTable()

    async def slow(call: ToolCall, ctx: GateContext) -> Allow:
        await asyncio.sleep(30 if call.id == "2" else 0)
        return Allow()

    asking = store.dispatcher(table, policy=AllOrNothing(), gates=[slow])
    other = store.dispatcher(table)

    async def main() -> tuple[TurnResult, TurnResult]:
        task = asyncio.create_task(asking.run([put("a", "1"), put("b", "2")]))
        await asyncio.sleep(1)
        return await other.run([get("a"), get("b")]), await task

    other_turn, turn = run_in_virtual_time(main())
    assert [("ok", 1.0), ("ok", 1.0)] == told(other_turn)
    assert [("ok", 31.0), ("ok", 31.0)] == told(turn)


def test_a_nested_turn_that_fails_alone_is_undone_alone() -> None:
    """All-or-nothing below best effort: decided by itself, its claims are free afterwards."""
    store, table = Store(), ResourceTable()
    mine, other = store.dispatcher(table), store.dispatcher(table)
    puts = [{"key": "a", "value": "new"}, {"key": "b", "value": "new", "fails": True, "seconds": 2}]

    async def main() -> list[TurnResult]:
        agent = ToolCall("", "agent", {"puts": puts, "atomic": True})
        task = asyncio.create_task(mine.run([agent, put("c", "x", 9.0)]))
        await asyncio.sleep(1.5)
        return [await other.run([get("a")]), await task]

    reading, turn = run_in_virtual_time(main())
    assert [("ok", 2.0)] == told(reading)
    assert (["-"], [False, None]) == (texts(reading), [result.value for result in turn])


@pytest.mark.parametrize("inner", [True, False], ids=["all or nothing", "best effort"])
def test_what_is_nested_in_a_group_is_undone_with_it(inner: bool) -> None:
    """After the nested turn has committed; in one order with the compensations of the others."""
    store, table = Store(), ResourceTable()
    dispatcher = store.dispatcher(table, policy=AllOrNothing())
    puts = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    agent = ToolCall("", "agent", {"puts": puts, "atomic": inner})
    calls = [agent, put("b", "3", 3.0), put("c", "4", 4.0, fails=True)]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert ["rolled_back", "rolled_back", "error"] == statuses(turn)
    assert {"-"} == set(store.values.values())
    failure = turn[0].failure
    assert failure is not None
    assert "2 compensations ran" in failure.message
    assert (0, 0, 0) == left_over(dispatcher)


turns = st.lists(
    st.lists(
        st.tuples(st.sampled_from(KEYS), st.integers(1, 3), st.sampled_from([0, 0, 0, 0, 1])),
        min_size=1,
        max_size=4,
    ),
    min_size=2,
    max_size=3,
)


@settings(max_examples=60)
@given(turns, st.lists(st.integers(0, 3), min_size=3, max_size=3), st.sampled_from(SCHEDULES))
def test_whole_turns_are_as_if_only_those_that_hold_had_run_one_by_one(
    several: list[list[tuple[str, int, int]]], arrivals: list[int], schedule: str
) -> None:
    """Any failures, any arrivals: no deadlock, and the order of decisions explains the end."""
    store, table = Store(), ResourceTable()
    decided: list[int] = []
    dispatchers = [
        store.dispatcher(table, policy=AllOrNothing(), schedule=schedule) for _ in several
    ]

    async def one(number: int) -> TurnResult:
        await asyncio.sleep(arrivals[number])
        calls = [
            put(key, f"{number}.{at}", float(seconds), bool(fails))
            for at, (key, seconds, fails) in enumerate(several[number])
        ]
        turn = await dispatchers[number].run(calls)
        decided.append(number)
        return turn

    async def main() -> list[TurnResult]:
        return await asyncio.gather(*map(one, range(len(several))))

    results = run_in_virtual_time(main())
    expected = dict.fromkeys(KEYS, "-")
    for number in decided:
        if results[number].satisfied:
            expected |= {key: f"{number}.{at}" for at, (key, _, _) in enumerate(several[number])}
    assert expected == store.values
    kinds = {result.failure.kind for turn in results for result in turn if result.failure}
    assert FailureKind.DEADLOCK not in kinds
    for turn, plan in zip(results, several, strict=True):
        assert turn.satisfied != any(fails for _, _, fails in plan)
    assert (0, 0, 0) == left_over(*dispatchers)
