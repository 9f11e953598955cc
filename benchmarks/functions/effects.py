"""What each public method of a class reads and writes of its object's state, from the source. Pure.

The state is divided into groups of attributes that may share objects; most groups are a single
attribute. Between two methods that have no group in common, or only groups that both read, the
order makes no difference. Groups that no public method writes are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.functions.heap import EVERYTHING, Heap
from benchmarks.functions.source import Function, Module
from benchmarks.functions.walk import Walker


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The groups that a method reads, and those that it writes; no group is in both."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A class, analysed."""

    methods: Mapping[str, Effects]
    groups: Mapping[str, str]
    """By attribute that some method mentions: its group; `*` if all state is one group."""

    def group(self, attribute: str) -> str:
        """The group of any attribute, also of one that no method mentions."""
        is_one = EVERYTHING in self.groups.values()
        return EVERYTHING if is_one else self.groups.get(attribute, attribute)


def analysed(source: str, class_name: str, shared: Iterable[tuple[str, str]] = ()) -> Declared:
    """The effects of the class's public methods.

    `shared` are the pairs of attributes that have objects in common before any method is called.
    """
    module, heap = Module(source, class_name), Heap()
    for one, other in shared:
        heap.share(one, other)
    public = [f for name, f in module.classes[class_name].items() if not name.startswith("_")]
    if module.inherits:  # what it inherits is not read
        heap.share(EVERYTHING, ":unclear")
    _settle(module, heap, public)
    found = {function.node.name: _closed(function, module) for function in public}
    if module.inherits:
        found = {name: ({EVERYTHING}, {EVERYTHING}) for name in found}
    roots = {root for reads, writes in found.values() for root in reads | writes}
    return _declared(found, heap.groups(roots))


def _settle(module: Module, heap: Heap, public: Iterable[Function]) -> None:
    """Walk what public methods reach, until no walk finds anything new."""
    functions = {function.key: function for function in module.all()}
    walkers = {function.key: Walker(function, module, heap) for function in public}
    heap.grown = True
    while heap.grown:
        heap.grown = False
        for walker in tuple(walkers.values()):
            walker.walk()
            for key in walker.function.calls - walkers.keys():
                walkers[key] = Walker(functions[key], module, heap)
                heap.grown = True


def _closed(function: Function, module: Module) -> tuple[set[str], set[str]]:
    """What a function reads and writes, by itself or through what it calls."""
    functions = {one.key: one for one in module.all()}
    reached: dict[str, Function] = {}
    new = [function]
    while new:
        one = new.pop()
        if one.key not in reached:
            reached[one.key] = one
            new += [functions[key] for key in one.calls]
    reads = set().union(*(one.reads for one in reached.values()))
    return reads, set().union(*(one.writes for one in reached.values()))


def _declared(
    found: Mapping[str, tuple[set[str], set[str]]], groups: Mapping[str, str]
) -> Declared:
    every = set(groups.values())

    def grouped(roots: set[str]) -> set[str]:
        return every if EVERYTHING in roots else {groups[root] for root in roots}

    written = set().union(*(grouped(writes) for _, writes in found.values()))
    methods = {
        name: Effects(
            reads=frozenset((grouped(reads) & written) - grouped(writes)),
            writes=frozenset(grouped(writes)),
        )
        for name, (reads, writes) in found.items()
    }
    return Declared(methods=methods, groups=dict(groups))
