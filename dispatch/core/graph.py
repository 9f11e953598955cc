"""The conflict graph of a turn, and what can be read off it. Pure.

Owns groups, clusters, remaining chains, the critical path, the lower bound of the makespan, and
the reasons of each wait. Nodes are calls or joins (see `core.index`); predecessors always have
smaller numbers, so every pass is one loop over the nodes, linear in nodes and edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dispatch.claims import Claim, conflict
from dispatch.core.index import ConflictIndex

NEAREST = 20
LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class Wait:
    """Call `position` waits for the earlier call `cause`.

    `pair` is its claim and the other's that exclude each other; None if it was named in `after`.
    """

    position: int
    cause: int
    pair: tuple[Claim, Claim] | None


class ConflictGraph:
    """Calls by position, with their claims and what each waits for; entered in admission order.

    Every question but `add` may be asked once all calls from 0 on have been entered.
    """

    def __init__(self) -> None:
        self.index = ConflictIndex()
        self.claims: dict[int, tuple[Claim, ...]] = {}
        self.nodes: dict[int, int] = {}
        self.after: dict[int, tuple[int, ...]] = {}
        """Per node that waits for named calls: their nodes."""
        self._sizes: list[int] = []
        self._known: dict[tuple[int, ...], tuple[list[int], int]] = {}

    def add(self, position: int, claims: tuple[Claim, ...], after: Iterable[int] = ()) -> int:
        """Enter the next call, which waits for the calls at the positions `after` too."""
        if not after:
            node = self.nodes[position] = self.index.add(position, claims)
            self.claims[position] = claims
            return node
        named = tuple(self.nodes[other] for other in after)
        node = self.nodes[position] = self.index.add(position, claims, named)
        self.claims[position] = claims
        if named:
            self.after[node] = named
        return node

    def conflicts(self, node: int) -> Sequence[int]:
        """The nodes that this one waits for because of its claims."""
        before = self.index.predecessors[node]
        named = self.after.get(node)
        if not named:
            return before
        return [other for other in before if other not in named or self._conflict(node, other)]

    def __len__(self) -> int:
        return len(self.claims)

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The topological generations: no conflict inside a group, each follows from the last."""
        depths = self._depths([1.0] * len(self))
        groups: list[list[int]] = []
        for position, node in self._in_order():
            generation = round(depths[node]) - 1
            while len(groups) <= generation:
                groups.append([])
            groups[generation].append(position)
        return tuple(tuple(group) for group in groups)

    def clusters(self) -> tuple[tuple[int, ...], ...]:
        """The connected components, each in intent order, by their first call."""
        parent = list(range(len(self.index.positions)))

        def find(node: int) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        for node, before in enumerate(self.index.predecessors):
            for other in before:
                parent[find(other)] = find(node)
        clusters: dict[int, list[int]] = {}
        for position, node in self._in_order():
            clusters.setdefault(find(node), []).append(position)
        return tuple(tuple(cluster) for cluster in clusters.values())

    def critical_path(self, durations: Sequence[float] | None = None) -> tuple[int, ...]:
        """The positions on the longest chain of conflicts; every call takes 1 by default."""
        if not self.nodes:
            return ()
        depths = self._depths(self._weights(durations))
        node = max(self.nodes.values(), key=lambda candidate: (depths[candidate], -candidate))
        path = []
        while node >= 0:
            if self.index.positions[node] >= 0:
                path.append(self.index.positions[node])
            before = self.index.predecessors[node]
            node = max(before, key=lambda candidate: (depths[candidate], -candidate), default=-1)
        return tuple(reversed(path))

    def lower_bound(
        self,
        durations: Sequence[float] | None = None,
        limits: Iterable[tuple[int, Iterable[int]]] = (),
    ) -> float:
        """No schedule that keeps the order of conflicts can end a turn sooner than this.

        `limits` are pairs of a limit and the positions it counts: the work under a limit takes
        at least its sum over the limit. In the unit of `durations`.
        """
        weights = self._weights(durations)
        bound = max(self._depths(weights), default=0.0)
        for limit, positions in limits:
            if limit > 0:
                bound = max(bound, sum(weights[position] for position in positions) / limit)
        return bound

    def waits(self, position: int) -> tuple[list[Wait], int]:
        """What this call waits for: the nearest 20, latest first, and how many more there are.

        A call that a nearer one waits for already is left out. For explaining, not scheduling.
        """
        node = self.nodes[position]
        named = self.after.get(node, ())
        nodes = tuple(other for other in self.index.predecessors[node] if other not in named)
        causes, more = self._nearest(nodes)
        told = [self.index.positions[other] for other in reversed(named)]
        causes = [*told, *(cause for cause in causes if cause not in told)]
        return [self.wait(position, cause) for cause in causes], more

    def wait(self, position: int, cause: int) -> Wait:
        """Why `position` waits for the conflicting, or named, earlier call `cause`."""
        pair = conflict(self.claims[position], self.claims[cause])
        named = self.after.get(self.nodes[position], ())
        if pair is None and self.nodes[cause] not in named:
            raise ValueError(f"call {position} does not conflict with call {cause}")
        return Wait(position, cause, pair)

    def _nearest(self, nodes: tuple[int, ...]) -> tuple[list[int], int]:
        """The calls that these nodes are or stand for, as `waits` wants them.

        Bounded, and remembered per set of nodes, since many calls wait for the same join.
        """
        known = self._known.get(nodes)
        if known is None:
            nearest: list[int] = []
            looked_at = 0
            heap = [-node for node in nodes]
            heapq.heapify(heap)
            while heap and len(nearest) < NEAREST and looked_at < LOOKED_AT:
                node = -heapq.heappop(heap)
                call = self.index.positions[node]
                if call < 0:
                    for before in self.index.predecessors[node]:
                        heapq.heappush(heap, -before)
                elif call not in nearest:
                    looked_at += 1
                    if not any(conflict(self.claims[call], self.claims[n]) for n in nearest):
                        nearest.append(call)
            more = sum(self._size(node) for node in nodes) - looked_at if heap else 0
            known = self._known[nodes] = (nearest, max(0, more))
        return known

    def _size(self, node: int) -> int:
        """How many calls a node is or stands for, at most."""
        for new in range(len(self._sizes), len(self.index.positions)):
            before = self.index.predecessors[new]
            is_call = self.index.positions[new] >= 0
            self._sizes.append(1 if is_call else sum(self._sizes[node] for node in before))
        return self._sizes[node]

    def remaining_chains(self, durations: Sequence[float] | None = None) -> list[float]:
        """Per node: how long the longest chain is that begins there, itself included.

        In the unit of `durations`, by position; in calls without them.
        """
        positions, predecessors = self.index.positions, self.index.predecessors
        chains = [0.0] * len(positions)
        for node in range(len(positions) - 1, -1, -1):
            position = positions[node]
            if position >= 0:
                chains[node] += 1.0 if durations is None else durations[position]
            chain = chains[node]
            for before in predecessors[node]:
                if chain > chains[before]:
                    chains[before] = chain
        return chains

    def _in_order(self) -> list[tuple[int, int]]:
        """(position, node) of every call, in intent order."""
        return sorted(self.nodes.items())

    def _conflict(self, node: int, other: int) -> bool:
        positions = self.index.positions
        first, second = positions[node], positions[other]
        return conflict(self.claims[first], self.claims[second]) is not None

    def _weights(self, durations: Sequence[float] | None) -> Sequence[float]:
        if durations is None:
            return [1.0] * len(self)
        if len(durations) != len(self):
            raise ValueError(f"{len(self)} calls need as many durations, not {len(durations)}")
        return durations

    def _depths(self, weights: Sequence[float]) -> list[float]:
        depths: list[float] = []
        for position, before in zip(self.index.positions, self.index.predecessors, strict=True):
            start = max([depths[node] for node in before]) if before else 0.0
            depths.append(start if position < 0 else start + weights[position])
        return depths
