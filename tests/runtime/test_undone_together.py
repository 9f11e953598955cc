"""All or nothing with copies, nested turns, crossing turns and other groups in it."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    Allow,
    BestEffort,
    CallContext,
    Dispatcher,
    FailureKind,
    Gate,
    GateContext,
    Limits,
    Quorum,
    Ref,
    ResourceTable,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import (
    Diary,
    ask,
    asked,
    call,
    fail,
    left_over,
    statuses,
    step,
    told,
    undoing,
)


@pytest.mark.parametrize("fails", [True, False])
def test_a_copy_shares_what_became_of_the_rollback(fails: bool) -> None:
    """Undone, or in doubt, with the words of the call that ran; it keeps the time of its result."""

    async def undo() -> None:
        if fails:
            raise OSError("disk full")

    calls = [call("act"), call("act"), call("fail", seconds=3.0)]
    dispatcher = Dispatcher([undoing(undo), fail], policy=AllOrNothing(), duplicates="coalesce")
    turn = run_in_virtual_time(dispatcher.run(calls))
    status = "unknown" if fails else "rolled_back"
    assert [(status, 0.0), (status, 0.0), ("error", 3.0)] == told(turn)
    assert turn[0].failure == turn[1].failure
    assert {} == turn[1].waits


def test_a_copy_of_a_call_that_stands_keeps_its_time() -> None:
    """A group that succeeds changes nothing of what its copies say."""
    diary = Diary()
    dispatcher = Dispatcher(diary.tools(), policy=AllOrNothing(), duplicates="coalesce")
    turn = run_in_virtual_time(dispatcher.run([step("a"), step("a"), step("b", seconds=3.0)]))
    assert [("ok", 1.0), ("ok", 1.0), ("ok", 3.0)] == told(turn)
    assert {"order": 1.0} == turn[1].waits


@pytest.mark.parametrize("outer", [AllOrNothing(), BestEffort()], ids=["all or nothing", "effort"])
@pytest.mark.parametrize("gated", [True, False])
def test_what_cannot_be_undone_is_refused_below_a_group_too(outer: Any, gated: bool) -> None:
    """U4: a post in a turn that is nested in a call of the group never happens."""
    posted: list[str] = []

    @tool(safe_parallel=True, reversible=False)
    async def post() -> None:
        posted.append("posted")

    @tool(safe_parallel=True)
    async def agent(ctx: CallContext) -> str:
        return (await ctx.run([call("post")], policy=BestEffort()))[0].content()

    async def gate(call: ToolCall, ctx: GateContext) -> Allow:
        return Allow()

    dispatcher = Dispatcher([post, agent, fail], policy=outer, gates=[gate] if gated else [])
    turn = run_in_virtual_time(dispatcher.run([call("agent"), call("fail", seconds=3.0)]))
    if isinstance(outer, AllOrNothing):
        refusal = "[error] post cannot be undone, so it cannot be part of all or nothing"
        assert ([], refusal) == (posted, turn[0].value)
    else:
        assert ["posted"] == posted


def test_a_compensation_may_do_what_cannot_be_undone() -> None:
    """Nothing undoes a compensation, so what it starts may be final: a note that all is off."""
    posted: list[str] = []

    @tool(safe_parallel=True, reversible=False)
    async def post() -> None:
        posted.append("posted")

    @tool(safe_parallel=True)
    async def act(ctx: CallContext) -> None:
        ctx.on_rollback(lambda: ctx.run([call("post")], policy=BestEffort()))

    dispatcher = Dispatcher([post, act, fail], policy=AllOrNothing())
    turn = run_in_virtual_time(dispatcher.run([call("act"), call("fail")]))
    assert (["rolled_back", "error"], ["posted"]) == (statuses(turn), posted)


def test_a_later_call_of_a_turn_passes_who_waits_for_its_hold() -> None:
    """A stream: what claims everything queues for what the turn holds; the turn goes on first."""
    diary, table = Diary(), ResourceTable()

    @tool
    async def everything() -> float:
        return asyncio.get_running_loop().time()

    async def main() -> tuple[TurnResult, TurnResult]:
        holder = Dispatcher(diary.tools(), policy=AllOrNothing(), resources=table)
        stranger = Dispatcher([everything], resources=table)
        async with holder.turn() as turn:
            turn.submit(step("e"))
            await asyncio.sleep(2)
            waiting = asyncio.ensure_future(stranger.run([call("everything")]))
            await asyncio.sleep(1)
            turn.submit(step("f"))
            held = await turn.finish()
        return held, await waiting

    held, waited = run_in_virtual_time(main())
    assert [("ok", 1.0), ("ok", 4.0)] == told(held)
    assert (4.0, 4.0) == (held[1].finished_at, waited[0].value)


@pytest.mark.parametrize("gated", [False, True])
def test_crossing_turns_whose_calls_are_all_of_one_tag_take_one_ticket(gated: bool) -> None:
    """[a, b] and [b, a] on a shared table do not deadlock, nor where a gate may rewrite."""
    diary, table = Diary(), ResourceTable()

    async def slow(call: ToolCall, ctx: GateContext) -> Allow:
        await asyncio.sleep(1)
        return Allow()

    gates = [Gate(slow, rewrites=True)] if gated else []

    async def main() -> list[TurnResult]:
        dispatcher = Dispatcher(
            diary.tools(), policies={"t": AllOrNothing()}, resources=table, gates=gates
        )
        turns = [
            [step(f"{key}{key}", key, tags=("t",), after=after) for key, after in keys]
            for keys in ((("a", ()), ("b", ("aa",))), (("b", ()), ("a", ("bb",))))
        ]
        return list(await asyncio.gather(*(dispatcher.run(one) for one in turns)))

    first, second = run_in_virtual_time(main())
    later = 1.0 if gated else 0.0
    assert [("ok", later + 1), ("ok", later + 2)] == told(first)
    assert [("ok", later + 3), ("ok", later + 4)] == told(second)


def test_a_group_with_a_ref_grows_its_holds_and_is_undone_whole() -> None:
    """A whole turn whose claims are not all known: each is taken as it comes."""
    diary = Diary()
    calls = [
        step("a"),
        ToolCall("b", "step", {"key": Ref("a")}),
        call("fail", seconds=5.0),
    ]
    dispatcher = Dispatcher([*diary.tools(), fail], policy=AllOrNothing())
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert ["rolled_back", "rolled_back", "error"] == statuses(turn)
    assert ["+a", "+b", "-b", "-a"] == diary.lines


def test_the_one_ticket_of_a_nested_turn_may_be_the_victim_of_a_deadlock() -> None:
    """Two calls hold a key each and nest a whole group on the other's: the younger's fails."""
    diary, table = Diary(), ResourceTable()
    inner: dict[str, list[str]] = {}

    @tool(writes="key:{key}")
    async def holder(ctx: CallContext, key: str, other: str) -> str:
        await asyncio.sleep(1)
        calls = [step(f"{key}-nested", other), step(f"{key}-other", f"{key}-free")]
        inner[key] = statuses(await ctx.run(calls, policy=AllOrNothing()))
        return key

    async def main() -> list[TurnResult]:
        dispatcher = Dispatcher([*diary.tools(), holder], resources=table)
        turns = [[call("holder", key="x", other="y")], [call("holder", key="y", other="x")]]
        done = await asyncio.gather(*(dispatcher.run(one) for one in turns))
        assert (0, 0, 0) == left_over(dispatcher)
        return list(done)

    first, second = run_in_virtual_time(main())
    assert (["ok"], ["ok"]) == (statuses(first), statuses(second))
    assert ["ok", "ok"] == inner["x"]
    assert ["error", "skipped"] == sorted(inner["y"])


def test_a_verdict_ends_siblings_whatever_they_wait_for() -> None:
    """Quorum met at 1 s: those in a gate, for a slot, for a lock, in a nested turn end then."""
    diary, table, limits = Diary(), ResourceTable(), Limits(8, per_tag={"one": 1})
    gate_ended: list[float] = []

    async def gate(call: ToolCall, ctx: GateContext) -> Allow:
        if call.id == "asked":
            try:
                await asyncio.Event().wait()
            finally:
                gate_ended.append(asyncio.get_running_loop().time())
        return Allow()

    @tool(safe_parallel=True)
    async def agent(ctx: CallContext) -> list[str]:
        return statuses(await ctx.run([asked(50)]))

    async def main() -> TurnResult:
        dispatcher = Dispatcher(
            [*diary.tools(), ask, agent], resources=table, limits=limits, gates=[gate], grace=0.5
        )
        calls = [
            asked(1, name="first"),
            asked(50, name="asked"),
            asked(50, name="slot", tags=("one",)),
            asked(50, name="behind", tags=("one",)),
            step("lock", "taken"),
            call("agent"),
        ]
        async with table.hold(("key", "taken")):
            turn = await dispatcher.run(calls, policy=Quorum(1))
        assert (0, 0, 0) == left_over(dispatcher)
        return turn

    turn = run_in_virtual_time(main())
    assert ["ok", *["cancelled"] * 5] == statuses(turn)
    assert {1.0} == {result.finished_at for result in turn if result.call.name != "agent"}
    assert turn[5].finished_at <= 2.0
    assert [1.0] == gate_ended


def test_what_a_compensation_writes_is_seen_when_it_is_over() -> None:
    """It runs a turn on a key that nobody held: others wait for the end of the rollback."""
    table, written = ResourceTable(), {"new": "-"}
    seen: list[tuple[str, float]] = []

    @tool(writes="key:{key}")
    async def put(key: str) -> None:
        await asyncio.sleep(1)
        written[key] = "undoing"

    @tool(reads="key:{key}")
    async def get(key: str) -> None:
        seen.append((written[key], asyncio.get_running_loop().time()))

    @tool(safe_parallel=True)
    async def act(ctx: CallContext) -> None:
        async def undo() -> None:
            await ctx.run([call("put", key="new")])
            await asyncio.sleep(3)
            written["new"] = "undone"

        ctx.on_rollback(undo)

    async def main() -> None:
        dispatcher = Dispatcher([put, get, act, fail], resources=table)
        acting = asyncio.ensure_future(
            dispatcher.run([call("act"), call("fail")], policy=AllOrNothing())
        )
        await asyncio.sleep(2.5)
        await dispatcher.run([call("get", key="new")])
        await acting

    run_in_virtual_time(main())
    assert [("undone", 5.0)] == seen


def test_who_depends_on_a_call_that_its_group_cancelled_may_run() -> None:
    """Cancelled by a verdict is no failure to a call of another group; what failed itself is."""

    async def main() -> TurnResult:
        dispatcher = Dispatcher([ask], policies={"g": AllOrNothing()}, dependents="skip")
        async with dispatcher.turn() as turn:
            turn.submit(asked(1, name="bad", fails=True, tags=("g",)))
            turn.submit(asked(9, name="slow", tags=("g",)))
            await asyncio.sleep(2)
            turn.submit(asked(1, name="o", after=("slow",)))
            turn.submit(asked(1, name="o2", after=("bad",)))
            return await turn.finish()

    turn = run_in_virtual_time(main())
    assert ["error", "cancelled", "ok", "skipped"] == statuses(turn)
    failure = turn[3].failure
    assert failure is not None
    assert (FailureKind.SKIPPED, 0) == (failure.kind, failure.cause)
