"""The multi-turn sets of the `bfcl-eval` package: entries, their calls, and the APIs called.

Owns the package's layout. Its data and its API classes are used as they are; nothing of it that
needs what the package depends on is imported.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "bfcl-eval"
INSTALL = f"pip install mpmath && pip install --no-deps {PACKAGE}"
SETS = ("base", "long_context")
"""The other multi-turn sets spread the same calls over other turns."""
DATA = "BFCL_v4_multi_turn_{}.json"
SOURCES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
FILES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""By API class: the name of its source file, and of the file that documents its methods."""
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of the ground truth."""

    api: str
    method: str
    arguments: Mapping[str, Any]

    @property
    def tool(self) -> str:
        """What the tool is called that answers it."""
        return f"{self.api}.{self.method}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One conversation: the APIs as they are before it, and the calls of each turn."""

    name: str
    apis: Mapping[str, Any]
    turns: tuple[tuple[Request, ...], ...]


def version() -> str:
    """The installed version. Raises `RuntimeError` that says what to install."""
    try:
        importlib.import_module("mpmath")  # the MathAPI needs it
        return metadata.version(PACKAGE)
    except ImportError as error:
        raise RuntimeError(
            f"the function-calling set needs {PACKAGE} and mpmath ({error}); install them with:"
            f" {INSTALL}"
        ) from error


def entries(name: str) -> Iterator[Entry]:
    """The entries of one of the sets."""
    answers = {one["id"]: one["ground_truth"] for one in _lines(f"possible_answer/{_file(name)}")}
    for entry in _lines(_file(name)):
        apis = {api: _loaded(api, name, entry) for api in entry["involved_classes"]}
        turns = [tuple(_request(text, apis) for text in turn) for turn in answers[entry["id"]]]
        yield Entry(name=entry["id"], apis=apis, turns=tuple(turns))


def source(api: str) -> str:
    """The text of the module that has an API's class."""
    return inspect.getsource(_module(api))


def schemas(api: str) -> Mapping[str, Mapping[str, Any]]:
    """By method: the JSON schema of its arguments, as the package documents it."""
    documents = _lines(f"multi_turn_func_doc/{FILES[api]}.json")
    return {one["name"]: _json_schema(one["parameters"]) for one in documents}


def _file(name: str) -> str:
    return DATA.format(name)


def _lines(path: str) -> list[dict[str, Any]]:
    package = Path(str(importlib.import_module("bfcl_eval").__file__)).parent
    text = (package / "data" / path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _module(api: str) -> ModuleType:
    return importlib.import_module(f"{SOURCES}.{FILES[api]}")


def _loaded(api: str, name: str, entry: Mapping[str, Any]) -> Any:
    """An API as an entry wants it, which shares nothing with the constants of its module."""
    instance = getattr(_module(api), api)()
    if hasattr(instance, "_load_scenario"):
        scenario = copy.deepcopy(entry["initial_config"].get(api, {}))
        instance._load_scenario(scenario, long_context=name == "long_context")
    return copy.deepcopy(instance)


def _request(text: str, apis: Mapping[str, Any]) -> Request:
    """A call as the ground truth writes it; a method of two APIs is the later one's."""
    call = ast.parse(text.strip(), mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{text!r} is no call")
    method = call.func.id
    api = [name for name, instance in apis.items() if hasattr(instance, method)][-1]
    values = [ast.literal_eval(one) for one in call.args]
    named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    bound = inspect.signature(getattr(apis[api], method)).bind(*values, **named)
    return Request(api=api, method=method, arguments=json.loads(json.dumps(bound.arguments)))


def _json_schema(documented: Any) -> Any:
    """The same schema with the names that JSON schema has for its types."""
    if isinstance(documented, list):
        return [_json_schema(one) for one in documented]
    if not isinstance(documented, dict):
        return documented
    schema = {key: _json_schema(value) for key, value in documented.items()}
    if isinstance(schema.get("type"), str):
        schema["type"] = JSON_TYPES.get(schema["type"], schema["type"])
    return schema
