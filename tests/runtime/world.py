"""Random turns for the runtime: one tool whose claims, duration and fate are its arguments."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from dispatch import Claim, Tool, ToolCall, ToolError
from dispatch.claims import WRITE, combine, conflict
from tests.core.turns import claim_sets

FATES = ("ok", "ok", "ok", "raise", "tool error", "cancel itself", "bad descriptor")
TOOLS = ("a", "b", "c")


@dataclass(frozen=True)
class Spec:
    """One call to come; `refused` says how the model got it wrong."""

    claims: tuple[Claim, ...]
    duration: int
    fate: str
    tool: str
    tags: frozenset[str]
    refused: str

    def call(self, number: int) -> ToolCall:
        arguments: Any = {
            "number": number,
            "claims": [[list(key), mode] for key, mode in self.claims],
            "duration": self.duration,
            "fate": self.fate,
        }
        name = self.tool
        if self.refused == "unknown tool":
            name = "no such tool"
        elif self.refused == "bad arguments":
            arguments["duration"] = "long"
        elif self.refused == "bad json":
            arguments = "{"
        return ToolCall(f"id{number}", name, arguments, tags=self.tags)

    @property
    def runs(self) -> bool:
        return not self.refused

    @property
    def effective(self) -> tuple[Claim, ...]:
        """What the call must be taken to claim, whatever its descriptor does."""
        if self.refused:
            return ()
        own = Claim(("tool", self.tool), "self")
        claims = (Claim((), WRITE),) if self.fate == "bad descriptor" else self.claims
        return combine([*claims, own])


specs = st.builds(
    Spec,
    claims=claim_sets,
    duration=st.integers(0, 5),
    fate=st.sampled_from(FATES),
    tool=st.sampled_from(TOOLS),
    tags=st.sampled_from([frozenset(), frozenset(), frozenset({"x"}), frozenset({"x", "y"})]),
    refused=st.sampled_from(["", "", "", "", "unknown tool", "bad arguments", "bad json"]),
)
turns = st.lists(specs, max_size=10)


@dataclass
class Recorder:
    """The tools, and what happened in them: intervals by number of call, overlaps seen."""

    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    running: dict[int, tuple[Claim, ...]] = field(default_factory=dict)
    overlaps: list[tuple[int, int]] = field(default_factory=list)

    def tools(self) -> list[Tool]:
        return [Tool(name, self._run, resource_keys=_declared) for name in TOOLS]

    async def _run(self, number: int, claims: list[Any], duration: int, fate: str) -> str:
        now = asyncio.get_running_loop().time
        mine = (Claim((), WRITE),) if fate == "bad descriptor" else _read(claims)
        for other, theirs in self.running.items():
            if conflict(mine, theirs):
                self.overlaps.append((other, number))
        self.running[number] = mine
        self.started[number] = now()
        try:
            await asyncio.sleep(duration)
            return _meet(fate, number)
        finally:
            del self.running[number]
            self.ended[number] = now()


def _declared(arguments: Mapping[str, Any]) -> list[Claim]:
    if arguments["fate"] == "bad descriptor":
        raise KeyError("path")
    return list(_read(arguments["claims"]))


def _read(claims: list[Any]) -> tuple[Claim, ...]:
    return tuple(Claim(tuple(key), mode) for key, mode in claims)


def _meet(fate: str, number: int) -> str:
    if fate == "raise":
        raise ValueError(f"call {number} went wrong")
    if fate == "tool error":
        raise ToolError(f"call {number} cannot be done")
    if fate == "cancel itself":
        raise asyncio.CancelledError
    return f"value {number}"
