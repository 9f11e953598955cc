"""All turns over a few keys and modes, and which of them are the same turn to the machines.

Renaming: swapping READ and `append` (the core knows no mode by name but WRITE), or the keys `a` and
`b` in turns that do not use `a/x`, renames every state and changes nothing else. One turn of each
orbit is looked at, and counted for all.

Shape: of claims, the turn machine reads the nodes that its index made of them and whether there are
any; the table reads which tickets conflict, and in which order its index lists those that do (of
tickets that can be there together: calls of one turn that conflict never are, and what an ancestor
claims does not count). Setups that agree in all this go through the same states but for the claims
written in them; so one of each shape is explored. That the indexes are right, pairwise, is checked
for every orbit while its shape is found out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations, product

from dispatch.claims import READ, WRITE, Claim, Key
from dispatch.core.index import ConflictIndex
from dispatch.core.live import LiveIndex
from tests.exhaustive.setups import Claims, Setup, clash

APPEND = "append"
MODES = (READ, WRITE, APPEND)
KEYS = ((), ("a",), ("a", "x"), ("b",))
SINGLE = tuple(Claim(key, mode) for key in KEYS for mode in MODES)
ONE: tuple[Claims, ...] = ((), *((claim,) for claim in SINGLE))
"""No claim, or one; `()` is the root."""
TWO: tuple[Claims, ...] = (*ONE, *(p for p in combinations(SINGLE, 2) if p[0].key != p[1].key))
"""At most two claims, on different keys: two modes on one key are a WRITE."""

Shape = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Claims of a few calls that stand for all `turns` sets of claims of their shape."""

    claims: tuple[Claims, ...]
    turns: int


def orbits(alphabet: Sequence[Claims], calls: int) -> Iterator[tuple[tuple[Claims, ...], int]]:
    """One of each set of turns that are renamings of each other, and how many those are."""
    swaps = [_renamed(alphabet, modes, keys) for modes in (False, True) for keys in (False, True)]
    below_a = {n for n, claims in enumerate(alphabet) if any("x" in claim.key for claim in claims)}
    for turn in product(range(len(alphabet)), repeat=calls):
        allowed = swaps[::2] if below_a.intersection(turn) else swaps
        images = {tuple(swap[n] for n in turn) for swap in allowed}
        if min(images) == turn:
            yield tuple(alphabet[n] for n in turn), len(images)


def _renamed(alphabet: Sequence[Claims], modes: bool, keys: bool) -> list[int]:
    mode = {READ: APPEND, APPEND: READ, WRITE: WRITE} if modes else {m: m for m in MODES}
    key: dict[Key, Key] = {("a",): ("b",), ("b",): ("a",)} if keys else {}
    numbers = {frozenset(claims): n for n, claims in enumerate(alphabet)}
    return [
        numbers.get(frozenset(Claim(key.get(c.key, c.key), mode[c.mode]) for c in claims), n)
        for n, claims in enumerate(alphabet)
    ]


def shape(setup: Setup) -> Shape:
    """Everything that the machines read of the claims in this setup."""
    turns = tuple(nodes(turn.calls) for turn in setup.turns)
    several = len(setup.turns) > 1
    pairs = _meeting(setup) if several else ()
    conflicts = pairs if setup.at_once else tuple(sorted(setup.conflicts)) if several else ()
    return turns, tuple(map(bool, setup.claims)), conflicts, _orders(setup, pairs)


def is_apart(setup: Setup) -> bool:
    """Whether some call can meet no other: then the setup is one without it, and a turn of one.

    A call in which a turn is nested is never apart.
    """
    in_pairs = {call for pair in _meeting(setup) for call in pair}
    return bool(set(range(len(setup.claims))) - in_pairs - set(setup.nested_in))


@cache
def nodes(calls: tuple[Claims, ...]) -> tuple[tuple[int, ...], ...]:
    """The nodes that the index makes of a turn: each one's position and predecessors.

    Raises `AssertionError` unless they order exactly the calls that conflict, directly or not.
    """
    index = ConflictIndex()
    for position, claims in enumerate(calls):
        index.add(position, claims)
    reached: list[set[int]] = []
    for before in index.predecessors:
        reached.append({n for node in before for n in (node, *reached[node])})
    found = [
        {index.positions[n] for n in before if index.positions[n] >= 0}
        for before, position in zip(reached, index.positions, strict=True)
        if position >= 0
    ]
    wanted: list[set[int]] = []
    for b, claims in enumerate(calls):
        direct = [a for a in range(b) if clash(calls[a], claims)]
        wanted.append({n for a in direct for n in (a, *wanted[a])})
    assert found == wanted, f"the index orders {found}, not {wanted}: {calls}"
    return tuple(
        (position, *before)
        for position, before in zip(index.positions, index.predecessors, strict=True)
    )


def _meeting(setup: Setup) -> tuple[tuple[int, int], ...]:
    """The pairs of calls that conflict, neither of them nested in the other."""
    lines = [set(_above(setup, call)) for call in range(len(setup.claims))]
    return tuple(
        (a, b)
        for a, b in combinations(range(len(lines)), 2)
        if (a, b) in setup.conflicts and a not in lines[b] and b not in lines[a]
    )


def _above(setup: Setup, call: int) -> Iterator[int]:
    while call >= 0:
        yield call
        call = setup.turns[setup.turn_of[call]].parent


def _orders(setup: Setup, pairs: tuple[tuple[int, int], ...]) -> tuple[object, ...]:
    """How the table's index lists, for each call, those of other turns that conflict with it."""
    turn_of, found = setup.turn_of, []
    for call in range(len(setup.claims)):
        others = [b if a == call else a for a, b in pairs if call in (a, b)]
        others = [other for other in others if turn_of[other] != turn_of[call]]
        for count in range(1, len(others) + 1):
            for there in permutations(others, count):
                together = combinations(sorted(there), 2)
                if not any(turn_of[a] == turn_of[b] and (a, b) in pairs for a, b in together):
                    claims = tuple(setup.claims[other] for other in there)
                    found.append((call, there, _listed(setup.claims[call], claims)))
    return tuple(found)


@cache
def _listed(claims: Claims, others: tuple[Claims, ...]) -> tuple[tuple[int, ...], ...]:
    index = LiveIndex()
    for ticket, other in enumerate(others):
        index.add(ticket, other)
    found = (
        tuple(dict.fromkeys(index.conflicting(claims))),
        tuple(dict.fromkeys(index.conflicting(claims, newest_first=True))),
    )
    every = set(range(len(others)))
    assert set(found[0]) == set(found[1]) == every, f"the table's index lists {found} of {others}"
    assert not index.clear(claims), f"the table's index sees nothing of {others}"
    return found
