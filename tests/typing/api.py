"""Every public name, used as a user would. Type-checked by `mypy --strict`, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

from dispatch import (
    AdaptiveLimit,
    AllOrNothing,
    Allow,
    BestEffort,
    CallContext,
    CallEvent,
    CallFailed,
    CancelToken,
    Change,
    Claim,
    Deadlock,
    DeclarationError,
    Deny,
    Dispatcher,
    DispatcherClosed,
    DispatchError,
    DispatcherStats,
    Failure,
    FailureKind,
    Gate,
    GateContext,
    Image,
    InputError,
    Limits,
    Phase,
    Plan,
    ProcessResult,
    Quorum,
    Rate,
    Ref,
    ResourceTable,
    Schedule,
    Status,
    StreamBroken,
    Tool,
    Toolbox,
    ToolCall,
    ToolConcurrency,
    ToolError,
    ToolResult,
    Turn,
    TurnClosed,
    TurnEvent,
    TurnResult,
    TurnStats,
    UsageError,
    commute,
    plan,
    read,
    tool,
    write,
)

# Declaring tools


@tool
async def alone(path: str) -> str:
    return path


@tool(reads="file:{path}", tags={"disk"}, timeout=5.0)
def read_file(path: str, start: int = 0) -> str:
    return Path(path).read_text()[start:]


@tool(name="edit", description="Edit a file", writes=["file:{path}"], idempotent=True)
async def edit_file(path: str, ctx: CallContext) -> str:
    assert_type(ctx.call, ToolCall)
    assert_type(ctx.token, CancelToken)
    assert_type(ctx.attempt, int)
    assert_type(ctx.partial, str)
    ctx.token.check()
    ctx.progress("half way")
    done = await ctx.run_process(
        ["cat", path], cwd=Path(), env={"A": "b"}, stdin=b"", output_limit=9
    )
    assert_type(done, ProcessResult)
    assert_type(done.returncode, int)
    assert_type(done.truncated, bool)
    return done.output


def rows(given: Mapping[str, Any]) -> list[Claim]:
    return [read("db", "orders"), write("db", given["row"]), commute("append", "log", 7)]


@tool(resource_keys=rows, session=lambda given: str(given["row"]), serializes_with=["edit"])
async def update(row: int) -> None:
    raise ToolError("no such row", retryable=True, details={"row": row})


@tool(resource_keys=lambda given: [("db", "orders"), read("file", Path("a"))], read_only=False)
def query(sql: str) -> list[int]:
    return [len(sql)]


@tool(safe_parallel=True)
async def search(query: str) -> dict[str, str]:
    return {query: "found"}


@tool(cost=lambda given: float(given["tokens"]), reversible=False, tags={"model"})
async def ask(tokens: int, ctx: CallContext) -> str:
    nested = await ctx.run([ToolCall("n", "search", {"query": "a"})], policy=Quorum(1))
    assert_type(nested, TurnResult)
    async with ctx.turn(schedule="serial") as turn:
        assert_type(turn, Turn)
    async with ctx.suspended():
        pass
    await ctx.set_state("waiting")
    ctx.on_rollback(print, "undone", sep="")
    return nested[0].content()


@tool(cost=2)
def ask_from_a_thread(tokens: int, ctx: CallContext) -> str:
    return ctx.run_sync([ToolCall("n", "search", {"query": "a"})], timeout=1.0)[0].content()


assert_type(ask.cost({"tokens": 5}), float)
assert_type(ask.reversible, bool | None)
assert_type(alone, Tool)
assert_type(read_file, Tool)
assert_type(search.input_schema, dict[str, Any])
assert_type(update.concurrency, ToolConcurrency)
assert_type(update.concurrency.undeclared, bool)
assert_type(update.claims({"row": 1}), tuple[tuple[Claim, ...], str | None])
assert_type(read("file", "a").key, tuple[str, ...])
assert_type(write("file", Path("a")).mode, str)
assert_type(commute("append", "log"), Claim)

by_hand = Tool(
    "by_hand",
    lambda **given: given,
    input_schema={"type": "object", "properties": {"a": {"type": "string"}}},
    description="Echo",
    read_only=True,
    tags=["echo"],
)
descriptor = ToolConcurrency(reads="file:{path}", read_only=True, session="shell")
toolbox = Toolbox([alone, read_file, edit_file, update, query, search, by_hand, len])
assert_type(toolbox["edit"], Tool)
assert_type(list(toolbox), list[str])
assert_type(toolbox.unknown("serch"), str)


# Running turns


CALLS = [
    ToolCall("c1", "read_file", {"path": "a"}),
    ToolCall("c2", "edit", '{"path": "a"}', after=(), tags=frozenset({"slow"}), timeout=1.5),
]


def listen(event: CallEvent | TurnEvent) -> None:
    if isinstance(event, CallEvent):
        assert_type(event.index, int)
        assert_type(event.status, str | None)
    else:
        assert_type(event, TurnEvent)
        assert_type(event.calls, int)
    assert_type(event.at, float)
    assert_type(event.turn_id, str)


async def approve(call: ToolCall, context: GateContext) -> Allow | Deny | Change:
    assert_type(context.tool, Tool)
    assert_type(context.arguments, Mapping[str, Any])
    assert_type(context.turn_id, str)
    assert_type(context.index, int)
    assert_type(context.token, CancelToken)
    if call.name == "edit":
        return Change({**context.arguments, "path": "b"})
    return Deny("not today") if context.index else Allow()


async def allow(call: ToolCall, context: GateContext) -> Allow:
    return Allow()


class Twice:
    def __init__(self, following: Callable[[ToolCall, CallContext], Awaitable[Any]]) -> None:
        self.following = following

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        await self.following(call, context)
        return await self.following(call, context)


def dispatcher(table: ResourceTable) -> Dispatcher:
    rates = {"ask": Rate(10, 60.0, burst=2.5), "model": Rate(1_000, 60)}
    return Dispatcher(
        toolbox,
        root=Path(),
        limits=Limits(8, per_tool={"edit": 1}, per_tag={"disk": 2}, rates=rates),
        schedule=Schedule.DATAFLOW,
        policy=BestEffort(),
        policies={"disk": AllOrNothing(rollback_timeout=5.0), "web": Quorum(2, stop_early=False)},
        resources=table,
        gates=[approve, Gate(allow, rewrites=True, timeout=60.0)],
        middleware=[Twice],
        sinks=[listen, print],
        call_timeout=30.0,
        turn_timeout=None,
        grace=0.5,
        abandoned_wait=1.0,
        duplicates="coalesce",
        dependents="skip",
        undeclared="parallel",
        descriptors={"len": ToolConcurrency(safe_parallel=True)},
        refs=True,
        max_depth=3,
        learn_durations=False,
    )


def change(limits: Limits) -> None:
    limits.total = 4
    limits.change(per_tool={"edit": None}, per_tag={"disk": 0}, rates={"ask": None})
    adaptive = AdaptiveLimit(1, max=16)
    assert_type(adaptive.min, int)
    limits.change(per_tool={"ask": adaptive, "edit": 1}, per_tag={"web": AdaptiveLimit(2, 4)})
    limits.total = AdaptiveLimit(min=4, max=32)
    assert_type(limits.total, int)
    assert_type(limits.running, int)
    assert_type(limits.waiting, int)
    assert_type(limits.per_tool, Mapping[str, int])
    assert_type(limits.rates, Mapping[str, Rate])


REFERRING = [
    ToolCall("c3", "search", {"query": Ref("c1")}),
    ToolCall("c4", "search", {"query": Ref("c3", "items.0.name")}, after=("c2",)),
    ToolCall("c5", "search", {"query": [Ref("c3", ("items", 0, "name"))]}),
]


async def run() -> TurnResult:
    table, token = ResourceTable(root="."), CancelToken()
    async with table.hold(write("file", "a"), read("db")):
        assert_type(table.statistics().held, int)
    async with dispatcher(table) as running:
        assert_type(running, Dispatcher)
        assert_type(running.toolbox, Toolbox)
        return await running.run(
            CALLS, policy=BestEffort(), schedule="groups", timeout=9, token=token, turn_id="t"
        )


def run_without_a_loop() -> TurnResult:
    return Dispatcher([alone, len], max_concurrent=4).run_sync(CALLS, schedule=Schedule.SERIAL)


async def stream(running: Dispatcher) -> TurnResult:
    turn = running.turn(timeout=3.0)
    assert_type(turn, Turn)
    async with turn as entered:
        assert_type(entered, Turn)
        assert_type(entered.id, str)
        assert_type(entered.token, CancelToken)
        assert_type(entered.submit(CALLS[0]), int)
        entered.close()
        assert_type(entered.events(), AsyncIterator[ToolResult])
        async for result in entered.events():
            assert_type(result, ToolResult)
        assert_type(entered.snapshot(), tuple[ToolResult, ...])
        assert_type(await entered.wait(0), ToolResult)
        entered.cancel(0, "no longer wanted")
        entered.withdraw()
        return await entered.finish()


async def cancel(token: CancelToken) -> str:
    forget = token.on_cancel(print)
    assert_type(forget, Callable[[], None])
    assert_type(token.child(), CancelToken)
    token.cancel("no longer wanted")
    assert_type(token.cancelled, bool)
    assert_type(token.reason, str | None)
    return await token.wait()


# Reading what comes back


def look(turn: TurnResult) -> None:
    assert_type(turn.results, tuple[ToolResult, ...])
    assert_type(turn[0], ToolResult)
    assert_type(turn[:1], tuple[ToolResult, ...])
    assert_type([each for each in turn], list[ToolResult])  # noqa: C416
    assert_type(len(turn), int)
    assert_type(turn.satisfied, bool)
    assert_type(turn.reason, str | None)
    assert_type(turn.turn_id, str)
    assert_type(turn.warnings, tuple[str, ...])
    assert_type(turn.plan, Plan)
    assert_type(turn.stats, TurnStats)
    turn.raise_for_failures()


def look_at_one(result: ToolResult) -> None:
    assert_type(result.status, Status)
    assert_type(result.ok, bool)
    assert_type(result.content(), str)
    assert_type(result.failure, Failure | None)
    assert_type(result.started_at, float | None)
    assert_type(result.waits, Mapping[str, float])
    assert_type(result.partial, str)
    assert_type(result.exception, BaseException | None)
    if result.failure is not None:
        assert_type(result.failure.kind, FailureKind)
        assert_type(result.failure.phase, Phase | None)
        assert_type(result.failure.cause, int | None)
        assert_type(result.failure.retryable, bool)
    if result.status is Status.OK:
        result.unwrap()


def measure(stats: TurnStats) -> None:
    assert_type(stats.makespan, float)
    assert_type(stats.parallelism_factor, float)
    assert_type(stats.conflicting, int)
    assert_type(stats.waits, Mapping[str, float])
    assert_type(stats.statuses, Mapping[Status, int])


def measure_all(running: Dispatcher) -> None:
    stats = running.statistics()
    assert_type(stats, DispatcherStats)
    assert_type(stats.turns, int)
    assert_type(stats.busy, float)
    assert_type(stats.peak, int)
    assert_type(stats.running, int)
    assert_type(stats.cancellation_rate, float)
    assert_type(stats.stretch, float)
    assert_type(stats.waits, Mapping[str, float])


def foresee(running: Dispatcher, calls: Sequence[ToolCall]) -> None:
    assert_type(running.plan(calls, schedule="serial"), Plan)
    foreseen = plan(calls, [alone, read_file], root=Path(), schedule=Schedule.CLUSTERS)
    assert_type(foreseen, Plan)
    assert_type(foreseen.groups, tuple[tuple[int, ...], ...])
    assert_type(foreseen.clusters, tuple[tuple[int, ...], ...])
    assert_type(foreseen.edges[0].reason, str)
    assert_type(foreseen.explain(0), str)
    assert_type(foreseen.lower_bound([1.0, 2.0], 4), float)
    assert_type(foreseen.lower_bound(limits={"total": 4, "tag:disk": 1}), float)
    assert_type(foreseen.critical_path(), tuple[int, ...])
    assert_type(foreseen.undeclared, tuple[str, ...])
    assert_type(foreseen.warnings, tuple[str, ...])
    for text in (foreseen.to_text, foreseen.to_json, foreseen.to_mermaid, foreseen.to_dot):
        assert_type(text(), str)


# What can be raised


async def held(table: ResourceTable) -> str | None:
    try:
        async with table.hold(read("db")):
            return None
    except Deadlock as error:
        return str(error)


def caught(turn: TurnResult) -> str:
    try:
        turn.raise_for_failures()
    except* CallFailed as group:
        for failed in group.exceptions:
            if isinstance(failed, CallFailed):
                assert_type(failed.result, ToolResult)
    try:
        return str(turn[0].unwrap())
    except ToolError as error:
        return f"{error.retryable} {error.details}"
    except (TurnClosed, DispatcherClosed) as error:
        usage: UsageError = error
        return str(usage)
    except StreamBroken as error:
        broken: InputError = error
        return str(broken)
    except (DeclarationError, InputError) as error:
        value: ValueError = error
        return str(value)
    except DispatchError as error:
        return str(error)


def shown() -> str:
    image = Image(b"GIF89a")
    assert_type(image.data, bytes)
    return f"{image.media_type} {Image.read('a.png').described}"
