"""Runs the same turn serially, through the dispatcher and through `asyncio.gather`.

A call waits for a while, and then does all that it does in one step; so whoever lets two calls
start at once lets their waits decide which of them comes first. Each turn begins, in every way of
running it, with the state that the serial run of the turns before it left.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.functions.bfcl import Request
from benchmarks.functions.effects import Declared, Effects
from benchmarks.functions.state import attributes, picture
from dispatch import CallContext, Dispatcher, Tool, ToolCall, read, write

Schemas = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By API and method: the JSON schema of the arguments."""
LATENCY = (0.005, 0.020)
"""Seconds that a call waits, at least and at most."""
WIDTH = 1_000
"""More than any turn has calls: what is compared is the order, and `gather` has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One turn, run in one way."""

    seconds: float
    texts: Sequence[str | None]
    state: object


class Turns:
    """The APIs as tools of one dispatcher, and what serial runs found out about declarations."""

    def __init__(self, declared: Mapping[str, Declared], schemas: Schemas) -> None:
        self.declared = declared
        self.apis: Mapping[str, Any] = {}
        self.seconds: Sequence[float] = ()
        self.read_only_wrote: set[str] = set()
        self.undeclared: set[str] = set()
        """Methods that changed something that they do not declare to write."""
        tools = [
            self._tool(api, method, effects, schemas[api][method])
            for api, found in declared.items()
            for method, effects in found.methods.items()
        ]
        self.dispatcher = Dispatcher(tools, max_concurrent=WIDTH)

    def begin(self, apis: Mapping[str, Any], name: str, turn: Sequence[Request]) -> None:
        """The next turn is this one; its waits depend on its name alone."""
        chance = random.Random(name)
        self.apis = apis
        self.seconds = [chance.uniform(*LATENCY) for _ in turn]

    async def serial(self, turn: Sequence[Request]) -> Ran:
        """One call after the other; changes the APIs that the turn began with."""
        began = asyncio.get_running_loop().time()
        texts = [await self._watched(position, one) for position, one in enumerate(turn)]
        return self._ran(began, texts)

    async def dispatched(self, turn: Sequence[Request]) -> Ran:
        """Through the dispatcher, as the calls of one turn."""
        began = asyncio.get_running_loop().time()
        ended = await self.dispatcher.run(_calls(turn))
        return self._ran(began, [one.value if one.ok else None for one in ended])

    async def gathered(self, turn: Sequence[Request]) -> Ran:
        """All at once."""
        began = asyncio.get_running_loop().time()
        running = [self._answer(position, one) for position, one in enumerate(turn)]
        return self._ran(began, await asyncio.gather(*running))

    def accepted(self, turn: Sequence[Request]) -> tuple[Request, ...]:
        """The calls whose arguments are what their tools take."""
        refused = self.dispatcher.plan(_calls(turn)).refused
        return tuple(one for position, one in enumerate(turn) if position not in refused)

    def lower_bound(self, turn: Sequence[Request]) -> float:
        """The longest chain of calls that conflict by what they declare, in seconds."""
        return self.dispatcher.plan(_calls(turn)).lower_bound(self.seconds)

    def _tool(self, api: str, method: str, effects: Effects, schema: Mapping[str, Any]) -> Tool:
        async def handler(call_context: CallContext, **arguments: Any) -> str:
            request = Request(api=api, method=method, arguments=arguments)
            return await self._answer(int(call_context.call.id), request)

        claims = [read(api, group) for group in sorted(effects.reads)]
        claims += [write(api, group) for group in sorted(effects.writes)]
        return Tool(
            f"{api}.{method}",
            handler,
            input_schema=schema,
            safe_parallel=not claims,
            resource_keys=(lambda arguments: claims) if claims else None,
        )

    async def _answer(self, position: int, request: Request) -> str:
        await asyncio.sleep(self.seconds[position])
        return answer(self.apis[request.api], request)

    async def _watched(self, position: int, request: Request) -> str:
        """Answer, and hold what really changed against what the method declares."""
        before = attributes(self.apis[request.api])
        text = await self._answer(position, request)
        after = attributes(self.apis[request.api])
        declared = self.declared[request.api]
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        written = declared.methods[request.method].writes
        if any(declared.group(name) not in written for name in changed):
            self.undeclared.add(request.tool)
            if not written:
                self.read_only_wrote.add(request.tool)
        return text

    def _ran(self, began: float, texts: Sequence[str | None]) -> Ran:
        seconds = asyncio.get_running_loop().time() - began
        return Ran(seconds=seconds, texts=texts, state=picture(dict(self.apis)))


def answer(instance: object, request: Request) -> str:
    """Call the method; the text that the package gives the model for what it returns.

    Arguments and defaults are copied, since some methods keep them.
    """
    method = getattr(instance, request.method)
    try:
        bound = inspect.signature(method).bind(**request.arguments)
        bound.apply_defaults()
        value = method(*copy.deepcopy(bound.args), **copy.deepcopy(bound.kwargs))
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        return f"Error during execution: {error}"
    if not isinstance(value, dict):
        return str(value)
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return str(value)


def _calls(turn: Sequence[Request]) -> list[ToolCall]:
    return [ToolCall(str(place), one.tool, one.arguments) for place, one in enumerate(turn)]
