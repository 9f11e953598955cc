"""The four schedules, as barriers added to a turn's conflict graph. Pure.

`dataflow` adds none. `serial` puts every call behind the one before it; `clusters` puts the calls
of each cluster one behind the other; `groups` puts each topological group behind the one before.
A barrier is a pair: the nodes behind it start once all nodes before it have settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from dispatch.core.graph import ConflictGraph

Barrier = tuple[Sequence[int], Sequence[int]]
"""Nodes before, nodes behind."""


class Schedule(StrEnum):
    """Which edges a turn has beside its conflicts."""

    DATAFLOW = "dataflow"
    GROUPS = "groups"
    CLUSTERS = "clusters"
    SERIAL = "serial"

    @property
    def needs_whole_turn(self) -> bool:
        """Whether nothing can start before the turn is closed."""
        return self in (Schedule.GROUPS, Schedule.CLUSTERS)


def part_barriers(
    schedule: Schedule, graph: ConflictGraph, before: Sequence[int], part: Sequence[int]
) -> list[Barrier]:
    """What the schedule adds to one part of a turn, and between it and the part `before` it.

    A part is a run of nodes of calls in admission order; under `serial` it may be a single call.
    """
    if schedule is Schedule.DATAFLOW or not part:
        return []
    if schedule is Schedule.GROUPS:
        groups = _groups(graph, part)
        return list(pairwise([before, *groups] if before else groups))
    chains = [part] if schedule is Schedule.SERIAL else _clusters(graph, part)
    barriers: list[Barrier] = [([a], [b]) for chain in chains for a, b in pairwise(chain)]
    if before:
        last = before[-1:] if schedule is Schedule.SERIAL else before
        barriers.insert(0, (last, [chain[0] for chain in chains]))
    return barriers


def _groups(graph: ConflictGraph, part: Sequence[int]) -> list[list[int]]:
    """The topological generations of these nodes, whatever stands before the first of them."""
    first, calls = part[0], set(part)
    depths: list[int] = []
    groups: list[list[int]] = []
    for node in range(first, part[-1] + 1):
        before = graph.index.predecessors[node]
        depth = max((depths[other - first] for other in before if other >= first), default=0)
        depths.append(depth + (node in calls))
        if node in calls:
            if depth == len(groups):
                groups.append([])
            groups[depth].append(node)
    return groups


def _clusters(graph: ConflictGraph, part: Sequence[int]) -> list[list[int]]:
    """The clusters of the whole graph as far as they lie in this part, in admission order."""
    calls = set(part)
    found = [
        sorted(node for position in cluster if (node := graph.nodes[position]) in calls)
        for cluster in graph.clusters()
    ]
    return sorted(cluster for cluster in found if cluster)
