"""Cancel, time-outs, tools that do not stop, and what the host and the model are told."""

import asyncio
import threading

import pytest

from dispatch import (
    CallContext,
    CancelToken,
    Dispatcher,
    FailureKind,
    Limits,
    Phase,
    ResourceTable,
    Status,
    Tool,
    ToolCall,
    Turn,
    TurnResult,
    tool,
)
from dispatch.runtime import threads
from dispatch.testing import assert_no_leaks, run_in_virtual_time, stuck
from tests.runtime.keyed import call


@tool(writes="file:{path}")
async def edit(path: str, seconds: float = 1.0) -> str:
    await asyncio.sleep(seconds)
    return f"edited {path}"


@tool(safe_parallel=True)
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"


@tool(safe_parallel=True)
async def listen(ctx: CallContext, answer: str = "") -> str:
    """Ends by itself once its token is cancelled."""
    ctx.progress("listening")
    reason = await ctx.token.wait()
    return answer or f"stopped because {reason}"


@tool(writes="file:{path}")
async def refuse(path: str, seconds: float = 60.0) -> str:
    """Swallows every cancellation."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        try:
            await asyncio.sleep(end - loop.time())
        except asyncio.CancelledError:
            continue
    return "done at last"


async def cancelled_at(moment: float, dispatcher: Dispatcher, *calls: ToolCall) -> TurnResult:
    """Cancel the task that runs these calls at a moment; the turn it raised with."""
    task = asyncio.create_task(dispatcher.run(calls))
    await asyncio.sleep(moment)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert task.cancelled()
    turn: TurnResult = caught.value.turn  # type: ignore[attr-defined]
    return turn


def test_finished_results_survive_a_cancel_beside_a_hanging_sibling() -> None:
    """D2: [fast, fast, hang], cancelled at 2 s: two real results and one that says cancelled."""

    async def main() -> TurnResult:
        calls = [call("wait", seconds=1), call("wait", seconds=1), call("wait", seconds=600)]
        return await cancelled_at(2, Dispatcher([wait]), *calls)

    turn = run_in_virtual_time(main())
    assert [Status.OK, Status.OK, Status.CANCELLED] == [result.status for result in turn]
    assert "[cancelled] stopped while running: the turn was cancelled" == turn[2].content()


def test_the_result_tells_never_started_from_stopped_while_running() -> None:
    """D12: each says its true reason, and in which phase it was."""

    async def main() -> TurnResult:
        dispatcher = Dispatcher([edit, wait], max_concurrent=2)
        calls = [
            call("edit", path="f", seconds=9),
            call("edit", path="f"),
            call("wait", seconds=9),
            call("wait", seconds=9),
        ]
        return await cancelled_at(1, dispatcher, *calls)

    turn = run_in_virtual_time(main())
    phases = [result.failure and result.failure.phase for result in turn]
    assert [Phase.RUN, Phase.ORDER, Phase.RUN, Phase.SLOT] == phases
    texts = [result.content().split(":")[0] for result in turn]
    stopped, never = "[cancelled] stopped while running", "[cancelled] never started"
    assert [stopped, never, stopped, never] == texts
    assert [True, False, True, False] == [result.started_at is not None for result in turn]


@pytest.mark.parametrize(
    ("timeouts", "place"),
    [
        ((None, 0.5, None), "while waiting for an earlier call"),
        ((None, None, 0.5), "while waiting for a free slot"),
        ((0.5, None, None), "while running"),
    ],
    ids=["order", "slot", "run"],
)
def test_a_timeout_covers_waiting_and_names_the_phase(
    timeouts: tuple[float | None, ...], place: str
) -> None:
    """The limit counts from submission; siblings go on and the turn is no longer for it."""

    async def main() -> TurnResult:
        dispatcher = Dispatcher([edit, wait], max_concurrent=1)
        calls = [
            call("edit", timeouts[0], path="f", seconds=2),
            call("edit", timeouts[1], path="f", seconds=2),
            call("wait", timeouts[2], seconds=2),
        ]
        return await dispatcher.run(calls)

    turn = run_in_virtual_time(main())
    cut = [result for result in turn if not result.ok]
    assert [Status.TIMED_OUT] == [result.status for result in cut]
    assert f"timed out after 0.5 s {place}" in cut[0].content()
    assert 2 == sum(result.ok for result in turn)


def test_a_timeout_in_the_table_says_that_another_turn_holds_the_claims() -> None:
    """Phase lock: the file is held by a call of another dispatcher."""

    async def main() -> TurnResult:
        table = ResourceTable()
        first, second = (Dispatcher([edit], resources=table) for _ in range(2))
        holder = asyncio.create_task(first.run([call("edit", path="f", seconds=5)]))
        await asyncio.sleep(1)
        turn = await second.run([call("edit", 1.0, path="f")])
        await holder
        return turn

    failure = run_in_virtual_time(main())[0].failure
    assert failure is not None
    assert (FailureKind.TIMEOUT, Phase.LOCK) == (failure.kind, failure.phase)
    assert "what another turn holds" in failure.message


def test_one_call_has_the_same_time_limits_as_many() -> None:
    """The defaults of the dispatcher and of the tool hold for a turn of a single call."""
    patient = tool(safe_parallel=True, timeout=3.0)(wait.handler)

    async def main(dispatcher: Dispatcher) -> tuple[Status, float]:
        turn = await dispatcher.run([call("wait", seconds=60)])
        return turn[0].status, asyncio.get_running_loop().time()

    by_tool = Dispatcher([patient], call_timeout=1.0)
    by_default = Dispatcher([wait], call_timeout=1.0)
    by_turn = Dispatcher([wait], turn_timeout=2.0)
    assert (Status.TIMED_OUT, 3.0) == run_in_virtual_time(main(by_tool))
    assert (Status.TIMED_OUT, 1.0) == run_in_virtual_time(main(by_default))
    assert (Status.TIMED_OUT, 2.0) == run_in_virtual_time(main(by_turn))


def test_the_token_comes_first_and_what_was_said_is_kept() -> None:
    """A tool that heeds its token ends by itself; progress and answer stand in its result."""

    async def main() -> TurnResult:
        token = CancelToken()
        dispatcher = Dispatcher([listen])
        task = asyncio.create_task(dispatcher.run([call("listen")], token=token))
        await asyncio.sleep(1)
        threading.Thread(target=token.cancel, args=("user pressed stop",)).start()
        return await task

    result = run_in_virtual_time(main())[0]
    assert Status.CANCELLED is result.status
    assert "listening\nstopped because user pressed stop" == result.partial
    assert "user pressed stop" in result.content()
    assert result.content().endswith(result.partial)


def test_a_tool_that_swallows_cancellation_is_given_up_in_time() -> None:
    """Outcome unknown after two graces; who waits for it is skipped, who does not is untouched."""

    async def main() -> tuple[TurnResult, float]:
        dispatcher = Dispatcher([refuse, edit, wait], grace=0.5)
        calls = [
            call("refuse", 1.0, path="f"),
            call("edit", path="f"),
            call("edit", path="g"),
            call("wait", seconds=1),
        ]
        turn = await dispatcher.run(calls)
        return turn, asyncio.get_running_loop().time()

    turn, when = run_in_virtual_time(main())
    expected = [Status.UNKNOWN, Status.SKIPPED, Status.OK, Status.OK]
    assert expected == [result.status for result in turn]
    assert when <= 1.0 + 2 * 0.5 + 0.25
    skipped = turn[1].failure
    assert skipped is not None
    assert (FailureKind.ABANDONED, 0) == (skipped.kind, skipped.cause)
    assert "refuse (call 0)" in skipped.message
    assert "may or may not have happened" in turn[0].content()


def test_an_abandoned_call_keeps_its_claims_until_it_really_ends() -> None:
    """The next turn's edit of the same file starts only then, and its late result is dropped."""

    async def main() -> tuple[Status, float | None, Status]:
        dispatcher = Dispatcher([refuse, edit], grace=0.5, abandoned_wait=60.0)
        first = await dispatcher.run([call("refuse", 1.0, path="f", seconds=30)])
        second = await dispatcher.run([call("edit", path="f")])
        return first[0].status, second[0].started_at, first[0].status

    assert (Status.UNKNOWN, 30.0, Status.UNKNOWN) == run_in_virtual_time(main())


def test_a_call_that_waited_for_an_abandoned_one_has_its_whole_end_to_itself() -> None:
    """A stop that comes in its last step comes too late, as it does for any other call."""
    token = CancelToken()

    @tool(writes="file:{path}")
    async def stops_all(path: str) -> str:
        token.cancel("with its last step")
        return "done"

    async def main() -> tuple[TurnResult, float]:
        dispatcher = Dispatcher([refuse, stops_all], grace=0.5, abandoned_wait=60.0)
        await dispatcher.run([call("refuse", 1.0, path="f", seconds=30)])
        turn = await dispatcher.run([call("stops_all", path="f")], token=token)
        return turn, asyncio.get_running_loop().time()

    turn, ended = run_in_virtual_time(main())
    assert (["done"], 30.0) == ([result.content() for result in turn], ended)


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        (None, [(Status.SKIPPED, 6.5), (Status.SKIPPED, 6.5), (Status.OK, 1.5)]),
        (7.0, [(Status.TIMED_OUT, 8.5), (Status.TIMED_OUT, 8.5), (Status.OK, 1.5)]),
    ],
    ids=["no limit", "limit"],
)
def test_other_turns_wait_for_an_abandoned_call_but_not_for_ever(
    timeout: float | None, expected: list[tuple[Status, float]]
) -> None:
    """Within their time limits, or `abandoned_wait` once for the whole turn if they have none."""

    async def main() -> TurnResult:
        dispatcher = Dispatcher([refuse, edit], abandoned_wait=5.0, grace=0.5)
        await dispatcher.run([call("refuse", 1.0, path="f", seconds=900)])
        assert asyncio.get_running_loop().time() == 1.5
        edits = [call("edit", timeout, path=path, seconds=0) for path in ("f", "f", "g")]
        return await dispatcher.run(edits)

    turn = run_in_virtual_time(main())
    assert expected == [(result.status, result.finished_at) for result in turn]
    if timeout is None:
        whom = "refuse (call 0) of another turn"
        assert f"it waits for {whom}, which could not be stopped" in turn[0].content()


def test_a_call_that_waits_already_when_another_is_given_up_is_told() -> None:
    """The wait for an abandoned call begins when it is abandoned."""

    async def main() -> TurnResult:
        table = ResourceTable()
        first, second = (
            Dispatcher([refuse, edit], resources=table, abandoned_wait=5.0, grace=0.5)
            for _ in range(2)
        )
        stuck = asyncio.create_task(first.run([call("refuse", 3.0, path="f", seconds=900)]))
        await asyncio.sleep(1)
        turn = await second.run([call("edit", path="f")])
        await stuck
        return turn

    turn = run_in_virtual_time(main())
    assert (Status.SKIPPED, 8.5) == (turn[0].status, turn[0].finished_at)


def test_a_stuck_thread_is_given_up_and_gives_its_slot_back() -> None:
    """A `def` tool cannot be stopped; the turn returns, the next call runs under limit 1."""
    release = threading.Event()
    ended = threading.Event()

    @tool(writes="key:stuck")
    def stuck() -> str:
        release.wait(15)
        ended.set()
        return "late"

    async def main() -> tuple[TurnResult, int, int]:
        dispatcher = Dispatcher([stuck, wait], max_concurrent=1, grace=0.05)
        turn = await dispatcher.run([call("stuck", 0.05), call("wait", seconds=0.01)])
        held = dispatcher.resources.statistics().held
        release.set()
        while dispatcher.resources.statistics().held:  # noqa: ASYNC110 - another thread gives it back
            await asyncio.sleep(0.005)
        return turn, held, dispatcher.limits.running

    turn, held, running = asyncio.run(main())
    assert [Status.UNKNOWN, Status.OK] == [result.status for result in turn]
    assert (1, 0, True) == (held, running, ended.is_set())


def test_claims_of_a_thread_that_outlives_its_loop_are_given_back() -> None:
    """Two loops, one table: the thread releases its claims after its own loop is closed."""
    release = threading.Event()

    @tool(writes="file:{path}")
    def stuck(path: str) -> str:
        release.wait(15)
        return "late"

    table = ResourceTable()
    dispatcher = Dispatcher([stuck, edit], resources=table, grace=0.02)
    first = dispatcher.run_sync([call("stuck", 0.02, path="f")])
    assert (Status.UNKNOWN, 1) == (first[0].status, table.statistics().held)
    threading.Timer(0.1, release.set).start()
    second = dispatcher.run_sync([call("edit", path="f", seconds=0.0)])
    assert (Status.OK, 0) == (second[0].status, table.statistics().held)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_tool_stops_its_siblings_and_comes_out_once(
    error: type[BaseException],
) -> None:
    """Never a result: siblings are stopped and awaited before it is raised."""
    stopped = []

    @tool(safe_parallel=True)
    async def interrupt() -> None:
        await asyncio.sleep(1)
        raise error

    @tool(safe_parallel=True)
    async def sibling() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(asyncio.get_running_loop().time())

    async def main() -> None:
        await Dispatcher([interrupt, sibling]).run([call("interrupt"), call("sibling")])

    with pytest.raises(error) as raised:
        run_in_virtual_time(main())
    assert [1.0] == stopped
    assert ["cancelled"] * 2 == [str(result.status) for result in raised.value.turn]  # type: ignore[attr-defined]


def test_a_tool_that_cancels_itself_has_failed_and_nobody_else() -> None:
    """Told apart from a cancel from outside: the turn goes on and returns."""

    @tool(safe_parallel=True)
    async def cancel_itself() -> None:
        raise asyncio.CancelledError("on its own")

    async def main() -> TurnResult:
        calls = [call("cancel_itself"), call("wait", seconds=1)]
        return await Dispatcher([cancel_itself, wait]).run(calls)

    turn = run_in_virtual_time(main())
    assert [Status.ERROR, Status.OK] == [result.status for result in turn]
    assert turn[0].failure is not None
    assert FailureKind.CANCELLED is turn[0].failure.kind


def test_closing_the_dispatcher_stops_what_runs_and_refuses_what_comes() -> None:
    """`aclose` returns when every call has its result; later turns are refused."""

    async def main() -> tuple[TurnResult, float]:
        dispatcher = Dispatcher([wait])
        task = asyncio.create_task(dispatcher.run([call("wait", seconds=60)]))
        await asyncio.sleep(1)
        await dispatcher.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await dispatcher.run([])
        return await task, asyncio.get_running_loop().time()

    turn, when = run_in_virtual_time(main())
    assert (Status.CANCELLED, 1.0) == (turn[0].status, when)
    assert "the dispatcher was closed" in turn[0].content()


def test_a_second_cancel_does_not_cut_the_settling_short() -> None:
    """However often the task is cancelled, the turn settles first and every call is answered."""

    async def main() -> tuple[TurnResult, float]:
        loop = asyncio.get_running_loop()
        ended: list[float] = []
        task = asyncio.create_task(Dispatcher([refuse], grace=0.5).run([call("refuse", path="f")]))
        task.add_done_callback(lambda _: ended.append(loop.time()))
        for _ in range(3):
            await asyncio.sleep(0.3)
            task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        turn: TurnResult = caught.value.turn  # type: ignore[attr-defined]
        return turn, ended[0]

    turn, when = run_in_virtual_time(main())
    assert Status.UNKNOWN is turn[0].status
    assert when == pytest.approx(0.3 + 0.5)


def test_leaving_the_block_by_an_exception_stops_the_turn() -> None:
    """The host's own error comes out unchanged, after the calls were stopped."""
    turns: list[Turn] = []

    async def fail() -> None:
        async with Dispatcher([wait]).turn() as turn:
            turn.submit(call("wait", seconds=60))
            turns.append(turn)
            raise ZeroDivisionError

    async def main() -> float:
        with pytest.raises(ZeroDivisionError):
            await fail()
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) == 0.0
    assert ["[cancelled] never started: the host failed while the turn was open"] == [
        result.content() for result in turns[0].snapshot()
    ]


def test_threads_of_calls_that_were_given_up_are_replaced_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A `def` tool is refused then and says why; others run; one that comes back makes room."""
    monkeypatch.setattr(threads, "MOST_STUCK", 2)
    release = threading.Event()

    async def main() -> None:
        dispatcher = Dispatcher(
            [stuck(release=release), Tool("plain", lambda: "ran", safe_parallel=True), wait],
            grace=0.02,
        )
        async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits, within=5.0):
            for _ in range(2):
                turn = await dispatcher.run([call("stuck", timeout=0.02), call("plain")])
                assert [Status.UNKNOWN, Status.OK] == [result.status for result in turn]
            turn = await dispatcher.run([call("plain"), call("wait", seconds=0)])
            assert [Status.ERROR, Status.OK] == [result.status for result in turn]
            assert "2 calls that could not be stopped are still busy" in turn[0].content()
            release.set()
            while (turn := await dispatcher.run([call("plain")]))[0].value != "ran":  # noqa: ASYNC110
                await asyncio.sleep(0)  # the threads are about to tell that they ended
            await dispatcher.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["the host fails", "the host is cancelled"])
def test_what_must_end_the_program_goes_before_all_else(how: str) -> None:
    """A tool raises `SystemExit` as it is stopped, because its host failed or was cancelled."""

    @tool(safe_parallel=True)
    async def quits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise SystemExit(7)

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with Dispatcher([quits]).turn() as turn:
            turn.submit(call("quits"))
            await asyncio.sleep(1)
            if how == "the host fails":
                raise ValueError("the host fails")
            task.cancel()
            await asyncio.sleep(60)

    with pytest.raises(SystemExit) as raised:
        run_in_virtual_time(main())
    turn = raised.value.turn  # type: ignore[attr-defined]
    assert (7, ["cancelled"]) == (raised.value.code, [str(result.status) for result in turn])


def test_closing_waits_for_the_results_of_what_it_stops() -> None:
    """A tool takes a while to clean up: when `aclose` returns, its turn has its result."""

    @tool(safe_parallel=True)
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.25)

    async def main() -> tuple[float, bool]:
        dispatcher = Dispatcher([cleans_up], grace=0.5)
        running = asyncio.ensure_future(dispatcher.run([call("cleans_up")]))
        await asyncio.sleep(1)
        await dispatcher.aclose()
        closed = asyncio.get_running_loop().time()
        await asyncio.sleep(0)
        return closed, running.done()

    assert (1.25, True) == run_in_virtual_time(main())


def test_a_cancel_wins_over_a_slot_of_the_same_step() -> None:
    """The slot is on its way when the token is cancelled: the call never starts."""
    started: list[str] = []

    @tool(safe_parallel=True)
    def starts() -> None:  # in a thread: what is started there runs
        started.append("started")

    async def main() -> TurnResult:
        limits, token = Limits(0), CancelToken()
        running = asyncio.ensure_future(
            Dispatcher([starts], limits=limits).run([call("starts")], token=token)
        )
        await asyncio.sleep(1)
        limits.total = 1
        token.cancel("stop")
        turn = await running
        assert (0, 0) == (limits.running, limits.waiting)
        return turn

    turn = run_in_virtual_time(main())
    assert ([], 0, Status.CANCELLED) == (started, turn[0].attempts, turn[0].status)
