"""Histories broken at random: whatever is lost, doubled or moved, all that is left comes right."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .histories import Entry, Message, pairs, read, texts, written
from .samples import PROVIDERS, accept, every_provider

LOST = "[unknown] the result of this call was lost"
LEFT_OUT = "[Earlier messages were left out.]"
Conversation = list[tuple[str, list[Entry]]]


@st.composite
def conversations(draw: Callable[..., Any], *, repeated: bool = False) -> Conversation:
    """A conversation in order: each turn of the model is answered, if need be by results.

    Half of the ids are in capital letters, which stand for calls with ids in Gemini's form.
    """
    conversation: Conversation = [("user", [("text", "w0")])]
    made = 0
    for turn in range(draw(st.integers(1, 5))):
        count = draw(st.integers(0, 4))
        ids = [f"{draw(st.sampled_from('xX'))}{made + place}" for place in range(count)]
        if repeated and count:
            ids = [draw(st.sampled_from(["X", "Y"])) for _ in ids]
        made += count
        words: list[Entry] = [("text", f"a{turn}")] if draw(st.booleans()) or not ids else []
        conversation.append(("assistant", [*words, *(("call", each) for each in ids)]))
        results: list[Entry] = [
            ("result", each, f"r{made - count + place}") for place, each in enumerate(ids)
        ]
        more: list[Entry] = [("text", f"u{turn}")] if draw(st.booleans()) or not ids else []
        conversation.append(("user", [*results, *more]))
    return conversation


def lose_results(draw: Callable[..., Any], conversation: Conversation) -> Conversation:
    """Some results are gone; with them messages of which nothing is left."""
    kept = []
    for role, entries in conversation:
        left = [e for e in entries if e[0] != "result" or draw(st.booleans())]
        kept.append((role, left))
    return [message for message in kept if message[1]]


def cut(draw: Callable[..., Any], conversation: Conversation) -> Conversation:
    """Compaction: a summary stands for the beginning, which ends before or within a batch."""
    starts = [at for at, (_, entries) in enumerate(conversation) if _has_calls(entries)]
    if not starts:
        return conversation
    start = draw(st.sampled_from(starts))
    rest = [(role, list(entries)) for role, entries in conversation[start:]]
    if draw(st.booleans()):
        rest = rest[1:]
        gone = draw(st.integers(0, max(0, _results(rest[:1]) - 1)))
        rest[:1] = [(role, entries[gone:]) for role, entries in rest[:1]]
    return [("user", [("text", "summary")]), *rest]


def repeat_results(draw: Callable[..., Any], conversation: Conversation) -> Conversation:
    """Some results are told once more, at once or in a later message of results."""
    told: list[Entry] = []
    after: Conversation = []
    for role, entries in conversation:
        own = [e for e in entries if e[0] == "result"]
        again = [e for e in (*own, *told) if draw(st.booleans())] if own else []
        after.append((role, [*entries, *(("result", e[1], f"{e[2]} again") for e in again)]))
        told += own
    return after


def interrupt(draw: Callable[..., Any], conversation: Conversation) -> Conversation:
    """Other events of either side stand between calls and their results."""
    after: Conversation = []
    for at, (role, entries) in enumerate(conversation):
        after.append((role, entries))
        if _has_calls(entries) and draw(st.booleans()):
            after.append((draw(st.sampled_from(["user", "assistant"])), [("text", f"event {at}")]))
    return after


def delay_results(draw: Callable[..., Any], conversation: Conversation) -> Conversation:
    """Some results come later than they should, before or behind what stands there."""
    after: Conversation = []
    late: list[Entry] = []
    for role, entries in conversation:
        if role == "assistant":
            after.append((role, entries))
            continue
        now = [e for e in entries if e[0] != "result" or draw(st.booleans())]
        arrived, late = late, [*late, *(e for e in entries if e not in now)]
        late = [e for e in late if e not in arrived]
        after.append((role, [*now, *arrived] if draw(st.booleans()) else [*arrived, *now]))
    if late:
        after.append(("user", late))
    return [message for message in after if message[1]]


def stop_early(draw: Callable[..., Any], conversation: Conversation) -> Conversation:
    """A crash: nothing is there of what came after some message."""
    return conversation[: draw(st.integers(1, len(conversation)))]


BREAKAGES = {
    "lose_results": lose_results,
    "cut": cut,
    "repeat_results": repeat_results,
    "interrupt": interrupt,
    "delay_results": delay_results,
    "stop_early": stop_early,
}


@st.composite
def broken(draw: Callable[..., Any], *, repeated: bool = False) -> Conversation:
    """A conversation to which one or two of these things have happened."""
    conversation: Conversation = draw(conversations(repeated=repeated))
    for breakage in draw(st.lists(st.sampled_from(list(BREAKAGES)), min_size=1, max_size=2)):
        conversation = BREAKAGES[breakage](draw, conversation)
    return spoken_by_turns(conversation)


def spoken_by_turns(conversation: Conversation) -> Conversation:
    """Of neighbouring messages of the user only the first has words, of the assistant's the last.

    What the API refuses for something else than calls and results is not for a repair to mend.
    """
    kept: Conversation = []
    for role, entries in conversation:
        repeated = bool(kept) and kept[-1][0] == role
        if repeated and role == "assistant" and not _has_calls(kept[-1][1]):
            kept.pop()
        only_results = repeated and role == "user"
        left = [entry for entry in entries if not only_results or entry[0] == "result"]
        if left:
            kept.append((role, left))
    return kept


def _has_calls(entries: Sequence[Entry]) -> bool:
    return any(entry[0] == "call" for entry in entries)


def _results(conversation: Sequence[Message]) -> int:
    return sum(entry[0] == "result" for _, entries in conversation for entry in entries)


def expected(conversation: Conversation) -> list[tuple[str, str]]:
    """Each call and its first result behind it; for unique ids."""
    entries = [entry for _, each in conversation for entry in each]
    told: dict[str, str] = {}
    for at, entry in enumerate(entries):
        if entry[0] == "call":
            later = (e[2] for e in entries[at:] if e[0] == "result" and e[1] == entry[1])
            told[entry[1]] = next(later, LOST)
    return [(f"do_{call_id}", value) for call_id, value in told.items()]


fast = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@every_provider
@fast
@given(conversation=broken())
def test_a_broken_history_comes_right(name: str, conversation: Conversation) -> None:
    """D4, D5, D11: the API takes it; each call has its own result, or is told lost."""
    history = written(name, conversation)
    before = copy.deepcopy(history)
    repaired = PROVIDERS[name].close_open_calls(history)
    assert before == history, "the given history is left alone"
    accept(name, repaired)
    assert expected(conversation) == [
        (tool, LOST if value.startswith(LOST) else value) for tool, value in pairs(repaired)
    ]


@every_provider
@fast
@given(conversation=broken())
def test_nothing_else_is_lost_or_reordered(name: str, conversation: Conversation) -> None:
    """What was said stays, in its order, and calls stay where they were among it."""
    history = written(name, conversation)
    repaired = PROVIDERS[name].close_open_calls(history)
    assert _said(history) == [one for one in _said(repaired) if one[1] != LEFT_OUT]
    assert texts(history) == [words for words in texts(repaired) if words != LEFT_OUT]


def _said(history: Sequence[Any]) -> list[tuple[str, str]]:
    return [(kind, words) for kind, _, words in read(history) if kind != "result"]


@every_provider
@fast
@given(conversation=st.one_of(broken(), broken(repeated=True)))
def test_repairing_twice_is_repairing_once(name: str, conversation: Conversation) -> None:
    """D3: what was repaired is in order, and nothing of it is touched again."""
    provider = PROVIDERS[name]
    repaired = provider.close_open_calls(written(name, conversation))
    again = provider.close_open_calls(repaired)
    assert repaired == again
    assert all(one is other for one, other in zip(repaired, again, strict=True))


@every_provider
@fast
@given(conversation=conversations())
def test_a_history_in_order_is_not_touched(name: str, conversation: Conversation) -> None:
    """What the API takes comes back, the very same messages."""
    history = written(name, conversation)
    accept(name, history)
    again = PROVIDERS[name].close_open_calls(history)
    assert history == again
    assert all(one is other for one, other in zip(history, again, strict=True))


@every_provider
@fast
@given(conversation=st.one_of(conversations(repeated=True), broken(repeated=True)))
def test_repeated_ids_are_told_apart(name: str, conversation: Conversation) -> None:
    """E6: with ids that come again, in a turn or later, each call has one result, in order."""
    repaired = PROVIDERS[name].close_open_calls(written(name, conversation))
    accept(name, repaired)
    kinds = [kind for kind, _, _ in read(repaired)]
    assert kinds.count("call") == kinds.count("result")
    if name != "gemini":  # whose ids stay as they came
        ids = [call_id for kind, call_id, _ in read(repaired) if kind == "call"]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", [name for name in PROVIDERS if name != "gemini"])
@fast
@given(conversation=conversations(repeated=True))
def test_repeated_ids_keep_their_own_results(name: str, conversation: Conversation) -> None:
    """E6: where nothing was lost, every call has the result that stood at its place."""
    repaired = PROVIDERS[name].close_open_calls(written(name, conversation))
    values = [entry[2] for _, entries in conversation for entry in entries if entry[0] == "result"]
    assert values == [value for _, value in pairs(repaired)]
