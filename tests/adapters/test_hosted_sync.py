"""A host whose own code is synchronous: its calls run on a loop in the background."""

import asyncio
import signal
import threading
from typing import Any

import pytest

from dispatch import (
    ToolCall,
)
from tests.adapters.hosts import Arguments, change, hosted


def test_calls_of_sync_code_form_one_turn() -> None:
    """Two threads without a loop bring a call each; the conflicting ones run in order."""
    turns, log = hosted(patience=5.0), list[str]()

    async def invoke(arguments: Arguments) -> Any:
        log.append("begins")
        await asyncio.sleep(0)
        log.append("ends")

    def bring_sync(call_id: str, before: tuple[str, ...]) -> None:
        turns.run_sync("turn", change(call_id), invoke, before=before).unwrap()

    threads = [
        threading.Thread(target=bring_sync, args=args) for args in (("b", ("a",)), ("a", ()))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert ["begins", "ends"] * 2 == log


async def test_sync_code_on_a_running_loop_is_served() -> None:
    """A notebook's loop is blocked by its own sync code; the turn runs all the same."""

    async def invoke(arguments: Arguments) -> Any:
        return threading.get_ident()

    turn = hosted().run_all_sync([(ToolCall("a", "free", {}), invoke)])
    assert threading.get_ident() != turn[0].unwrap()


def test_an_error_of_the_host_in_sync_code_is_raised_there() -> None:
    """What is wrong with the host's call is an exception in the thread that waits."""

    async def invoke(arguments: Arguments) -> Any:
        return None

    with pytest.raises(TypeError, match="no option of a turn"):
        hosted().run_all_sync([(change("a"), invoke)], urgency=1)  # type: ignore[call-arg]


def test_ctrl_c_in_sync_code_waits_for_the_call_to_settle() -> None:
    """What interrupts the waiting thread stops the calls first, and is raised then."""
    settled: list[str] = []
    main = threading.get_ident()

    async def invoke(arguments: Arguments) -> Any:
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            settled.append("yes")

    with pytest.raises(KeyboardInterrupt):
        hosted().run_sync("turn", ToolCall("a", "free", {}), invoke)
    assert ["yes"] == settled


def test_sync_code_in_an_async_tool_is_told_to_await() -> None:
    """K5: a host's sync call inside a tool that runs on the loop is an error, and no hang."""
    turns = hosted()

    async def inner(arguments: Arguments) -> Any:
        raise AssertionError("it ran")

    async def outer(arguments: Arguments) -> Any:
        return turns.run_all_sync([(ToolCall("b", "free", {}), inner)])

    turn = turns.run_all_sync([(ToolCall("a", "free", {}), outer)])
    assert "UsageError: run_sync was called on a running event loop" in turn[0].content()
