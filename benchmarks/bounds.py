"""How short a workload could be: a bound that nobody who breaks no rule can beat. Pure.

It is the greatest of several bounds, each of a problem with fewer rules than the real one:

- the longest chain of conflicts in intent order within a turn: a call's *head* is the earliest
  moment at which it can start, after its arrival and all before it in its turn; its *tail* is the
  longest chain behind it;
- for each limit, the work that counts against it, shared out evenly among its slots, with the
  least heads before it and the least tails behind it (Carlier, "Scheduling jobs with release dates
  and tails on identical machines", 1987);
- the same with one slot for each file and each session, over the calls of all turns that exclude
  each other there: they may come in any order, but only one at a time.

The best possible schedule may be longer than the bound. Knows nothing of how anybody schedules.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.recording import limited
from benchmarks.work import Work, Workload, conflict, is_below


class Span(NamedTuple):
    """What is known of a call's time, in seconds."""

    head: float
    """From the start of its turn until it can start at the earliest."""
    seconds: float
    tail: float
    """From its end until the last call that is behind it can end."""


def lower_bound(workload: Workload) -> float:
    """No run of the workload that keeps all order and limits takes fewer seconds than this."""
    spans: dict[str, Span] = {}
    for turn, works in enumerate(workload.turns):
        for position, span in enumerate(_spans(works)):
            spans[workload.job(turn, position)] = span
    bounds = [sum(span) for span in spans.values()]
    for jobs, limit in limited(workload):
        bounds.append(_shared([spans[job] for job in jobs], limit))
    if len(workload.turns) > 1:
        bounds += [_shared(one_by_one, 1) for one_by_one in _exclusive(workload, spans)]
    return max(bounds, default=0.0)


def _spans(works: Sequence[Work]) -> list[Span]:
    """The spans of a turn's calls."""
    claiming = [
        place for place, work in enumerate(works) if work.reads or work.writes or work.session
    ]
    pairs = [
        (first, second)
        for index, second in enumerate(claiming)
        for first in claiming[:index]
        if conflict(works[first], works[second])
    ]
    heads = [work.arrives for work in works]
    for first, second in pairs:  # the later call of a pair only grows: its own are already known
        heads[second] = max(heads[second], heads[first] + works[first].seconds)
    tails = [0.0] * len(works)
    for first, second in sorted(pairs, reverse=True):
        tails[first] = max(tails[first], works[second].seconds + tails[second])
    return [Span(*span) for span in zip(heads, (w.seconds for w in works), tails, strict=True)]


def _shared(spans: Sequence[Span], slots: int) -> float:
    """The bound of calls that share so many slots: the greatest over those late in and early out.

    With n slots and at least n calls, every slot can be taken to run one at least. Before its first
    it waits for that one's head, behind its last comes that one's tail; so n times the makespan is
    no less than the n least heads, all the work, and the n least tails.
    """
    best = 0.0
    by_tail = sorted(spans, key=lambda span: -span.tail)
    for head in {span.head for span in spans}:
        heads: list[float] = []  # the least, as many as there are slots, negated: a heap
        tails: list[float] = []
        work = 0.0
        for span in by_tail:
            if span.head < head:
                continue
            work += span.seconds
            tails.append(span.tail)
            heapq.heappush(heads, -span.head)
            if len(heads) > slots:
                heapq.heappop(heads)
            if len(tails) >= slots:
                best = max(best, (work - sum(heads) + sum(tails[-slots:])) / slots)
    return best


def _exclusive(workload: Workload, spans: Mapping[str, Span]) -> Iterable[list[Span]]:
    """Sets of calls of all turns of which no two may run at once."""
    works = {job: workload.work(job) for job in spans}
    for session in {work.session for work in works.values()} - {None}:
        yield [spans[job] for job, work in works.items() if work.session == session]
    for path in {path for work in works.values() for path in (*work.reads, *work.writes)}:
        writers = {job for job, work in works.items() if _covers(work.writes, path)}
        readers = {job for job, work in works.items() if _covers(work.reads, path)} - writers
        yield [spans[job] for job in writers]
        for reader in readers:  # who may run beside another reader, but beside no writer
            yield [spans[job] for job in (*writers, reader)]


def _covers(claimed: Iterable[str], path: str) -> bool:
    return any(path == one or is_below(path, one) for one in claimed)
