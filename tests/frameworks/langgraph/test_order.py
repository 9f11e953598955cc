"""Cases A and D: order, overlap, and one answer per call."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException, tool

from dispatch import Allow, CallContext, Deny, ToolCall
from tests.frameworks.langgraph.graphs import (
    FILE,
    FREE,
    THREAD,
    Meeting,
    Overlap,
    answers,
    asks,
    dispatched,
    run,
    some_steps,
)


def editor(files: dict[str, str], overlap: Overlap) -> BaseTool:
    """A tool that reads, lets everybody else go on, and writes what it read with a change."""

    @tool
    async def edit(path: str, old: str, new: str) -> str:
        """Replace a text."""
        async with overlap:
            text = files[path]
            await some_steps()
            files[path] = text.replace(old, new)
        return f"edited {path}"

    return edit


@pytest.mark.parametrize("sync", [False, True], ids=["ainvoke", "invoke"])
async def test_two_edits_of_one_file_run_one_after_the_other(
    way: str, saver: str, sync: bool
) -> None:
    """A2, A3: the second edit of a file sees what the first has written."""
    files, overlap = {"a": "one two"}, Overlap()

    @tool
    def edit(path: str, old: str, new: str) -> str:
        """Replace a text."""
        overlap.now += 1
        overlap.peak = max(overlap.peak, overlap.now)
        text = files[path]
        files[path] = text.replace(old, new)
        overlap.now -= 1
        return f"edited {path}"

    edits = [("edit", {"path": "a", "old": w, "new": w.upper()}) for w in ("one", "two")]
    tools = [edit if sync else editor(files, overlap)]
    graph = dispatched(way, asks(*edits), tools, saved=saver == "saved", descriptors={"edit": FILE})
    if sync:
        state = await asyncio.to_thread(graph.invoke, {"messages": []}, THREAD)
    else:
        state = await run(graph, **THREAD)
    assert {"a": "ONE TWO"} == files
    assert 1 == overlap.peak
    assert [("c0", "success", "edited a"), ("c1", "success", "edited a")] == answers(state)


async def test_edits_of_two_files_overlap(way: str, saver: str) -> None:
    """Calls that touch different files run side by side: each waits for the other."""
    meeting = Meeting(2)

    @tool
    async def edit(path: str) -> str:
        """Meet."""
        await meeting.join()
        return path

    message = asks(("edit", {"path": "a"}), ("edit", {"path": "b"}))
    graph = dispatched(way, message, [edit], saved=saver == "saved", descriptors={"edit": FILE})
    assert [("c0", "success", "a"), ("c1", "success", "b")] == answers(await run(graph, **THREAD))


async def test_a_tool_that_says_nothing_runs_alone(way: str) -> None:
    """A tool without a declaration overlaps nothing; with `undeclared="parallel"` it does."""
    overlap, meeting = Overlap(), Meeting(2)

    @tool
    async def alone(x: int) -> str:
        """Count."""
        async with overlap:
            await some_steps()
        return "ok"

    @tool
    async def meet(x: int) -> str:
        """Meet."""
        await meeting.join()
        return "met"

    await run(dispatched(way, asks(("alone", {"x": 1}), ("alone", {"x": 2})), [alone]))
    assert 1 == overlap.peak
    message = asks(("meet", {"x": 1}), ("meet", {"x": 2}))
    state = await run(dispatched(way, message, [meet], undeclared="parallel"))
    assert ["met", "met"] == [content for _, _, content in answers(state)]


async def test_answers_stand_in_the_order_of_the_calls(way: str, saver: str) -> None:
    """D6: a slow first call and a fast second one are answered in the model's order."""
    second_done = asyncio.Event()

    @tool
    async def slow() -> str:
        """Wait for the other."""
        await second_done.wait()
        return "A"

    @tool
    async def fast() -> str:
        """Be done."""
        second_done.set()
        return "B"

    graph = dispatched(
        way,
        asks(("slow", {}), ("fast", {})),
        [slow, fast],
        saved=saver == "saved",
        undeclared="parallel",
    )
    assert [("c0", "success", "A"), ("c1", "success", "B")] == answers(await run(graph, **THREAD))


async def test_equal_turns_give_equal_answers(way: str) -> None:
    """D7: the same turn is answered by the same bytes, whoever ends first."""

    async def told(order: list[int]) -> str:
        gates = [asyncio.Event() for _ in order]

        @tool
        async def work(at: int) -> dict[str, int]:
            """Wait for its place."""
            before = order.index(at) - 1
            if before >= 0:
                await gates[order[before]].wait()
            gates[at].set()
            return {"b": at, "a": 1}

        message = asks(*[("work", {"at": at}) for at in range(3)])
        return json.dumps(answers(await run(dispatched(way, message, [work], **parallel))))

    parallel: dict[str, Any] = {"undeclared": "parallel"}
    assert 1 == len({await told(order) for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0])})


async def test_a_refused_call_keeps_its_place(way: str) -> None:
    """D8: a call that a gate refuses is answered behind the slow one before it."""
    refused = asyncio.Event()

    @tool
    async def slow() -> str:
        """Wait until the other has been refused."""
        await refused.wait()
        return "ok"

    @tool
    async def drop() -> str:
        """Never run."""
        raise AssertionError

    async def gate(call: ToolCall, context: CallContext) -> Allow | Deny:
        if call.name == "drop":
            refused.set()
            return Deny("not today")
        return Allow()

    graph = dispatched(
        way,
        asks(("slow", {}), ("drop", {})),
        [slow, drop],
        undeclared="parallel",
        gates=[gate],
    )
    told = answers(await run(graph))
    assert ("c0", "success", "ok") == told[0]
    assert ("c1", "error") == told[1][:2]
    assert "not today" in told[1][2]


async def test_a_stalled_call_takes_no_answer_from_the_others(way: str, saver: str) -> None:
    """D2: two real answers, and one that says that its call timed out."""

    @tool
    async def quick(x: int) -> str:
        """Be done."""
        return f"real {x}"

    @tool
    async def hang() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return "never"

    graph = dispatched(
        way,
        asks(("quick", {"x": 1}), ("quick", {"x": 2}), ("hang", {})),
        [quick, hang],
        saved=saver == "saved",
        descriptors={"quick": FREE, "hang": FREE},
        call_timeout=0.2,
        grace=0.05,
    )
    told = answers(await run(graph, **THREAD))
    assert [("c0", "success", "real 1"), ("c1", "success", "real 2")] == told[:2]
    assert ("c2", "error") == told[2][:2]
    assert told[2][2].startswith("[timed_out]")


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("timeout", "[timed_out]"),
        ("skip", "[skipped] never started: fail (call 0) failed"),
        ("self", "the tool cancelled itself"),
    ],
)
async def test_an_answer_tells_the_true_reason(way: str, reason: str, says: str) -> None:
    """D12: what did not happen says why: timed out, never started, cancelled by itself."""

    @tool
    async def fail() -> str:
        """Fail, if the case wants it, in a way that is answered."""
        if reason == "skip":
            raise ToolException("broken")
        return "fine"

    fail.handle_tool_error = True

    @tool
    async def subject() -> str:
        """End as the case wants it."""
        if reason == "self":
            raise asyncio.CancelledError
        await asyncio.Event().wait()
        return "never"

    options: dict[str, Any] = {"call_timeout": 0.15, "grace": 0.05, "dependents": "skip"}
    graph = dispatched(way, asks(("fail", {}), ("subject", {})), [fail, subject], **options)
    _, told = answers(await run(graph))
    assert ("c1", "error") == told[:2]
    assert says in told[2]


async def test_a_late_result_is_dropped(way: str) -> None:
    """D9: a call that was given up is answered once; what it returns later goes nowhere."""
    let_go = threading.Event()

    @tool
    def stuck() -> str:
        """Block its thread."""
        let_go.wait(10)
        return "late"

    graph = dispatched(way, asks(("stuck", {})), [stuck], call_timeout=0.1, grace=0.02)
    told = answers(await run(graph))
    let_go.set()
    assert 1 == len(told)
    assert ("c0", "error") == told[0][:2]
    assert "late" not in told[0][2]


@pytest.mark.parametrize("aborts", [1, 3])
async def test_an_aborted_turn_is_answered_once_it_is_resumed(way: str, aborts: int) -> None:
    """D1, D3: however often it is aborted, each id has one answer before the model is asked."""
    waiting = asyncio.Event()
    open_: list[bool] = []

    @tool
    async def quick(x: int) -> str:
        """Be done."""
        return f"{x}"

    @tool
    async def hang() -> str:
        """Wait while the test wants it."""
        if open_:
            return "at last"
        waiting.set()
        await asyncio.Event().wait()
        return "never"

    graph = dispatched(
        way,
        asks(("quick", {"x": 1}), ("hang", {}), ("quick", {"x": 2})),
        [quick, hang],
        saved=True,
        undeclared="parallel",
        grace=0.05,
    )
    given: Any = {"messages": []}
    for _ in range(aborts):
        waiting.clear()
        running = asyncio.ensure_future(graph.ainvoke(given, THREAD))
        await waiting.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        given = None
    open_.append(True)
    state = await graph.ainvoke(None, THREAD)
    told = [("c0", "success", "1"), ("c1", "success", "at last"), ("c2", "success", "2")]
    assert told == answers(state)
    assert "done" == state["messages"][-1].content
