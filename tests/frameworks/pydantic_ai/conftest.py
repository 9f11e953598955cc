"""These tests need pydantic-ai, which has an environment of its own; elsewhere there are none."""

import importlib.util

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("pydantic_ai") else ["test_*.py"]


@pytest.fixture(params=["toolset", "capability"])
def way(request: pytest.FixtureRequest) -> str:
    """How dispatch gets into an agent."""
    return str(request.param)
