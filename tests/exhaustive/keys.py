"""Which states are the same: the key of a state is its JSON, less what nothing ever reads again.

In full, the key is the dump of all machines and of the driver, as it is. Otherwise:

- numbers of tickets and owners are replaced by their ranks, and the counters left out: the machines
  only compare them, and every new one is above all that are there;
- claims are left out: they are the same in every state of one setup;
- so are marks that are only written, for statistics and messages;
- of a call that has ended only what it still holds is kept, and of how it ended only what something
  in its turn looks at: nothing (best effort, dependents run), or whether it succeeded and whether
  it was given up (a policy), or also the first failure before it (dependents skip).

So states with equal keys have equal futures, and each event of one is that of the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from dispatch.call import FailureKind, Status
from dispatch.core.life import CallState
from tests.exhaustive.setups import Detail, Setup, TurnPlan

_ONLY_WRITTEN = frozenset(("claims", "conflicting", "serialized", "waited", "phase", "note"))
_STILL_READ = ("state", "alive", "open_turns", "node")
_FOR_DEPENDENTS = ("status", "cause", "by_policy")


class Keys:
    """The keys of the states of one setup."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._turns: dict[tuple[TurnPlan, str], str] = {}

    def key(self, parts: Sequence[Any], texts: Sequence[str]) -> bytes:
        """16 bytes that stand for the state with these parts, which are `texts` in JSON."""
        if self._setup.detail is Detail.FULL:
            return _digest(texts)
        own, table, limits = parts[:3]
        owners = _ranks(owner for owner, _ in own["parents"])
        tickets = _ranks(number for number, _ in own["seats"])
        shared = [_own(own, owners, tickets), _table(table, owners, tickets), _waiting(limits)]
        turns = (
            self._turn(turn, text, plan)
            for turn, text, plan in zip(parts[3:], texts[3:], self._setup.turns, strict=True)
        )
        return _digest([json.dumps(shared), *turns])

    def _turn(self, turn: dict[str, Any] | None, text: str, plan: TurnPlan) -> str:
        known = self._turns.get((plan, text))
        if known is None:
            known = self._turns[plan, text] = json.dumps(turn and _turn(turn, plan))
        return known


def _digest(texts: Iterable[str]) -> bytes:
    return blake2b("\n".join(texts).encode(), digest_size=16).digest()


def _ranks(numbers: Iterable[int]) -> dict[int, int]:
    return {number: rank for rank, number in enumerate(sorted(numbers), start=1)}


def _own(own: dict[str, Any], owners: dict[int, int], tickets: dict[int, int]) -> list[Any]:
    return [
        [owners.get(owner, 0) for owner in own["owners"]],
        [
            [owners.get(owner, 0), tickets.get(ticket, 0), *rest[:-1]]
            for owner, ticket, *rest in own["calls"]
        ],
        [who for _, who in own["seats"]],
        [[[tickets[number], granted] for number, granted in mail] for mail in own["mail"]],
        own["undoing"],
    ]


def _table(table: dict[str, Any], owners: dict[int, int], tickets: dict[int, int]) -> list[Any]:
    return [
        [tickets[number] for number in table["abandoned"]],
        [[owners[owner], owners.get(parent, 0)] for owner, parent in table["parents"]],
        [
            [tickets[number], owners[owner], granted, tickets.get(watching, 0)]
            for number, owner, _, granted, watching in table["tickets"]
        ],
    ]


def _waiting(limits: dict[str, Any] | None) -> list[Any] | None:
    """Who waits for a slot, in order; who has one is known from the calls."""
    return None if limits is None else [request[1:] for request in limits["waiting"]]


def _turn(turn: dict[str, Any], plan: TurnPlan) -> list[Any]:
    calls = [_call(call, plan) for call in turn["calls"]]
    rest = [turn[name] for name in ("state", "ticket", "undone", "undoing", "settled")]
    stopped, doomed = turn["stopped"] is not None, [node for node, _ in turn["doomed"]]
    if plan.is_plain:
        return [calls, rest, stopped, doomed]
    judged = [verdict and verdict[0] for _, _, verdict in turn["groups"]]
    return [calls, rest, stopped, doomed, judged, turn["failed"]]


def _call(call: dict[str, Any], plan: TurnPlan) -> dict[str, Any]:
    kept = {name: value for name, value in call.items() if name not in _ONLY_WRITTEN}
    if call.get("state") not in (CallState.ENDED, CallState.SETTLED):
        return kept | {"asked": True} if "asked" in kept else kept
    names = (*_STILL_READ, *_FOR_DEPENDENTS) if plan.skips else _STILL_READ
    ended = {name: kept[name] for name in names if name in kept}
    if not plan.is_plain:
        ended["ok"] = call["status"] == Status.OK
        ended["given up"] = call.get("kind") == FailureKind.ABANDONED
    return ended
