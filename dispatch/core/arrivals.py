"""In which order the calls of a turn are admitted: that of the model, but behind what they name.

Pure. Owns ids, and who names whom in `after` or a `Ref`. A call that names calls that have not
come yet is *parked*, and takes its place right behind the last of them; all others stand where
the model put them. So only names can form a cycle, never a name and a conflict. What is still
parked when the turn closes is on a cycle, names an id that never came, or waits behind such a call.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any


class Arrivals:
    """Calls in, places out."""

    def __init__(self) -> None:
        self.ids: dict[str, list[int]] = {}
        """The positions of the calls with each id that have their place, in its order."""
        self.targets: dict[int, tuple[int, ...]] = {}
        """Per call that has just taken its place and names ids: the calls before it with those."""
        self.parked: dict[int, tuple[str, tuple[str, ...]]] = {}
        """The calls that have no place yet: their id and what they name."""
        self._missing: dict[int, set[str]] = {}
        self._named_by: dict[str, list[int]] = {}

    def arrive(self, position: int, call_id: str, names: Iterable[str] = ()) -> Sequence[int]:
        """A call came; returns the calls that take their place now, in order."""
        names = tuple(names)
        missing = {name for name in names if name not in self.ids}
        if missing:
            self.parked[position] = (call_id, names)
            self._missing[position] = missing
            for name in missing:
                self._named_by.setdefault(name, []).append(position)
            return ()
        if self.parked:
            return self._place(position, call_id, names)
        self.seat(position, call_id, names)
        return (position,)

    def seat(self, position: int, call_id: str, names: tuple[str, ...] = ()) -> None:
        """Give the call the next place."""
        if names:
            self.targets[position] = self.named(names)
        self.ids.setdefault(call_id, []).append(position)

    def named(self, names: Iterable[str]) -> tuple[int, ...]:
        """The calls with these ids that have their place."""
        return tuple(sorted({p for name in names for p in self.ids.get(name, ())}))

    def hopeless(self) -> dict[int, str]:
        """The parked calls that can never be admitted, once no call will come any more: why."""
        coming = {call_id for call_id, _ in self.parked.values()} | self.ids.keys()
        reasons = {}
        for position, names in self._missing.items():
            lost = min(names - coming, default=None)
            if lost is not None:
                reasons[position] = f"it waits for {lost!r}, and no call of this turn has that id"
        for cycle in self._cycles():
            shown = ", ".join(repr(self.parked[position][0]) for position in cycle)
            for position in cycle:
                reasons.setdefault(position, f"it waits for itself, by way of {shown}")
        return dict(sorted(reasons.items()))

    def give_up(self, position: int) -> Sequence[int]:
        """A parked call will wait for nobody any more; returns who takes a place now, in order."""
        call_id, _ = self.parked.pop(position)
        del self._missing[position]
        return self._place(position, call_id, ())

    def dump(self) -> dict[str, Any]:
        """The state as JSON types."""
        return {
            "ids": [[call_id, positions] for call_id, positions in self.ids.items()],
            "parked": [[p, call_id, list(names)] for p, (call_id, names) in self.parked.items()],
        }

    @classmethod
    def load(cls, state: dict[str, Any]) -> Arrivals:
        """What `dump` described."""
        arrivals = cls()
        arrivals.ids = {call_id: list(positions) for call_id, positions in state["ids"]}
        for position, call_id, names in state["parked"]:
            arrivals.arrive(position, call_id, names)
        return arrivals

    def _place(self, position: int, call_id: str, names: tuple[str, ...]) -> list[int]:
        placed: list[int] = []
        ready = [(position, call_id, names)]
        while ready:
            position, call_id, names = heapq.heappop(ready)
            placed.append(position)
            self.seat(position, call_id, names)
            for waiting in self._named_by.pop(call_id, ()):
                missing = self._missing.get(waiting)
                if missing is None:
                    continue
                missing.discard(call_id)
                if not missing:
                    del self._missing[waiting]
                    heapq.heappush(ready, (waiting, *self.parked.pop(waiting)))
        return placed

    def _cycles(self) -> list[list[int]]:
        """The sets of parked calls that wait for each other."""
        by_id: dict[str, list[int]] = {}
        for position, (call_id, _) in sorted(self.parked.items()):
            by_id.setdefault(call_id, []).append(position)
        edges = {
            position: sorted({o for name in names for o in by_id.get(name, ())})
            for position, names in sorted(self._missing.items())
        }
        return [sorted(found) for found in _strongly_connected(edges)]


def _strongly_connected(edges: dict[int, list[int]]) -> list[list[int]]:
    """The sets of nodes that reach each other, single ones only with an edge to themselves.

    Tarjan's algorithm (1972), without recursion.
    """
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    found = []
    for start in edges:
        stack = [(start, 0)]
        while stack:
            node, at = stack.pop()
            if at == 0:
                if node in number:
                    continue
                number[node] = lowest[node] = len(number)
                path.append(node)
                on_path.add(node)
            elif edges[node][at - 1] in on_path:
                lowest[node] = min(lowest[node], lowest[edges[node][at - 1]])
            if at < len(edges[node]):
                stack.append((node, at + 1))
                if edges[node][at] not in number:
                    stack.append((edges[node][at], 0))
                elif edges[node][at] in on_path:
                    lowest[node] = min(lowest[node], number[edges[node][at]])
                continue
            if lowest[node] == number[node]:
                component: list[int] = []
                while not component or component[-1] != node:
                    component.append(path.pop())
                    on_path.discard(component[-1])
                if len(component) > 1 or node in edges[node]:
                    found.append(component)
    return found
