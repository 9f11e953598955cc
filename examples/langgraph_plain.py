"""An agent of LangGraph with its own ToolNode: a turn of eight calls, two of them edit one file."""

import asyncio
import time
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

FILES: dict[str, str] = {}
SLOW = 0.4
ENDED: list[str] = []


@tool
async def edit_file(path: str, old: str, new: str) -> str:
    """Replace a text in a file: read it, wait for the disk, write it back."""
    text = FILES[path]
    await asyncio.sleep(0.02)
    FILES[path] = text.replace(old, new)
    ENDED.append("edit")
    return f"{old} is now {new}"


@tool
async def search(query: str) -> str:
    """Search the web."""
    await asyncio.sleep(SLOW if query == "slow" else 0.01)
    ENDED.append(query)
    return f"found {query}"


@tool
async def run_tests() -> str:
    """Run the tests, which fail."""
    await asyncio.sleep(0.05)
    ENDED.append("tests")
    raise RuntimeError("2 tests failed")


TOOLS = [edit_file, search, run_tests]
CALLS = [
    ("search", {"query": "slow"}),
    ("edit_file", {"path": "a.txt", "old": "one", "new": "ONE"}),
    ("edit_file", {"path": "a.txt", "old": "two", "new": "TWO"}),
    ("run_tests", {}),
    *(("search", {"query": query}) for query in "abcd"),
]
TURN = [{"name": name, "args": args, "id": f"call{i}"} for i, (name, args) in enumerate(CALLS)]


def agent(tools: ToolNode) -> Any:
    """A model that asks for the eight calls and then stops, and the node that runs them."""
    model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=TURN), AIMessage("done")]))

    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": model.invoke(state["messages"])})
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile()


async def show(tools: ToolNode) -> None:
    """Run the agent, and say what came of the turn."""
    FILES["a.txt"] = "one two"
    began, error, state = time.perf_counter(), "", {"messages": []}
    try:
        state = await agent(tools).ainvoke(state)
    except RuntimeError as raised:
        error = f"the run ended with {raised!r}"
    seconds = time.perf_counter() - began
    answers = [one for one in state["messages"] if isinstance(one, ToolMessage)]
    text = FILES["a.txt"]
    by_then = len(ENDED)
    await asyncio.sleep(2 * SLOW)
    print("answered:", *(f"{one.tool_call_id} {one.status}," for one in answers), error or "all")
    print(f"a.txt:    {text!r}, {'both edits' if text == 'ONE TWO' else 'an edit is lost'}")
    print(f"tools that went on after the run: {ENDED[by_then:]}; it took {seconds:.2f} s")


if __name__ == "__main__":
    print("ToolNode, errors handled")
    asyncio.run(show(ToolNode(TOOLS, handle_tool_errors=True)))
    print("ToolNode as it is by default")
    asyncio.run(show(ToolNode(TOOLS)))
