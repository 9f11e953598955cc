"""What is explored, part by part.

Of every part all turns over the keys and modes of `shapes` are counted, and one setup of each shape
is explored. A setup in which a call can meet no other is counted only, where a part says so: the
call has the table to itself as in a turn of its own, and the rest is a smaller setup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dispatch.core.policy import AllOrNothing, BestEffort, Policy, Quorum
from dispatch.core.schedules import Schedule
from tests.exhaustive.setups import Claims, Detail, Setup, TurnPlan
from tests.exhaustive.shapes import ONE, TWO, is_apart, orbits, shape

PLAIN, ALL = BestEffort(), AllOrNothing()
Build = Callable[[tuple[Claims, ...]], Setup]


@dataclass(frozen=True, slots=True)
class Part:
    """All setups of one kind, of so many calls together."""

    name: str
    calls: int
    build: Build
    alphabet: Sequence[Claims] = ONE
    apart: bool = True
    """Whether setups in which a call meets no other are explored too."""
    mirrors: bool = False
    """Whether its two halves may change places: only deadlocks ask which turn began first."""

    def setups(self) -> tuple[list[Setup], int]:
        """One setup of each shape that is explored, and how many all of them stand for."""
        found: dict[object, Setup] = {}
        turns = 0
        for claims, count in orbits(self.alphabet, self.calls):
            setup = self.build(claims)
            turns += count
            if self.apart or not is_apart(setup):
                known = shape(setup)
                if not (self.mirrors and shape(self.build(self._mirrored(claims))) in found):
                    found.setdefault(known, setup)
        return list(found.values()), turns

    def _mirrored(self, claims: tuple[Claims, ...]) -> tuple[Claims, ...]:
        half = self.calls // 2
        return claims[half:] + claims[:half]


def parts(largest: int, *, brief: bool = False) -> list[Part]:
    """Every part in which no turn has more than `largest` calls.

    The `brief` form, for the everyday tests, looks at fewer steps in between where there are three
    calls, and leaves out some policies and nested turns there.
    """
    found = [Part(f"full-{n}", n, _one(detail=Detail.FULL)) for n in (1, 2) if n <= largest]
    found = [part for part in found if not (brief and part.calls > 1)]
    for calls in range(1, min(largest, 3) + 1):
        steps = Detail.BRIEF if brief and calls == 3 else Detail.STEPS
        found.append(Part(f"one-{calls}", calls, _one(detail=steps)))
        found.append(Part(f"two-claims-{calls}", calls, _one(detail=Detail.BRIEF), TWO))
        found += [
            Part(f"{s}-{calls}", calls, _one(schedule=s, detail=steps))
            for s in Schedule
            if s.value != "dataflow"
        ]
        detail = Detail.STEPS if calls < 3 else Detail.BRIEF
        if not (brief and calls == 3):
            found += [Part(f"{name}-{calls}", calls, one(detail)) for name, one in _JUDGED.items()]
        found += [
            Part(f"limit-{t}-{calls}", calls, _one(total=t, detail=steps))
            for t in (1, 2)
            if t < calls
        ]
    if largest >= 2:
        for name, calls, whole, apart in _SEVERAL:
            if brief and name in _LEFT_OUT:
                continue
            build = _at_once(whole) if brief and calls == 3 else whole
            mirrors = name == "pair" and calls != 3
            found.append(Part(f"{name}-{calls}", calls, build, apart=apart, mirrors=mirrors))
    if largest >= 4:
        found.append(Part("one-4", 4, _one(detail=Detail.BRIEF)))
    return found


def _one(
    *,
    schedule: Schedule = Schedule.DATAFLOW,
    policy: Policy = PLAIN,
    whole: bool = False,
    skips: bool = False,
    total: int = 0,
    detail: Detail = Detail.STEPS,
) -> Build:
    """A single turn."""

    def build(claims: tuple[Claims, ...]) -> Setup:
        plan = TurnPlan(calls=claims, schedule=schedule, policy=policy, whole=whole, skips=skips)
        return Setup(turns=(plan,), total=total, detail=detail)

    return build


def _several(
    *shape: tuple[int, int],
    policy: Policy = PLAIN,
    wholes: Sequence[int] = (),
    at_once: bool = False,
) -> Build:
    """Turns of so many calls, each nested in the call with that number (-1: in none)."""

    def build(claims: tuple[Claims, ...]) -> Setup:
        plans, first = [], 0
        for number, (count, parent) in enumerate(shape):
            calls, whole = claims[first : first + count], number in wholes
            plans.append(TurnPlan(calls=calls, policy=policy, whole=whole, parent=parent))
            first += count
        return Setup(turns=tuple(plans), detail=Detail.BRIEF, at_once=at_once)

    return build


def _at_once(build: Build) -> Build:
    """The same, with turns that are submitted whole."""
    return lambda claims: replace(build(claims), at_once=True)


_JUDGED: dict[str, Callable[[Detail], Build]] = {
    "all-or-nothing": lambda detail: _one(policy=ALL, detail=detail),
    "all-or-nothing-whole": lambda detail: _one(policy=ALL, whole=True, detail=detail),
    "quorum": lambda detail: _one(policy=Quorum(1), detail=detail),
    "dependents-skip": lambda detail: _one(skips=True, detail=detail),
}
_FLAT, _IN_FIRST, _IN_SECOND, _IN_THIRD = -1, 0, 1, 2
_LEFT_OUT = ("first-of-two-nests", "second-of-two-nests")
_BOTH_NEST = _several((1, _FLAT), (1, _IN_FIRST), (1, _FLAT), (1, _IN_THIRD), at_once=True)
_SEVERAL: tuple[tuple[str, int, Build, bool], ...] = (
    ("pair", 2, _several((1, _FLAT), (1, _FLAT)), False),
    ("pair", 3, _several((2, _FLAT), (1, _FLAT)), False),
    ("pair", 4, _several((2, _FLAT), (2, _FLAT)), False),
    ("nested", 2, _several((1, _FLAT), (1, _IN_FIRST)), True),
    ("nested", 3, _several((1, _FLAT), (2, _IN_FIRST)), True),
    ("first-of-two-nests", 3, _several((2, _FLAT), (1, _IN_FIRST)), True),
    ("second-of-two-nests", 3, _several((2, _FLAT), (1, _IN_SECOND)), True),
    ("beside-one", 3, _several((1, _FLAT), (1, _IN_FIRST), (1, _FLAT)), False),
    ("beside-one", 4, _several((1, _FLAT), (2, _IN_FIRST), (1, _FLAT), at_once=True), False),
    ("beside-two", 4, _several((1, _FLAT), (1, _IN_FIRST), (2, _FLAT), at_once=True), False),
    ("both-nest", 4, _BOTH_NEST, False),
    ("holds", 3, _several((2, _FLAT), (1, _FLAT), policy=ALL), False),
    ("holds", 4, _several((2, _FLAT), (2, _FLAT), policy=ALL), False),
    ("holds-whole", 4, _several((2, _FLAT), (2, _FLAT), policy=ALL, wholes=(0, 1)), False),
)
