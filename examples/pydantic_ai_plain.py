"""One turn of eight calls through pydantic-ai alone: two edits of one file, one slow, one fails.

`pydantic_ai_dispatch.py` is the same agent with dispatch. The model is scripted, so no key is
needed: python examples/pydantic_ai_plain.py
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    capture_run_messages,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

FILES = {"notes.txt": "alpha beta"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("edit", {"path": "notes.txt", "old": "alpha", "new": "ALPHA"}),
    ("edit", {"path": "notes.txt", "old": "beta", "new": "BETA"}),
    ("search", {"text": "slow", "seconds": 0.5}),
    ("search", {"text": "one", "seconds": 0.02}),
    ("publish", {"path": "notes.txt"}),
    ("search", {"text": "two", "seconds": 0.02}),
    ("read", {"path": "notes.txt"}),
    ("search", {"text": "three", "seconds": 0.02}),
]


async def edit(path: str, old: str, new: str) -> str:
    """Replace the text `old` by `new` in a file: read, change, write."""
    text = FILES[path]
    await asyncio.sleep(0.05)
    FILES[path] = text.replace(old, new)
    return f"{old} is {new} now"


async def read(path: str) -> str:
    """Read a file."""
    return FILES[path]


async def search(text: str, seconds: float) -> str:
    """Search the web."""
    await asyncio.sleep(seconds)
    return f"found {text}"


async def publish(path: str) -> str:
    """Publish a file."""
    await asyncio.sleep(0.2)
    raise ConnectionError("the mirror is down")


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for the eight calls at once, and then be done."""
    if any(isinstance(message, ModelResponse) for message in messages):
        return ModelResponse([TextPart("done")])
    return ModelResponse([ToolCallPart(name, args, f"{n}") for n, (name, args) in enumerate(CALLS)])


async def show(agent: Agent[Any, str]) -> None:
    """Run the agent once, and print what came of the eight calls."""
    started = time.monotonic()
    with capture_run_messages() as messages:
        try:
            print("the model's last words:", (await agent.run("go")).output)
        except Exception as error:  # noqa: BLE001 - whatever ends the run is shown
            print(f"the run ended with {type(error).__name__}: {error}")
    report(messages, time.monotonic() - started)


def report(messages: Sequence[ModelMessage], seconds: float) -> None:
    parts = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    for part in parts:
        told = str(part.content).splitlines()[0]
        print(f"  {part.tool_call_id} {part.tool_name:8}{part.outcome:9}{told}")
    print(f"answered: {len(parts)} of {len(CALLS)} calls, in {seconds:.2f} s")
    lost = "" if FILES["notes.txt"] == "ALPHA BETA" else ": an edit is lost"
    print(f"notes.txt: {FILES['notes.txt']}{lost}")


if __name__ == "__main__":
    asyncio.run(show(Agent(FunctionModel(model), tools=[edit, read, search, publish])))
