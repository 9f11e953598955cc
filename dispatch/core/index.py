"""Which earlier calls does this one conflict with: an append-only trie with joins.

Owns the order of one turn's claims. `add` takes a call's claims (resolved, one per key) and
returns its node; `predecessors[node]` are the nodes it must wait for. A node is a call or a
*join*, which stands for a whole set of earlier calls and takes no time. Joins keep the graph
linear: a claim that conflicts with a thousand readers gets one edge, and so does the next one.

Cost of a call: O(claims x (depth + modes below)), whatever came before.
Invariants: predecessors have smaller numbers; reachability equals the transitive closure of
pairwise conflicts; nothing is ever removed, since a join may not change once it was read.

Each trie node keeps the current *run* of claims made exactly there in one mode (a write is a run
of its own), the join of the run before it, and per mode the claims made anywhere below. A write
clears what is below it, since every later conflict there passes through it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from dispatch.claims import TOOL, WRITE, Claim


class _Chain:
    """Nodes that a later claim may wait for together; `joined` makes one node of them, once."""

    __slots__ = ("join", "newest", "pending")

    def __init__(self) -> None:
        self.join = -1
        self.newest = -1
        self.pending: list[int] = []

    def append(self, node: int) -> None:
        if self.newest != node:
            self.newest = node
            self.pending.append(node)

    def joined(self, index: ConflictIndex) -> int:
        pending = self.pending
        if pending:
            if self.join < 0 and len(pending) == 1:
                self.join = pending[0]
            else:
                self.join = index.join(pending if self.join < 0 else [self.join, *pending])
            self.pending = []
        return self.join


class _Node:
    __slots__ = ("before", "below", "children", "mode", "run")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.mode = ""
        self.run: _Chain | None = None
        self.before = -1
        self.below: dict[str, _Chain] = {}

    def waits_here(self, mode: str, index: ConflictIndex) -> int:
        """The node that a claim of `mode` here or below must wait for, or -1."""
        if self.run is None:
            return -1
        if self.mode != mode or mode == WRITE:
            return self.run.joined(index)
        return self.before

    def register(self, node: int, mode: str, index: ConflictIndex) -> None:
        if self.run is None:
            self.run, self.mode = _Chain(), mode
        elif self.mode != mode or mode == WRITE:
            self.before = self.run.joined(index)
            self.run, self.mode = _Chain(), mode
        self.run.append(node)
        if mode == WRITE and self.below:
            self.below = {}


class ConflictIndex:
    """The conflict graph of a growing turn. Pure."""

    __slots__ = ("_root", "_tools", "positions", "predecessors")

    def __init__(self) -> None:
        self._root = _Node()
        self._tools = _Node()
        self.predecessors: list[list[int]] = []
        self.positions: list[int] = []
        """Per node: the position of its call, or -1 for a join."""

    def add(self, position: int, claims: Collection[Claim], after: Collection[int] = ()) -> int:
        """Enter the next call; the claims must name each key once.

        `after` are nodes that it waits for whatever it claims.
        """
        if not claims:
            self.predecessors.append(list(dict.fromkeys(after)) if after else [])
            self.positions.append(position)
            return len(self.positions) - 1
        waits: dict[int, None] = dict.fromkeys(after)
        paths = [(self._look_up(claim, waits), claim.mode) for claim in claims]
        waits.pop(-1, None)
        node = self._append(position, list(waits))
        for path, mode in paths:
            path[-1].register(node, mode, self)
            for above in path[:-1]:
                chain = above.below.get(mode)
                if chain is None:
                    chain = above.below[mode] = _Chain()
                chain.append(node)
        return node

    def touched_since(self, claims: Iterable[Claim], node: int) -> bool:
        """Whether a call that conflicts with these claims was entered after this one's node.

        The claims must be those that `node` was entered with. Nothing changes.
        """
        return any(newest > node for claim in claims for newest in self._newest(claim))

    def join(self, predecessors: list[int]) -> int:
        """A node that stands for all of these; it takes no time."""
        return self._append(-1, predecessors)

    def _append(self, position: int, predecessors: list[int]) -> int:
        self.predecessors.append(predecessors)
        self.positions.append(position)
        return len(self.positions) - 1

    def _newest(self, claim: Claim) -> Iterator[int]:
        """Of each set of calls that conflict with the claim, the latest (or a join behind it)."""
        key, mode = claim
        node: _Node | None = self._tools if key[:1] == (TOOL,) else self._root
        for segment in (*key, None):
            if node is None:
                return
            if node.run is not None:
                exclusive = node.mode != mode or mode == WRITE
                yield node.run.newest if exclusive else node.before
            if segment is not None:
                node = node.children.get(segment)
        if node is not None:
            for other, chain in node.below.items():
                if other != mode or mode == WRITE:
                    yield chain.newest

    def _look_up(self, claim: Claim, waits: dict[int, None]) -> list[_Node]:
        key, mode = claim
        node = self._tools if key[:1] == (TOOL,) else self._root
        path = [node]
        if node.run is not None:
            waits[node.waits_here(mode, self)] = None
        for segment in key:
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node()
            node = child
            path.append(node)
            if node.run is not None:
                waits[node.waits_here(mode, self)] = None
        for other, chain in node.below.items():
            if other != mode or mode == WRITE:
                waits[chain.joined(self)] = None
        return path
