"""What the model says in a test: steps, chosen by how far the conversation in the request has come.

Nothing is counted on the side, so any number of loops can play one script at once. A step also says
how its stream is written: where it is cut, where it pauses, where it breaks, and which habit of a
provider's imitators it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, zip_longest
from threading import Event
from typing import Any

JSON = dict[str, Any]

FRAGMENT = 5
"""Characters in a fragment of a stream, where the script does not say where to cut."""

QUIRKS = {
    "announced_twice": "a call is announced without arguments under another item id than its own",
    "cumulative": "each chunk repeats all calls so far, with their ids",
    "cut_off": "the model runs out of tokens in the middle of what it says last",
    "empty_ids": "the id of every call is the empty text",
    "index0": "every call has index 0, its own id, and all its arguments in one chunk",
    "interleaved": "the fragments of all calls take turns; only the first of each has the id",
    "no_ids": "calls have no id",
    "object_arguments": "arguments are an object, all at once, where they should be text",
    "repeated_ids": "every call has the first one's id",
}


class RefusedError(Exception):
    """The provider answers 400 with this text."""


class Pause:
    """A place in a stream where the server stops writing until `release` is called.

    A pause that was released once no longer holds anybody. After `patience` seconds without it the
    server breaks the stream, so that a test fails by what it sees and not by its time-out.
    """

    def __init__(self, patience: float = 10.0) -> None:
        self.reached = Event()
        """Set once the server stands here: everything before is written, nothing behind."""
        self._patience = patience
        self._released = Event()

    def release(self) -> None:
        """Let the server write on."""
        self._released.set()

    def hold(self) -> bool:
        """Wait, on the server's side. Whether the pause was released."""
        self.reached.set()
        return self._released.wait(self._patience)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the model. `arguments` as text is sent as it is, where the format allows.

    `cuts` are the places between the fragments of the arguments' text, `()` for a single fragment.
    `pause` stands before all that is written of the call. `custom` makes it a call of a custom tool
    of OpenAI, whose input is text; `signature` is Gemini's, which the history must bring back.
    """

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None
    cuts: tuple[int, ...] | None = None
    pause: Pause | None = None
    custom: bool = False
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One assistant message: text, calls or both.

    The rest is for its stream. `pause` stands before the message is said to be complete, `pauses`
    before the events of these numbers, counted as `chunks` lists them, from behind if negative.
    After `breaks_after` events the connection is closed, the first time that a server streams the
    step. `quirk` is one of `QUIRKS`, or several joined by "+"; a format that does not have it
    refuses.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    quirk: str = ""
    pause: Pause | None = None
    pauses: Mapping[int, Pause] = field(default_factory=dict)
    breaks_after: int | None = None

    def __post_init__(self) -> None:
        if unknown := self.quirks - QUIRKS.keys():
            raise ValueError(f"unknown quirk {unknown}; there are {', '.join(QUIRKS)}")

    @property
    def quirks(self) -> set[str]:
        """The names of its quirks."""
        return set(filter(None, self.quirk.split("+")))

    def every_pause(self) -> Iterator[Pause]:
        """Yield the pauses of the step and of its calls."""
        places = (self.pause, *self.pauses.values(), *(call.pause for call in self.calls))
        return (pause for pause in places if pause is not None)


def position(messages: Sequence[JSON], role: str = "assistant") -> int:
    """How many messages of the model the conversation has."""
    return sum(message["role"] == role for message in messages)


def step_at(script: Sequence[Step], position: int) -> Step:
    """The step to play; a conversation longer than the script is a mistake of the test."""
    if position >= len(script):
        raise RefusedError(f"the script has {len(script)} steps, the conversation is longer")
    return script[position]


def id_of(call: Call, prefix: str, position: int, index: int) -> str:
    """The call's own id, or one that is unique in the conversation."""
    return f"{prefix}_{position}_{index}" if call.id is None else call.id


def ids_of(step: Step, prefix: str, position: int) -> list[str | None]:
    """The ids of the step's calls on the wire; None for a call without one."""
    if "empty_ids" in step.quirks or "no_ids" in step.quirks:
        return ["" if "empty_ids" in step.quirks else None] * len(step.calls)
    ids = [id_of(call, prefix, position, index) for index, call in enumerate(step.calls)]
    return [ids[0]] * len(ids) if ids and "repeated_ids" in step.quirks else [*ids]


def text_said(step: Step) -> str:
    """The step's text, as far as the model gets with it."""
    is_cut = "cut_off" in step.quirks and not step.calls
    return step.text[: len(step.text) // 2] if is_cut else step.text


def arguments_said(step: Step) -> list[str]:
    """The arguments of the step's calls as text, as far as the model gets with them."""
    texts = [
        call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        for call in step.calls
    ]
    if texts and "cut_off" in step.quirks:
        texts[-1] = texts[-1][: len(texts[-1]) // 2]
    return texts


def allow(step: Step, wire: str, *quirks: str) -> None:
    """Refuse a step with another quirk than these, which are those that the format can have."""
    if impossible := step.quirks - set(quirks):
        raise RefusedError(f"{wire} has no quirk {', '.join(sorted(impossible))}")


def fragments(text: str, cuts: Sequence[int] | None = None) -> list[str]:
    """Cut `text` at these places, or at regular ones."""
    places = range(FRAGMENT, len(text), FRAGMENT) if cuts is None else cuts
    return [text[start:end] for start, end in pairwise([0, *places, len(text)])]


def in_turns(step: Step, calls: Iterable[Iterable[JSON | Pause]]) -> Iterator[JSON | Pause]:
    """What is written of each call: one after the other, or a piece of each in turn."""
    if "interleaved" not in step.quirks:
        return chain.from_iterable(calls)
    rows = chain.from_iterable(zip_longest(*calls))
    return (piece for piece in rows if piece is not None)


def pause_at(pause: Pause | None) -> list[Pause]:
    """What a stream yields where there may be a pause."""
    return [] if pause is None else [pause]


def with_pauses(step: Step, stream: Iterable[JSON | Pause]) -> list[JSON | Pause]:
    """Put the pauses that the step has by number into its stream."""
    written = list(stream)
    events = [place for place, piece in enumerate(written) if not isinstance(piece, Pause)]
    pauses = {events[number]: pause for number, pause in step.pauses.items()}
    return [
        piece
        for place, written_here in enumerate(written)
        for piece in (*pause_at(pauses.get(place)), written_here)
    ]


def present(**fields: object) -> JSON:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def required(request: JSON, *names: str) -> None:
    """Refuse a request that lacks one of these fields."""
    for name in names:
        if not request.get(name):
            raise RefusedError(f"{name}: Field required")


def text_of(content: object, where: str) -> str:
    """The text of content that is text, or a list of text blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(block.get("type") == "text" for block in content):
        return "".join(block["text"] for block in content)
    raise RefusedError(f"{where}: Input should be text or a list of text blocks")
