"""Same names, and failures among siblings: nothing is dropped, nothing is anybody else's fault."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dispatch import (
    CallContext,
    CallFailed,
    Dispatcher,
    FailureKind,
    Status,
    Tool,
    ToolCall,
    ToolError,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.timeline import SCHEDULES, calls, dispatched


@pytest.mark.parametrize("ids", [("a", "b"), ("a", "a"), ("", "")], ids=["two", "equal", "empty"])
def test_two_calls_of_one_tool_both_run(ids: tuple[str, str]) -> None:
    """E4: search(X) and search(Y) are two calls with a result each, whatever their ids are."""
    asked: list[str] = []

    @tool(safe_parallel=True)
    async def search(query: str) -> str:
        asked.append(query)
        return f"about {query}"

    turn = [
        ToolCall(ids[0], "search", {"query": "X"}),
        ToolCall(ids[1], "search", {"query": "Y"}),
    ]
    result = dispatched([search], turn)
    assert ["X", "Y"] == asked
    assert ["about X", "about Y"] == [each.value for each in result]


async def test_a_grep_without_a_match_harms_none_of_26_siblings(tmp_path: Path) -> None:
    """G1: 27 real processes, one of which exits with 1: 26 real results and one error."""
    for number in range(27):
        (tmp_path / f"f{number}").write_text(f"needle {number}\n" if number != 13 else "hay\n")

    @tool(reads="file:{path}")
    async def grep(path: str, ctx: CallContext) -> str:
        done = await ctx.run_process(["grep", "needle", path], cwd=tmp_path)
        if done.returncode:
            raise ToolError(f"grep: exit status {done.returncode}")
        return done.output

    async with Dispatcher([grep], root=tmp_path) as dispatcher:
        result = await dispatcher.run(calls(*(("grep", {"path": f"f{n}"}) for n in range(27))))
    told = [f"needle {number}\n" for number in range(27)]
    told[13] = "[error] grep: exit status 1"
    assert told == [each.content() for each in result]
    assert {Status.OK: 26, Status.ERROR: 1} == result.stats.statuses


def editing_tools(root: Path) -> list[Tool]:
    @tool(writes="file:{path}")
    async def append(path: str, text: str) -> str:
        await asyncio.sleep(1)
        with (root / path).open("a") as file:
            file.write(text)
        return text

    @tool(writes="file:{path}")
    async def fragile(path: str) -> str:
        await asyncio.sleep(0.5)
        raise ValueError(f"cannot parse {path}")

    return [append, fragile]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_fragile_call_costs_no_other_call_its_work(tmp_path: Path, schedule: str) -> None:
    """G2: writers with a failing call among them: no collateral errors, not even behind it."""
    turn = calls(
        ("append", {"path": "a", "text": "1"}),
        ("fragile", {"path": "a"}),
        ("append", {"path": "a", "text": "2"}),
        ("append", {"path": "b", "text": "3"}),
        ("fragile", {"path": "b"}),
        ("append", {"path": "c", "text": "4"}),
    )
    result = dispatched(editing_tools(tmp_path), turn, schedule=schedule, root=tmp_path)
    ok = [True, False, True, True, False, True]
    assert ok == [each.ok for each in result]
    assert {"a": "12", "b": "3", "c": "4"} == {
        file.name: file.read_text() for file in tmp_path.iterdir()
    }
    assert result.satisfied


def test_a_failure_says_what_was_raised_and_a_skip_says_for_whom() -> None:
    """G3: the call that raised has its own error, the call that was skipped names the cause, and
    a call that merely stands behind a failure runs."""

    @tool(writes="file:{path}")
    async def fails(path: str) -> None:
        raise PermissionError(f"{path} is read-only")

    @tool(writes="file:{path}")
    async def stuck(path: str) -> None:
        end = asyncio.get_running_loop().time() + 100
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    @tool(reads="file:{path}")
    async def reads(path: str) -> str:
        return path

    turn = [
        ToolCall("0", "fails", {"path": "a"}),
        ToolCall("1", "reads", {"path": "a"}),
        ToolCall("2", "stuck", {"path": "b"}, timeout=1.0),
        ToolCall("3", "reads", {"path": "b"}),
    ]
    result = dispatched([fails, stuck, reads], turn)
    assert [Status.ERROR, Status.OK, Status.UNKNOWN, Status.SKIPPED] == [e.status for e in result]

    raised, skipped = result[0].failure, result[3].failure
    assert raised is not None
    assert skipped is not None
    assert (FailureKind.TOOL_ERROR, "PermissionError") == (raised.kind, raised.exception_type)
    assert "[error] PermissionError: a is read-only" == result[0].content()
    assert (FailureKind.ABANDONED, 2) == (skipped.kind, skipped.cause)
    assert "stuck (call 2)" in result[3].content()
    assert raised.cause is None


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_tool_that_raises_takes_no_finished_output_with_it(schedule: str) -> None:
    """G4: [ok, raise, ok] keeps two outputs, and what was raised can be had by the host."""

    @tool(safe_parallel=True)
    async def answer(text: str) -> str:
        await asyncio.sleep(1)
        return text

    @tool(safe_parallel=True)
    async def broken() -> str:
        raise LookupError("no such key")

    tools = [answer, broken]
    turn = calls(("answer", {"text": "one"}), ("broken", {}), ("answer", {"text": "two"}))

    result = dispatched(tools, turn, schedule=schedule)
    assert ["one", None, "two"] == [each.value for each in result]
    with pytest.raises(ExceptionGroup) as caught:
        result.raise_for_failures()
    (failed,) = caught.value.exceptions
    assert isinstance(failed, CallFailed)
    assert result[1] is failed.result
    assert isinstance(failed.__cause__, LookupError)


def test_exceptions_of_every_kind_become_that_calls_result() -> None:
    """G4: neither a group of exceptions nor an exception outside `Exception` ends the turn."""

    class Odd(BaseException):
        pass

    raised = [
        ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
        BaseExceptionGroup("odd ones", [Odd()]),
        Odd("odd"),
        StopAsyncIteration("over"),
        GeneratorExit("closed"),
        TimeoutError("the server did not answer"),
        AssertionError(),
    ]

    @tool(safe_parallel=True)
    async def broken(number: int) -> None:
        await asyncio.sleep(0)
        raise raised[number]

    @tool(safe_parallel=True)
    async def fine() -> str:
        await asyncio.sleep(1)
        return "fine"

    turn = calls(*(("broken", {"number": n}) for n in range(len(raised))), ("fine", {}))
    result = dispatched([broken, fine], turn)
    assert [Status.ERROR] * len(raised) + [Status.OK] == [each.status for each in result]
    for each, error in zip(result, raised, strict=False):
        assert each.exception is error
        assert each.failure is not None
        assert type(error).__name__ == each.failure.exception_type
        assert type(error).__name__ in each.content()


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit])
def test_a_call_to_end_the_program_is_never_turned_into_a_result(
    fatal: type[BaseException],
) -> None:
    """G4: but `KeyboardInterrupt` and `SystemExit` go up to the host, with the siblings stopped."""
    stopped: list[str] = []

    @tool(safe_parallel=True)
    async def ends() -> None:
        await asyncio.sleep(1)
        raise fatal

    @tool(safe_parallel=True)
    async def sibling() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            stopped.append("sibling")
            raise

    async def main() -> float:
        with pytest.raises(fatal):
            await Dispatcher([ends, sibling]).run(calls(("sibling", {}), ("ends", {})))
        return asyncio.get_running_loop().time()

    assert 1.0 == run_in_virtual_time(main())
    assert ["sibling"] == stopped
