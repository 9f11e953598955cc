"""What is explored: a few turns on one table, and what can be said about them before they run.

Everything here is worked out pairwise, and independently of `dispatch.core`: which calls conflict,
what each must wait for under its schedule, who is nested in whom. Calls are numbered through all
turns of a setup; a turn as a whole is numbered `~turn` (negative), since it may hold claims too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, cached_property
from itertools import accumulate

from dispatch.claims import WRITE, Claim
from dispatch.core.policy import BestEffort, Policy
from dispatch.core.schedules import Schedule

Claims = tuple[Claim, ...]


class Detail(Enum):
    """Which events are steps of their own.

    FULL: all. STEPS: endings are folded (see `events`). BRIEF: moreover steps that touch nothing
    but their own call happen together with the one before: a turn is closed with its last call, a
    call that is ready starts, and one that is given up was asked to stop just before. A ready call
    can do nothing that a running one cannot; nor can one that was asked to stop.
    """

    FULL = auto()
    STEPS = auto()
    BRIEF = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """One turn: the claims of its calls, how it is run, and the call it is nested in (-1: none)."""

    calls: tuple[Claims, ...]
    schedule: Schedule = Schedule.DATAFLOW
    policy: Policy = BestEffort()  # noqa: RUF009 - a frozen value
    whole: bool = False
    skips: bool = False
    parent: int = -1

    @property
    def is_plain(self) -> bool:
        """Whether nothing in the turn looks at how a call ended, only whether it did."""
        return isinstance(self.policy, BestEffort) and not self.skips


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Turns on one table, in the order in which they begin.

    `total` limits how many calls run at once; 0 leaves it open which of the ready calls starts
    when, which covers whatever limits could do. Turns come call by call, or all calls `at_once`.
    """

    turns: tuple[TurnPlan, ...]
    total: int = 0
    detail: Detail = Detail.STEPS
    at_once: bool = False

    @cached_property
    def claims(self) -> tuple[Claims, ...]:
        """Per call."""
        return tuple(claims for turn in self.turns for claims in turn.calls)

    @cached_property
    def first(self) -> tuple[int, ...]:
        """Per turn: the number of its first call."""
        return tuple(accumulate((len(turn.calls) for turn in self.turns), initial=0))

    @cached_property
    def turn_of(self) -> tuple[int, ...]:
        """Per call."""
        return tuple(n for n, turn in enumerate(self.turns) for _ in turn.calls)

    @cached_property
    def nested_in(self) -> dict[int, int]:
        """The turn that is nested in a call, by that call."""
        return {turn.parent: n for n, turn in enumerate(self.turns) if turn.parent >= 0}

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Per turn: the turn at the top above it."""
        roots: list[int] = []
        for number, turn in enumerate(self.turns):
            roots.append(roots[self.turn_of[turn.parent]] if turn.parent >= 0 else number)
        return tuple(roots)

    @cached_property
    def conflicts(self) -> frozenset[tuple[int, int]]:
        """The pairs of calls, and of turns with all their claims (~turn), that conflict."""
        holders = dict(enumerate(self.claims))
        for number, turn in enumerate(self.turns):
            holders[~number] = tuple(claim for claims in turn.calls for claim in claims)
        return frozenset(
            (a, b) for a in holders for b in holders if a != b and clash(holders[a], holders[b])
        )

    def before(self, late: frozenset[int]) -> tuple[frozenset[int], ...]:
        """Per call: the calls of its turn that must be settled first, once they are there.

        Calls that came `late`, when their turn was stopped already, claim nothing.
        """
        return tuple(
            frozenset(first + other for other in waits)
            for first, turn in zip(self.first, self.turns, strict=False)
            for waits in _waits(turn.schedule, _without(late, first, turn.calls))
        )


def clash(first: Claims, second: Claims) -> bool:
    """Whether two sets of claims exclude each other."""
    return any(
        a.key[: len(b.key)] == b.key[: len(a.key)] and (a.mode != b.mode or WRITE == a.mode)
        for a in first
        for b in second
    )


def _without(late: frozenset[int], first: int, calls: tuple[Claims, ...]) -> tuple[Claims, ...]:
    return tuple(() if first + n in late else claims for n, claims in enumerate(calls))


@cache
def _waits(schedule: Schedule, calls: tuple[Claims, ...]) -> list[set[int]]:
    count = len(calls)
    direct = [{a for a in range(b) if clash(calls[a], calls[b])} for b in range(count)]
    if schedule is Schedule.SERIAL:
        return [set(range(b)) for b in range(count)]
    if schedule is Schedule.CLUSTERS:
        clusters = _clusters(direct)
        return [{a for a in range(b) if clusters[a] == clusters[b]} for b in range(count)]
    if schedule is Schedule.GROUPS:
        depths: list[int] = []
        for before in direct:
            depths.append(max((depths[a] + 1 for a in before), default=0))
        return [{a for a in range(count) if depths[a] < depths[b]} for b in range(count)]
    return direct


def _clusters(direct: Sequence[set[int]]) -> list[int]:
    clusters: list[int] = []
    for number, before in enumerate(direct):
        merged = {clusters[a] for a in before}
        clusters = [number if cluster in merged else cluster for cluster in clusters]
        clusters.append(number)
    return clusters
