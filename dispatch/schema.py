"""A hand-written JSON schema, compiled once into a pydantic-core validator.

Nothing is coerced and nothing is ignored: a keyword that constrains and is not understood here
is refused when the tool is declared, since skipping it would let unchecked arguments through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pydantic_core import CoreSchema, PydanticCustomError, SchemaValidator, core_schema

from dispatch.errors import DeclarationError

Schema = Mapping[str, Any]

ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "example", "format", "deprecated"),
        *("readOnly", "writeOnly", "$schema", "$id", "$comment", "$defs", "definitions"),
    }
)
STRING = {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"}
NUMBER = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
OBJECT = ("properties", "required", "additionalProperties")
ARRAY = {"minItems": "min_length", "maxItems": "max_length"}


def compile_schema(schema: Schema, *, extras: bool) -> SchemaValidator:
    """A validator for objects of `schema`; `extras` says whether undeclared names may pass.

    Raises `DeclarationError` for a schema that is not an object's, or not understood.
    """
    if schema.get("type", "object") != "object":
        raise DeclarationError(
            f"input_schema must describe an object, not {schema.get('type')!r};"
            ' write {"type": "object", "properties": {...}}'
        )
    elsewhere = {"$ref", "allOf", "anyOf", "oneOf", "additionalProperties"} & set(schema)
    closed = {} if extras or elsewhere else {"additionalProperties": False}
    return SchemaValidator(_Compiler(schema).whole({**schema, **closed, "type": "object"}))


class _Compiler:
    def __init__(self, root: Schema) -> None:
        self.root = root
        self.definitions: dict[str, CoreSchema | None] = {}
        self.by_type: dict[str, Callable[[Schema, set[str]], CoreSchema]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": lambda s, seen: _integer(_bounds(s, seen)),
            "number": self._number,
            "boolean": lambda s, seen: core_schema.bool_schema(strict=True),
            "null": lambda s, seen: core_schema.none_schema(),
        }

    def whole(self, schema: Schema) -> CoreSchema:
        body = self.one(schema)
        return core_schema.definitions_schema(body, [d for d in self.definitions.values() if d])

    def one(self, schema: Schema | bool) -> CoreSchema:
        if schema is True:
            return core_schema.any_schema()
        if not isinstance(schema, Mapping):
            raise DeclarationError(f"input_schema: {schema!r} is no schema")
        seen = set(ANNOTATIONS)
        parts = [check for check in self._checks(schema, seen) if check is not None]
        seen.add("nullable")
        unknown = [k for k in schema if k not in seen and not k.startswith("x-")]
        if unknown:
            raise DeclarationError(
                f"input_schema uses {unknown[0]!r}, which is not checked here;"
                " leave it out and check it in the tool"
            )
        whole = core_schema.any_schema()
        if parts:
            whole = cast("Any", parts[0] if len(parts) == 1 else core_schema.chain_schema(parts))
        return core_schema.nullable_schema(whole) if schema.get("nullable") is True else whole

    def _checks(self, schema: Schema, seen: set[str]) -> list[CoreSchema | None]:
        return [
            self._typed(schema, seen),
            self._literal(schema, seen),
            self._reference(schema, seen),
            *self._combined(schema, seen),
        ]

    def _typed(self, schema: Schema, seen: set[str]) -> CoreSchema | None:
        seen.add("type")
        implied = any(keyword in schema for keyword in OBJECT)
        names = schema.get("type", "object" if implied else None)
        if names is None:
            return None
        names = [names] if isinstance(names, str) else names
        for name in names:
            if name not in self.by_type:
                raise DeclarationError(f"input_schema: {name!r} is no JSON type")
        return _union([self.by_type[name](schema, seen) for name in names])

    def _literal(self, schema: Schema, seen: set[str]) -> CoreSchema | None:
        seen.update(("enum", "const"))
        if "const" in schema:
            return _one_of([schema["const"]])
        return _one_of(schema["enum"]) if "enum" in schema else None

    def _reference(self, schema: Schema, seen: set[str]) -> CoreSchema | None:
        seen.add("$ref")
        target = schema.get("$ref")
        if target is None:
            return None
        if target not in self.definitions:
            self.definitions[target] = None  # known before it is built: schemas may recur
            built = dict(self.one(self._looked_up(target)))
            self.definitions[target] = cast("CoreSchema", {**built, "ref": target})
        return core_schema.definition_reference_schema(target)

    def _looked_up(self, target: str) -> Schema:
        found: Any = self.root if target == "#" or target.startswith("#/") else None
        for part in target.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is None:
            raise DeclarationError(f"input_schema: $ref {target!r} names nothing in this schema")
        return found  # type: ignore[no-any-return]

    def _combined(self, schema: Schema, seen: set[str]) -> list[CoreSchema | None]:
        seen.update(("anyOf", "oneOf", "allOf"))
        unions: list[CoreSchema | None] = [
            _union([self.one(branch) for branch in schema[name]])
            for name in ("anyOf", "oneOf")
            if name in schema
        ]
        return unions + [self.one(branch) for branch in schema.get("allOf", ())]

    def _object(self, schema: Schema, seen: set[str]) -> CoreSchema:
        seen.update(("properties", "required", "additionalProperties"))
        properties: Schema = schema.get("properties", {})
        required = set(schema.get("required", ()))
        extra = schema.get("additionalProperties", True)
        fields = {
            name: core_schema.typed_dict_field(self.one(value), required=name in required)
            for name, value in properties.items()
        }
        for name in sorted(required - set(properties)):
            fields[name] = core_schema.typed_dict_field(core_schema.any_schema(), required=True)
        return core_schema.typed_dict_schema(
            fields,
            extra_behavior="forbid" if extra is False else "allow",
            extras_schema=self.one(extra) if isinstance(extra, Mapping) else None,
        )

    def _array(self, schema: Schema, seen: set[str]) -> CoreSchema:
        seen.add("items")
        seen.add("uniqueItems")
        items = self.one(schema.get("items", True))
        array = core_schema.list_schema(items, strict=True, **_taken(schema, seen, ARRAY))
        if not schema.get("uniqueItems"):
            return array
        return core_schema.no_info_after_validator_function(_all_different, array)

    def _string(self, schema: Schema, seen: set[str]) -> CoreSchema:
        return core_schema.str_schema(strict=True, **_taken(schema, seen, STRING))

    def _number(self, schema: Schema, seen: set[str]) -> CoreSchema:
        bounds = _bounds(schema, seen)
        fraction = core_schema.float_schema(strict=True, **bounds)
        whole = bounds.get("multiple_of", 1) % 1 == 0  # else a float takes integers as well
        return _union([_integer(bounds), fraction] if whole else [fraction])


def _union(branches: Sequence[CoreSchema]) -> CoreSchema:
    return branches[0] if len(branches) == 1 else core_schema.union_schema([*branches])


def _one_of(values: Sequence[Any]) -> CoreSchema:
    """One of these, kept apart as JSON keeps them apart: `true` is not 1, nor is 1.0."""
    kinds: dict[type, list[Any]] = {}
    for value in values:
        kinds.setdefault(type(value), []).append(value)
    exact: dict[type, CoreSchema] = {
        bool: core_schema.bool_schema(strict=True),
        int: core_schema.int_schema(strict=True),
        float: core_schema.float_schema(strict=True),
    }
    return _union(
        [
            core_schema.chain_schema(
                [exact.get(kind, core_schema.any_schema()), core_schema.literal_schema(group)]
            )
            for kind, group in kinds.items()
        ]
    )


def _integer(bounds: Mapping[str, float]) -> CoreSchema:
    rounded = {"ge": math.ceil, "gt": math.floor, "le": math.floor, "lt": math.ceil}
    if bounds.get("multiple_of", 1) % 1:
        raise DeclarationError("input_schema: multipleOf of an integer must be a whole number")
    whole = {name: rounded.get(name, int)(value) for name, value in bounds.items()}
    return core_schema.int_schema(strict=True, **cast("Any", whole))


def _bounds(schema: Schema, seen: set[str]) -> dict[str, Any]:
    bounds = _taken(schema, seen, NUMBER)
    for exclusive, inclusive in (("gt", "ge"), ("lt", "le")):
        beside = bounds.get(exclusive)  # draft 4 says beside the bound that it is exclusive
        if isinstance(beside, bool):
            del bounds[exclusive]
        if beside is True and inclusive in bounds:
            bounds[exclusive] = bounds.pop(inclusive)
    return bounds


def _all_different(items: list[Any]) -> list[Any]:
    if any(item in items[:at] for at, item in enumerate(items)):
        raise PydanticCustomError("unique_items", "Items should all be different")
    return items


def _taken(schema: Schema, seen: set[str], names: Mapping[str, str]) -> dict[str, Any]:
    seen.update(names)
    return {ours: schema[theirs] for theirs, ours in names.items() if theirs in schema}
