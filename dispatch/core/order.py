"""Who waits for whom within one turn, and who is free to go on: the conflict graph in motion. Pure.

Owns the counts of unsettled predecessors. A node is a call or a join; joins settle by themselves.
Edges are never taken out, only settled: so whoever stands behind a call that never ran still waits
for what that call waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from dispatch.claims import Claim
from dispatch.core.graph import ConflictGraph
from dispatch.core.schedules import Schedule, part_barriers


class Order:
    """The nodes of one turn, and which of them are settled.

    `doomed` maps a node to the position of the call it waits for in vain, one that was given up;
    `failed` to the position of the first call before it that failed, where that matters.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.graph = ConflictGraph()
        self.doomed: dict[int, int] = {}
        self.failed: dict[int, int] = {}
        self.settled: list[bool] = []
        self.parts: list[int] = []
        """How many calls each part had that was linked as a whole."""
        self._left: list[int] = []
        self._after: list[list[int]] = []
        self._barriers: list[tuple[int, Sequence[int]]] = []
        """How many nodes before each barrier are unsettled, and the nodes behind it."""
        self._new: list[int] = []
        self._before: Sequence[int] = ()

    def add(self, position: int, claims: tuple[Claim, ...], after: Iterable[int] = ()) -> int:
        """The node of the next call, behind the calls `after`; its edges are made by `link`."""
        node = self.graph.add(position, claims, after)
        self._new.append(node)
        return node

    def link(self) -> Sequence[int]:
        """Make the edges into the nodes added since, and return those of calls.

        Under `groups` and `clusters` they are one part, and start when the part before is settled.
        """
        part, self._new = self._new, []
        predecessors, positions = self.graph.index.predecessors, self.graph.index.positions
        for node in range(len(self._left), len(predecessors)):
            self._left.append(0)
            self._after.append([])
            self.settled.append(False)
            for before in predecessors[node]:
                self._edge(before, node)
            if positions[node] < 0 and not self._left[node]:
                self.settled[node] = True
        if part and self.schedule is not Schedule.DATAFLOW:
            self._add_barriers(part)
        return part

    def begin(self, position: int, claims: tuple[Claim, ...]) -> tuple[int, bool]:
        """`add` and `link` in one step: the node, and whether nothing before it is left.

        For a call that names nobody, when every node has its edges and none is doomed or failed.
        """
        node = self.graph.add(position, claims)
        predecessors, positions = self.graph.index.predecessors, self.graph.index.positions
        for new in range(len(self._left), node + 1):
            left = 0
            for other in predecessors[new]:
                if not self.settled[other]:
                    left += 1
                    self._after[other].append(new)
            self._left.append(left)
            self._after.append([])
            self.settled.append(not left and positions[new] < 0)
        return node, not left

    def linked(self, node: int) -> bool:
        """Whether the edges into this node have been made."""
        return 0 <= node < len(self._left)

    def waits(self, node: int) -> bool:
        """Whether something before this node is not settled."""
        return self._left[node] > 0

    def is_free(self, node: int) -> bool:
        """Whether the edges into this node have been made, and nothing before it is left."""
        return 0 <= node < len(self._left) and not self._left[node]

    def position(self, node: int) -> int:
        """The position of the node's call; -1 for a join."""
        return self.graph.index.positions[node]

    def settle(self, node: int) -> list[int]:
        """Mark a call settled; returns the nodes of calls that wait for nothing any more."""
        if not self._after[node]:
            self.settled[node] = True
            return []
        freed: list[int] = []
        settled = deque((node,))
        while settled:
            node = settled.popleft()
            self.settled[node] = True
            for after in self._behind(node):
                self._left[after] -= 1
                if not self._left[after]:
                    (settled if self.position(after) < 0 else freed).append(after)
        return freed

    def doom(self, node: int, cause: int) -> list[int]:
        """Whatever waits for this node waits in vain; returns the positions of those calls."""
        return self._mark(node, cause, self.doomed, through_barriers=True)

    def fail(self, node: int, cause: int) -> list[int]:
        """The call of the node failed; returns the positions of the calls that depend on it."""
        return self._mark(node, cause, self.failed, through_barriers=False)

    def restore(
        self,
        settled: Sequence[bool],
        doomed: Iterable[tuple[int, int]],
        failed: Iterable[tuple[int, int]],
    ) -> None:
        """Take over which nodes are settled, doomed or behind a failure; nothing is settled yet."""
        for node, done in enumerate(settled):
            self.settled[node] = done
            if done:
                for after in self._behind(node):
                    self._left[after] -= 1
        self.doomed, self.failed = dict(doomed), dict(failed)

    def _behind(self, node: int) -> Iterable[int]:
        """The nodes that count one less now; a barrier's once all before it are settled."""
        for after in self._after[node]:
            if after >= 0:
                yield after
                continue
            left, behind = self._barriers[~after]
            self._barriers[~after] = (left - 1, behind)
            if left == 1:
                yield from behind

    def _mark(
        self, node: int, cause: int, marks: dict[int, int], *, through_barriers: bool
    ) -> list[int]:
        found: dict[int, None] = {}
        stack = [node]
        while stack:
            node = stack.pop()
            if node in marks:
                continue
            marks[node] = cause
            found[self.position(node)] = None
            for after in reversed(self._after[node]):
                if after >= 0:
                    stack.append(after)
                elif through_barriers:
                    stack += reversed(self._barriers[~after][1])
        return [position for position in found if position >= 0]

    def _edge(self, before: int, node: int) -> None:
        if before in self.failed:
            self.failed.setdefault(node, self.failed[before])
        if self.settled[before]:
            return
        self._left[node] += 1
        self._after[before].append(node)
        if before in self.doomed:
            self.doomed.setdefault(node, self.doomed[before])

    def _add_barriers(self, part: Sequence[int]) -> None:
        if self.schedule.needs_whole_turn:
            self.parts.append(len(part))
        for before, behind in part_barriers(self.schedule, self.graph, self._before, part):
            waiting = [node for node in before if not self.settled[node]]
            if waiting:
                self._barriers.append((len(waiting), behind))
                for node in waiting:
                    self._after[node].append(-len(self._barriers))
                for node in behind:
                    self._left[node] += 1
                    doomed = next((self.doomed[b] for b in waiting if b in self.doomed), None)
                    if doomed is not None:
                        self.doomed.setdefault(node, doomed)
        self._before = part
