"""Tools that misbehave: their descriptors and their exceptions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from dispatch import Claim, FailureKind, Status, Tool, ToolError, read, tool
from tests.timeline import SCHEDULES, Timeline, calls, dispatched

BOUND = 30_000
MANY = list(range(5_000))


class Unspeakable(Exception):
    """Neither its text nor its repr can be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def raising(error: BaseException) -> Callable[[Any], Any]:
    def describe(given: Any) -> Any:
        raise error

    return describe


def half_way(given: Any) -> Iterator[Claim]:
    yield read("file", "a")
    raise LookupError("half way")


def endless() -> Iterator[Claim]:
    return (read("row", number) for number in itertools.count())


def mutating(given: Any) -> list[Claim]:
    given["name"] = "something else"
    return []


RUBBISH: dict[str, tuple[dict[str, Any], str]] = {
    "raises": ({"resource_keys": raising(KeyError("path"))}, "KeyError: \"'path'\""),
    "raises without a text": ({"resource_keys": raising(Unspeakable())}, "Unspeakable"),
    "raises a cancellation": (
        {"resource_keys": raising(asyncio.CancelledError())},
        "CancelledError",
    ),
    "raises half way": ({"resource_keys": half_way}, "LookupError: 'half way'"),
    "recurs for ever": ({"resource_keys": raising(RecursionError("deep"))}, "RecursionError"),
    "changes the arguments": ({"resource_keys": mutating}, "TypeError"),
    "nothing": ({"resource_keys": lambda given: None}, "NoneType"),
    "a string": ({"resource_keys": lambda given: "file:a"}, "not str"),
    "a bare claim": ({"resource_keys": lambda given: read("file", "a")}, "not Claim"),
    "a bare key": ({"resource_keys": lambda given: ("file", "a")}, "a claim or a key"),
    "a number": ({"resource_keys": lambda given: 3}, "not int"),
    "strings": ({"resource_keys": lambda given: ["file:a"]}, "a claim or a key"),
    "a function": ({"resource_keys": lambda given: asyncio.sleep}, "not function"),
    "a key of numbers": ({"resource_keys": lambda given: [("db", 1.5)]}, "float"),
    "a claim of nonsense": ({"resource_keys": lambda given: [Claim("file", "read")]}, "no claim"),  # type: ignore[arg-type]
    "a mode of nonsense": ({"resource_keys": lambda given: [Claim(("a",), 5)]}, "no claim"),  # type: ignore[arg-type]
    "claims without end": ({"resource_keys": lambda given: endless()}, "more than 10,000"),
    "lists that multiply": ({"reads": "cell:{rows}/{columns}"}, "more than 10,000"),
    "a template without a value": ({"reads": "file:{path}"}, "KeyError"),
    "a template of a mapping": ({"reads": "db:{table}"}, "dict, which names no resource"),
    "a session that raises": ({"session": raising(ValueError("which?"))}, "ValueError: 'which?'"),
    "a session without a name": ({"session": lambda given: ""}, "session must be a name"),
    "a session that is no name": ({"session": lambda given: 7}, "session must be a name, not 7"),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", RUBBISH.values(), ids=RUBBISH.keys())
def test_a_descriptor_that_cannot_be_trusted_makes_the_call_exclusive(
    case: tuple[dict[str, Any], str], schedule: str
) -> None:
    """It runs, alone, and the turn says why; who touches nothing at all is not held up."""
    declared, reason = case
    timeline = Timeline()

    async def work(name: str, **rest: object) -> str:
        with timeline.span(name):
            await asyncio.sleep(1)
        return name

    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "path": {},
            "table": {},
            "rows": {},
            "columns": {},
        },
    }
    doubtful = Tool("doubtful", work, input_schema=schema, **declared)
    tools = [
        doubtful,
        Tool("read_a", work, reads="file:a"),
        Tool("fetch", work, safe_parallel=True),
    ]
    turn = calls(
        ("read_a", {"name": "before"}),
        ("doubtful", {"name": "doubtful", "table": {}, "rows": MANY, "columns": MANY}),
        ("read_a", {"name": "after"}),
        ("fetch", {"name": "fetch"}),
    )
    result = dispatched(tools, turn, schedule=schedule)
    assert ["before", "doubtful", "after", "fetch"] == [each.value for each in result]
    (warning,) = result.warnings
    assert warning.startswith("doubtful: its claims could not be told (")
    assert reason in warning
    spans = {name: span[0] for name, span in timeline.spans.items()}
    fetched = 3.0 if schedule == "serial" else 0.0
    assert {"before": 0, "doubtful": 1, "after": 2, "fetch": fetched} == spans


def test_a_descriptor_reads_the_validated_arguments() -> None:
    """Not what the model wrote: a default and a converted value are there to be claimed."""
    seen: list[dict[str, Any]] = []

    def keys(given: Any) -> list[Claim]:
        seen.append(dict(given))
        return []

    @tool(resource_keys=keys)
    async def query(row: int, table: str = "orders") -> None: ...

    dispatched([query], calls(("query", '{"row": "7"}')))
    assert [{"row": 7, "table": "orders"}] == seen


class Coded(Exception):
    """Takes no positional argument, so `args` is empty."""

    def __init__(self, *, code: int) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


class Order(BaseModel):
    amount: int


def invalid() -> BaseException:
    try:
        Order.model_validate({"amount": "many"})
    except ValueError as error:
        return error
    raise AssertionError


RAISED: dict[str, tuple[BaseException, list[str]]] = {
    "a text for the model": (ToolError("no such city"), ["[error] no such city"]),
    "an empty text for the model": (ToolError(""), ["ToolError"]),
    "type and text": (ValueError("too small"), ["[error] ValueError: too small"]),
    "without a text": (ValueError(), ["[error] ValueError"]),
    "a text of 5 MB": (ValueError("x" * 5_000_000), ["ValueError: xxx", "characters left out"]),
    "half a character": (OSError("\ud800"), ["OSError: \\ud800"]),
    "a text that is not in its args": (Coded(code=7), ["[error] Coded: code 7"]),
    "a validation error": (invalid(), ["ValidationError", "amount", "valid integer"]),
    "a text that cannot be had": (Unspeakable("x"), ["[error] Unspeakable: ", "cannot be shown"]),
    "a group": (
        ExceptionGroup("tasks", [ValueError("one"), ExceptionGroup("more", [KeyError("two")])]),
        ["ExceptionGroup: tasks", "ValueError: one", "KeyError: 'two'"],
    ),
    "a cancellation of its own": (asyncio.CancelledError(), ["the tool cancelled itself"]),
}


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("case", RAISED.values(), ids=RAISED.keys())
def test_what_a_tool_raises_is_told_in_full_and_within_bounds(
    case: tuple[BaseException, list[str]], kind: str
) -> None:
    """The exception's own text is never lost, and it harms no sibling however it is made."""
    error, told = case

    async def on_the_loop() -> None:
        raise error

    def in_a_thread() -> None:
        raise error

    broken = Tool("broken", on_the_loop if kind == "async def" else in_a_thread)
    fine = Tool("fine", lambda: "fine")
    good, bad, other = dispatched([broken, fine], calls(("fine", {}), ("broken", {}), ("fine", {})))
    assert ["fine", "fine"] == [good.value, other.value]
    assert Status.ERROR is bad.status
    assert bad.failure is not None
    assert bad.failure.kind in (FailureKind.TOOL_ERROR, FailureKind.CANCELLED)
    assert type(error).__name__ == bad.failure.exception_type
    assert [] == [part for part in told if part not in bad.content()], bad.content()
    assert BOUND > len(bad.content())
    assert bad.content().encode(), "it can be sent"
