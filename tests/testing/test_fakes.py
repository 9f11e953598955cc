"""Tools that misbehave, a model that follows a script, and what is left behind."""

import asyncio
import os
import subprocess
import threading
from pathlib import Path

import pytest

from dispatch import Dispatcher, FailureKind, ResourceTable, Status, write
from dispatch.testing import (
    ScriptedModel,
    assert_no_leaks,
    failing_at,
    hanging,
    leaking,
    refusing,
    run_in_virtual_time,
    stuck,
)
from tests.runtime.keyed import call, statuses


def test_one_that_hangs_ends_when_it_is_cancelled() -> None:
    """It takes its time limit, and no grace."""
    turn = run_in_virtual_time(Dispatcher([hanging()]).run([call("hang", timeout=5.0)]))
    assert (Status.TIMED_OUT, 5.0) == (turn[0].status, turn[0].finished_at)


def test_one_that_refuses_is_given_up_and_keeps_its_claims_until_it_is_released() -> None:
    """The next call on the same key goes on only then."""

    async def main() -> None:
        release = asyncio.Event()
        tools = [refusing(release=release, writes="key:a"), hanging("next", writes="key:a")]
        dispatcher = Dispatcher(tools)
        turn = await dispatcher.run([call("refuse", timeout=1.0)])
        assert (Status.UNKNOWN, 1) == (turn[0].status, dispatcher.resources.statistics().held)
        async with assert_no_leaks(dispatcher.resources):
            release.set()
            later = await dispatcher.run([call("next", timeout=1.0)])
            assert (Status.TIMED_OUT, "run") == (later[0].status, later[0].failure.phase)  # type: ignore[union-attr]

    run_in_virtual_time(main())


def test_a_thread_that_is_stuck_is_given_up() -> None:
    """Real time goes by while it is; released, it ends and gives its claims back."""
    release = threading.Event()

    async def main() -> None:
        dispatcher = Dispatcher([stuck(release=release, writes="key:a")], grace=0.05)
        async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits, within=5.0):
            turn = await dispatcher.run([call("stuck", timeout=0.05)])
            assert FailureKind.ABANDONED is turn[0].failure.kind  # type: ignore[union-attr]
            release.set()

    asyncio.run(main())


def test_one_that_leaks_a_task_is_found_out() -> None:
    """The task is named; once it is cancelled nothing is left."""

    async def main() -> None:
        started: list[asyncio.Task[None]] = []
        with pytest.raises(AssertionError, match=r"left behind:\n- task "):
            async with assert_no_leaks(within=0.01):
                await Dispatcher([leaking(started=started)]).run([call("leak")])
        async with assert_no_leaks():
            started[0].cancel()

    asyncio.run(main())


def test_one_fails_at_the_call_that_was_asked_for() -> None:
    """The second of three, with the error that was given; others return their number."""
    dispatcher = Dispatcher([failing_at(2, error=lambda: OSError("full"))], schedule="serial")
    turn = run_in_virtual_time(dispatcher.run([call("fail") for _ in range(3)]))
    assert ["ok", "error", "ok"] == statuses(turn)
    assert (1, "[error] OSError: full", 3) == (turn[0].value, turn[1].content(), turn[2].value)


def test_a_model_answers_by_position_in_the_conversation() -> None:
    """Two conversations at once get the same replies, and a repeated request the same answer."""
    model = ScriptedModel(["first", "second"])

    async def converse(said: list[dict[str, object]]) -> list[str]:
        for _ in range(2):
            said.append({"role": "user", "content": "go on"})
            await asyncio.sleep(0)
            assert await model(said) == model.reply(said)
            said.append({"role": "assistant", "content": await model(said)})
        return [str(message["content"]) for message in said if message["role"] == "assistant"]

    async def main() -> list[list[str]]:
        return list(await asyncio.gather(converse([]), converse([])))

    assert [["first", "second"]] * 2 == asyncio.run(main())
    with pytest.raises(AssertionError, match="2 replies, and the model was asked for one more"):
        model.reply([{"role": "assistant"}, {"role": "model"}])


async def test_each_kind_of_thing_that_is_left_is_told(tmp_path: Path) -> None:
    """A task, a thread, a process, a descriptor and a claim, each by name."""
    over, table = threading.Event(), ResourceTable()
    hold = table.hold(write("key", "a"))
    leaks = assert_no_leaks(table, within=0.01)
    await leaks.__aenter__()
    task = asyncio.create_task(asyncio.sleep(60), name="sleepy")
    threading.Thread(target=over.wait, name="threaded").start()
    process = subprocess.Popen(["sleep", "60"])
    number = os.open(tmp_path, os.O_RDONLY)
    await hold.__aenter__()
    with pytest.raises(AssertionError) as found:
        await leaks.__aexit__(None, None, None)
    process.kill()
    await hold.__aexit__(None, None, None)
    os.close(number)
    over.set()
    task.cancel()
    process.wait()
    lines = str(found.value).splitlines()
    assert "left behind:" == lines[0]
    assert any(line.startswith("- task sleepy") for line in lines)
    assert "- thread threaded" in lines
    assert f"- process {process.pid}: sleep" in lines
    assert f"- descriptor {number}: {tmp_path}" in lines
    assert "- claims: 1 held, 0 waited for" in lines
    await leaks.__aexit__(None, None, None)


def test_a_process_that_nobody_waited_for_is_left() -> None:
    """A zombie, which is told as one."""
    started: list[subprocess.Popen[bytes]] = []

    def body() -> None:
        with assert_no_leaks(within=0.01):
            started.append(subprocess.Popen(["true"]))
            os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(AssertionError, match="true, a zombie"):
        body()
    assert 0 == started[0].wait()


@pytest.mark.parametrize("leaks", [True, False])
def test_the_error_of_the_body_is_never_lost(leaks: bool) -> None:
    """It is the cause of what is said about leaks, or comes out as it is."""
    over = threading.Event()

    def body() -> None:
        with assert_no_leaks(within=0.01):
            if leaks:
                threading.Thread(target=over.wait).start()
            raise ValueError("body")

    with pytest.raises(AssertionError if leaks else ValueError) as found:
        body()
    over.set()
    assert "body" == str(found.value.__cause__ or found.value)


def test_an_interrupt_is_not_hidden_by_what_it_left() -> None:
    """Ctrl-C ends a test run also where the test was in the middle of something."""
    over = threading.Event()

    def body() -> None:
        with assert_no_leaks(within=0.01):
            threading.Thread(target=over.wait).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as found:
        body()
    over.set()
    assert "thread" in found.value.__notes__[0]


def test_a_task_that_is_about_to_end_is_no_leak_in_virtual_time_either() -> None:
    """Virtual time goes on while it is waited for."""

    async def main() -> None:
        async with assert_no_leaks():
            task = asyncio.create_task(asyncio.sleep(0.01))
        assert task.done()

    run_in_virtual_time(main())
