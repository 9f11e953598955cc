"""What a failure means for the calls of a group, and when a turn counts as satisfied. Pure.

A policy judges a group of calls (a whole turn, or the calls with one tag) from a tally of how they
ended. As soon as it gives a verdict, what is still open in the group is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a group or a turn is satisfied, and why."""

    satisfied: bool
    reason: str | None = None


SATISFIED = Verdict(satisfied=True)


@dataclass(slots=True)
class Tally:
    """How the calls of a group have ended so far.

    `failed` counts every ending but a success, `first_failure` is the position of the first one.
    `closed` once no call will come any more.
    """

    calls: int = 0
    ok: int = 0
    failed: int = 0
    first_failure: int | None = None
    closed: bool = False

    @property
    def open(self) -> int:
        """How many calls have no result yet."""
        return self.calls - self.ok - self.failed

    @property
    def over(self) -> bool:
        """Whether every call that will ever come has its result."""
        return self.closed and self.calls == self.ok + self.failed


class Policy(Protocol):
    """What a group makes of its calls' endings."""

    @property
    def atomic(self) -> bool:
        """Whether the group's effects stand only if it is satisfied; else they are undone."""
        ...

    def judge(self, tally: Tally) -> Verdict | None:
        """The verdict, if it is clear by now; asked after every ending and at the close.

        It must give one once the tally is over.
        """
        ...


@dataclass(frozen=True, slots=True)
class BestEffort:
    """Failures are recorded and siblings finish; always satisfied."""

    @property
    def atomic(self) -> bool:
        """No: what is done is done."""
        return False

    def judge(self, tally: Tally) -> Verdict | None:
        """Satisfied at the end, whatever happened."""
        return SATISFIED if tally.closed and tally.over else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOrNothing:
    """The first failure cancels the siblings, skips what has not started, undoes what is done.

    Undoing runs the compensations that tools gave to `ctx.on_rollback`, once each, newest first,
    each for at most `rollback_timeout` seconds, while the claims of the group are still held. The
    idea is that of sagas (Garcia-Molina and Salem 1987). Raises `ValueError` for a time limit that
    is not above 0.
    """

    rollback_timeout: float = 10.0

    def __post_init__(self) -> None:
        if not self.rollback_timeout > 0:
            raise ValueError(
                f"rollback_timeout must be above 0 seconds, not {self.rollback_timeout}"
            )

    @property
    def atomic(self) -> bool:
        """Yes."""
        return True

    def judge(self, tally: Tally) -> Verdict | None:
        """Unsatisfied from the first failure on."""
        if tally.failed:
            return Verdict(satisfied=False, reason=f"call {tally.first_failure} failed")
        return SATISFIED if tally.over else None


@dataclass(frozen=True, slots=True)
class Quorum:
    """Satisfied if `required` calls succeed.

    With `stop_early` the rest is cancelled as soon as they have, but never a call that a call
    outside the group needs. The group stops as soon as the number can no longer be reached, which
    is judged once the turn is closed. A call whose outcome is unknown is no success. Raises
    `ValueError` for a number below 1.
    """

    required: int
    stop_early: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.required, bool) or not isinstance(self.required, int):
            raise ValueError(f"a quorum is a whole number of calls, not {self.required!r}")
        if self.required < 1:
            raise ValueError(f"a quorum must be at least 1, not {self.required}")

    @property
    def atomic(self) -> bool:
        """No: what is done is done."""
        return False

    def judge(self, tally: Tally) -> Verdict | None:
        """Satisfied when enough succeeded, unsatisfied when too few are left."""
        if tally.ok >= self.required and (self.stop_early or tally.over):
            return Verdict(satisfied=True, reason="quorum met")
        if tally.closed and tally.ok + tally.open < self.required:
            reached = f"{tally.ok} of {self.required} needed calls succeeded"
            return Verdict(satisfied=False, reason=f"quorum cannot be met: {reached}")
        return None
