"""What is known of the other calls of a turn, and what becomes of a call that failed.

Owns which earlier calls a call may wait for. A toolset alone knows the model's message; the
capability sees by its hooks which calls will run, and which end before they reach their tool.
Whatever is expected in vain costs patience, and never a call.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from pydantic_ai import ModelResponse, RunContext, ToolFailed
from pydantic_ai.messages import BaseToolReturnPart

from dispatch.adapters.answers import told
from dispatch.adapters.hosted import HostedTurns
from dispatch.call import ToolResult
from dispatch.runtime.nesting import current

KEPT = 1024
"""Turns of which calls are remembered that were expected and never came."""


def turn_of(ctx: RunContext[Any]) -> Hashable:
    """The turn that a call of this run belongs to; what a running tool calls is another one."""
    scope = current()
    inside = None if scope is None else (scope.turn_id, scope.position)
    return ctx.run_id, ctx.run_step, inside


def failure(result: ToolResult, tool_errors: str) -> Exception:
    """The exception that says to pydantic-ai what became of a call that did not succeed."""
    if tool_errors == "raise" and isinstance(result.exception, Exception):
        return result.exception
    failed = ToolFailed(told(result))
    failed.__cause__ = result.exception
    return failed


class Order(Protocol):
    """Where a call stands in its turn."""

    def before(self, ctx: RunContext[Any]) -> Sequence[str]:
        """The ids of the calls before this one that are expected."""
        ...

    def over(self, ctx: RunContext[Any]) -> None:
        """The call has ended."""
        ...

    def failed(self, ctx: RunContext[Any], result: ToolResult) -> Exception:
        """What to raise for a call that did not succeed."""
        ...


class Expected:
    """Calls that are to come, by turn, in the model's order."""

    def __init__(self) -> None:
        self._coming: dict[Hashable, dict[str, None]] = {}

    def __contains__(self, turn: Hashable) -> bool:
        return turn in self._coming

    def add(self, turn: Hashable, call_ids: Iterable[str]) -> None:
        """Expect these, behind those that are expected already."""
        self._coming.setdefault(turn, {}).update(dict.fromkeys(call_ids))
        while len(self._coming) > KEPT:
            self._coming.pop(next(iter(self._coming)))

    def before(self, turn: Hashable, call_id: str | None) -> list[str]:
        """Those before this call, which has come. The first of all takes its place at once."""
        coming = self._coming.get(turn, {})
        if call_id is None or call_id not in coming:
            return []
        if next(iter(coming)) == call_id:
            self.remove(turn, call_id)
            return []
        return list(itertools.takewhile(lambda one: one != call_id, coming))

    def remove(self, turn: Hashable, call_id: str | None) -> None:
        """Expect this one no more."""
        coming = self._coming.get(turn)
        if coming is None or call_id is None:
            return
        coming.pop(call_id, None)
        if not coming:
            del self._coming[turn]


class FromMessages:
    """Order as a toolset alone can know it: from the model's message.

    A call that pydantic-ai refuses (arguments that do not validate, a hook that skips it) is
    expected all the same, and never comes.
    """

    def __init__(self, turns: HostedTurns, tool_errors: str) -> None:
        self._tools = turns.tools
        self._tool_errors = tool_errors
        self._expected = Expected()

    def before(self, ctx: RunContext[Any]) -> Sequence[str]:
        """Those of the model's message that stand before this call and have no result yet."""
        turn = turn_of(ctx)
        if turn not in self._expected:
            self._expected.add(turn, self._asked(ctx))
        return self._expected.before(turn, ctx.tool_call_id)

    def over(self, ctx: RunContext[Any]) -> None:
        """It is expected no more."""
        self._expected.remove(turn_of(ctx), ctx.tool_call_id)

    def failed(self, ctx: RunContext[Any], result: ToolResult) -> Exception:
        """A failed result for the model, or what the tool raised."""
        return failure(result, self._tool_errors)

    def _asked(self, ctx: RunContext[Any]) -> list[str]:
        """The unanswered calls of our tools in the message that this call is in."""
        run_here = {"function", "unapproved"} if ctx.tool_call_approved else {"function"}
        ours = {
            name
            for name, tool in ctx.tools.items()
            if name in self._tools and tool.kind in run_here
        }
        answered: set[str] = set()
        for message in reversed(ctx.messages):
            if not isinstance(message, ModelResponse):
                parts = [part for part in message.parts if isinstance(part, BaseToolReturnPart)]
                answered.update(part.tool_call_id for part in parts)
                continue
            calls = message.tool_calls
            if any(call.tool_call_id == ctx.tool_call_id for call in calls):
                return [
                    call.tool_call_id
                    for call in calls
                    if call.tool_name in ours and call.tool_call_id not in answered
                ]
        return []


class FromHooks:
    """Order as the hooks tell it: the calls that are valid and have not ended."""

    def __init__(self, turns: HostedTurns, tool_errors: str) -> None:
        self._turns = turns
        self._tool_errors = tool_errors
        self._expected = Expected()
        self._raised: dict[Hashable, ToolResult] = {}

    def expect(self, ctx: RunContext[Any], call_id: str) -> None:
        """The call is valid, and will run."""
        self._expected.add(turn_of(ctx), [call_id])

    def before(self, ctx: RunContext[Any]) -> Sequence[str]:
        """Those that were found valid before this call, and have not ended."""
        return self._expected.before(turn_of(ctx), ctx.tool_call_id)

    def over(self, ctx: RunContext[Any]) -> None:
        """It has ended, whether it reached its tool or not: nobody waits for it."""
        turn, call_id = turn_of(ctx), ctx.tool_call_id
        if call_id is not None:
            self._turns.drop(turn, call_id)
            self._expected.remove(turn, call_id)
            self._raised.pop((turn, call_id), None)

    def failed(self, ctx: RunContext[Any], result: ToolResult) -> Exception:
        """What the tool raised, for the hooks of other capabilities; else a failed result."""
        error = result.exception
        if not isinstance(error, Exception):
            return failure(result, self._tool_errors)
        self._raised[turn_of(ctx), ctx.tool_call_id] = result
        return error

    def reported(self, ctx: RunContext[Any], error: Exception) -> Exception:
        """What becomes of an exception that no other hook had an answer to."""
        result = self._raised.get((turn_of(ctx), ctx.tool_call_id))
        if result is None or result.exception is not error:
            return error
        return failure(result, self._tool_errors)
