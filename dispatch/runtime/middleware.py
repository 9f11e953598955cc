"""Middleware: what wraps each invocation of a tool, inside its locks. The stack is built once.

A middleware is a class (or any callable) that takes the next handler and gives one back:
`async def __call__(self, call, context)`. The innermost handler runs the tool. An exception that a
layer raises on its own account is told with that layer's name. The shape is that of ASGI servers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from dispatch.call import ToolCall
from dispatch.concurrency import is_async
from dispatch.errors import DeclarationError, UsageError
from dispatch.runtime.context import CallContext

Handler = Callable[[ToolCall, CallContext], Awaitable[Any]]
Middleware = Callable[[Handler], Handler]


def build(middleware: Iterable[Middleware], innermost: Handler) -> Handler | None:
    """One handler out of all, the first outermost; None if there is nothing to wrap.

    Raises `DeclarationError` for what takes no handler or gives none back.
    """
    layers = tuple(middleware)
    if not layers:
        return None
    handler: Handler = _Innermost(innermost)
    for layer in reversed(layers):
        handler = _Layer(layer, handler)
    return handler


class _Innermost:
    """Runs the tool, and notes what it raised: that is nobody else's fault."""

    def __init__(self, run: Handler) -> None:
        self._run = run

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        try:
            return await self._run(call, context)
        except BaseException as error:
            context.raised, context.at_fault = error, ""
            raise


class _Passed:
    """What a middleware is given as the next handler: takes no other call than its own."""

    def __init__(self, layer: _Layer, inner: Handler) -> None:
        self._layer = layer
        self._inner = inner

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        if call is not context.call:
            raise UsageError(
                f"the middleware {self._layer.name!r} must pass on the call that it was given: its"
                " locks are taken for that one; arguments are changed by a gate"
            )
        return await self._inner(call, context)


class _Layer:
    """One middleware; whatever it raises that did not come from inside is its own."""

    def __init__(self, middleware: Middleware, inner: Handler) -> None:
        self.name = getattr(middleware, "__name__", type(middleware).__name__)
        if not callable(middleware):
            raise DeclarationError(f"a middleware takes the next handler; {middleware!r} cannot")
        self._handler = middleware(_Passed(self, inner))
        if not callable(self._handler) or not is_async(self._handler):
            raise DeclarationError(
                f"the middleware {self.name!r} must give back a handler:"
                " async def __call__(self, call, context); a plain one would block the event loop"
            )
        if self.name == "<lambda>" or self.name == "partial":
            self.name = type(self._handler).__name__

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        try:
            return await self._handler(call, context)
        except BaseException as error:
            if error is not context.raised:
                context.raised, context.at_fault = error, self.name
            raise
