"""Who belongs to whom: calls, turns and holds as a tree, and which of them hold something. Pure.

An owner is a number; later owners have larger numbers. What an ancestor of a ticket's owner claims
never stands in the ticket's way, so every question of the table starts here.
"""

from __future__ import annotations

from collections.abc import Iterator


class Owners:
    """The tree of owners. 0 stands for "no parent"."""

    def __init__(self) -> None:
        self.parents: dict[int, int] = {}
        self.holding: dict[int, int] = {}
        """Per owner: how many granted tickets it has; only those that have any."""
        self.numbers = 0

    def open(self, parent: int = 0) -> int:
        """A new owner below `parent`."""
        self.numbers += 1
        self.parents[self.numbers] = parent
        return self.numbers

    def close(self, owner: int) -> None:
        """Forget an owner that has no tickets left."""
        del self.parents[owner]

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
