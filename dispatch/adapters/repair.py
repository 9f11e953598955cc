"""Repairing histories: every call is answered once, and nothing that was not called.

Two forms: `Blocks` for providers whose messages have lists of blocks, `Items` for flat histories.
Invariants: a history that is in order comes back equal; repairing twice is repairing once; whatever
is no call and no result stays, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dispatch.adapters.history import (
    Asked,
    MakeResult,
    Pairing,
    are_named,
    by_result,
    fields_of,
    ids,
)
from dispatch.adapters.names import Found
from dispatch.adapters.wire import field, items

LEFT_OUT = "[Earlier messages were left out.]"
LISTENERS = frozenset({"user", "system", "developer"})


@dataclass(frozen=True, slots=True)
class Blocks:
    """A provider that wants the results at the start of the message behind the calls.

    `call` and `key` read a block (`key` is the id that a result answers), `said` makes a block of
    text, `with_id` sets the id of a call or a result, None for none. `mirrored`: the results must
    stand in the order of their calls and have the ids that these came with, which are left alone.
    """

    content: str
    assistant: str
    call: Callable[[object], Found | None]
    key: Callable[[object], str | None]
    said: Callable[[str], Any]
    with_id: Callable[[Any, str | None], Any]
    mirrored: bool = False

    def ids(self, messages: Sequence[Any]) -> set[str]:
        """The ids of all calls in this history."""
        pairing = Pairing()
        for message in messages:
            pairing.asked(self._calls(message))
        return pairing.taken

    def repair(self, messages: Sequence[Any], result: MakeResult) -> list[Any]:
        """The history in order; `result` makes the block for a call that has none."""
        messages = items(messages, "messages", "a list of messages")
        pairing, asked = Pairing(), dict[int, list[Asked]]()
        for place, message in enumerate(messages):
            if field(message, "role") == self.assistant:
                asked[place] = pairing.asked(self._calls(message))
                continue
            for block in self._blocks(message):
                if (key := self.key(block)) is not None:
                    pairing.answered(key, block)
        repaired = _Joined(self)
        due: list[Any] = []
        for place, message in enumerate(messages):
            if field(message, "role") != "user":
                repaired.answer(due)
                due = []
            if place in asked:
                repaired.add(self._with_ids(message, asked[place]))
                calls = asked[place] if self.mirrored else by_result(asked[place])
                due = [self._result(one, result) for one in calls]
            else:
                answering = self._answering(message, due)
                repaired.add(answering, lost=answering is not message)
                due = []
        repaired.answer(due)
        return repaired.messages

    def _calls(self, message: object) -> list[Found]:
        return [call for call in map(self.call, self._blocks(message)) if call is not None]

    def _blocks(self, message: object) -> Sequence[Any]:
        content = field(message, self.content)
        if isinstance(content, str):
            return [self.said(content)]
        return content if isinstance(content, list | tuple) else ()

    def _answering(self, message: Any, due: Sequence[Any]) -> Any:
        """The message with these results in place of its own; None if nothing is left of it."""
        blocks = self._blocks(message)
        wanted = [*due, *(block for block in blocks if self.key(block) is None)]
        if wanted == list(blocks):
            return message
        return {**fields_of(message), self.content: wanted} if wanted else None

    def _result(self, asked: Asked, result: MakeResult) -> Any:
        if not asked.place:
            return result(asked)
        return self.with_id(asked.result, asked.wire.given if self.mirrored else asked.wire.id)

    def _with_ids(self, message: Any, asked: Sequence[Asked]) -> Any:
        if self.mirrored or are_named(asked):
            return message
        wanted = iter(ids(asked))
        blocks = [
            block if self.call(block) is None else self.with_id(block, next(wanted))
            for block in self._blocks(message)
        ]
        return {**fields_of(message), self.content: blocks}

    def joined(self, first: Any, second: Any) -> Any:
        """Two messages of one role as one."""
        blocks = [*self._blocks(first), *self._blocks(second)]
        return {**fields_of(first), self.content: blocks}


class _Joined:
    """The repaired messages.

    Where results without a call have left, what they stood between can be two messages of one role,
    which become one; or the beginning, which must not be the assistant's.
    """

    def __init__(self, form: Blocks) -> None:
        self.messages: list[Any] = []
        self._form = form
        self._gap = False

    def add(self, message: Any, *, lost: bool = False) -> None:
        """Add a message, None for one of which nothing is left; `lost` if it has lost results."""
        self._gap = self._gap or lost
        if message is None:
            return
        role = field(message, "role")
        if self._gap and not self.messages and role == self._form.assistant:
            self.messages.append({"role": "user", self._form.content: [self._form.said(LEFT_OUT)]})
        if self._gap and self.messages and field(self.messages[-1], "role") == role:
            self.messages[-1] = self._form.joined(self.messages[-1], message)
        else:
            self.messages.append(message)
        self._gap = False

    def answer(self, results: Sequence[Any]) -> None:
        """Add a message of results alone, if there are any."""
        if results:
            self.add({"role": "user", self._form.content: list(results)})


@dataclass(frozen=True, slots=True)
class Items:
    """A provider whose history is flat: calls in some items, each result an item of its own.

    `calls` and `key` read an item; `with_ids` sets the ids of an item's calls, `with_id` that of a
    result. `adjacent`: the results must follow their calls. Otherwise they may come any time later,
    and all that the model said in between is one message.
    """

    calls: Callable[[object], Sequence[Found]]
    key: Callable[[object], str | None]
    with_ids: Callable[[Any, Sequence[str]], Any]
    with_id: Callable[[Any, str], Any]
    adjacent: bool

    def ids(self, history: Sequence[Any]) -> set[str]:
        """The ids of all calls in this history."""
        return self._read(history)[0].taken

    def repair(self, history: Sequence[Any], result: MakeResult) -> list[Any]:
        """The history in order; `result` makes the item for a call that has none."""
        history = items(history, "messages", "a list of messages")
        _, asked, owners = self._read(history)
        repaired: list[Any] = []
        due: list[Asked] = []
        for place, item in enumerate(history):
            is_call, is_result = place in asked, self.key(item) is not None
            if is_result and (self.adjacent or place not in owners):
                continue  # it goes, or is told behind its calls
            if self._ends(item):
                repaired += self._closed(due, result)
            if is_call:
                repaired.append(self._with_ids(item, asked[place]))
                due += by_result(asked[place])
            else:
                repaired.append(self._result(owners[place], result) if is_result else item)
        return [*repaired, *self._closed(due, result)]

    def _read(
        self, history: Sequence[Any]
    ) -> tuple[Pairing, dict[int, list[Asked]], dict[int, Asked]]:
        """The calls of the items that have some, and the calls that the others answer."""
        pairing, asked, owners = Pairing(), dict[int, list[Asked]](), dict[int, Asked]()
        goes_on = False
        for place, item in enumerate(history):
            goes_on = goes_on and not self._ends(item)
            if found := self.calls(item):
                asked[place] = pairing.asked(found, goes_on=goes_on)
                goes_on = True
            elif (key := self.key(item)) is not None:
                owner = pairing.answered(key, item)
                if owner is not None:
                    owners[place] = owner
        return pairing, asked, owners

    def _ends(self, item: object) -> bool:
        """Whether what the model said last is over with this item."""
        return self.adjacent or self.key(item) is not None or field(item, "role") in LISTENERS

    def _closed(self, due: list[Asked], result: MakeResult) -> Iterator[Any]:
        """What must stand behind these calls, which are done with then."""
        for asked in due:
            if self.adjacent or not asked.place:
                yield self._result(asked, result)
        due.clear()

    def _with_ids(self, item: Any, asked: Sequence[Asked]) -> Any:
        return item if are_named(asked) else self.with_ids(item, ids(asked))

    def _result(self, asked: Asked, result: MakeResult) -> Any:
        if not asked.place:
            return result(asked)
        wanted = asked.wire.id
        if self.key(asked.result) == wanted:
            return asked.result
        return self.with_id(asked.result, wanted)
