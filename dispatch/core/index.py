"""Which earlier calls does this one conflict with: an append-only trie with joins.

Owns the order of one turn's claims. `add` takes a call's claims (resolved, one per key) and
returns its node; `predecessors[node]` are the nodes it must wait for. A node is a call or a
*join*, which stands for a whole set of earlier calls and takes no time. Joins keep the graph
linear: a claim that conflicts with a thousand readers gets one edge, and so does the next one.

Cost of a call: O(claims x (depth + modes below)), whatever came before.
Invariants: predecessors have smaller numbers; reachability equals the transitive closure of
pairwise conflicts; nothing is ever removed, since a join may not change once it was read.

Each place of the trie keeps the current *run* of claims made exactly there in one mode (a write is
a run of its own), the join of the run before it, and per mode the claims made anywhere below. A
write clears what is below it, since every later conflict there passes through it. A key that
nobody else came near has no places of its own: its claim hangs, alone, where it left known ground.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from dispatch.claims import TOOL, WRITE, Claim, Key

_Chain = list[int]
"""Calls that a later claim waits for together. Once one did, their join is in their place."""

_Lone = tuple[Key, str, int]
"""The only claim below some segment: its key, its mode and its call's node."""


class _Place:
    """A key that was claimed more than once, or that several claimed keys begin with."""

    __slots__ = ("before", "below", "children", "mode", "run")

    def __init__(self) -> None:
        self.children: dict[str, _Place | _Lone] = {}
        self.mode = ""
        self.run: _Chain = []
        self.before = -1
        self.below: dict[str, _Chain] = {}
        """The lists stay the same for ever, so that folders may keep them."""

    def open(self, lone: _Lone, depth: int) -> _Place:
        """Make a place of the child where this lone claim hangs; the place is `depth` deep."""
        lone_key, mode, node = lone
        place = self.children[lone_key[depth]] = _Place()
        if len(lone_key) == depth + 1:
            place.mode = mode
            place.run.append(node)
        else:
            place.children[lone_key[depth + 1]] = lone
            place.below[mode] = [node]
        return place

    def enter(self, node: int, mode: str) -> None:
        """The call claims this very key, and has waited for whatever it conflicts with here."""
        if self.mode == mode and mode != WRITE:
            self.run.append(node)
            return
        if self.run:
            self.before = self.run[0]
        self.mode = mode
        self.run = [node]
        if mode == WRITE:
            for chain in self.below.values():
                chain.clear()


class _Folder:
    """What claims below one place have in common: the places from the root to it, their chains."""

    __slots__ = ("chains", "children", "places")

    def __init__(self, places: Sequence[_Place], children: dict[str, _Place | _Lone]) -> None:
        self.places = places
        self.children = children
        self.chains: dict[str, list[_Chain]] = {}

    def chains_of(self, mode: str) -> list[_Chain]:
        """The chain of this mode below each of the places."""
        chains = [place.below.setdefault(mode, []) for place in self.places]
        self.chains[mode] = chains
        return chains


class ConflictIndex:
    """The conflict graph of a growing turn. Pure."""

    __slots__ = ("_folders", "_outside", "_root", "_shared", "_tools", "positions", "predecessors")

    def __init__(self) -> None:
        self._folders: dict[Key, _Folder] = {}
        self._shared = False
        """Whether some call has several claims, so that another may meet it twice."""
        self.predecessors: list[tuple[int, ...]] = []
        self.positions: list[int] = []
        """Per node: the position of its call, or -1 for a join."""

    def _plant(self) -> None:
        """Make both roots; a turn that claims nothing needs none."""
        root, tools = _Place(), _Place()
        self._root, self._outside = root, _Folder((), {})
        self._folders[()] = _Folder((root,), root.children)
        self._tools: dict[Key, _Folder] = {(): _Folder((tools,), tools.children)}

    def add(self, position: int, claims: Collection[Claim], after: Collection[int] = ()) -> int:
        """Enter the next call; the claims must name each key once.

        `after` are nodes that it waits for whatever it claims.
        """
        if not claims:
            self.predecessors.append(tuple(dict.fromkeys(after)) if after else ())
            self.positions.append(position)
            return len(self.positions) - 1
        if not self._folders:
            self._plant()
        waits = list(after) if after else []
        for key, mode in claims:
            known = self._folders.get(key[:-1]) if len(key) > 1 else None
            if known is None:
                folder, segment, place = self._find(key)
            else:  # what `_find` does for most keys, without the call
                folder, segment = known, key[-1]
                child = folder.children.get(segment)
                if isinstance(child, tuple):
                    child = folder.places[-1].open(child, len(key) - 1)
                place = child
            exclusive = mode == WRITE
            for above in folder.places:
                run = above.run
                if run:
                    if above.mode != mode or exclusive:
                        waits.append(run[0] if len(run) == 1 else self._join(run))
                    elif above.before >= 0:
                        waits.append(above.before)
            if place is not None:
                self._wait(place, mode, waits)
        if len(claims) > 1 or after:
            return self._enter_all(position, claims, waits)
        if len(waits) > 1 and self._shared:
            waits = list(dict.fromkeys(waits))
        node = len(self.positions)
        self.predecessors.append(tuple(waits))
        self.positions.append(position)
        if place is None:
            folder.children[segment] = key, mode, node
        else:
            place.enter(node, mode)
        for chain in folder.chains.get(mode) or folder.chains_of(mode):
            chain.append(node)
        return node

    def _enter_all(self, position: int, claims: Collection[Claim], waits: Iterable[int]) -> int:
        """Enter a call whose claims may lie near one another, and which may wait twice for one."""
        self._shared = True
        node = self._append(position, tuple(dict.fromkeys(waits)))
        for key, mode in claims:
            folder, segment, place = self._find(key)
            if place is None:
                folder.children[segment] = key, mode, node
            else:
                place.enter(node, mode)
            for chain in folder.chains.get(mode) or folder.chains_of(mode):
                if not chain or chain[-1] != node:
                    chain.append(node)
        return node

    def _append(self, position: int, predecessors: tuple[int, ...]) -> int:
        self.predecessors.append(predecessors)
        self.positions.append(position)
        return len(self.positions) - 1

    def touched_since(self, claims: Iterable[Claim], node: int) -> bool:
        """Whether a call that conflicts with these claims was entered after this one's node.

        The claims must be those that `node` was entered with. Nothing changes.
        """
        if not self._folders:
            return False
        return any(newest > node for claim in claims for newest in self._newest(claim))

    def _newest(self, claim: Claim) -> Iterator[int]:
        """Of each set of calls that conflict with the claim, the latest (or a join behind it)."""
        key, mode = claim
        folder, _, place = self._find(key)
        for on_the_way in (*folder.places, place):
            if on_the_way is not None and on_the_way.run:
                exclusive = on_the_way.mode != mode or mode == WRITE
                yield on_the_way.run[-1] if exclusive else on_the_way.before
        if place is not None:
            for other, chain in place.below.items():
                if chain and (other != mode or mode == WRITE):
                    yield chain[-1]

    def _wait(self, place: _Place, mode: str, waits: list[int]) -> None:
        """Add to `waits` what a claim of exactly this key waits for, here and below."""
        exclusive = mode == WRITE
        run = place.run
        if run:
            if place.mode != mode or exclusive:
                waits.append(run[0] if len(run) == 1 else self._join(run))
            elif place.before >= 0:
                waits.append(place.before)
        if place.below:
            for other, chain in place.below.items():
                if chain and (other != mode or exclusive):
                    waits.append(chain[0] if len(chain) == 1 else self._join(chain))

    def _join(self, chain: _Chain) -> int:
        """A new node that stands for all of these, in their place; it takes no time."""
        join = self._append(-1, tuple(chain))
        chain.clear()
        chain.append(join)
        return join

    def _find(self, key: Key) -> tuple[_Folder, str, _Place | None]:
        """The deepest folder above the key, the segment that leads on, and the key's own place.

        Without a place of its own nothing was claimed there or below, nor below that segment.
        """
        if not key:
            return self._outside, "", self._root
        folders = self._folders if key[0] != TOOL else self._tools
        folder = folders.get(key[:-1])
        if folder is None:
            folder = self._open(folders, key)
            segment = key[len(folder.places) - 1]
        else:
            segment = key[-1]
        child = folder.children.get(segment)
        if isinstance(child, tuple):
            child = folder.places[-1].open(child, len(key) - 1)
        return folder, segment, child

    def _open(self, folders: dict[Key, _Folder], key: Key) -> _Folder:
        """The deepest folder above a key whose parent has none yet."""
        places = list(folders[()].places)
        for depth in range(len(key) - 1):
            child = places[-1].children.get(key[depth])
            if child is None:
                break
            if isinstance(child, tuple):
                child = places[-1].open(child, depth)
            places.append(child)
        parent = key[: len(places) - 1]
        folder = folders.get(parent)
        if folder is None:
            folder = folders[parent] = _Folder(places, places[-1].children)
        return folder
