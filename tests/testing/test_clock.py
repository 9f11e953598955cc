"""The virtual clock beside real threads."""

import asyncio

import pytest

from dispatch.testing import run_in_virtual_time


def test_a_thread_that_ends_while_it_is_looked_at_wakes_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tells the loop and is idle after that: time does not jump over what it told."""

    async def main() -> float:
        loop, told = asyncio.get_running_loop(), asyncio.Event()

        class Ending:
            """A thread that has just ended whenever somebody looks."""

            @property
            def busy(self) -> int:
                loop.call_soon_threadsafe(told.set)
                return 0

        monkeypatch.setattr("dispatch.testing.clock.ACTIVITY", Ending())
        async with asyncio.timeout(3600):
            await told.wait()
        monkeypatch.undo()
        return loop.time()

    assert 0 == run_in_virtual_time(main())
