"""Gates: who is asked before a call takes any lock or slot, and what came of it.

Owns asking the gates of one call, one after the other, each seeing what the one before changed.
Fails closed: a gate that raises, is cancelled, answers too late or answers rubbish refuses the
call. Knows nothing of order or of other calls; calls are asked about side by side.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dispatch.call import FailureKind, ToolCall
from dispatch.claims import combine
from dispatch.concurrency import is_async
from dispatch.core.life import GateKind
from dispatch.errors import DeclarationError
from dispatch.render import safe_str
from dispatch.runtime.admission import Admission, Admitted
from dispatch.runtime.cancel import CancelToken
from dispatch.tool import Tool


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not run; the model is told the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """The call may run with these arguments in place of the model's."""

    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateContext:
    """What a gate is told: the tool, the validated arguments, and where the call stands.

    `token` is cancelled when the call's result is no longer wanted. `index` is its position.
    """

    tool: Tool
    arguments: Mapping[str, Any]
    turn_id: str
    index: int
    token: CancelToken


Decision = Allow | Deny | Change
GateFunction = Callable[[ToolCall, GateContext], Awaitable[Decision]]


class Gate:
    """A gate function and how it is asked.

    Args:
        function: `async def gate(call, context)`, which returns `Allow()`, `Deny(reason)` or
            `Change(arguments)`.
        rewrites: Whether it may change arguments in a way that changes what the call touches. Then
            later calls that claim anything wait for its answer. Without it a changed call keeps its
            place, and the order of what it newly touches is not promised.
        timeout: Seconds after which the call is refused; None waits as long as the call may.
    """

    def __init__(
        self, function: GateFunction, *, rewrites: bool = False, timeout: float | None = None
    ) -> None:
        if not callable(function) or not is_async(function):
            raise DeclarationError(
                f"a gate is an async function of call and context, not {function!r}; a plain one"
                " would block the event loop"
            )
        if timeout is not None and not timeout > 0:
            raise ValueError(f"a gate's timeout must be above 0 seconds, not {timeout}")
        self.function = function
        self.rewrites = rewrites
        self.timeout = timeout
        self.name = getattr(function, "__name__", type(function).__name__)


class Gates:
    """The gates of one dispatcher, in the order in which they are asked."""

    def __init__(self, gates: tuple[Gate | GateFunction, ...]) -> None:
        self._gates = tuple(one if isinstance(one, Gate) else Gate(one) for one in gates)
        self.kind = GateKind.NONE
        if self._gates:
            rewrites = any(gate.rewrites for gate in self._gates)
            self.kind = GateKind.REWRITES if rewrites else GateKind.ASKS

    async def ask(
        self,
        admitted: Admitted,
        admission: Admission,
        *,
        turn_id: str,
        index: int,
        token: CancelToken,
    ) -> Admitted:
        """The call as the gates let it pass, or refused. Never raises but when it is cancelled."""
        for gate in self._gates:
            assert admitted.tool is not None  # noqa: S101 - refused calls are not asked about
            context = GateContext(
                tool=admitted.tool,
                arguments=dict(admitted.arguments or {}),
                turn_id=turn_id,
                index=index,
                token=token,
            )
            decision = await _decision(gate, admitted.call, context)
            if isinstance(decision, Deny):
                reason = safe_str(decision.reason)
                return replace(admitted, refusal=FailureKind.REJECTED, message=reason)
            if isinstance(decision, Change):
                admitted = _changed(gate, admitted, admission.changed(admitted, decision.arguments))
                if admitted.refusal is not None:
                    return admitted
        return admitted


async def _decision(gate: Gate, call: ToolCall, context: GateContext) -> Decision:
    limit = asyncio.timeout(gate.timeout)
    decision: object = None
    fault = ""
    try:
        async with limit:
            answer: object = gate.function(call, context)
            decision = await answer if inspect.isawaitable(answer) else answer
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if context.token.cancelled:
            raise  # the call has ended, and its question with it
        told = f": {safe_str(error)}" if str(error) else ""
        fault = f"the gate {gate.name!r} failed: {type(error).__name__}{told}"
        if isinstance(error, asyncio.CancelledError):
            fault = f"the gate {gate.name!r} was cancelled"
    if limit.expired():
        return Deny(f"the gate {gate.name!r} did not answer within {gate.timeout} s")
    if fault:
        return Deny(fault)
    if isinstance(decision, Deny) and not decision.reason:
        return Deny(f"the gate {gate.name!r} denied it and gave no reason")
    if isinstance(decision, Allow | Deny | Change):
        return decision
    kind = type(decision).__name__
    return Deny(f"the gate {gate.name!r} returned {kind}, neither Allow, Deny nor Change")


def _changed(gate: Gate, before: Admitted, after: Admitted) -> Admitted:
    """With the claims of both, unless they were not known before; and a note if they differ."""
    if after.refusal is not None:
        return replace(after, message=f"the gate {gate.name!r} changed them: {after.message}")
    if before.claims is None or after.claims is None or after.claims == before.claims:
        return after
    warning = (
        f"{before.call.name}: the gate {gate.name!r} changed what it touches; the order of what it"
        " newly touches is not promised"
    )
    return replace(after, claims=combine([*before.claims, *after.claims]), warning=warning)
