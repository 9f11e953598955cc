"""What the values of a program may be: an abstract heap, and who may share an object. Pure.

A value is the set of *roots* that it may be an object of. A root is one of three: the name of an
attribute of the analysed class, which stands for every object below that attribute; `:name`, the
same for a global; or `@place`, an object made at that place of the source. `*` is any of them.

Everything here only grows, whatever the order in which statements are read, and a program has
finitely many roots; so repeating until nothing changes ends, and what it ends with covers every
run (Andersen's points-to analysis, 1994, without regard to the order of statements).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

EVERYTHING = "*"
Roots = frozenset[str]
NOTHING: Roots = frozenset()
ANYTHING: Roots = frozenset({EVERYTHING})


def is_made(root: str) -> bool:
    """Whether it was made by the program itself, and is no state until it is kept in some."""
    return root.startswith("@")


class Heap:
    """What is inside what. `grown` tells whether anything was added since it was last reset."""

    def __init__(self) -> None:
        self.grown = False
        self.variables: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._contents: dict[str, set[str]] = defaultdict(set)
        self._kept: dict[str, set[str]] = defaultdict(set)
        """For what the program made: the state in which it was put."""
        self._together: set[tuple[str, str]] = set()

    def grow(self, into: set[str], more: Iterable[str]) -> None:
        """Add to a set, and notice whether that changed it."""
        before = len(into)
        into.update(more)
        self.grown |= len(into) != before

    def make(self, place: str, holding: Roots, *, nested: bool = False) -> Roots:
        """An object made at a place of the source; `nested` if it may hold others like itself."""
        root = f"@{place}"
        self.grow(self._contents[root], holding | {root} if nested else holding)
        return frozenset({root})

    def inside(self, roots: Roots) -> Roots:
        """What may be taken out of these, one level down."""
        found: set[str] = set()
        for root in roots:
            found |= self._contents[root] | self._kept[root] if is_made(root) else {root}
        return frozenset(found)

    def reach(self, roots: Roots) -> Roots:
        """These and all that is inside them, at any depth."""
        found: set[str] = set()
        new = set(roots)
        while new:
            found |= new
            new = set(self.inside(frozenset(new))) - found
        return frozenset(found)

    def store(self, into: Roots, value: Roots) -> Roots:
        """Put a value into these objects; returns the state that this changes."""
        state: set[str] = set()
        for root in into:
            if is_made(root):
                self.grow(self._contents[root], value)
                state |= self._kept[root]
            else:
                state.add(root)
        for root in state:
            self._keep(root, value)
        return frozenset(state)

    def _keep(self, state: str, value: Roots) -> None:
        for root in self.reach(value):
            if is_made(root):
                self.grow(self._kept[root], {state})
            else:
                self.share(state, root)

    def share(self, one: str, other: str) -> None:
        """Note that two parts of the state may have an object in common."""
        if one != other and (one, other) not in self._together:
            self._together.add((one, other))
            self.grown = True

    def groups(self, roots: Iterable[str]) -> dict[str, str]:
        """By root: the name of the group of roots that may share objects."""
        leader = {root: root for root in (*roots, *(r for pair in self._together for r in pair))}

        def first(root: str) -> str:
            while leader[root] != root:
                root = leader[root]
            return root

        for one, other in self._together:
            pair = sorted((first(one), first(other)), key=lambda name: (name.startswith(":"), name))
            leader[pair[1]] = pair[0]
        if any(EVERYTHING in pair for pair in self._together):
            return dict.fromkeys(leader, EVERYTHING)
        return {root: first(root) for root in leader}
