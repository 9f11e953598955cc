"""Arguments of a call: validated by pydantic, from a signature or a hand-written JSON schema.

Compiled once per tool. Invariant: what `parse` returns may be passed to the handler by name as
it is; whatever the model wrote, the outcome is that or an `InvalidArguments` with a bounded text.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Set
from typing import Any

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError, from_json

from dispatch.errors import DeclarationError, DispatchError
from dispatch.render import preview, safe_str
from dispatch.schema import compile_schema

CONTEXT_MARK = "__dispatch_context__"
SHOWN_ERRORS = 5


class InvalidArguments(DispatchError):
    """The model's arguments are not what the tool takes; the text tells the model what is."""


class Arguments:
    """How one tool's arguments are checked, and the JSON schema that the model is shown."""

    def __init__(
        self,
        schema: dict[str, Any],
        check: Callable[[dict[str, Any]], dict[str, Any]],
        check_json: Callable[[str], dict[str, Any]],
        context_parameter: str | None,
    ) -> None:
        self.schema = schema
        self.context_parameter = context_parameter
        self._check = check
        self._check_json = check_json
        self._takes_nothing = not schema.get("properties") and not schema.get("required")

    def parse(self, arguments: object) -> dict[str, Any]:
        """The validated arguments by parameter name. Raises `InvalidArguments`."""
        try:
            if isinstance(arguments, str):
                if not arguments.strip() and self._takes_nothing:
                    return self._check({})
                return self._check_json(arguments)
            if type(arguments) is dict or isinstance(arguments, Mapping):
                return self._check(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(_explain(error, arguments)) from None
        except (Exception, CancelledError) as error:  # from a validator of the tool's own
            raise InvalidArguments(
                f"the arguments could not be checked: {safe_str(error)}"
            ) from error
        raise InvalidArguments(
            f"the arguments must be a JSON object, not {type(arguments).__name__}"
        )


def from_signature(handler: Callable[..., Any], name: str) -> Arguments:
    """Arguments as the handler's signature declares them.

    A parameter whose annotation is `CallContext` is left out of the schema. Raises
    `DeclarationError` for a signature that named arguments cannot fill.
    """
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    context: str | None = None
    extras = False
    for parameter in _signature(handler, name).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise DeclarationError(
                f"tool {name!r}: parameter {parameter.name!r} cannot be passed by name;"
                " a model's arguments are named"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            extras = True
        elif getattr(parameter.annotation, CONTEXT_MARK, False):
            if context is not None:
                raise DeclarationError(f"tool {name!r}: one CallContext parameter is enough")
            context = parameter.name
        else:
            field = f"argument_{len(fields)}"
            names[field] = parameter.name
            fields[field] = _field(parameter)
    model = _model(name, fields, names, extras)
    validate, validate_json = (
        model.__pydantic_validator__.validate_python,
        model.model_validate_json,
    )

    def named(instance: BaseModel) -> dict[str, Any]:
        values = {}
        for field, value in instance.__dict__.items():
            values[names[field]] = value
        return {**values, **(instance.model_extra or {})} if extras else values

    def check(given: object) -> dict[str, Any]:
        return named(validate(given))

    def check_json(text: str) -> dict[str, Any]:
        return named(validate_json(text))

    schema = _shown(model, name)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return Arguments(schema, check, check_json, context)


def from_schema(schema: Mapping[str, Any], handler: Callable[..., Any], name: str) -> Arguments:
    """Arguments as a hand-written JSON schema declares them, passed to the handler by name."""
    parameters = _signature(handler, name).parameters.values()
    extras = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    context = next((p.name for p in parameters if getattr(p.annotation, CONTEXT_MARK, False)), None)
    try:
        validator = compile_schema(schema, extras=extras)
    except (SchemaError, AttributeError, TypeError) as error:  # the latter: lists for maps, …
        raise DeclarationError(f"tool {name!r}: input_schema: {safe_str(error)}") from error
    if not extras:
        _check_names(name, schema, {p.name for p in parameters} - {context})
    return Arguments(dict(schema), validator.validate_python, validator.validate_json, context)


def _check_names(name: str, schema: Mapping[str, Any], taken: Set[str | None]) -> None:
    unknown = [argument for argument in schema.get("properties", {}) if argument not in taken]
    if unknown:
        raise DeclarationError(
            f"tool {name!r}: input_schema has {unknown[0]!r}, which the handler does not take;"
            " add the parameter, or **arguments"
        )


def _signature(handler: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(handler, eval_str=True)
    except NameError as error:
        raise DeclarationError(
            f"tool {name!r}: {error}, which an annotation uses; import it at run time"
        ) from error
    except SyntaxError as error:
        raise DeclarationError(f"tool {name!r}: {error.text!r} is no annotation") from error
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"tool {name!r}: {handler!r} has no signature to read") from error


def _field(parameter: inspect.Parameter) -> tuple[Any, Any]:
    annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
    return annotation, ... if parameter.default is parameter.empty else parameter.default


def _model(
    name: str, fields: dict[str, Any], names: Mapping[str, str], extras: bool
) -> type[BaseModel]:
    config = ConfigDict(
        extra="allow" if extras else "forbid",
        arbitrary_types_allowed=False,
        alias_generator=lambda field: names[field],  # a parameter may have any name, `schema` too
    )
    try:
        return create_model(f"{name} arguments", __config__=config, **fields)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise DeclarationError(f"tool {name!r}: {error.message.splitlines()[0]}") from error


def _shown(model: type[BaseModel], name: str) -> dict[str, Any]:
    try:
        return model.model_json_schema(schema_generator=_PlainSchema)
    except PydanticUserError as error:
        raise DeclarationError(f"tool {name!r}: {error.message.splitlines()[0]}") from error


class _PlainSchema(GenerateJsonSchema):
    """A schema without the titles that pydantic makes up from field names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _explain(error: ValidationError, arguments: object) -> str:
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        given = preview(arguments) if isinstance(arguments, str) else ""
        return f"the arguments are not valid JSON ({first['msg']}): {given}"
    if not first["loc"] and first["type"].endswith(("_type", "_attributes_type")):
        return f"the arguments must be a JSON object, not {_json_type(arguments)}"
    lines = [_problem(problem) for problem in problems[:SHOWN_ERRORS]]
    if len(problems) > SHOWN_ERRORS:
        lines.append(f"and {len(problems) - SHOWN_ERRORS} more")
    return "invalid arguments: " + "; ".join(lines)


def _problem(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])[:100]
    got = "" if problem["type"] == "missing" else f", got {preview(safe_str(problem['input']), 80)}"
    return f"{where}: {problem['msg'][:300]}{got}"


def _json_type(arguments: object) -> str:
    value = from_json(arguments) if isinstance(arguments, str) else arguments
    names = {type(None): "null", list: "an array", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
