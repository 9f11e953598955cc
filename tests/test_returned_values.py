"""What tools return, whatever it is, the model reads as a text."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dispatch import Image, Status, Tool, ToolResult
from tests.timeline import calls, dispatched


class Unspeakable(Exception):
    """Neither its text nor its repr can be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Order(BaseModel):
    amount: int


class NoRepr:
    def __repr__(self) -> str:
        raise ValueError("no repr")

    __str__ = __repr__


class Unnamed:
    """Has the repr that every object has, with its address."""


class Tagged(BaseModel):
    tags: set[str]


class Row(BaseModel, frozen=True):
    number: int


class Basket(BaseModel):
    orders: set[Row]


@dataclass
class Point:
    at: set[str]


def circle_of_objects() -> Any:
    around: dict[str, Any] = {"it": Unnamed()}
    around["around"] = [around, {"a", "b"}]
    return around


class OddText(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise ValueError("no length")

    def __bool__(self) -> bool:
        raise ValueError("no truth")


def circle() -> list[Any]:
    items: list[Any] = [1]
    items.append(items)
    return items


def deep() -> Any:
    value: Any = "bottom"
    for _ in range(10_000):
        value = [value]
    return value


RETURNED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "(no output)"),
    "an empty text": (str, "(no output)"),
    "empty bytes": (bytes, "(no output)"),
    "a text": (lambda: "tea", "tea"),
    "bytes that are no text": (lambda: b"\xff", "\ufffd"),
    "bytes inside": (lambda: {"data": b"\xff"}, '{"data":"_w=="}'),
    "a circle": (circle, "..."),
    "no repr": (NoRepr, "NoRepr"),
    "no repr inside": (lambda: [{"x": NoRepr()}], "NoRepr"),
    "no repr as key": (lambda: {NoRepr(): 1}, "NoRepr"),
    "not a number": (lambda: float("nan"), "NaN"),
    "endless numbers": (lambda: [float("inf"), float("-inf")], "[Infinity,-Infinity]"),
    "a number of 5,000 digits": (lambda: 10**5_000, "0000"),
    "10,000 deep": (deep, "["),
    "half a character": (lambda: "a\ud800b", "a\\ud800b"),
    "half a character inside": (lambda: ["a\ud800b"], "\\ud800"),
    "half a character as key": (lambda: {"a\ud800b": 1}, "\\ud800"),
    "an odd kind of text": (lambda: OddText("tea"), "tea"),
    "an exception": (lambda: ValueError("returned"), "returned"),
    "an exception without a text": (Unspeakable, "Unspeakable"),
    "a type": (lambda: int, "int"),
    "a generator": (lambda: (n for n in range(3)), "generator, whose items cannot be shown"),
    "an endless iterator": (itertools.count, "count, whose items cannot be shown"),
    "a model": (lambda: Order(amount=3), '{"amount":3}'),
    "a model with a set": (lambda: Tagged(tags=set("cab")), '{"tags":["a","b","c"]}'),
    "a model with a set of models": (
        lambda: Basket(orders={Row(number=n) for n in (2, 1, 3)}),
        '{"orders":[{"number":1},{"number":2},{"number":3}]}',
    ),
    "a dataclass with a set": (lambda: Point({"y", "x"}), '{"at":["x","y"]}'),
    "a set": (lambda: {"c", "a", "b"}, '["a","b","c"]'),
    "a set of everything": (lambda: {1, None, "1", (2, "y")}, '[null,1,"1",[2,"y"]]'),
    "a set as key": (lambda: {frozenset("ba"): 1}, r'{"[\"a\",\"b\"]":1}'),
    "sets inside": (lambda: deque([{"s": ({"b", "a"},)}]), '[{"s":[["a","b"]]}]'),
    "a date and time": (
        lambda: datetime(2026, 5, 1, 12, tzinfo=UTC),
        '"2026-05-01T12:00:00Z"',
    ),
    "a duration": (lambda: [timedelta(minutes=90)], '["PT1H30M"]'),
    "a decimal": (lambda: Decimal("1.10"), '"1.10"'),
    "a path": (lambda: {"in": Path("/a/b")}, '{"in":"/a/b"}'),
    "an enumeration": (lambda: [Status.OK], '["ok"]'),
    "a number that is complex": (lambda: complex(1, 2), "1+2j"),
    "an object": (object, '"<object object>"'),
    "an object inside": (lambda: {"it": [Unnamed()]}, "Unnamed object>"),
    "a function": (lambda: deep, "<function deep>"),
    "a circle of objects": (circle_of_objects, "..."),
    "a generator inside": (
        lambda: {"numbers": (n for n in range(3))},
        '{"numbers":"<generator, whose items cannot be shown; return a list>"}',
    ),
    "an endless iterator inside": (lambda: [itertools.count()], "count, whose items cannot be"),
    "an image": (lambda: Image(b"GIF89a"), "[image/gif, 6 bytes]"),
    "an image inside": (lambda: {"it": Image(b"GIF89a")}, '{"it":"[image/gif, 6 bytes]"}'),
    "a memory": (lambda: memoryview(b"ab"), "<memory>"),
    "only blanks": (lambda: " \n", " \n"),
}


@pytest.mark.parametrize("case", RETURNED.values(), ids=RETURNED.keys())
def test_whatever_a_tool_returns_the_model_reads_a_text(
    case: tuple[Callable[[], Any], str],
) -> None:
    """Never an exception, never empty, twice the same, and such that UTF-8 can hold it."""
    make, text = case

    async def odd() -> Any:
        return make()

    async def fine() -> str:
        return "fine"

    tools = [Tool("odd", odd), Tool("fine", fine)]
    good, bad, other = dispatched(tools, calls(("fine", {}), ("odd", {}), ("fine", {})))
    assert ["fine", "fine"] == [good.content(), other.content()]
    assert Status.OK is bad.status
    assert text in bad.content()
    assert bad.content() == bad.content()
    assert " at 0x" not in bad.content(), "an address is another one in the next run"
    assert bad.content().encode()


def test_a_result_without_value_or_reason_is_still_a_text() -> None:
    """`content()` is never empty, whatever a result was made with."""
    call = calls(("t", {}))[0]
    for status in Status:
        assert ToolResult(call=call, index=0, status=status).content()
