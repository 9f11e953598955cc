"""Middleware: layers around each invocation, several attempts, and who is at fault."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dispatch import (
    CallContext,
    Dispatcher,
    FailureKind,
    Status,
    ToolCall,
    ToolError,
    TurnResult,
    tool,
)
from dispatch.runtime.middleware import Handler
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Layer, Stage, call, kinds, played
from tests.timeline import SCHEDULES

schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def test_layers_run_from_the_outermost_in_and_are_built_once() -> None:
    """The first is outermost; each class is made once per dispatcher, not per turn or call."""
    log: list[str] = []

    def layer(name: str) -> type[Layer]:
        class Named(Layer):
            def __init__(self, following: Handler) -> None:
                super().__init__(following)
                log.append(f"build {name}")

            async def __call__(self, call: ToolCall, context: CallContext) -> Any:
                assert context.call is call
                log.append(f"into {name}")
                value = await super().__call__(call, context)
                log.append(f"out of {name}")
                return f"{name}({value})"

        return Named

    async def main() -> None:
        dispatcher = Dispatcher(Stage().tools, middleware=[layer("a"), layer("b")])
        assert ["build b", "build a"] == log
        for mark in ("x", "y"):
            assert f"a(b({mark}))" == (await dispatcher.run([call(mark)]))[0].value

    run_in_virtual_time(main())
    assert ["build b", "build a", *["into a", "into b", "out of b", "out of a"] * 2] == log


def test_a_plain_function_can_be_a_middleware() -> None:
    """It takes the next handler and gives one back."""

    def shout(following: Handler) -> Handler:
        async def handler(call: ToolCall, context: CallContext) -> Any:
            return str(await following(call, context)).upper()

        return handler

    assert "A" == played(Stage(), [call("a")], middleware=[shout])[0].value


@schedules
def test_a_middleware_runs_inside_the_locks_of_its_call(schedule: str) -> None:
    """What it does before and after the tool is under the claims too."""
    inside: list[str] = []

    class Slow(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            assert [] == inside
            inside.append(call.id)
            await asyncio.sleep(1)
            value = await super().__call__(call, context)
            await asyncio.sleep(1)
            inside.remove(call.id)
            return value

    turn = [call(mark, "change", key="k") for mark in "abc"]
    result = played(Stage(), turn, schedule=schedule, middleware=[Slow])
    assert [0, 3, 6] == [each.started_at for each in result]
    assert [True] * 3 == [each.ok for each in result]


def raising(error: BaseException, *, before: bool) -> type[Layer]:
    class Broken(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            if before:
                raise error
            await super().__call__(call, context)
            raise error

    return Broken


@pytest.mark.parametrize("position", ["outermost", "innermost", "alone"])
@pytest.mark.parametrize("before", [True, False], ids=["before the tool", "after the tool"])
def test_the_layer_at_fault_is_named(before: bool, position: str) -> None:
    """In the message and in the details, wherever it stands; a layer outside is not blamed."""
    layers = {
        "outermost": [raising(KeyError("x"), before=before), Layer],
        "innermost": [Layer, raising(KeyError("x"), before=before)],
        "alone": [raising(KeyError("x"), before=before)],
    }[position]
    failure = played(Stage(), [call("a")], middleware=layers)[0].failure
    assert failure is not None
    assert (FailureKind.TOOL_ERROR, "KeyError") == (failure.kind, failure.exception_type)
    assert "the middleware 'Broken' failed: KeyError: 'x'" == failure.message
    assert {"middleware": "Broken"} == failure.details


def test_a_tool_error_of_a_layer_keeps_its_text() -> None:
    """The text is for the model alone; the details say who raised it."""
    error = ToolError("the budget is spent", details={"left": 0})
    result = played(Stage(), [call("a")], middleware=[Layer, raising(error, before=True)])
    assert "[error] the budget is spent" == result[0].content()
    assert {"left": 0, "middleware": "Broken"} == (result[0].failure and result[0].failure.details)
    assert (0, 0.0) == (result[0].attempts, result[0].started_at)


def test_a_layer_that_cancels_itself_is_at_fault_too() -> None:
    """A `CancelledError` out of nowhere is that layer's error, and the turn is not cancelled."""
    layer = raising(asyncio.CancelledError(), before=False)
    result = played(Stage(), [call("a"), call("b", "nothing")], middleware=[layer])
    failure = result[0].failure
    assert failure is not None
    assert (Status.ERROR, FailureKind.CANCELLED) == (result[0].status, failure.kind)
    assert "the middleware 'Broken' cancelled itself" in failure.message


@pytest.mark.parametrize("error", [ToolError("no such row"), ValueError("no such row")])
def test_the_tools_own_error_is_nobody_elses(error: Exception) -> None:
    """Passed on through the layers, it reads as if they were not there."""

    @tool(safe_parallel=True)
    async def row() -> None:
        raise error

    async def main(*layers: Any) -> TurnResult:
        return await Dispatcher([row], middleware=layers).run([ToolCall("1", "row", {})])

    bare, wrapped = run_in_virtual_time(main()), run_in_virtual_time(main(Layer, Layer))
    assert bare[0].content() == wrapped[0].content()
    assert bare[0].failure == wrapped[0].failure


def test_a_layer_may_turn_a_failure_into_a_value_and_a_value_into_another_failure() -> None:
    """What comes out of the outermost layer is the result."""

    class Mild(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            try:
                return await super().__call__(call, context)
            except ToolError as error:
                return f"nothing, because {error}"

    class Translating(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            try:
                return await super().__call__(call, context)
            except ToolError as error:
                raise LookupError("translated") from error

    turn = [call("a", fails=True)]
    assert "nothing, because a failed" == played(Stage(), turn, middleware=[Mild])[0].value
    failure = played(Stage(), turn, middleware=[Translating])[0].failure
    assert failure is not None
    assert "the middleware 'Translating' failed: LookupError: translated" == failure.message


def test_a_layer_that_answers_itself_makes_no_attempt() -> None:
    """A cache: the tool does not run, the result is a success with 0 attempts."""

    class Cache(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            return "cached"

    stage = Stage()
    result = played(stage, [call("a")], middleware=[Cache])
    assert ("cached", Status.OK, 0) == (result[0].value, result[0].status, result[0].attempts)
    assert [] == stage.marks


def test_a_time_out_and_a_cancel_reach_the_tool_through_the_layers() -> None:
    """A layer that swallows the cancel changes nothing."""

    class Deaf(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            try:
                return await super().__call__(call, context)
            except asyncio.CancelledError:
                assert context.token.cancelled
                return "swallowed"

    heard: list[str] = []

    @tool(safe_parallel=True)
    async def listen(ctx: CallContext) -> str:
        heard.append(await ctx.token.wait())
        return "stopped early"

    async def main() -> TurnResult:
        dispatcher = Dispatcher([listen, *Stage().tools], middleware=[Deaf])
        turn = [ToolCall("1", "listen", {}, timeout=1), call("a", seconds=9.0, timeout=2)]
        return await dispatcher.run([*turn, call("b", seconds=9.0)], timeout=3)

    result = run_in_virtual_time(main())
    assert [Status.TIMED_OUT] * 3 == [each.status for each in result]
    assert [1.0, 2.0, 3.0] == [each.finished_at for each in result]
    assert ["timed out after 1 s"] == heard


def test_a_call_is_not_replaced_inside_its_locks() -> None:
    """What is run must be what was claimed: a layer that passes on another call is refused."""

    class Rewriting(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            other = ToolCall(call.id, call.name, {"mark": "a", "key": "other"})
            return await self.following(other, context)

    stage = Stage()
    result = played(stage, [call("a", "change", key="k")], middleware=[Rewriting])
    assert [FailureKind.TOOL_ERROR] == kinds(result)
    assert "must pass on the call that it was given" in result[0].content()
    assert [] == stage.marks


STACKS: dict[str, Callable[[], list[Any]]] = {
    "none": list,
    "one": lambda: [Layer],
    "three": lambda: [Layer, Layer, Layer],
}


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS.keys())
@schedules
def test_layers_that_only_pass_on_change_nothing(
    schedule: str, stack: Callable[[], list[Any]]
) -> None:
    """Times, order, values and failures are those of a dispatcher without middleware."""
    turn = [
        call("a", "change", key="k"),
        call("b", "look", key="k", fails=True),
        call("c", seconds=4.0, timeout=2),
        call("d", "nothing"),
    ]
    bare = played(Stage(), turn, schedule=schedule)
    wrapped = played(Stage(), turn, schedule=schedule, middleware=stack())
    assert [each.content() for each in bare] == [each.content() for each in wrapped]
    assert [each.finished_at for each in bare[:2]] == [each.finished_at for each in wrapped[:2]]
