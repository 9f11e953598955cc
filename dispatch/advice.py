"""What a model should do next after a failure: one sentence that is true for every such failure."""

from __future__ import annotations

from collections.abc import Mapping

from dispatch.call import Failure, FailureKind, Phase, Status

UNTOUCHED = "Nothing was done, so call it again if it is still needed."
IN_DOUBT = "It may have done its work, or a part of it: check that before you call it again."
AGAIN = "Calling it again may help."

_ADVICE: Mapping[FailureKind, str] = {
    FailureKind.UNKNOWN_TOOL: "Call one of the tools that there are.",
    FailureKind.INVALID_ARGUMENTS: "Nothing was done. Correct the arguments and call it again.",
    FailureKind.TOOL_ERROR: "Do not repeat the same call; mend what it says, or do it another way.",
    FailureKind.TIMEOUT: IN_DOUBT,
    FailureKind.CANCELLED: IN_DOUBT,
    FailureKind.SKIPPED: "Nothing was done. Mend what failed, then call it again.",
    FailureKind.STALE_READ: "Nothing was written. Read it again and base the change on that.",
    FailureKind.DEADLOCK: AGAIN,
    FailureKind.RATE_LIMITED: "Do not repeat the same call; ask for less, or do without it.",
    FailureKind.REJECTED: "Nothing was done. Do without it, or ask the user.",
    FailureKind.DUPLICATE: "Use the result of the other call.",
    FailureKind.IN_DOUBT: IN_DOUBT,
    FailureKind.ABANDONED: IN_DOUBT,
    FailureKind.ROLLED_BACK: "It was undone as far as it can be. Mend what failed, then call all of"
    " it again.",
    FailureKind.INVALID_OUTPUT: "Its work may be done, though its answer cannot be read.",
    FailureKind.DEPENDENCY: "Nothing was done. Name only calls that come, and in no circle.",
    FailureKind.BUDGET: "Nothing was done. Make do with what you have.",
}
"""Total over the kinds of failure; what is below depends on more than the kind."""

_WITHOUT_CAUSE: Mapping[FailureKind, str] = {
    FailureKind.SKIPPED: UNTOUCHED,
    FailureKind.ROLLED_BACK: "It was undone as far as it can be; call it again if it is still"
    " needed.",
}
"""Where no other call failed before it."""

_RETRYABLE: Mapping[FailureKind, str] = {
    FailureKind.TIMEOUT: AGAIN,
    FailureKind.CANCELLED: AGAIN,
    FailureKind.TOOL_ERROR: AGAIN,
    FailureKind.RATE_LIMITED: "Wait before you call it again.",
}
"""Where the same call may succeed, and does no harm if it was done before."""

_WAITING = frozenset({Phase.GATE, Phase.ORDER, Phase.LOCK, Phase.SLOT, Phase.RATE})
"""Where the tool has not been called yet."""


def advice(status: Status, failure: Failure) -> str:
    """One sentence for the model."""
    kind = failure.kind
    if kind is FailureKind.ABANDONED and status is Status.SKIPPED:
        return UNTOUCHED
    if kind in (FailureKind.TIMEOUT, FailureKind.CANCELLED) and failure.phase in _WAITING:
        return UNTOUCHED
    if failure.retryable and kind in _RETRYABLE:
        return _RETRYABLE[kind]
    if failure.cause is None and kind in _WITHOUT_CAUSE:
        return _WITHOUT_CAUSE[kind]
    return _ADVICE[kind]
