"""Who waits for whom within one turn, and who is free to go on: the conflict graph in motion. Pure.

Owns the counts of unsettled predecessors. A node is a call, a join or a barrier; joins and
barriers settle by themselves. Edges are never taken out, only settled: so whoever stands behind a
call that never ran still waits for what that call waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatch.claims import Claim
from dispatch.core.graph import ConflictGraph
from dispatch.core.schedules import Schedule, whole_turn_edges


class Order:
    """The nodes of one turn, and which of them are settled.

    `doomed` maps a node to the position of the call it waits for in vain: one that was given up.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.graph = ConflictGraph()
        self.doomed: dict[int, int] = {}
        self.settled: list[bool] = []
        self._left: list[int] = []
        self._after: list[list[int]] = []
        self._extra: dict[int, list[int]] = {}

    def add(self, claims: tuple[Claim, ...]) -> int:
        """The node of the next call; its edges are made by `link`."""
        node = self.graph.add(claims)
        if self.schedule is Schedule.SERIAL and len(self.graph) > 1:
            self._extra[node] = [self.graph.nodes[-2]]
        return node

    def link(self) -> None:
        """Make the edges into the nodes added since; from what is settled there is none."""
        self._link(range(len(self._left), len(self.graph.index.positions)))

    def link_whole(self) -> None:
        """Make all edges, those that the schedule adds to the whole turn included."""
        self._extra = whole_turn_edges(self.schedule, self.graph)
        nodes = max([len(self.graph.index.positions), *(node + 1 for node in self._extra)])
        self._link(range(nodes))

    def linked(self, node: int) -> bool:
        """Whether the edges into this node have been made."""
        return node < len(self._left)

    def waits(self, node: int) -> bool:
        """Whether something before this node is not settled."""
        return self._left[node] > 0

    def conflicts(self, node: int) -> Sequence[int]:
        """The nodes that this one waits for because of its claims."""
        predecessors = self.graph.index.predecessors
        return predecessors[node] if node < len(predecessors) else ()

    def position(self, node: int) -> int:
        """The position of the node's call; -1 for a join or a barrier."""
        positions = self.graph.index.positions
        return positions[node] if node < len(positions) else -1

    def settle(self, node: int) -> Sequence[int]:
        """Mark a node settled; returns those behind it, to be looked at in this order."""
        self.settled[node] = True
        for after in self._after[node]:
            self._left[after] -= 1
        return self._after[node]

    def doom(self, node: int, cause: int) -> list[int]:
        """Whatever waits for this node waits in vain; returns the positions of those calls."""
        found: dict[int, None] = {}
        stack = [node]
        while stack:
            node = stack.pop()
            if node not in self.doomed:
                self.doomed[node] = cause
                found[self.position(node)] = None
                stack += reversed(self._after[node])
        return [position for position in found if position >= 0]

    def restore(self, settled: Sequence[bool], doomed: Iterable[tuple[int, int]]) -> None:
        """Take over which nodes are settled or doomed; the edges follow from the claims."""
        self.settled = list(settled)
        self.doomed = dict(doomed)
        self._left = [0] * len(settled)
        self._after = [[] for _ in settled]
        for node in range(len(settled)):
            for before in (*self.conflicts(node), *self._extra.get(node, ())):
                self._edge(before, node)

    def _link(self, nodes: range) -> None:
        for _ in nodes:
            self._left.append(0)
            self._after.append([])
            self.settled.append(False)
        for node in nodes:
            for before in (*self.conflicts(node), *self._extra.get(node, ())):
                self._edge(before, node)
            if not self._left[node] and self.position(node) < 0:
                self.settled[node] = True

    def _edge(self, before: int, node: int) -> None:
        if self.settled[before]:
            return
        self._left[node] += 1
        self._after[before].append(node)
        if before in self.doomed:
            self.doomed.setdefault(node, self.doomed[before])
