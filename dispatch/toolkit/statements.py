"""What a model's SQL may do: asked by SQLite itself while it compiles a statement.

Pure, and knows no connection. Invariants: nothing reaches another file than the database (no
ATTACH, so no VACUUM INTO either; no extension); no statement ends or begins a transaction; no
PRAGMA but those that only tell. Whether anything may be changed is not decided here: a database
that is opened read-only cannot be.
"""

from __future__ import annotations

import sqlite3

TAKING_PRAGMAS = frozenset(
    {
        *("foreign_key_check", "foreign_key_list", "index_info", "index_list", "index_xinfo"),
        *("integrity_check", "quick_check", "table_info", "table_list", "table_xinfo"),
    }
)
"""Those whose argument is what to tell about; with any other it would be a new setting."""

TELLING_PRAGMAS = TAKING_PRAGMAS | {
    *("application_id", "collation_list", "compile_options", "data_version", "encoding"),
    "freelist_count",
    *("function_list", "journal_mode", "module_list", "page_count", "page_size", "pragma_list"),
    *("schema_version", "user_version"),
}

FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer"})


class Authorizer:
    """SQLite's authorizer for one statement; `refused` says what it would not allow, if anything.

    See https://www.sqlite.org/c3ref/set_authorizer.html.
    """

    def __init__(self) -> None:
        self.refused: str | None = None

    def __call__(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Answer SQLite. An exception here would be a refusal too."""
        reason = _reason(action, first or "", second)
        if reason is None:
            return sqlite3.SQLITE_OK
        self.refused = self.refused or reason
        return sqlite3.SQLITE_DENY


def _reason(action: int, first: str, second: str | None) -> str | None:
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return "one call reaches one database: ATTACH, DETACH and VACUUM are refused"
    if action in (sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT):
        return "every call is a transaction of its own: BEGIN, COMMIT and the like are refused"
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FORBIDDEN_FUNCTIONS:
        return f"the function {second} is refused"
    if action == sqlite3.SQLITE_PRAGMA:
        return _pragma_reason(first.lower(), second)
    return None


def _pragma_reason(name: str, argument: str | None) -> str | None:
    if name not in TELLING_PRAGMAS:
        return f"PRAGMA {name} is refused; allowed are: {', '.join(sorted(TELLING_PRAGMAS))}"
    if argument is not None and name not in TAKING_PRAGMAS:
        return f"PRAGMA {name} can be read and not set"
    return None
