"""The turns of a real function-calling set, run as tools: is the state what a serial run leaves?

The set is the multi-turn part of the `bfcl-eval` package: conversations whose ground truth says
which methods of stateful APIs each turn calls, in which order. What each method reads and writes
is derived from the source of its class, nothing is declared by hand. Everything runs in virtual
time, so the seconds are exact and the same on every machine.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.functions import bfcl
from benchmarks.functions.bfcl import Entry
from benchmarks.functions.effects import analysed
from benchmarks.functions.state import shared
from benchmarks.functions.turns import Ran, Turns
from dispatch.testing import run_in_virtual_time

if TYPE_CHECKING:
    from benchmarks.options import Options


def measure(options: Options) -> dict[str, Any]:
    """Run the set in all ways; what came out, ready for JSON. Seconds are summed over turns.

    Only the first part of it if `options.quick`. Not to be called where an event loop runs.
    Raises `RuntimeError` that says what to install if the package is missing.
    """
    title = f"{bfcl.PACKAGE} {bfcl.version()}"
    parts = bfcl.SETS[: 1 if options.quick else None]
    entries = [entry for name in parts for entry in bfcl.entries(name)]
    return {"set": title, "parts": list(parts), **run_in_virtual_time(_measured(entries))}


async def _measured(entries: Sequence[Entry]) -> dict[str, Any]:
    turns = _turns(entries)
    given, entries = entries, [_well_formed(entry, turns) for entry in entries]
    seconds = dict.fromkeys(("serial", "dispatch", "lower bound", "gather"), 0.0)
    states = Counter({"dispatch": 0, "gather": 0})
    results = Counter({"dispatch": 0, "gather": 0})
    async with turns.dispatcher:
        for entry in entries:
            await _entry(entry, turns, seconds, states, results)
    sizes = [len(turn) for entry in entries for turn in entry.turns]
    left_out = sum(len(turn) for entry in given for turn in entry.turns) - sum(sizes)
    return {
        "entries": len(entries),
        "turns": len(sizes),
        "calls": sum(sizes),
        "calls left out, which their own schemas refuse": left_out,
        "turns with more than one call": sum(size > 1 for size in sizes),
        **{name: round(value, 6) for name, value in seconds.items()},
        "states that differ": dict(states),
        "results that differ": dict(results),
        "read-only methods that wrote": len(turns.read_only_wrote),
        "methods that wrote what they do not declare": sorted(turns.undeclared),
    }


def _well_formed(entry: Entry, turns: Turns) -> Entry:
    """The entry without calls that break the set's own schemas, and without empty turns."""
    kept = [turns.accepted(turn) for turn in entry.turns]
    return replace(entry, turns=tuple(turn for turn in kept if turn))


def _turns(entries: Sequence[Entry]) -> Turns:
    """All APIs as tools, declared as their sources say."""
    common: dict[str, set[tuple[str, str]]] = {api: set() for api in bfcl.FILES}
    for entry in entries:
        for api, instance in entry.apis.items():
            common[api] |= shared(instance)
    declared = {api: analysed(bfcl.source(api), api, common[api]) for api in bfcl.FILES}
    return Turns(declared, {api: bfcl.schemas(api) for api in bfcl.FILES})


async def _entry(
    entry: Entry,
    turns: Turns,
    seconds: dict[str, float],
    states: Counter[str],
    results: Counter[str],
) -> None:
    """Run an entry's turns and add up what came out."""
    apis = _copied(entry.apis)
    for number, turn in enumerate(entry.turns):
        ran: dict[str, Ran] = {}
        for way, run in (("dispatch", turns.dispatched), ("gather", turns.gathered)):
            turns.begin(_copied(apis), f"{entry.name} {number}", turn)
            ran[way] = await run(turn)
        turns.begin(apis, f"{entry.name} {number}", turn)
        serial = await turns.serial(turn)
        seconds["serial"] += serial.seconds
        seconds["lower bound"] += turns.lower_bound(turn)
        for way, one in ran.items():
            seconds[way] += one.seconds
            states[way] += one.state != serial.state
            results[way] += sum(a != b for a, b in zip(one.texts, serial.texts, strict=True))


def _copied(apis: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same state once more; faster than `copy.deepcopy`."""
    copied: Mapping[str, Any] = pickle.loads(pickle.dumps(apis))  # noqa: S301 - our own bytes
    return copied
