"""What a programmer can declare wrong: refused when it is declared, naming what would be right."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    Allow,
    DeclarationError,
    Dispatcher,
    Gate,
    GateContext,
    Limits,
    Quorum,
    Rate,
    ResourceTable,
    Tool,
    Toolbox,
    ToolCall,
    ToolConcurrency,
    commute,
    read,
    tool,
    write,
)
from dispatch.claims import checked
from dispatch.testing import run_in_virtual_time
from tests.timeline import calls


async def handler(path: str, count: int = 1) -> str:
    return path * count


def generator() -> Generator[int]:
    yield 1


async def allow(call: ToolCall, context: GateContext) -> Allow:
    return Allow()


def no_middleware(following: object) -> None:
    """Takes a handler and gives none back."""


class NotAType:
    """Pydantic knows nothing of it."""


def takes_a_stranger(thing: NotAType) -> None: ...
def takes_a_function(call: Callable[[], int]) -> None: ...
def takes_positions(path: str, /) -> None: ...
def takes_many(*paths: str) -> None: ...
def takes_the_unknown(path: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def takes_nonsense(path: str) -> None: ...


takes_nonsense.__annotations__["path"] = "1 +"


def declared(**declaration: Any) -> Callable[[], Tool]:
    return lambda: Tool("t", handler, **declaration)


def schema(**document: Any) -> Callable[[], Tool]:
    return lambda: Tool("t", lambda **given: None, input_schema=document)


def argument(**document: Any) -> Callable[[], Tool]:
    return schema(type="object", properties={"a": document})


BOTH = "safe_parallel says it touches nothing, {} says it does; keep one of the two"

DECLARATIONS: dict[str, tuple[Callable[[], object], str]] = {
    "reads only and writes": (declared(read_only=True, writes="file:{path}"), "contradict"),
    "keys that are no function": (declared(resource_keys=[read("a")]), "plain function"),
    "keys that must be awaited": (declared(resource_keys=handler), "plain function"),
    "a session without a name": (declared(session=""), "session must be a name"),
    "a session that must be awaited": (declared(session=handler), "session must be a name"),
    "reads a number": (declared(reads=5), "reads takes names, not 5"),
    "a time limit as text": (declared(timeout="1"), "above 0 seconds, not '1'"),
    "a schema for another handler": (
        lambda: Tool("t", handler, input_schema={"properties": {"file": {"type": "string"}}}),
        "'file', which the handler does not take",
    ),
    # tool.py
    "no name": (lambda: Tool("", handler), "a tool needs a name, not ''"),
    "a name that is none": (lambda: Tool(3, handler), "a tool needs a name, not 3"),  # type: ignore[arg-type]
    "no handler": (lambda: Tool("t", None), "the handler must be a function, not None"),  # type: ignore[arg-type]
    "a generator": (lambda: tool(generator), "a generator cannot be a tool; return the whole"),
    "a tool of a tool": (lambda: tool(tool(handler)), "a tool needs a name"),
    "no time": (declared(timeout=0), "timeout must be above 0 seconds, not 0"),
    "no time at all": (declared(timeout=float("nan")), "timeout must be above 0 seconds, not nan"),
    "an empty tag": (declared(tags=["a", ""]), "tags takes names, not ''"),
    "a peer that is no name": (declared(serializes_with=[None]), "serializes_with takes names"),
    "a template that is no text": (declared(reads=[3]), "reads takes names, not 3"),
    "parallel and keys": (
        declared(safe_parallel=True, resource_keys=lambda given: []),
        BOTH.format("resource_keys"),
    ),
    "parallel and reads": (
        declared(safe_parallel=True, reads="file:{path}"),
        BOTH.format("reads"),
    ),
    "parallel and writes": (declared(safe_parallel=True, writes="db:a"), BOTH.format("writes")),
    "parallel and session": (declared(safe_parallel=True, session="a"), BOTH.format("session")),
    "two of one name": (
        lambda: Toolbox([handler, tool(handler)]),
        "two tools are named 'handler'; rename one of them",
    ),
    "two of one name in a dispatcher": (lambda: Dispatcher([handler, handler]), "two tools are"),
    "a parallel peer": (
        lambda: Toolbox(
            [Tool("a", handler, safe_parallel=True), Tool("b", handler, serializes_with="a")]
        ),
        "tool 'b' serializes with 'a', which is safe_parallel; take safe_parallel off 'a'",
    ),
    # templates.py
    "no kind": (declared(reads="path"), "write kind:name, as in 'file:{path}'"),
    "nothing behind the kind": (declared(reads="file:"), "'file:' is no template"),
    "a kind to be filled in": (declared(reads="{path}:a"), "'{path}:a' is no template"),
    "no such argument": (
        declared(writes="file:{pth}"),
        "uses 'pth', which is no argument of it; its arguments are: path, count",
    ),
    "no such argument in a schema": (
        lambda: Tool("t", lambda: None, input_schema={"type": "object"}, reads="file:{path}"),
        "its arguments are: none",
    ),
    "an open brace": (declared(reads="file:{path"), "is no template: expected '}'"),
    "an empty brace": (declared(reads="file:{}"), "only plain argument names"),
    "an attribute": (declared(reads="file:{path.name}"), "only plain argument names"),
    "a conversion": (declared(reads="file:{path!r}"), "only plain argument names"),
    "a format": (declared(reads="file:{path:>9}"), "only plain argument names"),
    # arguments.py
    "a stranger": (lambda: tool(takes_a_stranger), "'takes_a_stranger': "),
    "a function": (lambda: tool(takes_a_function), "'takes_a_function': "),
    "positions": (lambda: tool(takes_positions), "'path' cannot be passed by name"),
    "many": (lambda: tool(takes_many), "'paths' cannot be passed by name"),
    "an unknown name": (lambda: tool(takes_the_unknown), "name 'Nowhere' is not defined"),
    "an annotation of nonsense": (lambda: tool(takes_nonsense), "'1 +' is no annotation"),
    "no signature": (lambda: tool(int), "has no signature to read"),
    "a pattern of nonsense": (argument(type="string", pattern="("), "input_schema: "),
    "a length of nonsense": (argument(type="string", minLength="x"), "input_schema: "),
    # schema.py
    "no object": (schema(type="array"), "must describe an object, not 'array'; write {"),
    "a keyword that is not checked": (
        argument(type="array", minProperties=1),
        "uses 'minProperties', which is not checked here; leave it out",
    ),
    "no such type": (argument(type="strng"), "'strng' is no JSON type"),
    "a number for a type": (argument(type=5), "input_schema: "),
    "no types": (argument(type=[]), "input_schema: "),
    "no schema": (schema(properties={"a": 5}), "input_schema: 5 is no schema"),
    "a list of properties": (schema(properties=["a"]), "input_schema: "),
    "a number for the required": (schema(required=5), "input_schema: "),
    "a number for the choices": (argument(enum=5), "input_schema: "),
    "no choices": (argument(enum=[]), "input_schema: "),
    "no such definition": (argument(**{"$ref": "#/$defs/a"}), "'#/$defs/a' names nothing in this"),
    "a definition elsewhere": (
        argument(**{"$ref": "http://a"}),
        "'http://a' names nothing in this",
    ),
    # claims.py
    "a mode that is reserved": (
        lambda: commute("read", "a"),
        "'read' cannot name a commuting mode; reserved are: peer, read, self, write",
    ),
    "a mode without a name": (lambda: commute("", "a"), "'' cannot name a commuting mode"),
    "a key of nothing": (lambda: read("file", None), "one segment is NoneType"),  # type: ignore[arg-type]
    "a key of truth": (lambda: write("row", True), "one segment is bool; write read('kind', "),
    "a key of bytes": (lambda: read(b"a"), "one segment is bytes"),  # type: ignore[arg-type]
    "a bare claim": (lambda: checked(read("a")), "must return a list of claims, not Claim"),
    "no claim": (lambda: checked([5]), "returned 'int' where a claim or a key was expected"),
    # runtime
    "a limit below nothing": (
        lambda: Limits(-1),
        "limit of total: must be a whole number, 0 (paused) or more, not -1",
    ),
    "half a limit": (lambda: Limits(per_tag={"a": 1.5}), "limit of tag 'a': must be"),  # type: ignore[dict-item]
    "a limit of truth": (lambda: Limits(per_tool={"a": True}), "limit of tool 'a': must be"),
    "no calls at once": (lambda: Dispatcher([], max_concurrent=0), "must be at least 1"),
    "less than no calls": (lambda: Dispatcher([], max_concurrent=-1), "limit of total: must be"),
    "a rate that is none": (lambda: Limits(rates={"a": 5}), "rate of 'a': must be a Rate, not 5"),  # type: ignore[dict-item]
    "a rate of nothing": (lambda: Rate(0, 1), "amount of a rate: must be a finite number above 0"),
    "a rate in no time": (lambda: Rate(1, 0), "per_seconds of a rate: must be"),
    "a rate without end": (lambda: Rate(float("inf"), 1), "amount of a rate: must be"),
    "a burst of nothing": (lambda: Rate(1, 1, burst=0), "burst of a rate: must be"),
    "a cost below nothing": (declared(cost=-1), "cost must be a number of at least 0, not -1"),
    "a cost as text": (declared(cost="1"), "cost must be a number of at least 0, not '1'"),
    "a cost of truth": (declared(cost=True), "cost must be a number of at least 0, not True"),
    "a descriptor of no tool": (
        lambda: Dispatcher([handler], descriptors={"handlr": ToolConcurrency(safe_parallel=True)}),
        "descriptors: no tool is named 'handlr'. Did you mean 'handler'?",
    ),
    "a descriptor that contradicts itself": (
        lambda: Dispatcher(
            [handler],
            descriptors={"handler": ToolConcurrency(safe_parallel=True, writes="file:{path}")},
        ),
        BOTH.format("writes"),
    ),
    "a descriptor that uses what is no argument": (
        lambda: Dispatcher([handler], descriptors={"handler": ToolConcurrency(reads="file:{p}")}),
        "uses 'p', which is no argument of it",
    ),
    "a gate that is no function": (
        lambda: Dispatcher([handler], gates=["allow"]),  # type: ignore[list-item]
        "a gate is an async function of call and context, not 'allow'",
    ),
    "a middleware that is no function": (
        lambda: Dispatcher([handler], middleware=["retry"]),  # type: ignore[list-item]
        "a middleware takes the next handler; 'retry' cannot",
    ),
    "a middleware that gives nothing back": (
        lambda: Dispatcher([handler], middleware=[no_middleware]),  # type: ignore[list-item]
        "the middleware 'no_middleware' must give back a handler",
    ),
}


@pytest.mark.parametrize("case", DECLARATIONS.values(), ids=DECLARATIONS.keys())
def test_a_wrong_declaration_is_refused_at_once(case: tuple[Callable[[], object], str]) -> None:
    """It is a `DeclarationError` (and so a `ValueError`) that names what was wrong."""
    declare, text = case
    with pytest.raises(DeclarationError) as caught:
        declare()
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "two limits": (
        {"max_concurrent": 3, "limits": Limits(3)},
        "max_concurrent or limits, not both",
    ),
    "no such thing to do with duplicates": (
        {"duplicates": "drop"},
        "duplicates must be one of run, coalesce, reject, not 'drop'",
    ),
    "no such thing to do with dependents": (
        {"dependents": "fail"},
        "dependents must be one of run, skip, not 'fail'",
    ),
    "no such thing to do with the undeclared": (
        {"undeclared": "run"},
        "undeclared must be one of exclusive, parallel, not 'run'",
    ),
    "no depth": ({"max_depth": 0}, "max_depth must be at least 1, not 0"),
    "no time for the abandoned": ({"abandoned_wait": -1}, "abandoned_wait must be 0 seconds or"),
    "no such schedule": ({"schedule": "fast"}, "there are: dataflow, groups, clusters, serial"),
    "no time for a call": ({"call_timeout": 0}, "call_timeout must be above 0 seconds, not 0"),
    "no time for a turn": ({"turn_timeout": -1}, "turn_timeout must be above 0 seconds, not -1"),
    "no time at all": ({"turn_timeout": float("nan")}, "turn_timeout must be above 0 seconds"),
    "grace below nothing": ({"grace": -1}, "grace must be 0 seconds or more, not -1"),
    "no grace at all": ({"grace": float("nan")}, "grace must be 0 seconds or more, not nan"),
}


@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS.keys())
def test_settings_that_cannot_be_are_refused(case: tuple[dict[str, Any], str]) -> None:
    """A dispatcher is never made with a setting that it would have to ignore."""
    settings, text = case
    with pytest.raises(ValueError) as caught:
        Dispatcher([handler], **settings)
    assert text in str(caught.value)


VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "a gate without time": (lambda: Gate(allow, timeout=0), "must be above 0 seconds, not 0"),
    "no time to roll back": (lambda: AllOrNothing(rollback_timeout=0), "above 0 seconds, not 0"),
    "a quorum of none": (lambda: Quorum(0), "a quorum must be at least 1, not 0"),
    "half a quorum": (lambda: Quorum(1.5), "a whole number of calls, not 1.5"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", VALUES.values(), ids=VALUES.keys())
def test_values_that_cannot_be_are_refused(case: tuple[Callable[[], object], str]) -> None:
    """Gates and policies check their numbers when they are made."""
    make, text = case
    with pytest.raises(ValueError) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize("policy", [AllOrNothing, "best effort", None.__class__], ids=str)
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    """A class in place of an object, and anything that cannot judge, is a `TypeError`."""
    with pytest.raises(TypeError, match="is no policy"):
        Dispatcher([handler], policy=policy)
    with pytest.raises(TypeError, match="is no policy for 'tag'"):
        Dispatcher([handler], policies={"tag": policy})
    with pytest.raises(TypeError, match="is no policy"):
        Dispatcher([handler]).turn(policy=policy)


def test_the_seventeenth_commuting_mode_is_refused() -> None:
    """Of one table, wherever it is met; a call that brings it runs alone, and the turn says so."""

    async def main() -> None:
        table = ResourceTable()
        for number in range(16):
            async with table.hold(commute(f"mode {number}", "a")):
                pass
        with pytest.raises(DeclarationError, match="one commuting mode more than the 16"):
            async with table.hold(commute("one more", "a")):
                pass
        async with table.hold(commute("mode 3", "b"), read("c")):
            pass
        tools = [Tool("t", handler, resource_keys=lambda given: [commute("one more", "a")])]
        result = await Dispatcher(tools, resources=table).run(calls(("t", {"path": "x"})))
        assert "x" == result[0].value
        assert "one commuting mode more" in result.warnings[0]

    run_in_virtual_time(main())
