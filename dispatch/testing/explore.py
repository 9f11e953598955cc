"""Interleavings by seed: an event loop that chooses which of the ready tasks goes on next.

asyncio runs ready tasks in the order in which they became ready, so a test sees one interleaving
of the many that may happen. Here a random generator chooses, the same one for the same seed, and
lets others go first now and then. The idea is that of randomised schedulers such as rr's chaos mode
and loom. Callbacks that belong to no task keep their order, as asyncio promises.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from typing import Any, TypeVarTuple
from weakref import WeakKeyDictionary

from dispatch.testing.clock import VirtualTimeLoop

Ts = TypeVarTuple("Ts")
Scenario = Callable[[], Coroutine[Any, Any, object]]

OTHERS_FIRST = 0.2
"""How often a task that could go on lets everything that is ready go first."""


class ExplorerLoop(VirtualTimeLoop):
    """An event loop in virtual time whose interleaving a seed chooses.

    `steps` counts how often a task went on. `before_step` is called with that number before each.
    """

    def __init__(self, seed: int) -> None:
        self.steps = 0
        self.before_step: Callable[[int], object] = lambda step: None
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._waiting: list[tuple[int, Context | None, Callable[..., object], tuple[Any, ...]]] = []
        self._count = itertools.count()
        self._numbers: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        super().__init__()

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback soon, and a step of a task when its turn has come."""
        task = getattr(callback, "__self__", None)
        if not isinstance(task, asyncio.Task):
            return super().call_soon(callback, *args, context=context)
        if task not in self._numbers:
            self._numbers[task] = next(self._count)
        self._waiting.append((self._numbers[task], context, callback, args))
        return super().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._random.random() < OTHERS_FIRST:
            super().call_soon(self._go_on)
            return
        self._waiting.sort(key=lambda waiting: waiting[0])  # asyncio wakes sets of tasks
        chosen = self._random.randrange(len(self._waiting))
        _, context, step, args = self._waiting.pop(chosen)
        self.steps += 1
        self.before_step(self.steps)
        if context is None:
            step(*args)
        else:
            context.run(step, *args)


def explore(scenario: Scenario, *, seeds: Iterable[int] = range(100), eager: bool = False) -> None:
    """Run the scenario once for each seed, each on a loop of its own, in virtual time.

    A scenario is a function that makes a coroutine and asserts what must hold. What it raises is
    raised, with the seed in a note: the same seed gives the same interleaving again. Threads and
    subprocesses are not chosen by the seed, so keep them out of scenarios. `eager` uses the eager
    task factory (Python 3.12).
    """
    for seed in seeds:
        try:
            _run(scenario, ExplorerLoop(seed), eager=eager)
        except BaseException as error:
            error.add_note(f"seed {seed}; to see it again: explore(…, seeds=[{seed}])")
            raise


def explore_cancels(
    scenario: Scenario,
    *,
    seed: int = 0,
    at: Iterable[int] | None = None,
    eager: bool = False,
) -> int:
    """Cancel the scenario before each step that any of its tasks takes, a fresh run for each.

    That is every await point, the scenario's own and those of whatever it has started. Its
    `CancelledError` is what one expects, and a normal end is allowed too. Anything else is raised,
    with the step in a note. `at` are the steps to cancel at; all by default. Returns how many runs
    there were.
    """
    if at is None:
        loop = ExplorerLoop(seed)
        _run(scenario, loop, eager=eager)
        at = range(2, loop.steps + 1)  # nothing has begun before the first one
    runs = 0
    for step in at:
        try:
            _run(scenario, ExplorerLoop(seed), cancel_at=step, eager=eager)
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            again = f"explore_cancels(…, seed={seed}, at=[{step}])"
            error.add_note(f"cancelled before step {step}; to see it again: {again}")
            raise
        runs += 1
    return runs


def _run(
    scenario: Scenario, loop: ExplorerLoop, *, cancel_at: int = 0, eager: bool = False
) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is one

        def before(step: int) -> None:
            if step == cancel_at:
                task.cancel()

        loop.before_step = before
        await scenario()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        if eager:
            factory = getattr(asyncio, "eager_task_factory", None)
            if factory is None:
                raise RuntimeError("eager tasks need Python 3.12 or newer")
            runner.get_loop().set_task_factory(factory)
        runner.get_loop().run_until_complete(main())  # Ctrl-C is not turned into a cancel
