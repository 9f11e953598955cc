import os
import socket
from pathlib import Path
from typing import Any

import pytest

from dispatch.toolkit import sqlite_tool
from tests.toolkit.bench import Bench
from tests.toolkit.databases import execute
from tests.toolkit.server import OTHER, PUBLIC


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    root = tmp_path / "root"
    root.mkdir()
    return Bench(root)


@pytest.fixture
def data(bench: Bench) -> Bench:
    """A folder with a database `d` of one table, and files that are no databases."""
    bench.tools = {"sqlite_query": sqlite_tool(bench.root)}
    execute(bench, "CREATE TABLE t (a, b)", "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    (bench.root / "text").write_text("no database at all\n" * 100)
    (bench.root / "empty").touch()
    os.mkfifo(bench.root / "pipe")
    (bench.root.parent / "outside").write_bytes((bench.root / "d").read_bytes())
    (bench.root / "link").symlink_to("d")
    (bench.root / "out").symlink_to("../outside")
    return bench


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of each name; a list of several is used up from the left, down to the last."""
    known: dict[str, list[str]] = {"example.com": [PUBLIC], "other.example": [OTHER]}

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[Any]:
        addresses = known.get(host, [host])
        address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (each, port)) for each in address.split()]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known
