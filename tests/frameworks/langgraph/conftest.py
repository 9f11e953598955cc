"""These tests need langgraph and langchain, which have an environment of their own."""

import importlib.util

import pytest

HERE = importlib.util.find_spec("langgraph") and importlib.util.find_spec("langchain")
collect_ignore_glob = [] if HERE else ["test_*.py"]


@pytest.fixture(params=["node", "agent"])
def way(request: pytest.FixtureRequest) -> str:
    """How dispatch gets into a graph."""
    return str(request.param)


@pytest.fixture(params=["plain", "saved"])
def saver(request: pytest.FixtureRequest) -> str:
    """Whether a checkpointer keeps what is done."""
    return str(request.param)
