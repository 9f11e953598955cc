"""The innermost handler of a middleware stack: runs the tool, once per attempt.

Every attempt after the first takes its slots and its rates anew, as if it had just become ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dispatch.call import ToolCall
from dispatch.errors import UsageError
from dispatch.runtime.context import CallContext
from dispatch.runtime.futures import resolve, uncancelled
from dispatch.runtime.invoke import run_in_thread
from dispatch.runtime.threads import WorkerPool
from dispatch.tool import Tool

if TYPE_CHECKING:
    from dispatch.runtime.middleware import Handler
    from dispatch.runtime.running import RunningCall


async def innermost(call: ToolCall, context: CallContext) -> Any:
    """Run the tool of the call."""
    return await context.invoke()


class Attempts:
    """The attempts of one running call."""

    def __init__(
        self,
        call: RunningCall,
        tool: Tool,
        arguments: Mapping[str, Any],
        *,
        pool: WorkerPool,
        ended: Callable[[bool], None],
        late: Callable[[], None],
        learn: Callable[[BaseException | None], None],
    ) -> None:
        self._call = call
        self._tool = tool
        self._arguments = arguments
        self._pool = pool
        self._ended = ended
        self._late = late
        self._learn = learn
        self._running: asyncio.Task[Any] | None = None
        self._prepared = False

    async def wrapped(self, middleware: Handler, call: ToolCall, context: CallContext) -> Any:
        """Run the whole stack; ends only once no attempt runs any more, whatever was left open.

        What such an attempt returns after all comes too late: the stack has answered.
        """
        try:
            return await middleware(call, context)
        finally:
            left = self._running
            if left is not None and left is not asyncio.current_task():
                left.cancel()
                over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                left.add_done_callback(lambda _: resolve(over, None))
                await uncancelled(over)
                if not left.cancelled() and left.exception() is None:
                    self._late()

    async def __call__(self) -> Any:
        """The next attempt. Raises `UsageError` while another one runs."""
        if self._running is not None:
            raise UsageError(
                "a middleware must make one attempt after the other: a call has the slots of one"
            )
        self._running = asyncio.current_task()
        try:
            value = await self._attempt()
        except BaseException as error:
            self._learn(error)
            raise
        else:
            self._learn(None)
            return value
        finally:
            self._running = None

    async def _attempt(self) -> Any:
        call, tool = self._call, self._tool
        assert call.context is not None  # noqa: S101 - a wrapped call always has one
        await self.prepare()
        self._prepared = False
        call.context.attempt += 1
        if tool.is_async:
            return await tool.handler(**self._arguments)
        call.in_thread = True
        return await run_in_thread(
            asyncio.get_running_loop(),
            tool.handler,
            self._arguments,
            pool=self._pool,
            ended=self._ended,
        )

    async def prepare(self) -> None:
        """Have the slots and rates of the next attempt; the first one has them already."""
        context = self._call.context
        if context is not None and context.attempt > 0 and not self._prepared:
            await self._take_slots_again()
        self._prepared = True

    async def _take_slots_again(self) -> None:
        scope = self._call.scope
        assert scope is not None  # noqa: S101 - it is running
        scope.again()
        await scope.going_on()
