"""Which live tickets overlap these claims: a trie whose entries come and go. Pure.

Unlike the index of a turn (`core.index`) it must answer with exceptions ("all but my ancestors'"),
so it keeps the tickets themselves per key and mode, and counts per mode of what is below a key.
`clear` costs O(claims x depth); `conflicting` visits only nodes that hold something.
Invariant: a node without entries and without entries below it does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from dispatch.claims import TOOL, WRITE, Claim


class _Node:
    __slots__ = ("below", "children", "here")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.here: dict[str, dict[int, None]] = {}
        self.below: dict[str, int] = {}


class LiveIndex:
    """Tickets by the keys and modes that they claim."""

    def __init__(self) -> None:
        self._root = _Node()
        self._tools = _Node()

    def add(self, ticket: int, claims: tuple[Claim, ...]) -> None:
        """Enter a ticket; later tickets have larger numbers in the index of waiters."""
        for key, mode in claims:
            node = self._start(key)
            for segment in key:
                node.below[mode] = node.below.get(mode, 0) + 1
                child = node.children.get(segment)
                if child is None:
                    child = node.children[segment] = _Node()
                node = child
            node.here.setdefault(mode, {})[ticket] = None

    def remove(self, ticket: int, claims: tuple[Claim, ...]) -> None:
        """Take a ticket out again, with the claims it was entered with."""
        for key, mode in claims:
            node = self._start(key)
            path = []
            for segment in key:
                path.append((node, segment))
                _decrement(node.below, mode)
                node = node.children[segment]
            tickets = node.here[mode]
            del tickets[ticket]
            if not tickets:
                del node.here[mode]
            for above, segment in reversed(path):
                child = above.children[segment]
                if child.here or child.children:
                    break
                del above.children[segment]

    def clear(self, claims: tuple[Claim, ...]) -> bool:
        """Whether no ticket at all conflicts with these claims."""
        for key, mode in claims:
            node: _Node | None = self._start(key)
            for segment in key:
                if node is None or (node.here and _excludes(node.here, mode)):
                    break
                node = node.children.get(segment)
            if node is not None and (_excludes(node.here, mode) or _excludes(node.below, mode)):
                return False
        return True

    def conflicting(
        self, claims: tuple[Claim, ...], *, newest_first: bool = False, before: int | None = None
    ) -> Iterator[int]:
        """The tickets that conflict, each at least once; only those numbered below `before`."""
        for key, mode in claims:
            node: _Node | None = self._start(key)
            for segment in key:
                if node is None:
                    break
                yield from _tickets(node, mode, newest_first, before)
                node = node.children.get(segment)
            if node is not None:
                yield from _subtree(node, mode, newest_first, before)

    def _start(self, key: tuple[str, ...]) -> _Node:
        return self._tools if key[:1] == (TOOL,) else self._root


def _excludes(modes: dict[str, int] | dict[str, dict[int, None]], mode: str) -> bool:
    """Whether any of the modes present excludes `mode`."""
    if not modes:
        return False
    return mode == WRITE or len(modes) > 1 or mode not in modes


def _decrement(counts: dict[str, int], mode: str) -> None:
    if counts[mode] == 1:
        del counts[mode]
    else:
        counts[mode] -= 1


def _tickets(node: _Node, mode: str, newest_first: bool, before: int | None) -> Iterator[int]:
    for other, tickets in node.here.items():
        if other == mode and mode != WRITE:
            continue
        for ticket in reversed(tickets) if newest_first else tickets:
            if before is not None and ticket >= before:
                break
            yield ticket


def _subtree(node: _Node, mode: str, newest_first: bool, before: int | None) -> Iterator[int]:
    stack = [node]
    while stack:
        node = stack.pop()
        yield from _tickets(node, mode, newest_first, before)
        if _excludes(node.below, mode):
            stack.extend(node.children.values())
