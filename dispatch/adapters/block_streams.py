"""Streams that write one block after the other, and say of each where it starts and stops.

A call whose block has stopped is complete, unless its arguments are no object by then: that may be
a call without any, or one that was broken off, and what comes next tells which.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from dispatch.adapters.names import Found
from dispatch.adapters.streams import Draft, InOrder, Stream, input_of
from dispatch.call import ToolCall
from dispatch.errors import InputError


@dataclass(slots=True, eq=False)
class Block:
    """A block as it was started, and what came after of its fields.

    A call has a draft; what it turned out to be once it is complete; and an id once it came out.
    """

    started: dict[str, Any]
    draft: Draft | None = None
    found: Found | None = None
    id: str | None = None
    texts: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, piece: str) -> None:
        """More text of a field."""
        self.texts[name] = self.texts.get(name, "") + piece

    @property
    def input(self) -> dict[str, Any]:
        """The arguments of the call, for the history."""
        return {} if self.draft is None else input_of(self.draft.arguments)


class BlockStream(Stream):
    """What a provider's own stream calls as its events come; `index` counts all blocks."""

    def __init__(self, taken: Set[str] = frozenset()) -> None:
        super().__init__(taken)
        self._blocks: list[Block] = []
        self._open: dict[object, Block] = {}
        """Those that are being written, by the index that the provider has for them."""
        self._unsure: Block | None = None
        """The call that has stopped with arguments that are no object."""
        self._order = InOrder[Block]()

    @abstractmethod
    def _written(self, block: Block) -> dict[str, Any]:
        """The block for the history, empty if it has no place there."""

    def _content(self) -> list[dict[str, Any]]:
        """The blocks for the history; those of calls once they came out."""
        told = [one for one in self._blocks if one.draft is None or one.id is not None]
        return [written for written in map(self._written, told) if written]

    def _start(
        self, index: object, started: dict[str, Any], draft: Draft | None = None
    ) -> list[ToolCall]:
        calls = self._go_on()
        block = Block(started, draft)
        self._blocks.append(block)
        self._open[index] = block
        if draft is not None:
            self._order.begin(block)
        return calls

    def _at(self, index: object) -> Block:
        """The block of this index that is being written."""
        if index not in self._open:
            raise InputError(f"a piece came of block {index!r}, which has not started")
        return self._open[index]

    def _stop(self, index: object) -> list[ToolCall]:
        """A block is written to its end."""
        calls = self._go_on()
        block = self._open.pop(index, None)
        if block is None or block.draft is None:
            return calls
        if block.draft.is_whole:
            return [*calls, *self._finish(block)]
        self._unsure = block
        return calls

    def _go_on(self) -> list[ToolCall]:
        """The message goes on, so that the last block was not broken off."""
        block, self._unsure = self._unsure, None
        return [] if block is None else self._finish(block)

    def _end(self, *, cut_off: bool) -> list[ToolCall]:
        """The message is written to its end, or was broken off by a limit."""
        self._complete = True
        calls = [] if cut_off else self._go_on()
        for block in self._blocks:
            if block.draft is not None and block.found is None:
                calls += self._finish(block, cut_off=True)
        return calls

    def _finish(self, block: Block, *, cut_off: bool = False) -> list[ToolCall]:
        if block.draft is not None:
            block.found = block.draft.found(cut_off=cut_off)
        return [call for next_one in self._order.finish(block) for call in self._out(next_one)]

    def _out(self, block: Block) -> list[ToolCall]:
        if block.found is None:
            return []
        block.id, calls = self._named(block.found)
        return calls
