"""What the package shows and what it keeps out: names, imports, and the purity of its core."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import dispatch

ROOT = Path(__file__).parents[1]
CORE = sorted((ROOT / "dispatch" / "core").glob("*.py"))

NOT_YET = {
    *("AnthropicMessages", "OpenAIChat", "OpenAIResponses", "Gemini", "BedrockConverse"),
}
"""Names of the design that do not work yet, or that live in `dispatch.adapters` alone."""


def test_the_list_of_public_names_is_sorted_and_exact() -> None:
    """`__all__` has each name once, in order, and every one that the package has is in it."""
    assert sorted(set(dispatch.__all__)) == dispatch.__all__
    shown = {
        name
        for name in dir(dispatch)
        if not name.startswith("_") and not isinstance(getattr(dispatch, name), ModuleType)
    }
    assert shown == set(dispatch.__all__)
    assert set() == NOT_YET & set(dir(dispatch))


@pytest.mark.parametrize("name", dispatch.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    """Each has a docstring of its own, and says where it comes from."""
    value = getattr(dispatch, name)
    assert value.__doc__
    assert value.__module__.startswith("dispatch.")


def test_a_star_import_gives_the_public_names() -> None:
    """`from dispatch import *` gives them all, and nothing else."""
    names: dict[str, object] = {}
    exec("from dispatch import *", names)  # noqa: S102 - there is no other way to say it
    names.pop("__builtins__")
    assert sorted(names) == dispatch.__all__


def test_every_public_name_is_in_the_typed_example() -> None:
    """`typing/api.py` imports every one and uses it beyond the import."""
    tree = ast.parse((ROOT / "tests" / "typing" / "api.py").read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "dispatch"
        for alias in node.names
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(dispatch.__all__) == imported
    assert set() == imported - used


def test_imports_go_downward_only() -> None:
    """The contract of `pyproject.toml` is kept."""
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as l; l()"]
    done = subprocess.run([*lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "0 broken" in done.stdout


HEAVY = {
    *("typer", "click", "cyclopts", "rich"),
    *("httpx", "httpx2", "requests", "aiohttp", "urllib3", "http"),
    *("anthropic", "openai", "mcp", "google", "boto3"),
    *("langgraph", "langchain", "langchain_core", "pydantic_ai", "agents", "strands"),
    *("opentelemetry", "psutil", "numpy", "pytest", "hypothesis"),
}
OURS_ON_DEMAND = {"adapters", "cli", "testing", "toolkit"}


def imported_by(statement: str) -> set[str]:
    """The modules in a fresh interpreter after this statement, but for those that it began with."""
    code = (
        f"import sys, json; before = set(sys.modules); {statement};"
        " print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_no_command_line_http_client_or_framework() -> None:
    """`import dispatch` loads nothing that a loop without them would not need."""
    modules = imported_by("from dispatch import *")
    assert "dispatch.runtime.dispatcher" in modules
    assert set() == HEAVY & {module.partition(".")[0] for module in modules}
    ours = {module.split(".")[1] for module in modules if module.startswith("dispatch.")}
    assert set() == OURS_ON_DEMAND & ours


def test_what_runs_the_calls_is_loaded_when_it_is_used() -> None:
    """A module that only declares tools does not load the dispatcher."""
    declaring = imported_by("from dispatch import tool")
    assert set() == {name for name in declaring if name.startswith("dispatch.runtime")}
    assert "dispatch.runtime.dispatcher" in imported_by("import dispatch; dispatch.Dispatcher")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """What is loaded on demand is loaded by its exact name only."""
    with pytest.raises(AttributeError, match="module 'dispatch' has no attribute 'Despatcher'"):
        dispatch.Despatcher  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["adapters", "toolkit", "testing"])
def test_a_part_that_is_loaded_on_demand_loads_no_heavy_module(name: str) -> None:
    """The adapters take what an SDK made without importing it; the tools need only the core."""
    modules = imported_by(f"import dispatch.{name}")
    assert set() == HEAVY & {module.partition(".")[0] for module in modules}


def test_a_heavy_module_would_be_found() -> None:
    """The search itself: the command line does load what the package must not."""
    assert "typer" in imported_by("import dispatch.cli.app")


IMPURE_MODULES = {
    *("asyncio", "anyio", "concurrent", "contextvars", "threading", "multiprocessing", "queue"),
    *("time", "datetime", "random", "secrets", "uuid"),
    *("os", "io", "sys", "pathlib", "tempfile", "shutil", "socket", "subprocess", "signal"),
    *("logging", "structlog", "warnings"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "hash", "id"}
WAITING = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def impurities(source: str) -> Iterator[str]:
    """What a pure module must not have, with its line."""
    for node in ast.walk(ast.parse(source)):
        found: set[str] = set()
        if isinstance(node, WAITING):
            found = {type(node).__name__}
        elif isinstance(node, ast.Import):
            found = {alias.name.partition(".")[0] for alias in node.names} & IMPURE_MODULES
        elif isinstance(node, ast.ImportFrom):
            found = {(node.module or "").partition(".")[0]} & IMPURE_MODULES
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found = {node.func.id} & IMPURE_CALLS
        yield from (f"line {getattr(node, 'lineno', 0)}: {name}" for name in sorted(found))


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_neither_waits_nor_looks_at_the_world(path: Path) -> None:
    """No clock, no chance, no I/O, no thread and no `await`: the same events, the same actions."""
    assert [] == list(impurities(path.read_text()))


def test_an_impurity_would_be_found() -> None:
    """The search itself: every kind of what must not be there is seen, and no more."""
    source = """
import time, json
from os.path import join
from dispatch.claims import Claim
async def wait():
    await join()
    async with x:
        async for y in z: print(open('a'))
"""
    assert [
        "line 2: time",
        "line 3: os",
        "line 5: AsyncFunctionDef",
        "line 6: Await",
        "line 7: AsyncWith",
        "line 8: AsyncFor",
        "line 8: open",
        "line 8: print",
    ] == sorted(impurities(source))
