"""Nested turns and streams in any interleaving, stopped at any step: everything ends, once."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dispatch import (
    CallContext,
    Dispatcher,
    Limits,
    ResourceTable,
    Status,
    ToolCall,
    TurnResult,
    tool,
    write,
)
from dispatch.runtime.futures import uncancelled
from dispatch.testing import assert_no_leaks, explore, explore_cancels
from tests.runtime.keyed import call

Scenario = Callable[[], Coroutine[Any, Any, None]]
FINAL = {Status.OK, Status.ERROR, Status.CANCELLED, Status.TIMED_OUT, Status.SKIPPED}


class Forest:
    """Trees of agents over two keys; who is at a key, and every result of every turn."""

    def __init__(self) -> None:
        self.table = ResourceTable()
        self.limits = Limits(3)
        self.at: dict[str, int] = {"x": 0, "y": 0}
        self.crowded = False
        self.turns: list[tuple[int, TurnResult]] = []

    def dispatcher(self, **options: Any) -> Dispatcher:
        """Agents that nest, twice at once, with a dispatcher of their own, and crosswise."""
        forest = self

        @tool(resource_keys=lambda given: [write("key", given["key"])])
        async def leaf(key: str) -> str:
            forest.crowded |= forest.at[key] > 0
            forest.at[key] += 1
            try:
                await asyncio.sleep(1)
            finally:
                forest.at[key] -= 1
            return key

        @tool(safe_parallel=True)
        async def twins(context: CallContext) -> None:
            await asyncio.gather(
                forest.run(context.run, [call("leaf", key="x"), call("leaf", key="y")]),
                forest.run(context.run, [call("leaf", key="x")]),
            )

        @tool(safe_parallel=True)
        async def other(context: CallContext) -> None:
            second = Dispatcher([leaf, twins], limits=forest.limits)
            await forest.run(second.run, [call("twins"), call("leaf", key="y")])

        @tool(resource_keys=lambda given: [write("hold", given["mine"])])
        async def crossed(context: CallContext, mine: str, theirs: str) -> None:
            await asyncio.sleep(1)
            await forest.run(context.run, [call("wants", key=theirs)])

        @tool(resource_keys=lambda given: [write("hold", given["key"])])
        async def wants(key: str) -> None:
            await asyncio.sleep(1)

        @tool(safe_parallel=True)
        async def dies(context: CallContext) -> None:
            asyncio.get_running_loop().call_later(0.5, _die, asyncio.current_task())
            await forest.run(context.run, [call("leaf", key="x")])

        tools = [leaf, twins, other, crossed, wants, dies]
        return Dispatcher(tools, resources=self.table, limits=self.limits, grace=0.5, **options)

    async def run(self, run: Callable[..., Any], calls: list[ToolCall]) -> None:
        """Run a turn and keep its results, however it ends."""
        try:
            turn = await run(calls)
        except asyncio.CancelledError as error:
            turn = getattr(error, "turn", None)
            if turn is not None:
                self.turns.append((len(calls), turn))
            raise
        self.turns.append((len(calls), turn))

    def check(self) -> None:
        """One final result for each call of each turn, and nobody beside anybody at a key."""
        for count, turn in self.turns:
            assert list(range(count)) == [result.index for result in turn]
            assert {result.status for result in turn} <= FINAL
        assert not self.crowded
        assert {"x": 0, "y": 0} == self.at


def _die(task: "asyncio.Task[Any] | None") -> None:
    assert task is not None
    task.cancel()


TREES = {
    "two children collected at once": [call("twins"), call("leaf", key="x")],
    "a second dispatcher": [call("other"), call("leaf", key="y")],
    "a parent that dies": [call("dies"), call("leaf", key="x"), call("twins")],
    "a deadlock": [
        call("crossed", mine="p", theirs="q"),
        call("crossed", mine="q", theirs="p"),
        call("leaf", key="x"),
    ],
    "time limits": [call("twins", timeout=1.5), call("other", timeout=2.5)],
}


def tree(name: str, how: str) -> Scenario:
    """The turns of a tree, each by itself, until they are over or `aclose` comes in between."""

    async def scenario() -> None:
        forest = Forest()
        async with assert_no_leaks(forest.table, limits=forest.limits):
            dispatcher = forest.dispatcher()
            turns = [asyncio.ensure_future(forest.run(dispatcher.run, [c])) for c in TREES[name]]
            try:
                if how == "closed":
                    await asyncio.sleep(1.5)
                else:
                    await asyncio.gather(*turns)
            finally:
                for turn in turns if how == "cancelled" else ():
                    turn.cancel()
                await dispatcher.aclose()
                await asyncio.wait(turns)
                for turn in turns:
                    with contextlib.suppress(asyncio.CancelledError):
                        turn.result()
        forest.check()
        if how == "whole":
            assert len(TREES[name]) <= len(forest.turns)

    return scenario


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("how", ["whole", "closed"])
def test_trees_end_in_any_interleaving(name: str, how: str) -> None:
    """Run to their end, or closed with all of that in flight."""
    explore(tree(name, how), seeds=range(25))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", TREES)
def test_trees_end_wherever_they_are_cancelled(name: str) -> None:
    """A cancel at any step of any of them, parents and children alike."""
    assert explore_cancels(tree(name, "cancelled")) > 10


def streamed(*, dies: bool) -> Scenario:
    """Calls come one by one; four readers: one in time, one slow, one that raises, one that goes.

    In the end, or when the host's block dies, the stream is over for all of them.
    """

    async def scenario() -> None:
        forest = Forest()
        seen: dict[str, list[int]] = {"in time": [], "slow": [], "raises": [], "goes": []}

        async def read(turn: Any, name: str) -> None:
            async for result in turn.events():
                seen[name].append(result.index)
                if name == "slow":
                    await asyncio.sleep(2)
                elif name == "raises":
                    raise ValueError(name)
                elif name == "goes":
                    return

        async with assert_no_leaks(forest.table, limits=forest.limits):
            dispatcher = forest.dispatcher()
            readers: list[asyncio.Task[None]] = []
            try:
                async with dispatcher.turn() as turn:
                    readers += [asyncio.ensure_future(read(turn, name)) for name in seen]
                    for key in "xyx":
                        turn.submit(call("leaf", key=key))
                        await asyncio.sleep(0.25)
                    if dies:
                        raise ConnectionError("the model's stream broke off")
            except ConnectionError:
                assert [0, 1, 2] == [result.index for result in turn.snapshot()]
            finally:
                over = asyncio.gather(*readers, return_exceptions=True)
                await uncancelled(asyncio.ensure_future(over))
                await dispatcher.aclose()
        assert [0, 1, 2] == sorted(seen["in time"]) == sorted(seen["slow"])
        assert (1, 1) == (len(seen["raises"]), len(seen["goes"]))
        forest.check()

    return scenario


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dies", [False, True])
def test_a_stream_ends_for_every_reader(dies: bool) -> None:
    """In any interleaving, and wherever the host is cancelled."""
    explore(streamed(dies=dies), seeds=range(50))
    assert explore_cancels(streamed(dies=dies)) > 10
