"""The plan of a turn: what would wait for what, why, and how long it must take. Pure.

Owns what people read of the conflict graph. Made from claims that are already resolved, so it
costs nothing but the graph; every text is made only when it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from dispatch.call import ToolCall
from dispatch.claims import Claim
from dispatch.core.graph import ConflictGraph, Wait
from dispatch.core.schedules import Schedule, part_barriers
from dispatch.render import one_line

Limits = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Edge:
    """`after` waits for `before`.

    Numbers below the count of calls are positions; the others are joins, nodes that stand for a
    set of earlier calls and take no time.
    """

    before: int
    after: int
    reason: str


def counted(
    calls: Iterable[tuple[str, frozenset[str]]], limits: Limits
) -> list[tuple[int, list[int]]]:
    """The limits that count any of these calls (name and tags), with the positions they count.

    As cheap with a thousand limits as with one.
    """
    positions: dict[str, list[int]] = {}
    for position, (tool, tags) in enumerate(calls):
        for name in ("total", f"tool:{tool}", *(f"tag:{tag}" for tag in tags)):
            if name in limits:
                positions.setdefault(name, []).append(position)
    return [(limits[name], counts) for name, counts in positions.items()]


class Plan:
    """A turn before it runs: groups, edges with reasons, clusters, critical path, lower bound.

    Positions are in intent order. `undeclared` names the tools that run alone because they declare
    nothing; `warnings` what was guessed. Times have the unit of the durations given.
    """

    def __init__(
        self,
        calls: Sequence[ToolCall],
        graph: ConflictGraph,
        *,
        schedule: Schedule,
        shown: Callable[[Claim], str],
        undeclared: Iterable[str] = (),
        warnings: Iterable[str] = (),
        refused: Mapping[int, str] | None = None,
        tags: Sequence[frozenset[str]] | None = None,
    ) -> None:
        self.calls = tuple(calls)
        self.schedule = schedule
        self.undeclared = tuple(undeclared)
        self.warnings = tuple(warnings)
        self.refused = dict(refused or {})
        self._graph = graph
        self._shown = shown
        self._tags = tags or [call.tags for call in calls]

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions by topological generation: no conflict inside a group."""
        return self._graph.groups()

    @cached_property
    def clusters(self) -> tuple[tuple[int, ...], ...]:
        """Positions by connected component: no conflict between clusters."""
        return self._graph.clusters()

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The direct waits of the conflict graph, with their reasons, in intent order."""
        names = self._node_names()
        positions, predecessors = self._graph.index.positions, self._graph.index.predecessors
        return tuple(
            Edge(names[before], names[node], self._edge_reason(positions[before], positions[node]))
            for node in range(len(positions))
            for before in predecessors[node]
        )

    def critical_path(self, durations: Sequence[float] | None = None) -> tuple[int, ...]:
        """The positions on the longest chain of conflicts; every call takes 1 by default."""
        return self._graph.critical_path(durations)

    def lower_bound(
        self, durations: Sequence[float] | None = None, limits: Limits | int | None = None
    ) -> float:
        """No schedule that keeps this order can end sooner.

        `limits` is a total, or a mapping of `total`, `tool:NAME` and `tag:NAME` to limits.
        """
        named = {"total": limits} if isinstance(limits, int) else (limits or {})
        for name in named:
            if name != "total" and not name.startswith(("tool:", "tag:")):
                raise ValueError(f"{name!r} is no limit; write 'total', 'tool:NAME' or 'tag:NAME'")
        counts = [(call.name, tags) for call, tags in zip(self.calls, self._tags, strict=True)]
        return self._graph.lower_bound(durations, counted(counts, named))

    def explain(self, position: int) -> str:
        """Why the call at this position waits: the nearest 20 calls, and how many more."""
        if not 0 <= position < len(self.calls):
            raise IndexError(f"the turn has {len(self.calls)} calls; there is none at {position}")
        waits, more = self._graph.waits(position)
        label = self._label(position)
        if position in self.refused:
            return f"{label} is refused: {self.refused[position]}"
        scheduled = self._scheduled_wait(position, waits)
        if not waits and not scheduled:
            return f"{label} waits for nothing"
        lines = [f"{label} waits for {self._reason(wait)}" for wait in waits]
        if scheduled:
            lines.append(f"{label} waits for {scheduled}")
        if more:
            lines.append(f"… and for earlier calls, {more} at most")
        return "\n".join(lines)

    def to_text(self) -> str:
        """The plan for people: a line per group and call, with the reason of every wait."""
        calls, groups = _counted(len(self.calls), "call"), _counted(len(self.groups), "group")
        lines = [f"{calls}, {groups}, schedule {self.schedule}"]
        for number, group in enumerate(self.groups, start=1):
            lines.append(f"group {number}")
            for position in group:
                lines += [f"  {line}" for line in self._call_lines(position)]
        if self.undeclared:
            lines.append(f"run alone, because undeclared: {', '.join(self.undeclared)}")
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def to_json(self) -> str:
        """The plan as JSON text: calls with claims and waits, groups, clusters, edges."""
        edges = [{"before": e.before, "after": e.after, "reason": e.reason} for e in self.edges]
        document = {
            "schedule": self.schedule,
            "calls": [self._call_json(position) for position in range(len(self.calls))],
            "groups": self.groups,
            "clusters": self.clusters,
            "edges": edges,
            "scheduled": [list(pair) for pair in self._scheduled()],
            "critical_path": self.critical_path(),
            "lower_bound": self.lower_bound(),
            "undeclared": self.undeclared,
            "warnings": self.warnings,
        }
        return json.dumps(document, indent=2)

    def to_mermaid(self) -> str:
        """The plan as a Mermaid flowchart; joins are small circles."""
        lines = ["flowchart LR"]
        lines += [f'  n{i}["{_mermaid(self._label(i))}"]' for i in range(len(self.calls))]
        lines += [f"  n{join}(( ))" for join in self._joins()]
        lines += [f'  n{e.before} -->|"{_mermaid(e.reason)}"| n{e.after}' for e in self.edges]
        lines += [f"  n{before} -.-> n{after}" for before, after in self._scheduled()]
        return "\n".join(lines)

    def to_dot(self) -> str:
        """The plan for Graphviz; joins are points, edges of the schedule are dashed."""
        lines = ["digraph plan {", "  rankdir=LR;", "  node [shape=box];"]
        lines += [f"  n{i} [label={_dot(self._label(i))}];" for i in range(len(self.calls))]
        lines += [f"  n{join} [shape=point];" for join in self._joins()]
        lines += [f"  n{e.before} -> n{e.after} [label={_dot(e.reason)}];" for e in self.edges]
        lines += [f"  n{before} -> n{after} [style=dashed];" for before, after in self._scheduled()]
        return "\n".join([*lines, "}"])

    def _label(self, position: int) -> str:
        call = self.calls[position]
        return one_line(f"#{position} {call.name}" + (f" ({call.id})" if call.id else ""))

    def _reason(self, wait: Wait) -> str:
        return f"{self._label(wait.cause)}: {self._why(wait)}"

    def _why(self, wait: Wait) -> str:
        if wait.pair is None:
            return "named in after"
        mine, theirs = wait.pair
        return f"{self._shown(mine)} overlaps {self._shown(theirs)}"

    def _edge_reason(self, before: int, after: int) -> str:
        if before < 0 or after < 0:
            return "any of the join" if before < 0 else "member of the join"
        return self._why(self._graph.wait(after, before))

    def _call_lines(self, position: int) -> list[str]:
        lines = [self._label(position)]
        if position in self.refused:
            lines.append(f"  refused: {self.refused[position]}")
        waits, more = self._graph.waits(position)
        lines += [f"  waits for {self._reason(wait)}" for wait in waits]
        if more:
            lines.append(f"  … and for earlier calls, {more} at most")
        scheduled = self._scheduled_wait(position, waits)
        if scheduled:
            lines.append(f"  waits for {scheduled}")
        return lines

    def _scheduled_wait(self, position: int, waits: Sequence[Wait]) -> str:
        """What the schedule makes this call wait for, beside its conflicts."""
        if self.schedule is Schedule.GROUPS and self._group_of[position]:
            return f"all of group {self._group_of[position]}: schedule groups"
        before = -1
        if self.schedule is Schedule.SERIAL:
            before = position - 1
        elif self.schedule is Schedule.CLUSTERS:
            before = self._before_in_cluster.get(position, -1)
        if before < 0 or before in [wait.cause for wait in waits]:
            return ""
        return f"{self._label(before)}: schedule {self.schedule}"

    @cached_property
    def _group_of(self) -> dict[int, int]:
        return {i: number for number, group in enumerate(self.groups) for i in group}

    @cached_property
    def _before_in_cluster(self) -> dict[int, int]:
        return {later: earlier for c in self.clusters for earlier, later in pairwise(c)}

    def _call_json(self, position: int) -> dict[str, object]:
        call = self.calls[position]
        waits, more = self._graph.waits(position)
        return {
            "position": position,
            "id": call.id,
            "name": call.name,
            "claims": [self._shown(claim) for claim in self._graph.claims[position]],
            "refused": self.refused.get(position),
            "waits_for": [{"position": w.cause, "reason": self._reason(w)} for w in waits],
            "waits_for_more": more,
        }

    def _node_names(self) -> dict[int, int]:
        joins = iter(range(len(self.calls), len(self._graph.index.positions)))
        return {
            node: position if position >= 0 else next(joins)
            for node, position in enumerate(self._graph.index.positions)
        }

    def _scheduled(self) -> list[tuple[int, int]]:
        """The waits that the schedule adds; barriers are numbered after the joins.

        A barrier between single calls is drawn as an edge.
        """
        names = self._node_names()
        barrier = len(self._graph.index.positions)
        pairs = []
        nodes = list(self._graph.nodes.values())
        for before, behind in part_barriers(self.schedule, self._graph, (), nodes):
            if len(before) == len(behind) == 1:
                pairs.append((names[before[0]], names[behind[0]]))
                continue
            pairs += [(names[node], barrier) for node in before]
            pairs += [(barrier, names[node]) for node in behind]
            barrier += 1
        return pairs

    def _joins(self) -> list[int]:
        """The numbers of the nodes that are no calls: joins, then barriers."""
        scheduled = [number for pair in self._scheduled() for number in pair]
        return list(
            range(len(self.calls), max([len(self._graph.index.positions) - 1, *scheduled]) + 1)
        )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _mermaid(text: str) -> str:
    return (
        text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    )


def _dot(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
