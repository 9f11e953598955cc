"""What the adapter uses of LangGraph beyond its public names has not changed."""

from __future__ import annotations

import inspect

import pytest
from langgraph.prebuilt import ToolNode


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_parse_input", ["input"]),
        ("_extract_state", ["input", "config"]),
        ("_run_one", ["call", "input_type", "tool_runtime"]),
        ("_arun_one", ["call", "input_type", "tool_runtime"]),
        ("_combine_tool_outputs", ["outputs", "input_type"]),
        ("_execute_tool_sync", ["request", "input_type", "config"]),
        ("_execute_tool_async", ["request", "input_type", "config"]),
        ("_func", ["input", "config", "runtime"]),
        ("_afunc", ["input", "config", "runtime"]),
    ],
)
def test_tool_node_is_built_as_the_adapter_expects(name: str, parameters: list[str]) -> None:
    """What the adapter uses of ToolNode beyond its public methods has not changed."""
    assert ["self", *parameters] == list(inspect.signature(getattr(ToolNode, name)).parameters)
