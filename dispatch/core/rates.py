"""Rates: how much may start within a time. Pure; `now` is passed in.

Owns the token bucket (leaky bucket as a meter, ITU-T I.371): it starts full, refills evenly, and
whoever starts takes its cost out. A bucket is only written to when tokens are taken, and whether it
is open is decided by the same sum that says when it opens; so at the moment it named it is open,
however floats were rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dispatch.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `amount` per `per_seconds`, in bursts of at most `burst`.

    Args:
        amount: What may start in `per_seconds`: calls, or the sum of their costs.
        per_seconds: The time in which `amount` is refilled, evenly.
        burst: The most that may start at once, after a pause; `amount` if not given.

    Raises `DeclarationError` unless all are finite numbers above 0.
    """

    amount: float
    per_seconds: float
    burst: float | None = None

    def __post_init__(self) -> None:
        _check("amount", self.amount)
        _check("per_seconds", self.per_seconds)
        _check("amount / per_seconds", self.amount / self.per_seconds)
        _check("burst", self.capacity)

    @property
    def capacity(self) -> float:
        """The most that may start at once: `burst`, or `amount` if it was not given."""
        return self.amount if self.burst is None else self.burst

    @property
    def per_second(self) -> float:
        """What is refilled in one second."""
        return self.amount / self.per_seconds


@dataclass(slots=True)
class Bucket:
    """The tokens of one rate as they were at the moment `at`, in seconds."""

    rate: Rate
    tokens: float
    at: float

    @classmethod
    def full(cls, rate: Rate, at: float) -> Bucket:
        """A bucket as it is at first."""
        return cls(rate, rate.capacity, at)

    def opens_at(self, cost: float) -> float:
        """The moment from which `cost` may start; minus infinity if it may at any time.

        What costs more than the burst (it has become smaller) waits for a full bucket, and leaves
        it in debt.
        """
        missing = min(cost, self.rate.capacity) - self.tokens
        return self.at + missing / self.rate.per_second if missing > 0 else -math.inf

    def spend(self, cost: float, now: float) -> None:
        """Take the tokens out."""
        self._refill(now)
        self.tokens -= cost

    def changed(self, rate: Rate, now: float) -> Bucket:
        """The bucket of another rate with the present tokens, as far as its burst holds them."""
        self._refill(now)
        return Bucket(rate, min(self.tokens, rate.capacity), self.at)

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self.at)  # clocks of different loops may differ
        self.tokens = min(self.rate.capacity, self.tokens + passed * self.rate.per_second)
        self.at = max(self.at, now)

    def dump(self) -> list[float | None]:
        """The whole state as JSON types."""
        return [self.rate.amount, self.rate.per_seconds, self.rate.burst, self.tokens, self.at]

    @classmethod
    def load(cls, state: Any) -> Bucket:
        """The bucket that `dump` described."""
        amount, per_seconds, burst, tokens, at = state
        return cls(Rate(amount, per_seconds, burst), tokens, at)


def changed(
    buckets: Mapping[str, Bucket], rates: Mapping[str, Rate | None], now: float
) -> dict[str, Bucket]:
    """The buckets with some rates changed, added, or (None) removed."""
    after = dict(buckets)
    for name, rate in rates.items():
        if rate is None:
            after.pop(name, None)
        else:
            after[name] = (
                after[name].changed(rate, now) if name in after else Bucket.full(rate, now)
            )
    return after


def _check(what: str, number: float) -> None:
    right = isinstance(number, int | float) and not isinstance(number, bool)
    if not right or not 0 < number < math.inf:
        raise DeclarationError(f"{what} of a rate: must be a finite number above 0, not {number!r}")
