"""What may be chosen for one turn, and the checks of what a host chose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from dispatch.core.groups import REST
from dispatch.core.policy import Policy
from dispatch.core.schedules import Schedule
from dispatch.errors import DeclarationError
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.limits import DEFAULT_TOTAL, Limits

if TYPE_CHECKING:
    from dispatch.runtime.result import TurnResult
    from dispatch.runtime.resuming import Answers
    from dispatch.runtime.turn import Turn


class TurnOptions(TypedDict, total=False):
    """The keywords of `run`, `run_sync` and `turn`; None, like absence, means the dispatcher's.

    `policy` and `policies` (by tag) judge the calls; `schedule` orders them. `timeout` is for the
    whole turn, in seconds. Cancelling `token`, from any thread, stops the turn. `turn_id` names it
    in events and logs. `resume` is an earlier turn that is over, or its result: equal calls are
    answered from it, and do not run again (see `Dispatcher.turn`).
    """

    policy: Policy | None
    policies: Mapping[str, Policy] | None
    schedule: Schedule | str | None
    timeout: float | None
    token: CancelToken | None
    turn_id: str | None
    resume: Turn | TurnResult | None


def checked_policies(policy: Policy, by_tag: Mapping[str, Policy] | None) -> Mapping[str, Policy]:
    """The policies by group name, the turn's own under the empty one. Raises `TypeError`."""
    odd = [tag for tag in by_tag or () if not isinstance(tag, str) or not tag]
    if odd:
        raise TypeError(f"policies are by tag, and {odd[0]!r} is no tag")
    policies = {**(by_tag or {}), REST: policy}
    for tag, one in policies.items():
        if not callable(getattr(one, "judge", None)) or isinstance(one, type):
            where = f" for {tag!r}" if tag else ""
            raise TypeError(
                f"{one!r} is no policy{where}; write BestEffort(), AllOrNothing() or Quorum(2)"
            )
    return policies


def checked_options(options: TurnOptions) -> TurnOptions:
    """The options, if there are such. Raises `TypeError`."""
    unknown = sorted(options.keys() - TurnOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(TurnOptions.__annotations__)
        raise TypeError(f"{unknown[0]!r} is no option of a turn; there are: {known}")
    return options


def checked_answers(
    earlier: Turn | TurnResult | None, policies: Mapping[str, Policy]
) -> Answers | None:
    """What the earlier turn answers. Raises `ValueError` where that could not be undone."""
    if earlier is None:
        return None
    if any(policy.atomic for policy in policies.values()):
        raise ValueError(
            "resume cannot be combined with AllOrNothing: what the earlier turn did cannot be"
            " undone by this one"
        )
    return earlier.answers()


def checked_schedule(name: Schedule | str) -> Schedule:
    """The schedule of that name. Raises `ValueError`."""
    try:
        return Schedule(name)
    except ValueError:
        known = ", ".join(Schedule)
        raise ValueError(f"{name!r} is no schedule; there are: {known}") from None


def checked_limits(limits: Limits | None, max_concurrent: int | None) -> Limits:
    """The limits, or those of so many calls at once. Raises `ValueError` for both, and for 0."""
    if max_concurrent is None:
        return Limits(DEFAULT_TOTAL) if limits is None else limits
    if limits is not None:
        raise ValueError("give max_concurrent or limits, not both; limits has a total of its own")
    if not max_concurrent:
        raise DeclarationError("max_concurrent must be at least 1; only Limits(0) is a pause")
    return Limits(max_concurrent)


def checked_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """The value, if it is one of these. Raises `ValueError`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def checked_seconds(name: str, value: float | None) -> float | None:
    """A time limit above 0, or None. Raises `ValueError`."""
    if value is not None and not value > 0:
        raise ValueError(f"{name} must be above 0 seconds, not {value}")
    return value


def checked_grace(name: str, value: float) -> float:
    """Seconds, 0 or more. Raises `ValueError`."""
    if not value >= 0:
        raise ValueError(f"{name} must be 0 seconds or more, not {value}")
    return value
