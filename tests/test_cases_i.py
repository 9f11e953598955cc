"""Whose directory it is, what the provider takes after an abort, and time limits that hold."""

import asyncio
import contextlib
import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from dispatch import (
    CallContext,
    Dispatcher,
    FailureKind,
    Gate,
    GateContext,
    Limits,
    Phase,
    Rate,
    Status,
    Tool,
    ToolCall,
    Turn,
    TurnResult,
    tool,
    write,
)
from dispatch.adapters import AnthropicMessages, OpenAIChat
from dispatch.runtime.gates import Decision
from dispatch.testing import (
    ScriptedModel,
    assert_no_leaks,
    hanging,
    refusing,
    run_in_virtual_time,
    stuck,
)
from dispatch.toolkit import Shell
from tests.cli.command import is_running
from tests.providers import Call, Step, anthropic_wire, openai_wire
from tests.runtime.keyed import statuses
from tests.runtime.stage import WAYS, Layer, run
from tests.runtime.test_process import sh
from tests.timeline import calls

GRACE = 0.3
SLACK = 5.0
"""Seconds that a loaded machine may take beyond what the contract says."""


async def test_no_agent_is_moved_by_another_ones_cd(tmp_path: Path) -> None:
    """C4: two agents of one turn, each with its own shell: pwd after own cd, however they mix."""
    everyone_moved = asyncio.Barrier(2)

    @tool(safe_parallel=True)
    async def agent(name: str) -> list[str]:
        (tmp_path / name).mkdir()
        seen = []
        async with Dispatcher([Shell(tmp_path).tool]) as dispatcher:
            for command in ("pwd", f"cd {name}", "pwd", "mkdir sub; cd sub", "pwd"):
                (result,) = await dispatcher.run(calls(("shell", {"command": command})))
                seen.append(result.unwrap().replace(str(tmp_path), "root").strip())
                await everyone_moved.wait()
        return [line for line in seen if line]

    async with Dispatcher([agent]) as dispatcher:
        turn = await dispatcher.run(calls(("agent", {"name": "P"}), ("agent", {"name": "Q"})))
    expected = [["root", f"root/{name}", f"root/{name}/sub"] for name in "PQ"]
    assert expected == [result.value for result in turn]


async def abort(turn: Turn, how: str) -> None:
    """What a host does that has seen enough; "time" waits for the time limit."""
    task = asyncio.current_task()
    assert task is not None
    if how == "host":
        raise LookupError
    if how == "token":
        turn.token.cancel("enough")
    if how == "task":
        task.cancel()
    await turn.finish()


PROVIDERS: dict[str, tuple[Any, Any]] = {
    "anthropic": (AnthropicMessages(), anthropic_wire),
    "openai": (OpenAIChat(), openai_wire),
}


@pytest.mark.parametrize("how", ["host", "token", "task", "time"])
@pytest.mark.parametrize("name", PROVIDERS)
def test_an_aborted_turn_leaves_a_history_that_the_provider_takes(name: str, how: str) -> None:
    """D1: three calls, aborted after the first result: one result for each id, and a provider
    that refuses any other history answers the next request."""
    provider, wire = PROVIDERS[name]

    @tool(safe_parallel=True)
    async def work(seconds: int) -> str:
        await asyncio.sleep(seconds)
        return f"after {seconds} s"

    script = [Step(calls=tuple(Call("work", {"seconds": n}) for n in (1, 5, 9))), Step("done")]
    dispatcher = Dispatcher([work], max_concurrent=1)
    history: list[Any] = [{"role": "user", "content": "work"}]
    request = {"model": "m", "max_tokens": 9, "messages": history}
    request["tools"] = provider.tools(dispatcher)
    message = wire.answer(script, request)
    history.append(provider.message(message))

    async def main() -> Turn:
        with contextlib.suppress(LookupError, asyncio.CancelledError):
            async with dispatcher.turn(timeout=3) as turn:
                for call in provider.calls(message):
                    turn.submit(call)
                turn.close()
                async for _ in turn.events():
                    await abort(turn, how)
        return turn

    results = run_in_virtual_time(main()).snapshot()
    assert [True, False, False] == [result.ok for result in results]
    reply = provider.reply(results)
    history += reply if isinstance(reply, list) else [reply]
    assert "done" in json.dumps(wire.answer(script, request))


async def forever(**arguments: object) -> None:
    await asyncio.get_running_loop().create_future()


LIMITED: dict[str, tuple[dict[str, Any], dict[str, Any], float | None]] = {
    "dispatcher, call": ({}, {"call_timeout": 420}, None),
    "dispatcher, turn": ({}, {"turn_timeout": 420}, None),
    "tool": ({"timeout": 420}, {}, None),
    "call": ({}, {}, 420),
}


@pytest.mark.parametrize("way", [*WAYS, "nested"])
@pytest.mark.parametrize("limited", LIMITED)
def test_one_lost_reply_has_the_same_deadline_as_many(limited: str, way: str) -> None:
    """I1: a call that never returns, alone in its turn or one of seven: the same 420 s,
    whoever set them and however the turn was made."""
    declared, options, timeout = LIMITED[limited]

    async def main(count: int) -> list[tuple[str, float]]:
        lost = [ToolCall("", "hang", {}, timeout=timeout)] * count
        dispatcher = Dispatcher([hanging(**declared)], **options)
        turns = []

        @tool(safe_parallel=True)
        async def agent() -> None:
            turns.append(await dispatcher.run(lost))

        if way == "nested":
            await Dispatcher([agent]).run(calls(("agent", {})))
        else:
            turns.append(await run(dispatcher, lost, way))
        return [(str(result.status), result.finished_at) for result in turns[0]]

    assert [("timed_out", 420.0)] == run_in_virtual_time(main(1))
    assert [("timed_out", 420.0)] * 7 == run_in_virtual_time(main(7))


@tool(safe_parallel=True)
async def fine() -> str:
    return "fine"


def test_a_call_that_never_returns_is_cut_and_the_other_one_kept() -> None:
    """I2: [ok, never returns] with a limit of 0.1 s: ok, and a time-out after 0.1 s."""
    turn = run_in_virtual_time(
        Dispatcher([fine, hanging(timeout=0.1)]).run(calls(("fine", {}), ("hang", {})))
    )
    assert ["ok", "timed_out"] == statuses(turn)
    assert [0.0, 0.1] == [result.finished_at for result in turn]
    assert "[timed_out] timed out after 0.1 s while running" == turn[1].content()


@pytest.mark.parametrize("kind", ["coroutine", "thread", "process"])
async def test_a_call_that_does_not_stop_either_ends_within_two_graces(kind: str) -> None:
    """I2: [ok, never returns and cannot be stopped], limit 0.1 s: nobody waits for its end, and
    only of a process can one say that it has been stopped."""
    release, released = asyncio.Event(), threading.Event()

    @tool(name="t", safe_parallel=True)
    async def process(ctx: CallContext) -> None:
        await ctx.run_process(sh("trap '' TERM; while :; do sleep 0.05; done"))

    never = {
        "coroutine": refusing("t", release=release),
        "thread": stuck("t", release=released),
        "process": process,
    }[kind]
    dispatcher = Dispatcher([fine, never], grace=GRACE, call_timeout=0.1)
    async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits, within=SLACK):
        before = time.monotonic()
        turn = await dispatcher.run(calls(("fine", {}), ("t", {})))
        took = time.monotonic() - before
        release.set()
        released.set()
    assert 0.1 <= took < 0.1 + 2 * GRACE + SLACK
    assert ["ok", "timed_out" if kind == "process" else "unknown"] == statuses(turn)
    assert "timed out after 0.1 s" in turn[1].content()


async def gate_never_returns(one: ToolCall, context: GateContext) -> Decision:
    await forever()
    raise AssertionError("unreachable")


class Before(Layer):
    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        await forever()


class After(Layer):
    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        await super().__call__(call, context)
        await forever()


HUNG: dict[str, tuple[dict[str, Any], Phase, str]] = {
    "gate": ({"gates": [gate_never_returns]}, Phase.GATE, "waiting for approval"),
    "rewriting gate": (
        {"gates": [Gate(gate_never_returns, rewrites=True)]},
        Phase.GATE,
        "waiting for approval",
    ),
    "hook before": ({"middleware": [Before]}, Phase.RUN, "running"),
    "hook after": ({"middleware": [After]}, Phase.RUN, "running"),
    "lock": ({}, Phase.LOCK, "waiting for what another turn holds"),
    "paused limit": ({"limits": Limits(8, per_tool={"t": 0})}, Phase.SLOT, "waiting for a free"),
    "rate": ({"limits": Limits(8, rates={"t": Rate(1, 3600)})}, Phase.RATE, "waiting for its rate"),
}


@pytest.mark.parametrize("hung", HUNG)
def test_the_deadline_covers_hooks_locks_and_limits_and_names_the_phase(hung: str) -> None:
    """I3: whatever never returns around a tool that would be quick: the call is over at its
    limit, and the report says where it was."""
    options, phase, place = HUNG[hung]
    quick = Tool("t", fine.handler, writes="key:k")

    async def main() -> TurnResult:
        dispatcher = Dispatcher([quick], **options)
        async with contextlib.AsyncExitStack() as stack:
            if hung == "rate":
                await dispatcher.run([ToolCall("", "t", {})])
            if hung == "lock":
                await stack.enter_async_context(dispatcher.resources.hold(write("key", "k")))
            return await dispatcher.run([ToolCall("", "t", {}, timeout=2)])

    (result,) = run_in_virtual_time(main())
    assert (Status.TIMED_OUT, 2.0) == (result.status, result.finished_at)
    assert result.failure is not None
    assert (FailureKind.TIMEOUT, phase) == (result.failure.kind, result.failure.phase)
    assert f"timed out after 2 s while {place}" in result.content()


def test_a_slow_call_fails_alone_and_the_loop_goes_on() -> None:
    """I5: [slow → time-out, ok]: both answered, a call that is submitted later still runs, and
    the model, which reads all of it, gets to its last word."""
    provider = AnthropicMessages()
    script = [
        Step(calls=(Call("hang", {}), Call("fine", {}))),
        Step(calls=(Call("fine", {}),)),
        Step("done"),
    ]

    async def main() -> tuple[list[Any], str]:
        dispatcher = Dispatcher([hanging(timeout=5.0), fine])
        history: list[Any] = [{"role": "user", "content": "go"}]
        request = {"model": "m", "max_tokens": 9, "messages": history}
        request["tools"] = provider.tools(dispatcher)
        model = ScriptedModel(script)
        while (step := await model(history)).calls:
            message = anthropic_wire.answer(script, request)
            history.append(provider.message(message))
            async with dispatcher.turn() as turn:
                for one in provider.calls(message):
                    turn.submit(one)
                    await asyncio.sleep(6)
                history.append(provider.reply(await turn.finish()))
        anthropic_wire.check(request)
        told = [block["content"] for message in history[2::2] for block in message["content"]]
        return told, step.text

    slow = (
        "[timed_out] timed out after 5 s while running\n"
        "It may have done its work, or a part of it: check that before you call it again."
    )
    assert ([slow, "fine", "fine"], "done") == run_in_virtual_time(main())


BUSY = """trap '' TERM
(while :; do :; done) & one=$!
setsid sh -c 'while :; do :; done' & echo $$ $one $!
while :; do :; done"""


async def test_a_busy_child_is_killed_when_its_time_is_over() -> None:
    """I6: a process tree that loads the machine, ignores SIGTERM and has left its session: once
    the call has timed out none of it runs, and its output so far is in the result."""

    @tool(safe_parallel=True)
    async def command(ctx: CallContext) -> None:
        await ctx.run_process(sh(BUSY))

    grace = 2.0  # with all processors busy, killing takes a while too
    dispatcher = Dispatcher([command], grace=grace, call_timeout=2.0)
    async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits, within=SLACK):
        before = time.monotonic()
        (result,) = await dispatcher.run(calls(("command", {})))
        took = time.monotonic() - before
        pids = [int(pid) for pid in result.partial.split()]
        assert (Status.TIMED_OUT, 3) == (result.status, len(pids))
        assert [False] * 3 == [is_running(pid) for pid in pids]
    assert 2.0 <= took < 2.0 + 2 * grace + SLACK


async def test_a_child_that_nobody_can_stop_is_never_called_timed_out() -> None:
    """I6: a thread that waits for a busy child of its own: the model is told that it may still be
    running, and the claims are its handle: the next writer waits until it is really over."""
    children: list[subprocess.Popen[bytes]] = []

    @tool(writes="key:disk", timeout=1.0)
    def command() -> None:
        children.append(subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]))
        children[0].wait()

    @tool(writes="key:disk")
    async def after() -> bool:
        return children[0].poll() is not None

    dispatcher = Dispatcher([command, after], grace=0.1)
    (result,) = await dispatcher.run(calls(("command", {})))
    try:
        assert psutil.Process(children[0].pid).is_running()
        assert Status.UNKNOWN is result.status
        assert "did not stop: it may still be running" in result.content()
        assert 1 == dispatcher.resources.statistics().held
        next_one = asyncio.create_task(dispatcher.run(calls(("after", {}))))
        await asyncio.sleep(0)
    finally:
        children[0].kill()
    assert [True] == [late.value for late in await next_one]
    await dispatcher.aclose()
