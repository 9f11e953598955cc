"""What a provider's wire is to the server, and to a test that needs no server.

A wire is a module: it knows its paths, refuses what its provider refuses, and makes of a step a
complete answer or the events of a stream. It knows nothing of HTTP and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tests.providers.script import JSON, Pause, Step, with_pauses


class Wire(Protocol):
    """What every wire module has."""

    CONTENT_TYPE: str
    """Of a stream."""
    END: bytes
    """What follows the last event of a stream."""

    def route(self, path: str) -> JSON | None:
        """What the path adds to the request (`model`, `stream`); None for another wire's path."""

    def authorised(self, headers: Mapping[str, str]) -> bool:
        """Whether the request carries a key."""

    def error(self, status: int, message: str) -> JSON:
        """An error body of this API."""

    def check(self, request: JSON) -> None:
        """Refuse what the API refuses."""

    def next_step(self, script: Sequence[Step], request: JSON) -> tuple[Step, int]:
        """Check the request; the step to play, and its place in the script."""

    def complete(self, step: Step, at: int, request: JSON) -> JSON:
        """The whole answer at once."""

    def stream(self, step: Step, at: int, request: JSON) -> Iterator[JSON | Pause]:
        """The events of the answer, and the pauses between them that belong to a call or the end.

        Raises `RefusedError` for a step that this format cannot say.
        """

    def frame(self, event: JSON) -> bytes:
        """How one event travels."""


def answer(wire: Wire, script: Sequence[Step], request: JSON) -> JSON:
    """The whole answer to a request. Raises `RefusedError` as the API would answer 400."""
    return wire.complete(*wire.next_step(script, request), request)


def pieces(wire: Wire, step: Step, at: int, request: JSON) -> list[JSON | Pause]:
    """The events of an answer, with every pause of the step."""
    return with_pauses(step, wire.stream(step, at, request))


def chunks(wire: Wire, step: Step, at: int = 0, **request: object) -> list[JSON]:
    """The raw events of a step's stream, for an assembler that is fed without a server or an SDK.

    `at` is the step's place in the script, which its ids are made of; more goes into the request.
    """
    written = wire.stream(step, at, {"model": "model", **request})
    return [piece for piece in written if not isinstance(piece, Pause)]
