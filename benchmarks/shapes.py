"""Claims of many calls, friendly and hostile to a planner. Pure.

What is planned here has its claims resolved already, as `core` takes them; `planned` goes from
these claims to the graph of who waits for whom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dispatch.claims import FILE, READ, WRITE, Claim
from dispatch.core.graph import ConflictGraph
from dispatch.core.schedules import Schedule
from dispatch.core.turn import TurnMachine

Claims = tuple[Claim, ...]
FOLDER = (FILE, "repo", "src")
SHARED = 40
DEPTH = 12


def distinct(count: int) -> list[Claims]:
    """Reads and edits of files of their own; every tenth call takes one of 40 that others take."""
    claims: list[Claims] = []
    for number in range(count):
        shared = number % 10 == 9
        name = f"shared{number // 10 % SHARED}" if shared else f"file{number}"
        mode = WRITE if number % 3 == 0 else READ
        claims.append((Claim((*FOLDER, f"part{number % 100}", name), mode),))
    return claims


def readers(count: int) -> list[Claims]:
    """All read one file, and the last call writes it."""
    key = (*FOLDER, "a.py")
    claims: list[Claims] = [(Claim(key, READ),)] * (count - 1)
    return [*claims, (Claim(key, WRITE),)]


def prefixes(count: int) -> list[Claims]:
    """Folders inside each other, up to 12 deep: whatever is claimed overlaps all the others."""
    path = tuple(f"deep{level}" for level in range(DEPTH))
    keys = [(FILE, *path[: level + 1]) for level in range(DEPTH)]
    return [
        (Claim(keys[number * 5 % DEPTH], WRITE if number % 4 == 0 else READ),)
        for number in range(count)
    ]


def alternating(count: int) -> list[Claims]:
    """One file, read and written in turn."""
    key = (*FOLDER, "a.py")
    return [(Claim(key, WRITE if number % 2 else READ),) for number in range(count)]


def greps(count: int) -> list[Claims]:
    """A read of the whole folder after every edit of a file of its own in it."""
    whole = (Claim(FOLDER, READ),)
    return [
        whole if number % 2 else (Claim((*FOLDER, f"file{number}"), WRITE),)
        for number in range(count)
    ]


def commuting(count: int) -> list[Claims]:
    """Appends, increments and reads of one table, some of its rows, in runs of three."""
    modes = ("append", "increment", READ)
    table = ("db", "orders")
    return [
        (Claim(table if number % 2 else (*table, str(number % 50)), modes[number // 3 % 3]),)
        for number in range(count)
    ]


SHAPES: Mapping[str, Callable[[int], list[Claims]]] = {
    "friendly: mostly distinct files": distinct,
    "readers, then a writer": readers,
    "folders inside each other": prefixes,
    "one file, read and write in turn": alternating,
    "greps of a folder over edits in it": greps,
    "commuting modes": commuting,
}


def planned(claims: Sequence[Claims]) -> ConflictGraph:
    """The conflict graph of these calls."""
    graph = ConflictGraph()
    for position, one in enumerate(claims):
        graph.add(position, one)
    return graph


def admitted(claims: Sequence[Claims]) -> ConflictGraph:
    """The same graph, made by the machine of a whole turn, which also knows who may start."""
    machine = TurnMachine(Schedule.DATAFLOW)
    for one in claims:
        machine.submit(one)
    machine.close()
    return machine.graph
