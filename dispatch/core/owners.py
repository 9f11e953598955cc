"""Who belongs to whom: calls, turns and holds as a tree, and which of them hold something. Pure.

An owner is a number; later owners have larger numbers. What an ancestor of a ticket's owner claims
never stands in the ticket's way, so every question of the table starts here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Owners:
    """The tree of owners. 0 stands for "no parent"."""

    def __init__(self) -> None:
        self.parents: dict[int, int] = {}
        self.holding: dict[int, int] = {}
        """Per owner: how many granted tickets it has; only those that have any."""
        self.numbers = 0
        self.closed: set[int] = set()
        """Those that only have others below them left."""
        self._children: dict[int, int] = {}

    def open(self, parent: int = 0) -> int:
        """A new owner below `parent`."""
        self.numbers += 1
        self.parents[self.numbers] = parent
        if parent:
            self._children[parent] = self._children.get(parent, 0) + 1
        return self.numbers

    def close(self, owner: int) -> None:
        """Forget an owner that has no tickets left, once nothing stands below it."""
        while owner:
            if self._children.get(owner):
                self.closed.add(owner)
                return
            self.closed.discard(owner)
            parent = self.parents.pop(owner)
            if not parent:
                return
            self._children[parent] -= 1
            if self._children[parent]:
                return
            del self._children[parent]
            owner = parent if parent in self.closed else 0

    def restore(self, numbers: int, parents: dict[int, int], closed: Iterable[int]) -> None:
        """Take over a tree."""
        self.numbers, self.parents, self.closed = numbers, parents, set(closed)
        for parent in filter(None, parents.values()):
            self._children[parent] = self._children.get(parent, 0) + 1

    def chain(self, owner: int) -> Iterator[int]:
        """The owner itself, then its parent, and so on up to the root."""
        while owner:
            yield owner
            owner = self.parents.get(owner, 0)

    def descends(self, owner: int, ancestor: int) -> bool:
        """Whether `ancestor` is the owner itself or stands above it."""
        return ancestor in self.chain(owner)

    def root(self, owner: int) -> int:
        """The topmost owner above this one."""
        top = owner
        for above in self.chain(owner):
            top = above
        return top

    def nested(self, owner: int) -> bool:
        """Whether something above this owner holds a claim while it waits."""
        return any(above in self.holding for above in self.chain(self.parents.get(owner, 0)))

    def granted(self, owner: int, change: int) -> None:
        """The owner has one granted ticket more (1) or less (-1)."""
        count = self.holding.get(owner, 0) + change
        if count:
            self.holding[owner] = count
        else:
            del self.holding[owner]
