"""The agent loop of `langgraph_plain.py` with `DispatchToolNode` in place of `ToolNode`."""

import asyncio

from langgraph_plain import TOOLS, show

from dispatch import ToolConcurrency
from dispatch.adapters.langgraph import DispatchToolNode

TOUCHES = {
    "edit_file": ToolConcurrency(writes="file:{path}"),
    "search": ToolConcurrency(safe_parallel=True),
    "run_tests": ToolConcurrency(reads="file:a.txt"),
}

if __name__ == "__main__":
    print("DispatchToolNode, errors handled")
    asyncio.run(show(DispatchToolNode(TOOLS, descriptors=TOUCHES, handle_tool_errors=True)))
    print("DispatchToolNode as it is by default")
    asyncio.run(show(DispatchToolNode(TOOLS, descriptors=TOUCHES)))
