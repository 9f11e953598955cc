"""All states that one setup can reach, by breadth: so the first trace to a fault is the shortest.

Every state is sent through JSON and explored from what was loaded again. After every event all
rules are looked at, the books of all machines among them.
"""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.exhaustive.driver import Driver, Event
from tests.exhaustive.events import OPTIONAL, possible
from tests.exhaustive.keys import Keys
from tests.exhaustive.rules import broken, left_behind
from tests.exhaustive.setups import Setup

PROTOCOL = pickle.HIGHEST_PROTOCOL
Texts = tuple[str, ...]
"""A state: the JSON of each of its parts."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What went wrong, and the shortest way to it."""

    faults: tuple[str, ...]
    trace: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Explored:
    """How many states a setup has, how many events were tried, and what went wrong first."""

    states: int
    events: int
    violation: Violation | None = None


class Exploration:
    """The states of one setup."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.events = 0
        self._keys = Keys(setup)
        self._came_from: dict[bytes, tuple[bytes, Event] | None] = {}
        self._reloaded: dict[tuple[int, str], bytes] = {}
        """Copies of what was loaded from the JSON of a part: copying is faster than loading."""
        self._to_do: deque[tuple[bytes, Texts]] = deque()

    def run(self) -> Explored:
        """Explore until everything was seen, or something is wrong."""
        driver = Driver(self.setup)
        driver.begin()
        violation = self._look(driver, (), None)
        while self._to_do and violation is None:
            violation = self._go_on_from(*self._to_do.popleft())
        return Explored(len(self._came_from), self.events, violation)

    def _go_on_from(self, key: bytes, texts: Texts) -> Violation | None:
        driver = Driver(self.setup)
        for part, text in enumerate(texts):
            self._go_back(driver, part, text)
        events = list(possible(driver))
        if all(kind in OPTIONAL for kind, _ in events):
            faults = left_behind(driver)
            if faults:
                return Violation(tuple(faults), self._trace(key))
        for event in events:
            self.events += 1
            try:
                driver.act(event)
                violation = self._look(driver, texts, (key, event))
            except Exception as error:  # noqa: BLE001 - what a broken machine raises is a finding
                fault = f"{type(error).__name__}: {error}"
                violation = Violation((fault,), (*self._trace(key), event))
            if violation is not None:
                return violation
        return None

    def _look(
        self, driver: Driver, before: Texts, step: tuple[bytes, Event] | None
    ) -> Violation | None:
        """Look at the state after an event, note it if it is new, and go back to the one before.

        A part of the state that the event did not change is neither checked nor loaded again.
        """
        parts = [driver.dump(part) for part in range(len(driver.machines) + 1)]
        texts = tuple(map(json.dumps, parts))
        old = before or ("",) * len(texts)
        changed = [part for part, text in enumerate(texts) if text != old[part]]
        faults = [fault for part in changed for fault in self._balance(driver, part, texts[part])]
        faults += broken(driver)
        if faults:
            trace = () if step is None else (*self._trace(step[0]), step[1])
            return Violation(tuple(faults), trace)
        key = self._keys.key(parts, texts)
        if key not in self._came_from:
            self._came_from[key] = step
            self._to_do.append((key, texts))
        for part in changed if before else ():
            self._go_back(driver, part, before[part])
        return None

    def _balance(self, driver: Driver, part: int, text: str) -> Iterator[str]:
        """What is wrong with the books of one part, as it is and after JSON."""
        if part:
            yield from _faults_in_books(driver, part)
        if (part, text) in self._reloaded:
            return
        again = Driver(self.setup)
        again.load(part, text)
        if part:
            self._reloaded[part, text] = pickle.dumps(again.machines[part - 1], PROTOCOL)
        if json.dumps(again.dump(part)) != text:
            yield f"it is another one after JSON: {text}"
        if part:
            yield from _faults_in_books(again, part)

    def _go_back(self, driver: Driver, part: int, text: str) -> None:
        """Give the driver one part as it was loaded from this JSON."""
        if part == 0:
            driver.load(part, text)
        else:
            driver.put(part, pickle.loads(self._reloaded[part, text]))  # noqa: S301 - our own

    def _trace(self, key: bytes) -> tuple[Event, ...]:
        trace: list[Event] = []
        step = self._came_from[key]
        while step is not None:
            trace.append(step[1])
            step = self._came_from[step[0]]
        return tuple(reversed(trace))


def _faults_in_books(driver: Driver, part: int) -> Iterator[str]:
    machine = driver.machines[part - 1]
    try:
        if machine is not None:
            machine.validate()
    except AssertionError as error:
        yield str(error)
