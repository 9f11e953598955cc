import asyncio
import threading

import pytest

from dispatch import CancelToken


def test_a_child_goes_with_its_parent_and_not_the_other_way() -> None:
    """The reason travels down; a child cancelled alone leaves its parent as it was."""
    parent = CancelToken()
    first, second = parent.child(), parent.child()
    first.cancel("alone")
    assert (True, False, False) == (first.cancelled, second.cancelled, parent.cancelled)
    parent.cancel("all")
    assert ("alone", "all", "all") == (first.reason, second.reason, parent.child().reason)


def test_callbacks_run_once_in_order_with_the_first_reason() -> None:
    """Later cancels change nothing; a callback that was taken off does not run."""
    seen: list[str] = []
    token = CancelToken()
    token.on_cancel(lambda reason: seen.append(f"1 {reason}"))
    forget = token.on_cancel(lambda reason: seen.append("never"))
    token.on_cancel(lambda reason: seen.append(f"2 {reason}"))
    forget()
    token.cancel("a")
    token.cancel("b")
    token.on_cancel(lambda reason: seen.append(f"late {reason}"))
    assert ["1 a", "2 a", "late a"] == seen


def test_one_callback_can_be_given_twice_and_taken_off_once() -> None:
    """Each registration is its own."""
    seen: list[str] = []
    token = CancelToken()
    forget = token.on_cancel(seen.append)
    token.on_cancel(seen.append)
    forget()
    token.cancel("x")
    assert ["x"] == seen


def test_check_raises_once_it_is_cancelled() -> None:
    """Before that it does nothing."""
    token = CancelToken()
    token.check()
    token.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        token.check()


async def test_waiting_ends_when_a_thread_cancels() -> None:
    """`wait` returns the reason, from whatever thread it came."""
    token = CancelToken()
    threading.Timer(0.01, token.cancel, args=("from a thread",)).start()
    assert await token.wait() == "from a thread"
    assert await token.wait() == "from a thread"


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    """A token that lives long does not collect the waiters that gave up."""
    token = CancelToken()
    tasks = [asyncio.create_task(token.wait()) for _ in range(100)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not token._callbacks
