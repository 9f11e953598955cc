"""A time limit for one attempt, where a call has several: the call's own covers them all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dispatch.call import ToolCall
from dispatch.errors import AttemptTimedOut
from dispatch.runtime.context import CallContext
from dispatch.runtime.middleware import Handler
from dispatch.runtime.options import checked_seconds


class AttemptTimeout:
    """Ends an attempt that takes longer than `seconds`; `per_tool` has other limits by tool name.

    Stand it behind what tries again: `middleware=[Retry, AttemptTimeout(30)]`. The time begins once
    the attempt has its slots and rates. The attempt is cancelled, and `AttemptTimedOut` raised once
    it has ended; where nobody tries again the call is `timed_out`. An attempt that has not ended a
    grace later, like a thread that cannot be stopped, stops the whole call as the call's own time
    limit would. Raises `ValueError` unless every limit is above 0.
    """

    def __init__(self, seconds: float, *, per_tool: Mapping[str, float] | None = None) -> None:
        for name, limit in {"seconds": seconds, **_named(per_tool or {})}.items():
            if checked_seconds(name, limit) is None:
                raise ValueError(f"{name} must be above 0 seconds, not None")
        self._seconds = seconds
        self._per_tool = dict(per_tool or {})

    def __call__(self, following: Handler) -> Handler:
        """Wrap the next handler."""

        async def limited(call: ToolCall, context: CallContext) -> Any:
            seconds = self._per_tool.get(call.name, self._seconds)
            error = AttemptTimedOut(f"an attempt timed out after {seconds:g} s")
            loop = asyncio.get_running_loop()
            await context.has_slots()
            stop = loop.call_later(seconds + context.grace, context.time_out, str(error))
            try:
                async with asyncio.timeout(seconds) as limit:
                    return await following(call, context)
            except TimeoutError:
                if limit.expired():
                    raise error from None
                raise
            finally:
                stop.cancel()

        return limited


def _named(per_tool: Mapping[str, float]) -> dict[str, float]:
    return {f"per_tool[{name!r}]": limit for name, limit in per_tool.items()}
