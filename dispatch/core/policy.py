"""When a turn counts as satisfied. Pure: judged from how its calls ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dispatch.call import Status


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the turn is satisfied, and why if not."""

    satisfied: bool
    reason: str | None = None


class Policy(Protocol):
    """What a turn makes of its calls' endings."""

    def verdict(self, statuses: Sequence[Status]) -> Verdict:
        """Judge the turn once every call has ended; `statuses` are in intent order."""
        ...


@dataclass(frozen=True, slots=True)
class BestEffort:
    """Failures are recorded and siblings finish; always satisfied."""

    def verdict(self, statuses: Sequence[Status]) -> Verdict:
        """Satisfied, whatever happened."""
        return Verdict(satisfied=True)
