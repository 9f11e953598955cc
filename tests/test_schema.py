"""Hand-written JSON schemas: what they let through, what they refuse, and nothing is coerced."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from dispatch import CallContext, DeclarationError, Dispatcher, Tool, ToolCall, tool
from dispatch.arguments import InvalidArguments


def accepts(schema: Mapping[str, Any], value: object) -> bool:
    """Whether an argument of this schema may have this value."""
    made = Tool("t", lambda a: a, input_schema={"type": "object", "properties": {"a": schema}})
    try:
        return bool(made.arguments.parse({"a": value}) == {"a": value})
    except InvalidArguments:
        return False


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "minimum": 0.5}, [1], [0, 1.0, "1", True]),
        ({"type": "number", "minimum": 0.5, "maximum": 2}, [1, 0.5, 2], [0.4, 3, "1", True]),
        ({"type": "number", "multipleOf": 0.25}, [0.5, 1.0], [0.3]),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, [2, 1.5], [1, 1.0]),
        ({"type": "integer", "exclusiveMaximum": 3}, [2], [3]),
        ({"enum": [1, "a", None]}, [1, "a", None], [True, 1.0, "1", 2]),
        ({"enum": [True, False]}, [True, False], [1, 0]),
        ({"const": 1}, [1], [True, 1.0]),
        ({"type": ["string", "null"]}, ["x", None], [1]),
        ({"type": "string", "nullable": True}, ["x", None], [1]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["1"]),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            [["a"]],
            [["a", "a"]],
        ),
        ({"type": "array", "minItems": 1}, [[1]], [[], "ab"]),
        ({"type": "string", "pattern": "^a", "maxLength": 2}, ["ab"], ["b", "abc"]),
        (
            {"properties": {"x": {"type": "integer"}}, "required": ["x"]},
            [{"x": 1}],
            [{}, {"x": "1"}],
        ),
        ({"anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, [{"x": 1}, {"y": 2}], [{"z": 3}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "1"}]),
        ({"type": "string", "x-order": 3, "description": "d"}, ["x"], [1]),
        ({"type": "boolean"}, [True], [1, "true"]),
        ({}, [1, "a", None, [1]], []),
    ],
)
def test_values_of_a_schema(schema: dict[str, Any], good: list[object], bad: list[object]) -> None:
    """What the schema allows passes unchanged; everything else is refused."""
    assert ([True] * len(good), [False] * len(bad)) == (
        [accepts(schema, value) for value in good],
        [accepts(schema, value) for value in bad],
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/point", "$defs": {"point": {"properties": {"x": {"type": "integer"}}}}},
        {"allOf": [{"properties": {"x": {"type": "integer"}}}, {"required": ["x"]}]},
        {
            "properties": {"x": {"type": "integer"}, "next": {"$ref": "#"}},
            "additionalProperties": False,
        },
        {"properties": {"x": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": {"type": "integer"}}},
    ],
    ids=["root reference", "all of", "recursive", "escaped reference"],
)
def test_schemas_put_together_from_parts(schema: dict[str, Any]) -> None:
    """References and combinations at the root take what they describe and refuse the rest."""
    made = Tool("t", lambda **given: given, input_schema={"type": "object", **schema})
    assert {"x": 1} == made.arguments.parse({"x": 1})
    with pytest.raises(InvalidArguments):
        made.arguments.parse({"x": "one"})


def test_undeclared_names_are_refused_unless_the_handler_takes_them() -> None:
    """A handler with named parameters never gets a name that it does not know."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    closed = Tool("t", lambda x: x, input_schema=schema)
    open_ = Tool("t", lambda **given: given, input_schema=schema)
    assert {"x": 1, "y": 2} == open_.arguments.parse({"x": 1, "y": 2})
    with pytest.raises(InvalidArguments, match="y"):
        closed.arguments.parse({"x": 1, "y": 2})


class Point(BaseModel):
    x: int
    y: int = 0


@tool(safe_parallel=True)
async def odd_names(
    self: int,
    schema: str,
    model_config: str = "m",
    limit: int = Field(10, ge=1, le=50),
    many: list[str] = Field(default_factory=list),  # noqa: B008 - what is tested
    kind: Literal["a", "b"] = "a",
    size: Annotated[int, Field(description="how large", gt=0)] = 1,
    point: Point | None = None,
    *,
    ctx: CallContext,
) -> list[object]:
    """Every way to declare a parameter."""
    assert ctx.attempt == 1
    return [self, schema, model_config, limit, many, kind, size, point]


def test_defaults_and_constraints_of_a_signature_reach_the_tool() -> None:
    """`Field` defaults, factories, constraints, odd names, models; the context is hidden."""
    required = {"self": 1, "schema": "s"}
    given = {**required, "point": {"x": 2}}
    turn = Dispatcher([odd_names]).run_sync(
        [
            ToolCall("", "odd_names", required),
            ToolCall("", "odd_names", given),
            ToolCall("", "odd_names", {**required, "limit": 9999}),
            ToolCall("", "odd_names", {**required, "size": 0}),
        ]
    )
    assert [1, "s", "m", 10, [], "a", 1, None] == turn[0].unwrap()
    assert Point(x=2, y=0) == turn[1].unwrap()[-1]
    assert "limit: Input should be less than or equal to 50" in turn[2].content()
    assert "size: Input should be greater than 0" in turn[3].content()
    properties = odd_names.input_schema["properties"]
    assert list(properties) == [
        *("self", "schema", "model_config", "limit", "many", "kind", "size", "point")
    ]
    assert "how large" == properties["size"]["description"]


def test_a_context_must_be_one_and_named() -> None:
    """By position, as several or twice it could not be filled."""

    def by_position(ctx: CallContext, /) -> None: ...
    def several(*ctx: CallContext) -> None: ...
    def twice(one: CallContext, two: CallContext) -> None: ...

    for handler in (by_position, several, twice):
        with pytest.raises(DeclarationError):
            tool(handler)
