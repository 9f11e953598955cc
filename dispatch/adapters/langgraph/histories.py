"""Histories of LangChain's messages: every call is answered once, right behind its message.

A run that was stopped leaves calls without results as soon as its thread goes on with something
new, and every provider refuses those. `Unheard` is what is still known of such calls, in memory.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from dispatch.adapters.answers import told
from dispatch.adapters.history import LOST, Asked
from dispatch.adapters.langgraph.outputs import Output, is_pause, messages_in, updates_of
from dispatch.adapters.names import Found, wire_of
from dispatch.adapters.repair import LEFT_OUT, Items
from dispatch.call import ToolResult

KEPT = 256
"""Messages whose calls are remembered."""
INVALID = (
    "[error] the arguments could not be read, so nothing was done."
    " Call it again with arguments that are a JSON object."
)
UNANSWERED = (
    "[cancelled] it waited for a human's answer, and the conversation went on without one."
    " What it does before it asks is done."
)
NEVER_STARTED = "[cancelled] never started: the run was stopped"
CALL_BLOCKS = frozenset({"tool_use", "function_call", "custom_tool_call", "tool_call"})
Known = Callable[[Asked], ToolMessage | None]


def close_open_calls(
    messages: Sequence[Any], known: Iterable[ToolMessage | ToolResult] = ()
) -> list[AnyMessage]:
    """The messages with exactly one `ToolMessage` for each call, right behind its `AIMessage`.

    A call without one is answered by the one of `known` with its id (the last, if there are
    several), else by one with status `error` that says that its result was lost. Those without a
    call are dropped, those at the wrong place put in the right one, and repeated ids told apart.
    Messages that are in order come back as they are, so that repairing them again changes nothing.
    `messages` itself is not changed. Raises `InputError` for no list.
    """
    by_id = {one.tool_call_id: one for one in map(_message, known)}
    return repaired(messages, lambda asked: by_id.get(asked.wire.id))


def repaired(messages: Sequence[Any], known: Known) -> list[AnyMessage]:
    """See `close_open_calls`; `known` finds what is known of a call."""
    if isinstance(messages, list | tuple):
        messages = convert_to_messages(messages)
    kept: list[AnyMessage] = HISTORY.repair(messages, lambda asked: _answer(asked, known(asked)))
    first = _first(kept)
    if isinstance(_said(messages), ToolMessage) and isinstance(_said(kept), AIMessage):
        kept.insert(first, HumanMessage(LEFT_OUT))  # some providers take no other beginning
    return kept


class Unheard:
    """What calls gave of which the model may never have heard. Threads are told apart."""

    def __init__(self) -> None:
        self._by_message: OrderedDict[object, dict[int, ToolMessage]] = OrderedDict()

    def note(
        self, thread: object, message: AIMessage | None, position: int, result: ToolResult
    ) -> None:
        """Keep what is known of the call at this position of the message."""
        if message is None or message.id is None:
            return
        call = message.tool_calls[position]
        answer = told_of(result, call) or _error(LOST, call["name"], call["id"])
        self._of(thread, message)[position] = answer

    def came(self, thread: object, message: AIMessage | None) -> None:
        """Calls of this message have come: of those that `began` says nothing of, none has run."""
        if message is not None and message.id is not None:
            self._of(thread, message)

    def began(self, thread: object, message: AIMessage | None, position: int) -> None:
        """The call runs."""
        if message is not None and message.id is not None:
            call = message.tool_calls[position]
            self._of(thread, message)[position] = _error(LOST, call["name"], call["id"])

    def note_all(
        self,
        thread: object,
        message: AIMessage | None,
        known: Mapping[int, ToolResult | Output],
    ) -> None:
        """Keep this of the calls at these positions; the others have not run."""
        self.came(thread, message)
        for position, one in known.items():
            if isinstance(one, ToolResult):
                self.note(thread, message, position, one)
            elif message is not None and message.id is not None and (answer := answer_in(one)):
                self._of(thread, message)[position] = answer

    def close(
        self, thread: object, messages: Sequence[Any], state: Sequence[Any] = ()
    ) -> list[AnyMessage]:
        """The messages in order, and what is known of their calls told.

        What stands in the messages already is not kept any longer. `state` are the messages that
        these were taken from, if they were: what those say of a call is known, too.
        """
        known = self._known(thread, messages)
        elsewhere = _once(one for one in state if isinstance(one, ToolMessage))
        return repaired(
            messages,
            lambda asked: known.get(_key_of(asked)) or elsewhere.get(asked.wire.given or ""),
        )

    def _known(self, thread: object, messages: Sequence[Any]) -> dict[str, ToolMessage]:
        known: dict[str, ToolMessage] = {}
        answered = {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
        for message in messages:
            place = (thread, getattr(message, "id", None))
            if not isinstance(message, AIMessage) or place not in self._by_message:
                continue
            given = self._by_message[place]
            for position, call in enumerate(message.tool_calls):
                answer = given.get(position) or _error(NEVER_STARTED, call["name"], call["id"])
                known[_key(call["id"], call["name"], call["args"])] = answer
            if answered.issuperset(call["id"] for call in message.tool_calls):
                self._by_message.pop(place, None)
        return known

    def _of(self, thread: object, message: AIMessage) -> dict[int, ToolMessage]:
        found = self._by_message.setdefault((thread, message.id), {})
        while len(self._by_message) > KEPT:
            self._by_message.popitem(last=False)
        return found


def told_of(result: ToolResult, asked: Mapping[str, Any]) -> ToolMessage | None:
    """What the model is told of the call; None if that would not be true of the state."""
    if result.ok and result.attempts:
        return answer_in(result.value)
    output = getattr(result.exception, "output", None)
    if isinstance(output, ToolMessage):
        return output
    text = UNANSWERED if is_pause(result.exception) else told(result)
    return _error(text, asked["name"], asked["id"])


def answer_in(output: Output) -> ToolMessage | None:
    """The answer in an output; None if there is more in it, which a repair cannot bring back."""
    messages = messages_in(output)
    updates = updates_of(output)
    more = any(isinstance(one, Mapping) and len(one) > 1 for one in updates)
    answers = [one for one in messages if isinstance(one, ToolMessage)]
    return answers[0] if len(messages) == len(answers) == 1 and not more else None


def _once(answers: Iterable[ToolMessage]) -> dict[str, ToolMessage]:
    """By their ids, those whose id no other has."""
    found: dict[str, list[ToolMessage]] = {}
    for one in answers:
        found.setdefault(one.tool_call_id, []).append(one)
    return {call_id: those[0] for call_id, those in found.items() if len(those) == 1}


def is_same(messages: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether these are the very same messages."""
    return len(messages) == len(others) and all(map(operator.is_, messages, others))


def asking(state: Any, messages_key: str = "messages") -> AIMessage | None:
    """The last message of the model in this state."""
    if not isinstance(state, list):
        mapping = isinstance(state, Mapping)
        state = state.get(messages_key) if mapping else getattr(state, messages_key, None)
    return next((one for one in reversed(state or ()) if isinstance(one, AIMessage)), None)


def thread_of(runtime: Any) -> object:
    """The thread of a run; None if it has none."""
    return getattr(getattr(runtime, "execution_info", None), "thread_id", None)


def _message(known: ToolMessage | ToolResult) -> ToolMessage:
    if isinstance(known, ToolMessage):
        return known
    wire = wire_of(known.call)
    status = "success" if known.ok else "error"
    return ToolMessage(told(known), name=known.call.name, tool_call_id=wire.id, status=status)


def _answer(asked: Asked, known: ToolMessage | None) -> ToolMessage:
    call_id = asked.wire.id
    if known is not None:
        return known.model_copy(update={"tool_call_id": call_id})
    return _error(INVALID if asked.call.arguments == _UNREAD else LOST, asked.call.name, call_id)


def _error(text: str, name: str, call_id: str | None) -> ToolMessage:
    return ToolMessage(text, name=name, tool_call_id=call_id or "", status="error")


def _key(call_id: str | None, name: str, arguments: object) -> str:
    return repr((call_id or "", name, arguments))


def _key_of(asked: Asked) -> str:
    return _key(asked.wire.given, asked.call.name, asked.call.arguments)


def _first(messages: Sequence[Any]) -> int:
    """Where the first message stands that is none of the system's."""
    at = [place for place, one in enumerate(messages) if not isinstance(one, SystemMessage)]
    return at[0] if at else len(messages)


def _said(messages: Sequence[Any]) -> Any:
    return next(iter(messages[_first(messages) :]), None)


_UNREAD = "\x00"
"""In place of arguments that LangChain could not read: no model writes this."""


def _calls(message: object) -> list[Found]:
    if not isinstance(message, AIMessage):
        return []
    read = [Found(one["id"], one["name"], one["args"]) for one in message.tool_calls]
    unread = message.invalid_tool_calls
    return [*read, *(Found(one["id"], one["name"] or "", _UNREAD) for one in unread)]


def _with_ids(message: AIMessage, ids: Sequence[str]) -> AIMessage:
    """The message with these ids, in its calls and where its content repeats them."""
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    new: list[Any] = [{**one, "id": call_id} for one, call_id in zip(calls, ids, strict=True)]
    count = len(message.tool_calls)
    update = {"tool_calls": new[:count], "invalid_tool_calls": new[count:]}
    if isinstance(message.content, list):
        given = [(one["id"], call_id) for one, call_id in zip(calls, ids, strict=True)]
        update["content"] = [_renamed(block, given) for block in message.content]
    return message.model_copy(update=update)


def _renamed(block: Any, given: list[tuple[str | None, str]]) -> Any:
    """The block with the id that the next call of its id has got; takes that from `given`."""
    if not isinstance(block, dict) or block.get("type") not in CALL_BLOCKS:
        return block
    name = "call_id" if "call_id" in block else "id"
    for at, (before, after) in enumerate(given):
        if (before or "") == (block.get(name) or ""):
            del given[at]
            return {**block, name: after}
    return block


HISTORY = Items(
    calls=_calls,
    key=lambda message: message.tool_call_id if isinstance(message, ToolMessage) else None,
    with_ids=_with_ids,
    with_id=lambda message, call_id: message.model_copy(update={"tool_call_id": call_id}),
    adjacent=True,
)
