"""What a call must know of the calls of its turn that it stands behind.

A call that conflicts with one before it sees the state as that one left it, and does not run while
that one waits for a human: else the order of the turn would depend on who answers when. Calls that
do not conflict see the state as the model saw it, so nothing depends on who is quicker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import reduce
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph._internal._constants import CONFIG_KEY_READ
from langgraph.errors import GraphInterrupt
from langgraph.graph.message import add_messages
from pydantic import BaseModel

from dispatch.adapters.langgraph.outputs import Output, updates_of
from dispatch.call import ToolCall
from dispatch.core.schedules import Schedule
from dispatch.runtime.dispatcher import Dispatcher


class Earlier:
    """The calls of one turn as they come, their outputs and their pauses, by position."""

    def __init__(self, dispatcher: Dispatcher, messages_key: str) -> None:
        self._dispatcher = dispatcher
        self._messages_key = messages_key
        self.done: dict[int, Output] = {}
        self._calls: dict[int, ToolCall] = {}
        self._edges: Mapping[int, list[int]] | None = None
        self._writes = False
        self._paused: set[int] = set()

    def arrived(self, position: int, call: ToolCall) -> None:
        """The call has come, perhaps again, with the arguments that its claims are made of."""
        self._calls[position] = call
        self.done.pop(position, None)
        self._edges = None

    def ended(self, position: int, output: Output) -> None:
        """The call has its output."""
        self.done[position] = output
        self._writes = self._writes or bool(updates_of(output))

    def all_told(self) -> None:
        """All have been told what they gave: keep no more of it than changes the state."""
        self.done = {at: output for at, output in self.done.items() if updates_of(output)}

    def paused(self, position: int) -> None:
        """The call waits for a human, or failed in a way that ends the run."""
        self._paused.add(position)

    def enter(self, position: int, state: Any, config: RunnableConfig) -> Any:
        """The state that the call sees. Raises `GraphInterrupt` if it must wait: it stays open."""
        self._paused.discard(position)
        if not (self._writes or self._paused):
            return state
        before = self._before(position)
        if not self._paused.isdisjoint(before):
            raise GraphInterrupt(())
        done = [self.done[at] for at in sorted(before) if at in self.done]
        updates = [update for output in done for update in updates_of(output)]
        return updated(state, updates, config, self._messages_key) if updates else state

    def _before(self, position: int) -> set[int]:
        """The positions of all calls that this one stands behind."""
        if self._dispatcher.schedule is Schedule.SERIAL:
            return set(range(position))
        found: set[int] = set()
        stack = [position]
        while stack:
            for before in self._predecessors.get(stack.pop(), ()):
                if before not in found:
                    found.add(before)
                    stack.append(before)
        return {at for at in found if at >= 0}  # the others are joins

    @property
    def _predecessors(self) -> Mapping[int, list[int]]:
        """By position, what each of the calls that have come stands behind directly."""
        if self._edges is None:
            positions = sorted(self._calls)
            edges: dict[int, list[int]] = {}
            for edge in self._dispatcher.plan([self._calls[at] for at in positions]).edges:
                before, after = (
                    positions[node] if node < len(positions) else -node
                    for node in (edge.before, edge.after)
                )
                edges.setdefault(after, []).append(before)
            self._edges = edges
        return self._edges


def updated(state: Any, updates: Sequence[Any], config: RunnableConfig, messages_key: str) -> Any:
    """The state after these updates of `Command`s, merged by the reducers of the graph."""
    written: dict[str, list[Any]] = {}
    for update in updates:
        for key, value in _pairs(update, messages_key):
            written.setdefault(key, []).append(value)
    channels = _channels(config)
    if isinstance(state, list):
        merged = _merged({messages_key: state}, written, channels, messages_key)
        return merged.get(messages_key, state)
    if isinstance(state, Mapping):
        return {**state, **_merged(state, written, channels, messages_key)}
    known = {key: values for key, values in written.items() if hasattr(state, key)}
    merged = _merged({key: getattr(state, key) for key in known}, known, channels, messages_key)
    if isinstance(state, BaseModel):
        return state.model_copy(update=merged)
    return replace(state, **merged) if is_dataclass(state) else state  # type: ignore[type-var]


def _pairs(update: Any, messages_key: str) -> Iterable[tuple[str, Any]]:
    if isinstance(update, Mapping):
        return update.items()
    return [(messages_key, update)] if isinstance(update, list) else []


def _merged(
    state: Mapping[str, Any],
    written: Mapping[str, list[Any]],
    channels: Mapping[str, Any],
    messages_key: str,
) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key, values in written.items():
        if key in channels:
            channel = channels[key].copy()
            for value in values:
                channel.update([value])
            merged[key] = channel.get()
        elif key == messages_key:
            merged[key] = reduce(add_messages, values, state.get(key) or [])
        else:
            merged[key] = values[-1]
    return merged


def _channels(config: RunnableConfig) -> Mapping[str, Any]:
    """The channels of the graph, which hold the state and know how it is merged.

    A node is told of them by no public means. `ToolNode` finds them where this does: behind the
    function that reads the state. Without them messages are added and all else is replaced.
    """
    read = config.get("configurable", {}).get(CONFIG_KEY_READ)
    arguments: tuple[Any, ...] = getattr(read, "args", ())
    return arguments[1] if len(arguments) > 1 else {}
