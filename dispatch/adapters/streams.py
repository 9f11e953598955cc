"""From the events of a stream to calls, each as soon as the provider says that it is complete.

Owns the drafts of calls that are being written, and the way of a whole stream through a turn. What
the events of a provider mean stands in its own module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Hashable, Iterable, Mapping, Set
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

from pydantic_core import from_json

from dispatch.adapters.names import Found, Names, wire_of
from dispatch.adapters.wire import described, field
from dispatch.call import ToolCall
from dispatch.errors import InputError, StreamBroken
from dispatch.render import preview, render
from dispatch.runtime.dispatcher import Dispatcher
from dispatch.runtime.options import TurnOptions
from dispatch.runtime.result import TurnResult
from dispatch.runtime.threads import WorkerPool, run_apart

Key = TypeVar("Key", bound=Hashable)
FORM_ERRORS = (AttributeError, IndexError, KeyError, TypeError)
"""What reading an event raises that does not have the form that it should."""


class Draft:
    """A call as it is being written."""

    def __init__(self, call_id: object, name: str, *, custom: bool = False) -> None:
        self.id = call_id
        self.name = name
        self.custom = custom
        self.more: dict[str, Any] = {}
        """What else its message says of it, for the history."""
        self._object: Mapping[str, Any] | None = None
        self._pieces: list[str] = []
        self._each_named = True

    def add(self, piece: object, *, named: bool = False) -> None:
        """Take the next piece; `named` if the call's id came with it."""
        if isinstance(piece, Mapping):
            self._object = piece
        elif isinstance(piece, str) and piece:
            self._each_named = self._each_named and named
            self._pieces.append(piece)

    @property
    def arguments(self) -> Mapping[str, Any] | str:
        """What there is by now: an object, or the text of one."""
        if self._object is not None:
            return self._object
        whole = "".join(self._pieces)
        if self._pieces and self._grows and as_object(whole) is None:
            return self._pieces[-1]
        return whole

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object by now."""
        return self._object is not None or as_object(str(self.arguments)) is not None

    def continues(self, piece: object) -> bool:
        """Whether this piece tells all that is there once more, and maybe some more."""
        if isinstance(piece, Mapping):
            return self._object is not None and self._object.items() <= piece.items()
        return isinstance(piece, str) and piece.startswith("".join(self._pieces[-1:]))

    def found(self, *, cut_off: bool = False) -> Found:
        """The call, for what it is."""
        cut_off = cut_off and (self.custom or not self.is_whole)
        return Found(self.id, self.name, self.arguments, self.custom, cut_off=cut_off)

    @property
    def _grows(self) -> bool:
        """Whether each piece tells all that the one before it did: a snapshot, no fragment."""
        pairs = zip(self._pieces, self._pieces[1:], strict=False)
        return self._each_named and all(after.startswith(before) for before, after in pairs)


class InOrder(Generic[Key]):
    """Calls that may be finished in another order than they were begun, given out as begun."""

    def __init__(self) -> None:
        self._begun: list[Key] = []
        self._finished: set[Key] = set()

    def begin(self, key: Key) -> None:
        """A call begins."""
        self._begun.append(key)

    def finish(self, key: Key) -> list[Key]:
        """A call is complete: those that are next in order by it."""
        self._finished.add(key)
        given: list[Key] = []
        while self._begun and self._begun[0] in self._finished:
            given.append(self._begun.pop(0))
        return given

    def rest(self) -> list[Key]:
        """Those that are complete; none of the others will be any more."""
        given = [key for key in self._begun if key in self._finished]
        self._begun.clear()
        return given


class Stream(ABC):
    """One streamed message: feed it the events, get the calls. Made by a provider's `stream()`.

    A call comes out when the provider says that it is complete, in intent order, and once. Events
    may be the SDK's objects or dictionaries; kinds that are not known are nothing. Where several
    answers are streamed side by side, it reads the first.
    """

    def __init__(self, taken: Set[str] = frozenset()) -> None:
        self._names = Names(taken)
        self._complete = False

    def feed(self, event: object) -> list[ToolCall]:
        """Take the next event and return the calls that are complete by it.

        Raises `StreamBroken` where the provider says that it cannot go on, and `InputError` for
        what does not have the form of its events.
        """
        if event is None or isinstance(event, str | bytes | int | float | list | tuple):
            raise InputError(f"an event of a stream must be an object, not {described(event)}")
        if (error := self._error(event)) is not None:
            raise StreamBroken(f"the provider broke the stream off: {preview(render(error))}")
        try:
            return self._feed(event)
        except FORM_ERRORS as error:
            shown = preview(render(event))
            raise InputError(f"an event has not the form it should ({error}): {shown}") from error

    @abstractmethod
    def _feed(self, event: object) -> list[ToolCall]:
        """Take an event that is an object. May raise any of `FORM_ERRORS`."""

    @property
    @abstractmethod
    def message(self) -> Any:
        """The assistant's message by now, to append to the history before the reply."""

    def close(self) -> None:
        """Say that no event will come. Raises `StreamBroken` if the message was not complete."""
        if not self._complete:
            raise StreamBroken("the stream ended before the message was complete; ask again")

    async def run(
        self,
        dispatcher: Dispatcher,
        events: AsyncIterable[Any] | Iterable[Any],
        **options: Unpack[TurnOptions],
    ) -> TurnResult:
        """Run each call as it completes, while the model still writes; return the turn.

        If the stream breaks, calls that run finish, the others never start, and what broke it is
        raised with the `TurnResult` as its `turn`: pass that as `resume=` with the next attempt, so
        that nothing runs twice. Plain iterators are read in a worker thread. Cancelling stops the
        turn, as `Dispatcher.run` does.
        """
        async with dispatcher.turn(**options) as turn:
            try:
                async with aclosing(_each(events)) as arriving:
                    async for event in arriving:
                        for call in self.feed(event):
                            turn.submit(call)
                self.close()
            except Exception as error:
                turn.withdraw("the model's stream broke")
                error.turn = await turn.finish()  # type: ignore[attr-defined]
                raise
            return await turn.finish()

    def _error(self, event: object) -> object:
        """What went wrong, if the provider says so in place of an event."""
        error = field(event, "error")
        return event if error is None and field(event, "type") == "error" else error

    def _named(self, found: Found) -> tuple[str, list[ToolCall]]:
        """The id on the wire of the next call that comes out, and what that calls."""
        calls = self._names.calls(found)
        return wire_of(calls[0]).id, calls


def as_object(text: str) -> dict[str, Any] | None:
    """The JSON object that the text is, None if it is none."""
    try:
        value = from_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def input_of(arguments: object) -> dict[str, Any]:
    """Arguments as an object for the history; an empty one where they are none."""
    if isinstance(arguments, str):
        return as_object(arguments) or {}
    return dict(arguments) if isinstance(arguments, Mapping) else {}


async def _each(events: AsyncIterable[Any] | Iterable[Any]) -> AsyncGenerator[Any, None]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
        return
    iterator, end, pool = iter(events), object(), WorkerPool("dispatch-stream")
    try:
        while True:
            read = partial(copy_context().run, next, iterator, end)
            event = await run_apart(pool, read)
            if event is end:
                return
            yield event
    finally:
        pool.close()
