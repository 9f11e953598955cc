"""What every provider's adapter can do; what its messages look like stands in its own module.

An adapter has no state but its settings, and needs no SDK: it reads dictionaries and SDK objects
alike and returns plain dictionaries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from dispatch.adapters.answers import Answer, answers
from dispatch.adapters.budget import Budget
from dispatch.adapters.history import Known
from dispatch.adapters.names import Found, named
from dispatch.adapters.repair import Blocks, Items
from dispatch.adapters.streams import Stream
from dispatch.adapters.wire import Tools
from dispatch.call import ToolCall, ToolResult

Message = TypeVar("Message")
Reply = TypeVar("Reply")
DEFAULT_BUDGET = Budget()


class Provider(ABC, Generic[Message, Reply]):
    """Reads the calls of one provider's messages, answers them, and mends its histories.

    Args:
        budget: How many bytes the results of a turn may take in a reply; None is no limit.
    """

    def __init__(self, *, budget: Budget | None = DEFAULT_BUDGET) -> None:
        self.budget = budget

    def calls(self, message: object, messages: Sequence[Any] = ()) -> list[ToolCall]:
        """Read the calls of an assistant message, in intent order; arguments are not looked at.

        Ids that are blank, or repeated in the message or in the history before it (`messages`), are
        replaced, always by the same ones. Raises `InputError` for what is no message of this form.
        """
        return list(named(self._found(message), self._form.ids(messages)))

    @abstractmethod
    def message(self, message: object, messages: Sequence[Any] = ()) -> Message:
        """Make what to append to the history before the reply, each call with the id it got.

        Takes what `calls` takes. Only a message whose ids are blank or repeated needs this: the
        provider matches the results of `reply` by the ids that it finds in the history.
        """

    def reply(self, turn: Iterable[ToolResult]) -> Reply:
        """Make what answers all calls of the message, in intent order.

        Takes a `TurnResult` or any results. Equal results give an equal reply, byte for byte. What
        a tool has returned becomes text, and a `dispatch.Image`, alone or in a list, the provider's
        image. Longer results than the budget allows are cut, and say so.
        """
        return self._reply(answers(turn, self.budget))

    def close_open_calls(
        self, messages: Sequence[Any], known: Iterable[ToolResult] = ()
    ) -> list[Any]:
        """The history with exactly one result for each call, wherever it was broken.

        A call without a result is answered by the one of `known` with its id (a turn's results, or
        its `snapshot()`), which tells what became of it; else by a result that says that its own
        was lost. Results without a call are dropped, those at the wrong place put in the right one,
        repeated ids told apart. A history that is in order comes back equal, so that repairing it
        again changes nothing. `messages` is not changed. Raises `InputError` for no list.
        """
        results = Known(known, self.budget)
        return self._form.repair(messages, lambda asked: self._result(results.answer(asked)))

    @abstractmethod
    def tools(self, toolbox: Tools) -> Any:
        """Make the tool definitions for a request, in the toolbox's order.

        Takes a toolbox, a dispatcher, or a list of tools.
        """

    @abstractmethod
    def stream(self, messages: Sequence[Any] = ()) -> Stream:
        """A reader for one streamed message that follows this history. See `Stream`."""

    @property
    @abstractmethod
    def _form(self) -> Blocks | Items:
        """What a history looks like."""

    @abstractmethod
    def _found(self, message: object) -> list[Found]:
        """The calls of a message."""

    @abstractmethod
    def _reply(self, told: Sequence[Answer]) -> Reply:
        """The reply that says this."""

    @abstractmethod
    def _result(self, answer: Answer) -> Any:
        """The block or item that answers one call."""
