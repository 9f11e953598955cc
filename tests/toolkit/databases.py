"""Asking the database `d` of a bench."""

import contextlib
import sqlite3
from typing import Any

from tests.toolkit.bench import Bench


def execute(bench: Bench, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(bench.root / "d")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def query(bench: Bench, sql: str, *parameters: Any, **more: Any) -> str:
    arguments = {"database": "d", "parameters": list(parameters), **more}
    return bench.use("sqlite_query", sql=sql, **arguments)


def refusal(bench: Bench, sql: str, **more: Any) -> str:
    return bench.refusal("sqlite_query", sql=sql, **{"database": "d", **more})


def rows(bench: Bench) -> str:
    return query(bench, "SELECT * FROM t")


ROWS = '["a","b"]\n[1,"one"]\n[2,"two"]'
