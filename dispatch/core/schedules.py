"""The four schedules, as edges added to a turn's conflict graph. Pure.

`dataflow` adds none. `serial` chains every call to the one before it; `clusters` chains the calls
of each cluster; `groups` puts a barrier after each topological group. A barrier is a node that
takes no time; barriers are numbered from the end of the graph on.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

from dispatch.core.graph import ConflictGraph


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


def whole_turn_edges(schedule: Schedule, graph: ConflictGraph) -> dict[int, list[int]]:
    """Per node, the nodes it waits for beside its conflicts, once all calls are known."""
    if schedule is Schedule.GROUPS:
        return _barriers(graph)
    if schedule is Schedule.CLUSTERS:
        chained = [pair for cluster in graph.clusters() for pair in pairwise(cluster)]
        return {graph.nodes[later]: [graph.nodes[earlier]] for earlier, later in chained}
    return {}


def _barriers(graph: ConflictGraph) -> dict[int, list[int]]:
    edges: dict[int, list[int]] = {}
    barrier = len(graph.index.positions)
    for group, following in pairwise(graph.groups()):
        edges[barrier] = [graph.nodes[position] for position in group]
        for position in following:
            edges[graph.nodes[position]] = [barrier]
        barrier += 1
    return edges
