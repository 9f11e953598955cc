"""Tools that declare nothing, and descriptors that the host gives in place of the tools' own."""

import asyncio
from typing import Any

import pytest

from dispatch import Dispatcher, Tool, ToolCall, ToolConcurrency, TurnResult, plan, tool
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Stage, call
from tests.timeline import SCHEDULES


def strangers(stage: Stage) -> list[Any]:
    """Two tools that declare nothing, one with a session alone, and one that names a key."""
    play = stage.tools[0].handler
    return [
        Tool("one", play),
        Tool("two", play),
        Tool("shell", play, session="s"),
        Tool("keyed", play, writes="key:{key}"),
    ]


def done(stage: Stage, turn: list[ToolCall], **options: Any) -> TurnResult:
    """The turn in virtual time."""

    async def main() -> TurnResult:
        return await Dispatcher(strangers(stage), **options).run(turn)

    return run_in_virtual_time(main())


FOUR = [call("1", "one"), call("2", "one"), call("3", "two"), call("4", "keyed", key="k")]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_by_default_a_tool_that_says_nothing_runs_alone(schedule: str) -> None:
    """Against everything that claims anything; the plan names it."""
    stage = Stage()
    result = done(stage, FOUR, schedule=schedule)
    assert [0, 1, 2, 3] == [stage.began(mark) for mark in "1234"]
    assert ("one", "two") == result.plan.undeclared


def test_undeclared_tools_may_run_parallel_if_the_host_says_so() -> None:
    """Beside each other and themselves; what declares something is not affected."""
    stage = Stage()
    turn = [*FOUR, call("5", "keyed", key="k")]
    result = done(stage, turn, undeclared="parallel")
    assert [0, 0, 0, 0, 1] == [stage.began(mark) for mark in "12345"]
    assert () == result.plan.undeclared


@pytest.mark.parametrize(
    ("undeclared", "begins"), [("exclusive", [0, 1, 2]), ("parallel", [0, 1, 0])]
)
def test_a_session_alone_is_no_declaration(undeclared: str, begins: list[int]) -> None:
    """It keeps the session's calls in order, but says nothing about files."""
    stage = Stage()
    turn = [call("1", "shell"), call("2", "shell"), call("3", "keyed", key="k")]
    done(stage, turn, undeclared=undeclared)
    assert begins == [stage.began(mark) for mark in "123"]


def test_a_descriptor_takes_the_place_of_what_the_tool_says() -> None:
    """An undeclared tool gets keys, a keyed one becomes parallel; others stay as they are."""
    stage = Stage()
    descriptors = {
        "one": ToolConcurrency(writes="key:{key}"),
        "keyed": ToolConcurrency(safe_parallel=True),
        "two": ToolConcurrency(reads=["key:{key}"], serializes_with=["shell"]),
    }
    turn = [
        call("1", "one", key="a"),
        call("2", "one", key="b"),
        call("3", "two", key="a"),
        call("4", "keyed", key="a"),
        call("5", "keyed", key="a"),
    ]
    result = done(stage, turn, descriptors=descriptors)
    assert [0, 0, 1, 0, 0] == [stage.began(mark) for mark in "12345"]
    assert () == result.plan.undeclared


def test_the_tools_themselves_are_not_changed() -> None:
    """The same tool objects in another dispatcher are as they were declared."""
    stage = Stage()
    tools = strangers(stage)
    Dispatcher(
        tools, undeclared="parallel", descriptors={"keyed": ToolConcurrency(safe_parallel=True)}
    )
    assert plan([call("1", "keyed", key="k"), call("2", "keyed", key="k")], tools).edges
    assert plan([call("1", "one"), call("2", "two")], tools).edges


def test_a_descriptor_goes_before_the_opt_out() -> None:
    """With `undeclared="parallel"`, a descriptor that says something is kept."""
    stage = Stage()
    descriptors = {"one": ToolConcurrency(session="s")}
    turn = [call("1", "one"), call("2", "two"), call("3", "keyed", key="k")]
    done(stage, turn, undeclared="parallel", descriptors=descriptors)
    assert [0, 0, 1] == [stage.began(mark) for mark in "123"]


def test_plain_functions_may_be_given_a_descriptor() -> None:
    """Somebody else's function, unchanged: the host says what it touches."""
    order: list[str] = []

    async def save(path: str) -> None:
        order.append(f"save {path}")
        await asyncio.sleep(1)
        order.append(f"saved {path}")

    @tool(safe_parallel=True)
    async def other() -> None:
        order.append("other")

    async def main() -> TurnResult:
        dispatcher = Dispatcher(
            [save, other], descriptors={"save": ToolConcurrency(writes="file:{path}")}
        )
        paths = ("a", "./a", "b")
        turn = [ToolCall(str(n), "save", {"path": path}) for n, path in enumerate(paths)]
        return await dispatcher.run(turn)

    assert [True] * 3 == [each.ok for each in run_in_virtual_time(main())]
    assert ["save a", "save b", "saved a", "saved b", "save ./a", "saved ./a"] == order
