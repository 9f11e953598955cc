"""Where the path of a `Ref` may lead: to items and fields, and never to an attribute."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from dispatch import Dispatcher, FailureKind, Ref, Tool, ToolCall, TurnResult, tool
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import WAYS
from tests.timeline import SCHEDULES

INVALID, SKIPPED = FailureKind.INVALID_ARGUMENTS, FailureKind.SKIPPED
VALUE = {"items": [{"name": "tea", "size": [3, 4]}, "cup"], "a.b": 1, "7": "seven"}

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


@dataclass
class Found:
    name: str
    sizes: list[int]

    @property
    def secret(self) -> str:
        raise AssertionError("a path never runs code of the value")


class Model(BaseModel):
    found: dict[str, int]


class Plain:
    def __init__(self) -> None:
        self.name = "hidden"


def dispatched(tools: list[Tool], turn: list[ToolCall], **options: Any) -> TurnResult:
    """The turn in virtual time."""

    async def main() -> TurnResult:
        return await Dispatcher(tools, **options).run(turn)

    return run_in_virtual_time(main())


def value_through(value: object, path: Any) -> object:
    """What a call is given for this path into this value; None if it is refused."""

    @tool(safe_parallel=True)
    async def make() -> Any:
        return value

    @tool(safe_parallel=True)
    async def take(value: Any) -> Any:
        return value

    turn = [ToolCall("made", "make", {}), ToolCall("t", "take", {"value": Ref("made", path)})]
    taken = dispatched([make, take], turn)[1]
    assert taken.ok or INVALID is (taken.failure and taken.failure.kind)
    return taken.value


def test_dataclasses_and_models_can_be_walked() -> None:
    """By their fields, as they would be rendered for the model."""
    assert 4 == value_through(Found("tea", [3, 4]), "sizes.1")
    assert 3 == value_through(Model(found={"x": 3}), "found.x")
    assert "tea" == value_through([Found("tea", [])], "0.name")


@pytest.mark.parametrize(
    "value",
    [Found("tea", [3]), Model(found={"x": 3}), Plain(), {"a": 1}, [1], "text", 5, None, print],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "path",
    ["__class__", "__class__.__init__", "__dict__", "name.upper", "secret", "append", "model_dump"],
)
def test_a_path_never_reaches_an_attribute(value: object, path: str) -> None:
    """Only items and fields: methods, properties and dunder names lead nowhere."""
    assert value_through(value, path) is None
