from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dispatch import Dispatcher, ToolCall, plan, read, write
from dispatch.errors import ToolError
from dispatch.runtime.cancel import CancelToken
from dispatch.toolkit import sqlite, sqlite_tool
from tests.toolkit.bench import Bench
from tests.toolkit.databases import ROWS, execute, query, refusal, rows


@pytest.mark.parametrize(
    ("sql", "parameters", "expected"),
    [
        ("SELECT * FROM t ORDER BY a", None, ROWS),
        ("SELECT b FROM t WHERE a = ?", [2], '["b"]\n["two"]'),
        ("SELECT b FROM t WHERE a = :a", {"a": 1}, '["b"]\n["one"]'),
        ("SELECT NULL, 'null', 1.5, 'é\n', x'00ff' AS x", [], None),
        ("SELECT a FROM t WHERE 0", None, '["a"]'),
        ("PRAGMA table_info(t)", None, None),
        ("SELECT name FROM pragma_table_info('t')", None, '["name"]\n["a"]\n["b"]'),
        ("-- nothing", None, "(nothing to show)"),
        ("SELECT CAST(x'61ff' AS TEXT) AS odd", None, '["odd"]\n["a\ufffd"]'),
    ],
    ids=str,
)
def test_rows_are_shown_as_json(
    data: Bench, sql: str, parameters: Any, expected: str | None
) -> None:
    """The names of the columns come first; NULL, text and blobs can be told apart."""
    shown = query(data, sql, parameters=parameters)
    if expected is not None:
        assert expected == shown
    if "AS x" in sql:
        assert '[null,"null",1.5,"é\\n","blob of 2 bytes: 00ff"]' == shown.split("\n")[1]


def test_a_change_needs_write_and_says_how_many_rows(data: Bench) -> None:
    """What was changed is committed; rows of RETURNING are shown with the count."""
    assert "[1 rows changed]" == query(data, "INSERT INTO t VALUES (?, ?)", 3, None, write=True)
    returned = query(data, "UPDATE t SET b = a WHERE a > 1 RETURNING a", write=True)
    assert '["a"]\n[2]\n[3]\n[2 rows changed]' == returned
    assert '["a","b"]\n[1,"one"]\n[2,2]\n[3,3]' == rows(data)


def test_an_empty_file_is_an_empty_database(data: Bench) -> None:
    """A database begins as an empty file, made with any tool."""
    query(data, "CREATE TABLE made (a)", database="empty", write=True)
    assert '["name"]\n["made"]' == query(data, "SELECT name FROM sqlite_schema", database="empty")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (3, 3)",
        "/* SELECT */ DELETE FROM t",
        "WITH x AS (SELECT 1) INSERT INTO t SELECT 1, 1 FROM x",
        "WITH x AS (SELECT 1) UPDATE t SET a = 0 RETURNING a",
        "REPLACE INTO t VALUES (1, 1)",
        "CREATE TABLE u (a)",
        "CREATE TEMP TABLE u (a)",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN c",
        "CREATE INDEX i ON t (a)",
        "ANALYZE",
        "PRAGMA user_version = 7",
        "PRAGMA journal_mode = WAL",
        "PRAGMA query_only = OFF",
        "PRAGMA incremental_vacuum",
        "VACUUM",
        "VACUUM INTO 'copy'",
        "ATTACH 'copy' AS copy",
    ],
)
def test_without_write_nothing_can_be_changed(data: Bench, sql: str) -> None:
    """The claim to read only is true whatever the statement looks like: not a byte differs."""
    before = {path.name: path.read_bytes() for path in data.root.iterdir() if path.is_file()}
    refusal(data, sql)
    assert before == {
        path.name: path.read_bytes() for path in data.root.iterdir() if path.is_file()
    }


@pytest.mark.parametrize("writes", [False, True], ids=["read", "write"])
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ATTACH 'd2' AS d2", "one call reaches one database"),
        ("ATTACH 'file:/tmp/d2?mode=rwc' AS d2", "one call reaches one database"),
        ("DETACH main", "one call reaches one database"),
        ("VACUUM INTO 'd2'", "cannot VACUUM"),
        ("VACUUM", "cannot VACUUM"),
        ("BEGIN", "every call is a transaction of its own"),
        ("COMMIT", "every call is a transaction of its own"),
        ("ROLLBACK", "every call is a transaction of its own"),
        ("SAVEPOINT s", "every call is a transaction of its own"),
        ("SELECT load_extension('d2')", "the function load_extension is refused"),
        ("PRAGMA writable_schema = ON", "PRAGMA writable_schema is refused; allowed are: "),
        ("PRAGMA main.writable_schema(1)", "PRAGMA writable_schema is refused"),
        ("PRAGMA query_only = OFF", "PRAGMA query_only is refused"),
        ("PRAGMA temp_store_directory = '/'", "PRAGMA temp_store_directory is refused"),
        ("PRAGMA journal_mode = OFF", "PRAGMA journal_mode can be read and not set"),
        ("SELECT 1; DELETE FROM t", "You can only execute one statement at a time."),
        ("SELECT", "incomplete input"),
        ("SELECT * FROM absent", "no such table: absent"),
        ("SELECT ?", "Incorrect number of bindings supplied."),
        ("SELECT 'a\0b'", "the query contains a null character"),
        ("SELECT '\ud800'", "'utf-8' codec can't encode"),
        ("SELECT '" + "a" * 100_000 + "'", "query string is too large"),
        ("SELECT zeroblob(1000000000)", "string or blob too big"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_what_a_statement_may_not_do_is_refused(
    data: Bench, sql: str, expected: str, writes: bool
) -> None:
    """With and without `write`, the refusal names the fault, and no file is made."""
    before = data.names()
    assert refusal(data, sql, write=writes).startswith(expected)
    assert (before, ROWS) == (data.names(), rows(data))


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("SELECT load_extension('x')", "unsafe use of load_extension()"),
        ("SELECT * FROM pragma_page_size", 'unsafe use of virtual table "pragma_page_size"'),
    ],
)
def test_a_schema_cannot_reach_further_than_a_statement(
    data: Bench, view: str, expected: str
) -> None:
    """A view or trigger of the file, which may be a stranger's, is not trusted."""
    execute(data, f"CREATE VIEW v AS {view}")
    assert expected == refusal(data, "SELECT * FROM v")


def test_full_text_search_works(data: Bench) -> None:
    """A virtual table of SQLite's own is a table like any other."""
    query(data, "CREATE VIRTUAL TABLE f USING fts5(a)", write=True)
    query(data, "INSERT INTO f VALUES ('some words')", write=True)
    assert '["a"]\n["some words"]' == query(data, "SELECT a FROM f WHERE f MATCH 'words'")


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        ("out", "'out' leads out of"),
        ("../outside", "'../outside' leads out of"),
        ("/etc/passwd", "'/etc/passwd' leads out of"),
        ("file:d?mode=rw", "no database 'file:d?mode=rw'; to begin one, make an empty file"),
        ("file:../outside", "no database"),
        ("d?mode=rwc", "no database"),
        (":memory:", "no database ':memory:'"),
        ("d/x", "cannot open 'd/x': Not a directory"),
        ("", "the path is empty"),
        (".", "'.' is not a regular file"),
        ("pipe", "'pipe' is not a regular file"),
        ("d\0", "'d\\x00' is no path"),
        ("text", "file is not a database"),
    ],
)
@pytest.mark.parametrize("writes", [False, True], ids=["read", "write"])
def test_what_is_no_database_of_the_folder_is_refused(
    data: Bench, database: str, expected: str, writes: bool
) -> None:
    """No spelling of a path leads out of the root or makes a file."""
    before = data.names()
    sql = "SELECT count(*) FROM t"
    assert refusal(data, sql, database=database, write=writes).startswith(expected)
    assert before == data.names()


def test_a_name_that_could_be_an_address_is_a_name(data: Bench) -> None:
    """Question marks, escapes and hashes in a name mean the file of that name."""
    odd = data.root / "a?mode=rwc#%41 é"
    odd.write_bytes((data.root / "d").read_bytes())
    assert ROWS == query(data, "SELECT * FROM t", database=odd.name)


def test_a_folder_that_becomes_a_link_is_noticed(data: Bench) -> None:
    """A database that is not where it was checked to be is refused before it is looked into."""
    (data.root / "folder").symlink_to("..")
    replaced = data.root / "folder" / "outside"
    asked = sqlite._Query("SELECT * FROM t", [], False, CancelToken())
    with pytest.raises(ToolError, match="replaced by a link"):
        asked.run(replaced)


def resolved(root: Path, arguments: Mapping[str, Any]) -> set[Any]:
    claims, warning = sqlite_tool(root).claims({"write": False, **arguments})
    assert warning is None
    return {claim for claim in claims if claim.key[0] == "file"}


@pytest.mark.parametrize(("writes", "mode"), [(False, read), (True, write)], ids=["read", "write"])
@pytest.mark.parametrize("name", ["d", "link", "./x/../d"])
def test_the_claim_is_the_database_with_all_its_files(
    data: Bench, name: str, writes: bool, mode: Callable[..., Any]
) -> None:
    """By whatever name, the files beside the real database are claimed as the database is."""
    expected = {mode("file", f"{data.root}/d{end}") for end in ("", "-journal", "-wal", "-shm")}
    assert expected == resolved(data.root, {"database": name, "write": writes})


@pytest.mark.parametrize("name", ["d\0", "a" * 5000, "\ud800", "", "out"])
def test_claims_never_fail(data: Bench, name: str) -> None:
    """A path that will be refused is claimed all the same."""
    assert 4 >= len(resolved(data.root, {"database": name})) > 0


def test_readers_run_together_and_writers_alone(data: Bench) -> None:
    """Two reads of a database form one group, a write comes between; others are not held up."""
    calls = [
        ToolCall(f"{n}", "sqlite_query", {"sql": "", "database": name, "write": writes})
        for n, (name, writes) in enumerate(
            [("d", False), ("link", False), ("d", True), ("empty", True), ("d", False)]
        )
    ]
    planned = plan(calls, [sqlite_tool(data.root)], root=data.root)
    assert ((0, 1, 3), (2,), (4,)) == planned.groups


async def test_a_query_sees_the_change_before_it_and_not_the_one_after(data: Bench) -> None:
    """In one turn, reads and writes of a database keep the order of the model."""
    steps = [("SELECT count(*) FROM t", False), ("DELETE FROM t WHERE a = 1", True)] * 2
    calls = [
        ToolCall(f"{n}", "sqlite_query", {"database": "d", "sql": sql, "write": writes})
        for n, (sql, writes) in enumerate(steps)
    ]
    async with Dispatcher([sqlite_tool(data.root)]) as dispatcher:
        turn = await dispatcher.run(calls)
    shown = [each.content().split("\n")[-1] for each in turn]
    assert ["[2]", "[1 rows changed]", "[1]", "[0 rows changed]"] == shown
