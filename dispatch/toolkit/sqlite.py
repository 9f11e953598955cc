"""`sqlite_query`: one SQL statement on a database file of a folder.

Owns how a database is opened, what the claims are, and the bounds on what is shown. Invariants:
without `write` the file is opened read-only, so the claim is true whatever the SQL says; with it
the statement is one transaction, which is rolled back unless all of it was done; the token is
looked at while a statement runs, while it waits for a lock, and right before the commit. No
other file is reached (see `statements`), the ones SQLite keeps beside the database aside, and
these are claimed too.

What remains: SQLite opens the database by its path, so a folder that a program outside of this
one replaces by a link, in between, is followed before it is noticed and refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from dispatch.claims import Claim, read, write
from dispatch.errors import ToolError
from dispatch.render import preview
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.tool import Tool
from dispatch.toolkit.paths import Folder
from dispatch.toolkit.statements import Authorizer

ROW_LIMIT = 500
OUTPUT_LIMIT = 64 * 1024
"""Characters of rows that one call shows."""

CELL_LIMIT = 4000
"""Characters of one value that are shown, and bytes of a blob."""

LOCK_TRIES = 50
LOCK_WAIT = 0.1
"""Seconds of one try for a lock that another program holds; the token is looked at in between."""

STEPS = 10_000
"""Instructions of SQLite's machine between two looks at the token."""

LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 4 * 1024 * 1024,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 256,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
"""What one row may take of memory is the first times the third."""

BESIDE = ("", "-journal", "-wal", "-shm")
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

Value = str | int | float | bool | None
Parameters = list[Value] | dict[str, Value] | None
T = TypeVar("T")


def sqlite_tool(root: str | os.PathLike[str] | Folder, *, timeout: float | None = None) -> Tool:
    """Return `sqlite_query` over the databases of one folder that it cannot leave.

    `timeout` is seconds from submission to result of a call; None is the dispatcher's. A call
    claims its database, and the files that SQLite keeps beside it, for reading; with `write`, for
    itself alone. Cancelling interrupts the statement, and nothing of it is kept.
    """
    folder = root if isinstance(root, Folder) else Folder(root)

    def sqlite_query(
        database: str,
        sql: str,
        ctx: CallContext,
        parameters: Parameters = None,
        write: bool = False,
    ) -> str:
        """Run one SQL statement on a SQLite database file.

        Values belong into `parameters`: a list for `?`, an object for `:name`. Set `write` for
        whatever changes the database; it is then a transaction of its own. An empty file is an
        empty database. Rows are shown as JSON, the names of the columns first.
        """
        query = _Query(sql, [] if parameters is None else parameters, write, ctx.token)
        return query.run(_database(folder, database))

    return Tool("sqlite_query", sqlite_query, resource_keys=_claims(folder), timeout=timeout)


def _claims(folder: Folder) -> Callable[[Mapping[str, Any]], Iterable[Claim]]:
    def claims(arguments: Mapping[str, Any]) -> Iterable[Claim]:
        mode = write if arguments["write"] else read
        # SQLite keeps its files beside the real database, wherever a link to it is.
        real = os.path.realpath(folder.key_path(arguments["database"]))
        return [mode("file", real + beside) for beside in BESIDE]

    return claims


def _database(folder: Folder, path: str) -> Path:
    real = folder.resolve(path)
    try:
        mode = real.stat().st_mode
    except FileNotFoundError:
        raise ToolError(f"no database {preview(path)}; to begin one, make an empty file") from None
    except OSError as error:
        raise ToolError(f"cannot open {preview(path)}: {error.strerror}") from error
    if not stat.S_ISREG(mode):  # a pipe would never be opened
        raise ToolError(f"{preview(path)} is not a regular file")
    return real


class _Query:
    """One statement of the model's, and how it is run."""

    def __init__(
        self, sql: str, parameters: list[Value] | dict[str, Value], writes: bool, token: CancelToken
    ) -> None:
        self._sql = sql
        self._parameters = parameters
        self._writes = writes
        self._token = token
        self._authorizer = Authorizer()

    def run(self, database: Path) -> str:
        """Return what it gave, for the model. Raises `ToolError`."""
        try:
            with self._connected(database) as connection:
                self._patiently(
                    lambda: connection.execute("BEGIN IMMEDIATE" if self._writes else "BEGIN")
                )
                connection.set_authorizer(self._authorizer)
                report = self._executed(connection)
                connection.set_authorizer(None)
                self._token.check()
                self._patiently(connection.commit)
                return report
        except (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError) as error:
            self._token.check()  # an interrupted statement is no error of the model's
            raise self._refusal(error) from error

    @contextlib.contextmanager
    def _connected(self, database: Path) -> Iterator[sqlite3.Connection]:
        """Open the database; whatever is not committed in the end is rolled back."""
        mode = "rw" if self._writes else "ro"
        address = f"file:{quote(os.fsencode(database))}?mode={mode}"
        connection = sqlite3.connect(address, uri=True, timeout=LOCK_WAIT, isolation_level=None)
        with contextlib.closing(connection):
            _set_up(connection, database, writes=self._writes)
            connection.set_progress_handler(lambda: self._token.cancelled, STEPS)
            forget = self._token.on_cancel(lambda _: _interrupt(connection))
            try:
                yield connection
            finally:
                forget()

    def _executed(self, connection: sqlite3.Connection) -> str:
        before = connection.total_changes
        with contextlib.closing(connection.cursor()) as cursor:
            self._patiently(lambda: cursor.execute(self._sql, self._parameters))
            lines = _rows(cursor) if cursor.description else []
        if self._writes:
            lines.append(f"[{connection.total_changes - before:,} rows changed]")
        return "\n".join(lines) or "(nothing to show)"

    def _patiently(self, action: Callable[[], T]) -> T:
        """Do it once nobody else holds the lock it needs, or raise after `LOCK_TRIES`."""
        for left in reversed(range(LOCK_TRIES)):
            self._token.check()
            try:
                return action()
            except sqlite3.OperationalError as error:
                if not left or not _is_busy(error):
                    raise
        raise AssertionError("the last try returns or raises")

    def _refusal(self, error: Exception) -> ToolError:
        if self._authorizer.refused is not None:
            return ToolError(self._authorizer.refused)
        if _is_busy(error):
            waited = LOCK_TRIES * LOCK_WAIT
            return ToolError(
                f"another program held a lock on the database for {waited:g} s; nothing was done",
                retryable=True,
            )
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
            return ToolError(f"{error}; if the change is meant, set write=true")
        return ToolError(f"{error}")


def _set_up(connection: sqlite3.Connection, database: Path, *, writes: bool) -> None:
    for limit, value in LIMITS.items():
        connection.setlimit(limit, value)
    connection.text_factory = os.fsdecode
    connection.execute("PRAGMA trusted_schema = OFF")  # the file may be a stranger's
    if not writes:
        connection.execute("PRAGMA query_only = ON")  # temporary tables included
    opened = connection.execute("PRAGMA database_list").fetchone()[2]
    if opened != str(database):
        raise ToolError("the database was replaced by a link meanwhile", retryable=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")


def _interrupt(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.ProgrammingError):  # it has been closed meanwhile
        connection.interrupt()


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY


def _rows(cursor: sqlite3.Cursor) -> list[str]:
    """Return the rows as JSON, the names of the columns first, and a note if there are more."""
    lines = [_as_json([column[0] for column in cursor.description])]
    size = 0
    for count, row in enumerate(cursor):
        line = _as_json([_shown(value) for value in row])
        size += len(line)
        if count == ROW_LIMIT or size > OUTPUT_LIMIT:
            lines.append(f"[more than {count:,} rows; ask for fewer rows or columns, or page]")
            break
        lines.append(line)
    return lines


def _as_json(values: list[object]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _shown(value: object) -> object:
    if isinstance(value, bytes):
        more = "…" if len(value) > CELL_LIMIT else ""
        return f"blob of {len(value):,} bytes: {value[:CELL_LIMIT].hex()}{more}"
    if isinstance(value, str) and len(value) > CELL_LIMIT:
        return f"{value[:CELL_LIMIT]}… ({len(value):,} characters)"
    return value
