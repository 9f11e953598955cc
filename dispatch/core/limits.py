"""Slots: how many calls may run at once, in all, per tool and per tag. Pure.

Owns who holds a slot and who waits for one. A request names the limits it counts against; it
gets all of them in one step or none. Knows nothing of calls, claims or time.

Order: among the requests whose limits have room, the turn whose request was ready first goes
first; within one turn, the longest remaining chain of conflicts (list scheduling, Graham 1966),
then the earlier request. A request that waits for one limit never holds back a request that does
not need it: waiting requests are kept apart by the set of limits they need.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

Dimensions = tuple[str, ...]


class _Queue:
    """The waiting requests of one turn that need the same limits."""

    __slots__ = ("chains", "dimensions", "heap", "order", "turn")

    def __init__(self, turn: int, dimensions: Dimensions) -> None:
        self.turn = turn
        self.dimensions = dimensions
        self.chains: dict[int, int] = {}
        self.order: deque[int] = deque()
        self.heap: list[tuple[int, int]] = []

    def push(self, number: int, chain: int) -> None:
        if number not in self.chains:
            self.order.append(number)
        self.chains[number] = chain
        heapq.heappush(self.heap, (-chain, number))

    def oldest(self) -> int:
        """The number of the request that was ready first; what has left is dropped on the way."""
        while self.order[0] not in self.chains:
            self.order.popleft()
        return self.order[0]

    def best(self) -> tuple[int, int]:
        """(minus chain, number) of the request with the longest chain; stale entries go."""
        while self.chains.get(self.heap[0][1]) != -self.heap[0][0]:
            heapq.heappop(self.heap)
        return self.heap[0]


class _Line:
    """The queues of all turns that need the same limits, and whose request was ready first."""

    __slots__ = ("dimensions", "heap", "queues")

    def __init__(self, dimensions: Dimensions) -> None:
        self.dimensions = dimensions
        self.queues: dict[int, _Queue] = {}
        self.heap: list[tuple[int, int]] = []

    def first(self) -> tuple[int, int]:
        """(number, turn) of the request that was ready first; stale entries are put right."""
        while True:
            number, turn = self.heap[0]
            queue = self.queues.get(turn)
            if queue is None:
                heapq.heappop(self.heap)
            elif queue.oldest() != number:
                heapq.heapreplace(self.heap, (queue.oldest(), turn))
            else:
                return number, turn


class SlotMachine:
    """Requests in, starts out. See the module for the order."""

    def __init__(
        self,
        total: int,
        per_tool: Mapping[str, int] | None = None,
        per_tag: Mapping[str, int] | None = None,
    ) -> None:
        self.total = total
        self.limits = {
            **{f"tool:{name}": limit for name, limit in (per_tool or {}).items()},
            **{f"tag:{name}": limit for name, limit in (per_tag or {}).items()},
        }
        self.used = dict.fromkeys(self.limits, 0)
        self.holders: dict[int, Dimensions] = {}
        self._waiting: dict[int, _Queue] = {}
        self._lines: dict[Dimensions, _Line] = {}
        self._numbers = 0

    def dimensions(self, tool: str, tags: Iterable[str]) -> Dimensions:
        """The limits that a call of this tool with these tags counts against, beside the total."""
        names = [f"tool:{tool}", *sorted(f"tag:{tag}" for tag in tags)]
        return tuple(name for name in names if name in self.limits)

    def request(self, turn: int, dimensions: Dimensions, chain: int) -> int:
        """Ask for slots; returns the request's number. `take` says when it may start."""
        self._numbers += 1
        self._enqueue(self._numbers, turn, dimensions, chain)
        return self._numbers

    def take(self) -> int | None:
        """The number of the next request that may start now, with its slots taken; or None."""
        if len(self.holders) >= self.total or not self._waiting:
            return None
        open_lines = [line for line in self._lines.values() if line.queues and self._has_room(line)]
        if not open_lines:
            return None
        turn = min(line.first() for line in open_lines)[1]
        queues = [line.queues[turn] for line in open_lines if turn in line.queues]
        number = min(queue.best() for queue in queues)[1]
        dimensions = self._waiting[number].dimensions
        self.withdraw(number)
        self._hold(number, dimensions)
        return number

    def release(self, number: int) -> None:
        """Give the slots of a started request back."""
        for name in self.holders.pop(number):
            self.used[name] -= 1

    def withdraw(self, number: int) -> None:
        """Take back a request that has not started."""
        queue = self._waiting.pop(number)
        del queue.chains[number]
        if not queue.chains:
            del self._lines[queue.dimensions].queues[queue.turn]

    def prefer(self, number: int, chain: int) -> None:
        """The chain behind a request has become known; without effect once it has started."""
        queue = self._waiting.get(number)
        if queue is not None and queue.chains[number] != chain:
            queue.push(number, chain)

    def waiting(self, number: int) -> bool:
        """Whether the request has not been given its slots yet."""
        return number in self._waiting

    def validate(self) -> None:
        """Raise `AssertionError` if a limit is exceeded or the books do not balance."""
        checks = {
            "within the total": len(self.holders) <= self.total,
            "every limit kept": all(self.used[name] <= self.limits[name] for name in self.limits),
            "use adds up": all(
                used == sum(name in held for held in self.holders.values())
                for name, used in self.used.items()
            ),
            "queues agree": set(self._waiting)
            == {
                number
                for line in self._lines.values()
                for queue in line.queues.values()
                for number in queue.chains
            },
        }
        broken = [name for name, holds in checks.items() if not holds]
        if broken:
            raise AssertionError(f"slots: not {', not '.join(broken)}: {self.dump()}")

    def dump(self) -> dict[str, Any]:
        """The whole state as JSON types; `load` gives an equal machine."""
        return {
            "total": self.total,
            "limits": dict(self.limits),
            "numbers": self._numbers,
            "holders": [[number, list(names)] for number, names in self.holders.items()],
            "waiting": [
                [number, queue.turn, list(queue.dimensions), queue.chains[number]]
                for number, queue in self._waiting.items()
            ],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> SlotMachine:
        """The machine that `dump` described."""
        machine = cls(state["total"])
        machine.limits = dict(state["limits"])
        machine.used = dict.fromkeys(machine.limits, 0)
        machine._numbers = state["numbers"]
        for number, names in state["holders"]:
            machine._hold(number, tuple(names))
        for number, turn, names, chain in state["waiting"]:
            machine._enqueue(number, turn, tuple(names), chain)
        return machine

    def _enqueue(self, number: int, turn: int, dimensions: Dimensions, chain: int) -> None:
        line = self._lines.get(dimensions)
        if line is None:
            line = self._lines[dimensions] = _Line(dimensions)
        queue = line.queues.get(turn)
        if queue is None:
            queue = line.queues[turn] = _Queue(turn, dimensions)
            heapq.heappush(line.heap, (number, turn))
        queue.push(number, chain)
        self._waiting[number] = queue

    def _hold(self, number: int, dimensions: Dimensions) -> None:
        self.holders[number] = dimensions
        for name in dimensions:
            self.used[name] += 1

    def _has_room(self, line: _Line) -> bool:
        for name in line.dimensions:  # noqa: SIM110 - a generator costs more than all the rest
            if self.used[name] >= self.limits[name]:
                return False
        return True
