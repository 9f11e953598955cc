"""From results to what a provider's message says of each: pieces of text and images, in order.

Owns the budget: how many bytes one result, and all results of a turn, may take. Invariants: equal
results give equal answers, byte for byte; every answer has at least one piece that is not empty.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dispatch.adapters.budget import SHORT, Budget
from dispatch.adapters.names import PARALLEL, is_cut_off, wire_of
from dispatch.advice import advice
from dispatch.call import FailureKind, ToolCall, ToolResult
from dispatch.media import SHOWN, Image
from dispatch.render import render

Piece = str | Image
CUT_OFF = (
    "[error] the message was cut off before this call was complete. Nothing was done. Call it again"
    " with shorter arguments, or in several steps."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What answers one call on the wire."""

    id: str
    call: ToolCall
    ok: bool
    pieces: Sequence[Piece]

    @property
    def text(self) -> str:
        """All of it as text, with a description in place of each image."""
        return "\n".join(one if isinstance(one, str) else one.described for one in self.pieces)

    @property
    def images(self) -> list[Image]:
        """The images alone."""
        return [one for one in self.pieces if isinstance(one, Image)]

    @property
    def name(self) -> str:
        """The name by which the model called."""
        return PARALLEL if wire_of(self.call).is_part else self.call.name

    @property
    def given(self) -> str | None:
        """The id that the provider gave, None if it gave none."""
        return wire_of(self.call).given

    @property
    def custom(self) -> bool:
        """Whether the call was one of a custom tool, with free text for arguments."""
        return wire_of(self.call).custom


def answers(results: Iterable[ToolResult], budget: Budget | None) -> list[Answer]:
    """One answer per call of the message, in intent order, also when results come as they ended."""
    groups: dict[tuple[str, int | None], list[ToolResult]] = {}
    for result in sorted(results, key=lambda result: result.index):
        groups.setdefault(_wire_id(result), []).append(result)
    told = [_answer(group) for group in groups.values()]
    if budget is None:
        return told
    sizes = budget.shares([size(answer.pieces) for answer in told])
    return [
        Answer(one.id, one.call, one.ok, fitted(one.pieces, share, budget))
        for one, share in zip(told, sizes, strict=True)
    ]


def told(result: ToolResult) -> str:
    """The text for the model: the value, or what went wrong and what to do next."""
    if result.failure is None:
        return _not_blank(result.content())
    if result.failure.kind is FailureKind.INVALID_ARGUMENTS and is_cut_off(result.call):
        return CUT_OFF
    return f"{result.content()}\n{advice(result.status, result.failure)}"


def size(pieces: Iterable[Piece]) -> int:
    """Bytes that the pieces take in a message, an image as base64 and as its description."""
    return sum(map(_size, pieces), start=-1)


def encoded(image: Image) -> str:
    """The image as base64, as JSON carries it."""
    return base64.b64encode(image.data).decode()


def fitted(pieces: Sequence[Piece], allowed: int, budget: Budget) -> list[Piece]:
    """The pieces in so many bytes: texts are cut in the middle, images are left out whole.

    In place of all that does not even have room for a note stand the three characters of `SHORT`.
    """
    if size(pieces) <= allowed:
        return list(pieces)
    if len(pieces) == 1 and isinstance(pieces[0], str):
        return [budget.cut(pieces[0], allowed)]
    kept: list[Piece] = []
    room, is_whole = allowed - len(SHORT.encode()), True
    for piece in pieces:
        fitting = piece if _size(piece) <= room else _smaller(piece, room - 1, budget)
        if fitting is None:
            is_whole = False
            continue
        kept.append(fitting)
        room -= _size(fitting)
    return kept if is_whole else [*kept, SHORT]


def _size(piece: Piece) -> int:
    """Bytes of one of several pieces: its own, and the end of its line."""
    if isinstance(piece, str):
        return len(piece.encode()) + 1
    return (len(piece.data) + 2) // 3 * 4 + len(piece.described) + 1


def _smaller(piece: Piece, room: int, budget: Budget) -> str | None:
    """What is told of a piece that does not fit; None if there is no room for anything."""
    if isinstance(piece, str):
        cut = budget.cut(piece, room)
        return None if cut == SHORT else cut
    note = f"[left out: {piece.described[1:-1]}, which is over the limit]"
    return note if len(note) <= room else None


def _wire_id(result: ToolResult) -> tuple[str, int | None]:
    """Equal for results that are answered together, as parts of one call."""
    wire = wire_of(result.call)
    return wire.id, None if wire.is_part else result.index


def _answer(results: Sequence[ToolResult]) -> Answer:
    first = results[0]
    if not wire_of(first.call).is_part:
        return Answer(wire_of(first.call).id, first.call, first.ok, _pieces(first))
    pieces = [piece for result in results for piece in (f"{result.call.name}:", *_pieces(result))]
    ok = all(result.ok for result in results)
    return Answer(wire_of(first.call).id, first.call, ok, pieces)


def _pieces(result: ToolResult) -> list[Piece]:
    value = result.value
    shown = [value] if isinstance(value, Image) else value
    if result.failure is not None or not isinstance(shown, list | tuple):
        return [told(result)]
    if not any(isinstance(item, Image) for item in shown):
        return [told(result)]
    return [item if _is_shown(item) else _not_blank(render(item)) for item in shown]


def _is_shown(item: object) -> bool:
    """Whether it is an image of a kind that every provider takes; others are told as text."""
    return isinstance(item, Image) and item.media_type in SHOWN


def _not_blank(text: str) -> str:
    """The text, in quotes if it is nothing but blanks, which not every provider takes."""
    return json.dumps(text) if text.isspace() else text
