"""A turn that goes on where an earlier one ended: what has run does not run again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    Allow,
    CallContext,
    Dispatcher,
    GateContext,
    Quorum,
    Ref,
    ResourceTable,
    ToolCall,
    ToolError,
    TurnResult,
    UsageError,
    commute,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import cancelled, statuses


class Pages:
    """Pages that are read and written by key; what ran, in order."""

    def __init__(self) -> None:
        self.text: dict[str, str] = {}
        self.ran: list[str] = []

    def dispatcher(self, **options: Any) -> Dispatcher:
        """Tools that read, write, append, ask, fail and agree to stop late."""

        @tool(reads="page:{page}")
        async def look(page: str) -> str:
            self.ran.append(f"look {page}")
            await asyncio.sleep(1)
            return self.text.get(page, "-")

        @tool(writes="page:{page}")
        async def put(page: str, text: str, seconds: float = 1.0) -> str:
            self.ran.append(f"put {text}")
            await asyncio.sleep(seconds)
            self.text[page] = text
            return f"put {text}"

        @tool(resource_keys=lambda given: [commute("append", "page", given["page"])])
        async def append(page: str) -> None:
            self.ran.append(f"append {page}")

        @tool(safe_parallel=True)
        async def ask() -> str:
            self.ran.append("ask")
            return "answer"

        @tool(writes="page:{page}")
        async def fail(page: str) -> None:
            self.ran.append("fail")
            raise ToolError("no such page")

        return Dispatcher([look, put, append, ask, fail], **options)


def put(page: str, text: str, seconds: float = 1.0) -> ToolCall:
    return ToolCall(f"put {text}", "put", {"page": page, "text": text, "seconds": seconds})


def look(page: str, name: str = "look") -> ToolCall:
    return ToolCall(name, "look", {"page": page})


async def interrupted(dispatcher: Dispatcher, calls: list[ToolCall], at: float) -> TurnResult:
    """The turn, cancelled after so many seconds."""
    task = asyncio.ensure_future(dispatcher.run(calls))
    await asyncio.sleep(at)
    return await cancelled(task)


def test_what_was_done_before_an_interrupt_is_not_done_again() -> None:
    """H6: [write done, write done, running], Ctrl-C, resume: only the third runs again."""
    pages = Pages()
    calls = [put("a", "one"), put("b", "two"), put("c", "three", seconds=60)]

    async def main() -> None:
        async with pages.dispatcher() as dispatcher:
            stopped = await interrupted(dispatcher, calls, at=5)
            assert ["ok", "ok", "cancelled"] == statuses(stopped)
            calls[2] = put("c", "three", seconds=60)
            resumed = await dispatcher.run(calls, resume=stopped)
        assert ["put one", "put two", "put three"] == [result.value for result in resumed]
        assert [0, 0, 1] == [result.attempts for result in resumed]
        assert [(0, calls[0]), (1, calls[1])] == [(r.index, r.call) for r in resumed][:2]
        assert {} == resumed[0].waits

    run_in_virtual_time(main())
    assert ["put one", "put two", "put three", "put three"] == pages.ran


def test_three_attempts_each_close_their_own_ids() -> None:
    """D3: a step is aborted and retried three times; every id has a result, each write ran once."""
    pages = Pages()

    async def main() -> list[list[str]]:
        dispatcher, seen, earlier = pages.dispatcher(), [], None
        for attempt in range(3):
            calls = [
                ToolCall(f"{attempt}-{n}", "put", {"page": p, "text": p, "seconds": 1.0})
                for n, p in enumerate("abc")
            ]
            task = asyncio.ensure_future(dispatcher.run(calls, schedule="serial", resume=earlier))
            await asyncio.sleep(1.5)
            earlier = await cancelled(task) if attempt < 2 else await task
            assert [call.id for call in calls] == [result.call.id for result in earlier]
            seen.append(statuses(earlier))
        return seen

    seen = run_in_virtual_time(main())
    assert [
        ["ok", "cancelled", "cancelled"],
        ["ok", "ok", "cancelled"],
        ["ok", "ok", "ok"],
    ] == seen
    assert ["put a", "put b", "put b", "put c", "put c"] == pages.ran


def test_a_stream_that_dies_loses_nothing_that_had_started() -> None:
    """The host catches it and finishes the turn: the next one has all of the answers."""
    pages = Pages()

    async def main() -> TurnResult:
        dispatcher = pages.dispatcher()
        async with dispatcher.turn() as turn:
            turn.submit(put("a", "one"))
            await asyncio.sleep(0.5)  # and then the model's stream breaks off
        return await dispatcher.run([put("a", "one"), put("a", "two")], resume=turn)

    assert ["put one", "put two"] == [result.value for result in run_in_virtual_time(main())]
    assert ["put one", "put two"] == pages.ran


@pytest.mark.parametrize(
    ("first", "between", "again"),
    [
        ([look("a")], [], False),
        ([look("a")], [look("a")], False),
        ([look("a")], [put("b", "x")], False),
        ([look("a")], [put("a", "x")], True),
        ([look("a")], [ToolCall("", "append", {"page": "a"})], True),
        ([look("a"), put("a", "x")], [], True),
        ([put("a", "x"), look("a")], [], False),
        ([look("a")], [put(f"{n}", "x", 0) for n in range(1025)], True),
    ],
)
def test_what_was_read_is_read_again_if_it_may_have_changed(
    first: list[ToolCall], between: list[ToolCall], again: bool
) -> None:
    """A write that another turn, or the same one, did since; or more than the table remembers."""
    pages = Pages()

    async def main() -> None:
        table = ResourceTable()
        earlier = await pages.dispatcher(resources=table).run(first)
        await pages.dispatcher(resources=table).run(between)
        pages.ran.clear()
        later = await pages.dispatcher(resources=table).run([look("a")], resume=earlier)
        assert pages.text.get("a", "-") == later[0].value

    run_in_virtual_time(main())
    assert (["look a"] if again else []) == pages.ran


def test_a_read_behind_a_write_that_will_run_is_not_answered() -> None:
    """In the new turn a write stands before it that the earlier one never did."""
    pages = Pages()

    async def main() -> TurnResult:
        dispatcher = pages.dispatcher()
        earlier = await dispatcher.run([look("a"), look("b")])
        calls = [put("a", "new"), look("a"), look("b")]
        return await dispatcher.run(calls, resume=earlier)

    turn = run_in_virtual_time(main())
    assert ["put new", "new", "-"] == [result.value for result in turn]
    assert [1, 1, 0] == [result.attempts for result in turn]


def test_a_table_of_its_own_has_seen_nothing_of_what_changed() -> None:
    """On another table reads run again; what may have changed something does not."""
    pages = Pages()

    async def main() -> TurnResult:
        calls = [look("a"), put("b", "one"), ToolCall("", "ask", {})]
        earlier = await pages.dispatcher().run(calls)
        return await pages.dispatcher().run(calls, resume=earlier)

    assert [1, 0, 0] == [result.attempts for result in run_in_virtual_time(main())]


def test_each_result_answers_one_call() -> None:
    """Two equal calls, of which one had run: the other one runs."""
    pages = Pages()

    async def main() -> TurnResult:
        dispatcher = pages.dispatcher()
        earlier = await dispatcher.run([put("a", "one")])
        return await dispatcher.run([put("a", "one"), put("a", "one")], resume=earlier)

    assert [0, 1] == [result.attempts for result in run_in_virtual_time(main())]


@pytest.mark.parametrize("dependents", ["run", "skip"])
def test_a_call_that_failed_by_itself_is_answered_and_one_that_never_ran_is_not(
    dependents: str,
) -> None:
    """An error is an answer; a refusal, a time-out and what was skipped are tried again.

    Where dependents are skipped the failure must happen again, or nothing stands behind it.
    """
    pages = Pages()
    second = "skipped" if dependents == "skip" else "ok"

    async def main() -> TurnResult:
        dispatcher = pages.dispatcher(dependents=dependents)
        calls = [
            ToolCall("f", "fail", {"page": "a"}),
            ToolCall("s", "put", {"page": "b", "text": "x"}, after=("f",)),
            ToolCall("t", "put", {"page": "c", "text": "y", "seconds": 9.0}, timeout=2.0),
            ToolCall("w", "put", {"page": 7}),
        ]
        earlier = await dispatcher.run(calls)
        assert ["error", second, "timed_out", "error"] == statuses(earlier)
        pages.ran.clear()
        return await dispatcher.run(calls, resume=earlier)

    turn = run_in_virtual_time(main())
    assert ["error", second, "timed_out", "error"] == statuses(turn)
    skips = dependents == "skip"
    assert [int(skips), 0, 1, 0] == [result.attempts for result in turn]
    assert {"put y", *(["fail"] if skips else [])} == set(pages.ran)
    assert "[error] no such page" == turn[0].content()


@pytest.mark.parametrize("idempotent", [False, True])
def test_what_may_still_be_running_runs_again_only_if_that_is_harmless(idempotent: bool) -> None:
    """A call that could not be stopped stays unknown, unless its tool is idempotent."""
    ran: list[str] = []

    @tool(writes="page:a", idempotent=idempotent)
    async def stubborn(context: CallContext) -> str:
        ran.append("ran")
        end = asyncio.get_running_loop().time() + (10 if len(ran) == 1 else 0)
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue
        return "done"

    async def main() -> TurnResult:
        dispatcher = Dispatcher([stubborn])
        earlier = await dispatcher.run([ToolCall("", "stubborn", {}, timeout=1.0)])
        assert ["unknown"] == statuses(earlier)
        again = ToolCall("", "stubborn", {})
        return await dispatcher.run([again], resume=earlier)

    turn = run_in_virtual_time(main())
    if idempotent:
        assert (["ok"], 2) == (statuses(turn), len(ran))
    else:
        assert (["unknown"], 1) == (statuses(turn), len(ran))
        assert "may still be running" in turn[0].content()


def test_an_answer_counts_for_a_policy_and_for_a_ref_and_no_gate_is_asked() -> None:
    """The quorum is met by it; another call takes its value."""
    pages = Pages()
    asked: list[str] = []

    async def gate(call: ToolCall, context: GateContext) -> Allow:
        asked.append(call.id)
        return Allow()

    async def main() -> TurnResult:
        dispatcher = pages.dispatcher(gates=[gate])
        earlier = await dispatcher.run([put("a", "one")])
        asked.clear()
        calls = [put("a", "one"), ToolCall("r", "look", {"page": Ref("put one")})]
        return await dispatcher.run(calls, resume=earlier, policy=Quorum(2))

    turn = run_in_virtual_time(main())
    assert (True, ["r"], "look put one") == (turn.satisfied, asked, pages.ran[-1])


def test_a_turn_can_be_resumed_from_a_turn_that_was_resumed() -> None:
    """The answers are handed on."""
    pages = Pages()

    async def main() -> TurnResult:
        dispatcher = pages.dispatcher()
        turn = await dispatcher.run([put("a", "one")])
        for _ in range(3):
            turn = await dispatcher.run([put("a", "one"), look("a")], resume=turn)
        return turn

    assert ["put one", "one"] == [result.value for result in run_in_virtual_time(main())]
    assert ["put one", "look a"] == pages.ran


async def test_what_cannot_be_resumed_is_said() -> None:
    """A turn that is not over; an all-or-nothing turn; a turn in a call that may be undone."""
    dispatcher = Pages().dispatcher()
    async with dispatcher.turn() as turn:
        with pytest.raises(UsageError, match="once it is over"):
            dispatcher.turn(resume=turn)
    with pytest.raises(ValueError, match="cannot be combined with AllOrNothing"):
        dispatcher.turn(resume=turn, policy=AllOrNothing())

    @tool(safe_parallel=True)
    async def inner(context: CallContext) -> None:
        await context.run([], resume=turn)

    outer = await Dispatcher([inner]).run([ToolCall("", "inner", {})], policy=AllOrNothing())
    assert "may yet be undone" in outer[0].content()
    assert (await Dispatcher([inner]).run([ToolCall("", "inner", {})]))[0].ok


def test_what_a_turn_above_undid_is_no_answer() -> None:
    """A turn nested in a call of a group that failed cannot be resumed from."""
    pages = Pages()
    kept: list[TurnResult] = []

    @tool(safe_parallel=True)
    async def agent(context: CallContext) -> None:
        kept.append(await pages.dispatcher().run([put("a", "one")]))

    async def main() -> None:
        dispatcher = Dispatcher([agent, *pages.dispatcher().toolbox.values()])
        calls = [ToolCall("", "agent", {}), ToolCall("", "fail", {"page": "z"}, after=())]
        await dispatcher.run(calls, policy=AllOrNothing())
        with pytest.raises(UsageError, match="may be undone"):
            dispatcher.turn(resume=kept[0])

    run_in_virtual_time(main())


@pytest.mark.parametrize("duplicates", ["coalesce", "reject"])
def test_copies_stay_copies(duplicates: str) -> None:
    """Two equal calls of which the earlier turn had one or both: it was paid once, and stays so."""
    pages = Pages()

    async def main() -> None:
        dispatcher = pages.dispatcher(duplicates=duplicates)
        both = [put("a", "one"), put("a", "one")]
        for earlier in (await dispatcher.run(both[:1]), await dispatcher.run(both)):
            pages.ran.clear()
            turn = await dispatcher.run(both, resume=earlier)
            assert ["ok", "ok" if duplicates == "coalesce" else "error"] == statuses(turn)
            assert [] == pages.ran

    run_in_virtual_time(main())


def test_a_ref_to_another_value_is_another_call() -> None:
    """The ids are the same and what they stand for is not: it runs, with the new value."""
    pages = Pages()

    async def main() -> list[TurnResult]:
        dispatcher = pages.dispatcher()
        send = ToolCall("c1", "put", {"page": "out", "text": Ref("c0"), "seconds": 1.0})
        earlier = await dispatcher.run([put("a", "A"), put("b", "B")])
        earlier = await dispatcher.run([look("a", "c0"), send])
        same = await dispatcher.run([look("a", "c0"), send], resume=earlier)
        other = await dispatcher.run([look("b", "c0"), send], resume=earlier)
        return [earlier, same, other]

    earlier, same, other = run_in_virtual_time(main())
    assert ["put A", "put A", "put B"] == [turn[1].value for turn in (earlier, same, other)]
    assert [1, 0, 1] == [turn[1].attempts for turn in (earlier, same, other)]


def test_the_same_name_in_another_folder_is_another_file(tmp_path: Path) -> None:
    """Equal arguments under another root, or behind a link that leads elsewhere now: it runs."""
    table = ResourceTable()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "one")

    @tool(writes="file:{path}")
    async def save(path: str) -> None: ...

    async def main() -> list[int]:
        def dispatcher(root: Path) -> Dispatcher:
            return Dispatcher([save], root=root, resources=table)

        calls = [ToolCall("", "save", {"path": "f"})]
        earlier = await dispatcher(tmp_path / "one").run(calls)
        other = await dispatcher(tmp_path / "two").run(calls, resume=earlier)
        same = await dispatcher(link).run(calls, resume=earlier)
        link.unlink()
        link.symlink_to(tmp_path / "two")
        moved = await dispatcher(link).run(calls, resume=earlier)
        return [turn[0].attempts for turn in (other, same, moved)]

    assert [1, 0, 1] == run_in_virtual_time(main())


def test_what_was_read_beside_a_writer_that_had_its_claims_already_is_read_again() -> None:
    """A holder that was granted before the read and changed things after it."""
    pages = Pages()

    async def main() -> None:
        table = ResourceTable()
        dispatcher = pages.dispatcher(resources=table)
        kept: list[TurnResult] = []

        @tool(writes="page:{page}")
        async def writer(page: str, context: CallContext) -> None:
            pages.text[page] = "before"
            kept.append(await dispatcher.run([look(page)]))
            pages.text[page] = "after"
            again = await dispatcher.run([look(page)], resume=kept[0])
            assert "after" == again[0].value

        await Dispatcher([writer], resources=table).run([ToolCall("", "writer", {"page": "a"})])
        turn = await dispatcher.run([look("a")], resume=kept[0])
        assert ("after", 1) == (turn[0].value, turn[0].attempts)

    run_in_virtual_time(main())


def test_a_resumed_turn_that_was_cut_short_hands_on_what_it_had_left() -> None:
    """It never came to all of its calls; their answers are not lost."""
    pages = Pages()

    async def main() -> TurnResult:
        dispatcher = pages.dispatcher()
        calls = [put("a", "one"), put("b", "two")]
        earlier = await dispatcher.run(calls)
        async with dispatcher.turn(resume=earlier) as turn:
            turn.submit(calls[0])  # and then the stream breaks off
        return await dispatcher.run(calls, resume=turn)

    assert [0, 0] == [result.attempts for result in run_in_virtual_time(main())]
    assert ["put one", "put two"] == pages.ran
