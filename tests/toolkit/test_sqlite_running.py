"""Queries that run long, wait for locks, are cancelled or show too much."""

import asyncio
import contextlib
import sqlite3

import pytest

from dispatch import Dispatcher, Status, ToolCall
from dispatch.errors import ToolError
from dispatch.runtime.cancel import CancelToken
from dispatch.toolkit import sqlite, sqlite_tool
from dispatch.toolkit.sqlite import CELL_LIMIT, OUTPUT_LIMIT, ROW_LIMIT
from tests.toolkit.bench import Bench, Interruption
from tests.toolkit.databases import ROWS, execute, query, rows

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
SMALL = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT {}) SELECT {} FROM c"


class Polled(CancelToken):
    """A token that is cancelled at a running statement's third look at it.

    With `shows` the statement sees that by looking and nothing else happens; without, it is only
    called back. A statement that runs on all the same is stopped by what is no cancel.
    """

    __slots__ = ("_looks", "_shows")

    def __init__(self, *, shows: bool) -> None:
        super().__init__()
        self._looks = 0
        self._shows = shows

    @property
    def cancelled(self) -> bool:
        self._looks += 1
        if self._looks == 3 and self._shows:
            self._reason = "seen"
            return True
        if self._looks == 3:
            self.cancel("called back")
        if self._looks == 1000:
            self._reason = "too late"
        return self._looks >= 1000


@pytest.mark.parametrize(
    ("shows", "expected"), [(True, "seen"), (False, "called back")], ids=["seen", "called back"]
)
@pytest.mark.parametrize("writes", [False, True], ids=["read", "write"])
def test_cancelling_ends_a_running_statement(
    data: Bench, shows: bool, expected: str, writes: bool
) -> None:
    """A statement without end is stopped, whether it looks at the token or is interrupted."""
    data.token = Polled(shows=shows)
    with pytest.raises(asyncio.CancelledError, match=expected):
        query(data, ENDLESS, write=writes)


@pytest.mark.parametrize("look", [1, 2, 3, 4])
def test_a_cancelled_change_is_not_made(data: Bench, look: int) -> None:
    """Whenever the cancel comes, up to the last look before the commit, nothing is changed."""
    looks: list[int] = []

    def happen() -> None:
        looks.append(1)
        if len(looks) == look:
            raise asyncio.CancelledError

    data.token = Interruption(happen)
    with pytest.raises(asyncio.CancelledError):
        query(data, "DELETE FROM t", write=True)
    assert look == len(looks)
    data.token = CancelToken()
    assert ROWS == rows(data)


async def test_a_timeout_ends_the_statement_with_its_call(data: Bench) -> None:
    """A query above its time limit has really stopped, and a change waiting for it goes on."""
    calls = [
        ToolCall("1", "sqlite_query", {"database": "d", "sql": ENDLESS}, timeout=0.2),
        ToolCall("2", "sqlite_query", {"database": "d", "sql": "DELETE FROM t", "write": True}),
    ]
    async with Dispatcher([sqlite_tool(data.root)]) as dispatcher:
        turn = await dispatcher.run(calls)
    assert [Status.TIMED_OUT, Status.OK] == [each.status for each in turn]
    assert "[2 rows changed]" == turn[1].content()


@pytest.mark.parametrize("writes", [False, True], ids=["read", "write"])
def test_a_lock_of_another_program_is_waited_for(data: Bench, writes: bool) -> None:
    """Between two tries for a lock the token is looked at; once the lock is gone all goes on."""
    with contextlib.closing(sqlite3.connect(data.root / "d", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        looks: list[int] = []

        def happen() -> None:
            looks.append(1)
            if len(looks) == 3:
                other.execute("ROLLBACK")

        data.token = Interruption(happen)
        sql = "UPDATE t SET a = 1" if writes else "SELECT 1 FROM t"
        assert query(data, sql, write=writes)
        assert len(looks) > 3


@pytest.mark.parametrize("writes", [False, True], ids=["read", "write"])
def test_a_lock_that_stays_is_a_failure_to_try_again(
    data: Bench, writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many tries the failure says that nothing was done and that it may pass."""
    monkeypatch.setattr(sqlite, "LOCK_TRIES", 2)
    with contextlib.closing(sqlite3.connect(data.root / "d", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ToolError) as caught:
            query(data, "UPDATE t SET a = 1" if writes else "SELECT 1 FROM t", write=writes)
    expected = "another program held a lock on the database for 0.2 s; nothing was done"
    assert (expected, True) == (str(caught.value), caught.value.retryable)


def test_a_write_ahead_log_is_read_beside_a_writer(data: Bench) -> None:
    """In WAL mode a read sees what is committed while another program writes."""
    execute(data, "PRAGMA journal_mode = WAL")
    with contextlib.closing(sqlite3.connect(data.root / "d", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM t")
        assert ROWS == rows(data)


def test_a_read_does_not_even_tidy_up(data: Bench) -> None:
    """A log that another program left behind is read and stays as it is: that would be a write."""
    execute(data, "PRAGMA journal_mode = WAL")
    with contextlib.closing(sqlite3.connect(data.root / "d", isolation_level=None)) as other:
        other.execute("DELETE FROM t WHERE a = 1")
        for end in ("", "-wal"):
            (data.root / f"left{end}").write_bytes((data.root / f"d{end}").read_bytes())
    before = [(data.root / f"left{end}").read_bytes() for end in ("", "-wal")]
    assert before[1]
    assert '["a"]\n[2]' == query(data, "SELECT a FROM t", database="left")
    assert before == [(data.root / f"left{end}").read_bytes() for end in ("", "-wal")]


def test_many_rows_are_bounded(data: Bench) -> None:
    """As many rows as can be shown are no more than that; one more is said."""
    lines = query(data, SMALL.format(ROW_LIMIT, "x")).split("\n")
    assert ['["x"]', *(f"[{n + 1}]" for n in range(ROW_LIMIT))] == lines
    lines = query(data, SMALL.format(ROW_LIMIT + 1, "x")).split("\n")
    assert f"[more than {ROW_LIMIT} rows; ask for fewer rows or columns, or page]" == lines[-1]
    assert ROW_LIMIT + 2 == len(lines)


def test_large_rows_and_values_are_bounded(data: Bench) -> None:
    """A long value shows its beginning and its length, and long rows make fewer of them."""
    shown = query(data, "SELECT printf('%.*c', 5000, 'x') AS a, zeroblob(5000) AS b")
    assert f'"{"x" * CELL_LIMIT}… (5,000 characters)"' in shown
    assert f'"blob of 5,000 bytes: {"00" * CELL_LIMIT}…"' in shown
    shown = query(data, SMALL.format(100, "printf('%.*c', 3000, 'x')"))
    assert len(shown) < OUTPUT_LIMIT + 200
    assert shown.endswith("[more than 21 rows; ask for fewer rows or columns, or page]")


async def test_numbers_and_names_reach_the_statement_as_they_are(data: Bench) -> None:
    """Parameters keep their kinds on the way from the model's JSON; too large a number is told."""
    arguments = '{"database": "d", "sql": "SELECT typeof(?), typeof(?), typeof(?), typeof(?)",'
    calls = [
        ToolCall("1", "sqlite_query", arguments + '"parameters": [1, 1.0, "1", null]}'),
        ToolCall("2", "sqlite_query", arguments + f'"parameters": [{2**70}, 1, 1, 1]}}'),
    ]
    async with Dispatcher([sqlite_tool(data.root)]) as dispatcher:
        turn = await dispatcher.run(calls)
    assert '["integer","real","text","null"]' == turn[0].content().split("\n")[1]
    assert "[error] Python int too large to convert to SQLite INTEGER" == turn[1].content()
